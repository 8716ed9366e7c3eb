"""A short answer written in the form that a prompt format asks for."""

from __future__ import annotations

from swerve.config import PromptConfig

__all__ = ["stated_solution"]

_FORMS = {
    "boxed": "\\boxed{{{}}}",
    "step_by_step": "\\boxed{{{}}}",
    "hash": "#### {}",
    "think_answer": " </think> <answer> {} </answer>",
}


def stated_solution(answer: str, prompt: PromptConfig) -> str:
    r"""Return a completion that states the answer alone, in the form that the prompt format asks for.

    >>> stated_solution("abba", PromptConfig(format="boxed"))
    '\\boxed{abba}'
    """
    return _FORMS.get(prompt.format, "{}").format(answer)
