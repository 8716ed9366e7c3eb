"""Problems -> token ids: the only place that turns a question into what a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.errors import ConfigError
from swerve.types import Problem, Prompt

__all__ = ["encode_completion", "encode_prompts"]


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
        ConfigError: the tokenizer has no token for a word of the text.
    """
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return (*_known(tokenizer, ids, problem), tokenizer.eos_token_id)


def _known(tokenizer: PreTrainedTokenizerBase, ids: list[int], problem: Problem) -> list[int]:
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"use a model whose vocabulary covers the task '{problem.family}', or model=tiny"
        )
    return ids
