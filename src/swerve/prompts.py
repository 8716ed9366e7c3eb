"""Turn problems into token ids; the only place that calls a chat template."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.config import Config
from swerve.errors import ConfigError
from swerve.types import Message, Problem, Prompt

_NUM_MEASURED = 256


def encode_prompts(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[Prompt]:
    """Return each problem's messages and prefix as token ids, by the tokenizer's chat template where it has one.

    A chat template that refuses a system message is given that message's text at the beginning of the user's. Without a
    chat template the messages' texts and the prefix are joined by empty lines.

    Raises:
        ConfigError: the tokenizer has no token for a word of the question, or its chat template refuses the messages.
    """
    return [Prompt(problem=problem, token_ids=tuple(_encode_question(tokenizer, problem))) for problem in problems]


def _encode_question(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> list[int]:
    messages = problem.messages or (("user", problem.question),)
    if tokenizer.chat_template:
        begun = tokenizer(problem.prefix, add_special_tokens=False)["input_ids"] if problem.prefix else []
        return [*_through_template(tokenizer, messages, problem), *begun]
    text = "\n\n".join(content for _, content in messages)
    if problem.prefix:
        text = f"{text}\n\n{problem.prefix}"
    return _known(tokenizer, list(tokenizer(text)["input_ids"]), problem)


def _through_template(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], problem: Problem) -> list[int]:
    """Return the ids of messages; where the template refuses a system message, its text begins the user's message."""
    try:
        return _rendered(tokenizer, messages)
    except TemplateError as error:
        if [role for role, _ in messages[:2]] == ["system", "user"]:
            (_, system), (_, user), *others = messages
            return _through_template(tokenizer, [("user", f"{system}\n\n{user}"), *others], problem)
        raise ConfigError(
            f"the tokenizer's chat template refuses the messages of problem {problem.id!r} "
            f"({', '.join(role for role, _ in messages)}): {error}; give messages that it takes "
            "(task.prompt.system='' leaves the system message out), or a tokenizer with another template"
        ) from None


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    rendered: Any = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return list(rendered["input_ids"])


def encode_completion(tokenizer: PreTrainedTokenizerBase, problem: Problem, text: str) -> tuple[int, ...]:
    """Return a supervised completion's token ids, ended by the end-of-sequence token.

    Raises:
        ConfigError: the tokenizer has no token for a word of the text, or none that ends a sequence.
    """
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            "the model's tokenizer has no end-of-sequence token; set eos_token in its tokenizer_config.json"
        )
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return (*_known(tokenizer, ids, problem), tokenizer.eos_token_id)


def check_solution_lengths(
    config: Config,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    *,
    checks_solutions: bool = True,
) -> None:
    """Check that the longest problems and their solutions fit the length limit and the model's positions.

    Args:
        config: the run's.
        model: that reads them.
        tokenizer: the model's.
        problems: those with the most characters are looked at.
        checks_solutions: whether a completion must be about as long as the written solution to be right.

    Raises:
        ConfigError: one does not, so that no completion could ever be right, or the model has too few positions.
    """
    limit = getattr(model.config, "max_position_embeddings", None)
    longest = heapq.nlargest(_NUM_MEASURED, problems, key=lambda problem: len(problem.question))
    for prompt in encode_prompts(tokenizer, longest):
        problem = prompt.problem
        if limit is not None and len(prompt.token_ids) + config.max_new_tokens > limit:
            raise ConfigError(
                f"problem {problem.id!r} has {len(prompt.token_ids)} tokens and max_new_tokens is "
                f"{config.max_new_tokens}, together more than the model's {limit} positions; "
                "lower max_new_tokens, leave long questions out, or take a model with more positions "
                "(model.max_positions of the tiny one)"
            )
        if problem.solution is None or not checks_solutions:
            continue
        needed = len(encode_completion(tokenizer, problem, problem.solution))
        if needed > config.max_new_tokens:
            raise ConfigError(
                f"the right solution of problem {problem.id!r} has {needed} tokens, more than "
                f"max_new_tokens={config.max_new_tokens}; raise max_new_tokens"
            )


def _known(tokenizer: PreTrainedTokenizerBase, ids: list[int], problem: Problem) -> list[int]:
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"use a model whose vocabulary covers the task '{problem.family}', or model=tiny"
        )
    return ids
