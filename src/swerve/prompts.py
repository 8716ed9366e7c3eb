"""Problems -> token ids: the only place that turns a question into what a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.config import Config
from swerve.errors import ConfigError
from swerve.types import Problem, Prompt

__all__ = ["encode_completion", "encode_prompts", "refuse_long_solutions"]

_NUM_MEASURED = 256


def encode_prompts(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[Prompt]:
    """Return each problem's question as token ids, by the tokenizer's chat template where it has one.

    Raises:
        ConfigError: the tokenizer has no token for a word of the question.
    """
    return [Prompt(problem=problem, token_ids=tuple(_encode_question(tokenizer, problem))) for problem in problems]


def _encode_question(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> list[int]:
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": problem.question}]
        rendered: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(rendered["input_ids"])
    return _known(tokenizer, list(tokenizer(problem.question)["input_ids"]), problem)


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


def refuse_long_solutions(
    config: Config, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> None:
    """Do nothing if the right solutions of the first problems fit the run's length limit and the model's positions.

    Raises:
        ConfigError: one does not, so that no completion could ever be right, or the model has too few positions.
    """
    limit = getattr(model.config, "max_position_embeddings", None)
    for prompt in encode_prompts(tokenizer, problems[:_NUM_MEASURED]):
        problem = prompt.problem
        if limit is not None and len(prompt.token_ids) + config.max_new_tokens > limit:
            raise ConfigError(
                f"problem {problem.id!r} has {len(prompt.token_ids)} tokens and max_new_tokens is "
                f"{config.max_new_tokens}, together more than the model's {limit} positions; "
                "lower max_new_tokens or raise model.max_positions"
            )
        needed = 0 if problem.solution is None else len(encode_completion(tokenizer, problem, problem.solution))
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
