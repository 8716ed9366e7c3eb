"""Prompt formats: their configuration, and their texts around a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from string import Formatter
from types import MappingProxyType
from typing import Literal

from swerve.errors import ConfigError
from swerve.grading.policies import ExtractionForm
from swerve.settings import Model
from swerve.types import Problem

PromptFormat = Literal["plain", "boxed", "step_by_step", "hash", "think_answer"]


class PromptConfig(Model):
    """What the model is given around a question."""

    format: PromptFormat = "plain"
    """plain: the question alone; boxed, step_by_step: asks for reasoning and a `\\boxed{}`; hash: asks for `#### N`;
    think_answer: asks for `<think>` and `<answer>`."""
    system: str | None = None
    """System message; null: the format's own."""
    template: str | None = None
    """User message in which `{question}` stands for the question; null: the format's own."""
    prefix: str | None = None
    """Beginning of the answer, given to the model; null: the format's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTexts:
    """The texts of a format, and how it has answers."""

    system: str = ""
    template: str = "{question}"
    prefix: str = ""
    answer: str = "{}"
    """A completion that states the answer alone."""
    form: ExtractionForm | None = None
    """The form of the answer that it asks for."""


_BOX = "\\boxed{{{}}}"
FORMATS: Mapping[str, FormatTexts] = MappingProxyType(
    {
        "plain": FormatTexts(),
        "boxed": FormatTexts(
            template="{question}\n\nReason step by step and put the final answer within \\boxed{{}}.",
            answer=_BOX,
            form="boxed",
        ),
        "step_by_step": FormatTexts(
            template="{question} Let's think step by step and output the final answer within \\boxed{{}}.",
            answer=_BOX,
            form="boxed",
        ),
        "hash": FormatTexts(
            template="{question}\n\nReason step by step and write the final answer after #### on the last line.",
            answer="#### {}",
            form="hash",
        ),
        "think_answer": FormatTexts(
            system=(
                "You first think about the problem and then give the answer. The reasoning stands within <think> "
                "</think> and the answer within <answer> </answer>, that is: <think> reasoning </think> <answer> "
                "answer </answer>."
            ),
            prefix="<think>",
            answer=" </think> <answer> {} </answer>",
            form="answer_tag",
        ),
    }
)


def with_prompt(problem: Problem, config: PromptConfig) -> Problem:
    """Return the problem with its messages and the beginning of its answer filled in.

    Raises:
        ConfigError: the template has no `{question}`, or braces that are neither doubled nor that.

    >>> problem = Problem(id="p", family="math", question="1 + 1?", answer="2")
    >>> with_prompt(problem, PromptConfig(template="Q: {question}")).messages
    (('user', 'Q: 1 + 1?'),)
    """
    texts = FORMATS[config.format]
    system = texts.system if config.system is None else config.system
    template = texts.template if config.template is None else config.template
    prefix = texts.prefix if config.prefix is None else config.prefix
    user = _filled(template, problem.question)
    if not system and user == problem.question:
        return replace(problem, messages=(), prefix=prefix)
    messages = (("user", user),) if not system else (("system", system), ("user", user))
    return replace(problem, messages=messages, prefix=prefix)


def _filled(template: str, question: str) -> str:
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise _unfit(template, str(error)) from None
    if not any(piece[1] is not None for piece in pieces):
        raise ConfigError(f"prompt.template {template!r} has no {{question}}")
    if any(piece[1:] not in (("question", "", None), (None, None, None)) for piece in pieces):
        raise _unfit(template, "{question} is all that is filled in")
    return "".join(text if field is None else f"{text}{question}" for text, field, _, _ in pieces)


def _unfit(template: str, reason: str) -> ConfigError:
    return ConfigError(
        f"prompt.template {template!r} cannot be filled in ({reason}); write {{question}} where the question stands "
        "and double every other brace"
    )


def stated_solution(answer: str, prompt: PromptConfig) -> str:
    r"""Return a completion that states the answer alone, in the form that the prompt format asks for.

    >>> stated_solution("abba", PromptConfig(format="boxed"))
    '\\boxed{abba}'
    """
    return FORMATS[prompt.format].answer.format(answer)
