"""Turn problems into token ids; the only place that calls a chat template.

Templates and tokenizers come with a model and can take any time and memory, or end the process: they work in a copy of
it, under the graders' limits. A tokenizer that only looks words up needs none of that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import TemplateError
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.config import Config
from swerve.errors import ConfigError
from swerve.rewards.sandbox.bounded import BoundedCallError, call_each
from swerve.rewards.sandbox.pool import shared_limits
from swerve.types import Message, Problem, Prompt

_NUM_MEASURED = 256
_Item = TypeVar("_Item")


def encode_prompts(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[Prompt]:
    """Return each problem's messages and prefix as token ids, by the tokenizer's chat template where it has one.

    A chat template that refuses a system message is given that message's text at the beginning of the user's. Without a
    chat template the messages' texts and the prefix are joined by empty lines.

    Raises:
        ConfigError: the tokenizer has no token for a word of the question, or its chat template refuses the messages;
            one of the two reaches a limit of time or memory, or fails; a prompt has no tokens.
    """
    try:
        found = _each_bounded(tokenizer, partial(_encode_question, tokenizer), problems)
    except BoundedCallError as error:
        raise _failed(tokenizer, problems[error.number], error) from None
    for problem, ids in zip(problems, found, strict=True):
        if not ids:
            raise ConfigError(
                f"the prompt of problem {problem.id!r} has no tokens by the tokenizer of {_source(tokenizer)}, and a "
                "completion needs a token before it; give text in task.prompt.template, or a model with a begin token "
                "or another chat template"
            )
    return [Prompt(problem=problem, token_ids=tuple(ids)) for problem, ids in zip(problems, found, strict=True)]


def _each_bounded(
    tokenizer: PreTrainedTokenizerBase, function: Callable[[_Item], Any], items: Sequence[_Item]
) -> list[Any]:
    """Return `function(item)` of every item, where the function uses the tokenizer and returns what JSON can hold.

    Raises:
        BoundedCallError: the graders' limits are reached on an item, or the function fails; not for a tokenizer that
            only looks words up.
    """
    if looks_words_up(tokenizer):
        return [function(item) for item in items]
    return call_each(function, items, shared_limits())


def looks_words_up(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer has no template and no normaliser, and its tokens are the words between white space."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return (
        not tokenizer.chat_template
        and backend is not None
        and backend.normalizer is None
        and isinstance(backend.model, WordLevel)
        and isinstance(backend.pre_tokenizer, WhitespaceSplit)
    )


_FIX = "or, if you trust it, raise runtime.grader_cpu_seconds or runtime.grader_memory_mb"


def _failed(tokenizer: PreTrainedTokenizerBase, problem: Problem, error: BoundedCallError) -> ConfigError:
    """Return what is to be said of a problem's prompt, after finding out whether template or tokenizer failed."""
    if tokenizer.chat_template:
        try:
            call_each(partial(_render, tokenizer), [problem.messages or (("user", problem.question),)], shared_limits())
        except BoundedCallError as found:
            folder = Path(tokenizer.name_or_path)
            name = "chat_template.jinja" if (folder / "chat_template.jinja").is_file() else "tokenizer_config.json"
            return ConfigError(
                f"the chat template of {_source(tokenizer)} ({name}) fails on problem {problem.id!r}: {found}; give "
                f"the model another template, {_FIX}"
            )
    return _tokenizer_failed(tokenizer, problem, error)


def _tokenizer_failed(tokenizer: PreTrainedTokenizerBase, problem: Problem, error: BoundedCallError) -> ConfigError:
    return ConfigError(
        f"the tokenizer of {_source(tokenizer)} (tokenizer.json) fails on problem {problem.id!r}: {error}; use another "
        f"model, {_FIX}"
    )


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or "the model"


def _render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> int:
    try:
        return len(str(tokenizer.apply_chat_template(_named(messages), add_generation_prompt=True, tokenize=False)))
    except TemplateError:
        return 0


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
        _named(messages), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(rendered["input_ids"])


def _named(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


def encode_completion(tokenizer: PreTrainedTokenizerBase, problem: Problem, text: str) -> tuple[int, ...]:
    """Return a supervised completion's token ids, ended by the end-of-sequence token.

    Raises:
        ConfigError: the tokenizer has no token for a word of the text, or none that ends a sequence.
    """
    end = end_token(tokenizer)
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return (*_known(tokenizer, ids, problem), end)


def end_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the token that ends a sequence.

    Raises:
        ConfigError: the tokenizer has none.
    """
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            "the model's tokenizer has no end-of-sequence token; set eos_token in its tokenizer_config.json"
        )
    return int(tokenizer.eos_token_id)


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str, place: str) -> list[int]:
    """Return a text's token ids, no special token added; `place` says where it is from.

    Raises:
        ConfigError: the tokenizer has no token for a word of it.
    """
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ConfigError(
            f"the model's tokenizer has no token for a word of {place}; use a model whose vocabulary covers the text"
        )
    return ids


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
    lengths = _solution_lengths(tokenizer, longest) if checks_solutions else [None] * len(longest)
    for prompt, needed in zip(encode_prompts(tokenizer, longest), lengths, strict=True):
        problem = prompt.problem
        if limit is not None and len(prompt.token_ids) + config.max_new_tokens > limit:
            raise ConfigError(
                f"problem {problem.id!r} has {len(prompt.token_ids)} tokens and max_new_tokens is "
                f"{config.max_new_tokens}, together more than the model's {limit} positions; "
                "lower max_new_tokens, leave long questions out, or take a model with more positions "
                "(model.max_positions of the tiny one)"
            )
        if needed is not None and needed > config.max_new_tokens:
            raise ConfigError(
                f"the right solution of problem {problem.id!r} has {needed} tokens, more than "
                f"max_new_tokens={config.max_new_tokens}; raise max_new_tokens"
            )


def _solution_lengths(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[int | None]:
    """Return the number of tokens of each written solution, None for a problem without one."""

    def length(problem: Problem) -> int | None:
        return None if problem.solution is None else len(encode_completion(tokenizer, problem, problem.solution))

    try:
        return _each_bounded(tokenizer, length, problems)
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, problems[error.number], error) from None


def _known(tokenizer: PreTrainedTokenizerBase, ids: list[int], problem: Problem) -> list[int]:
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"use a model whose vocabulary covers the task '{problem.family}', or model=tiny"
        )
    return ids
