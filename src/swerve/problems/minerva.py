"""The Minerva set: questions in several parts, and answers that belong to another part than the one asked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from swerve.problems.math import last_boxed

__all__ = ["answer_of_asked_part"]

_PYTHON = re.compile(r"np\.(?=[a-z])")
_POWER_OF_TEN = re.compile(r"\\times\s*10\^(?:\{(-?\d+)\}|(-?\d+))")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_FORM = re.compile(r"\\left|\\right|\\[ ,;]|[\s{}()$\\]")


def answer_of_asked_part(question: str, answers: Iterable[str], solution: str) -> str | None:
    r"""Return what the solution's last box holds if the answers given do not belong to what is asked, else None.

    A question that goes on from an earlier part quotes that part with its boxed answer. In the file of the project rLLM
    33 of the 70 such questions have the earlier part's answer as gold. Other questions are not looked at: there an
    answer that differs from the box is a correction of it.

    >>> question = r"Part 0: Mass? Solution: $m = \boxed{2}$. Part 1: Force?"
    >>> answer_of_asked_part(question, ["2"], r"$F = \boxed{6}$")
    '6'
    >>> answer_of_asked_part(question, ["6"], r"$F = \boxed{6}$")
    """
    asked = last_boxed(solution)
    if not asked or not last_boxed(question) or _written(asked) in map(_written, answers):
        return None
    return _PYTHON.sub(r"\\", asked)


def _written(answer: str) -> str:
    r"""Return what `4.4 \times 10^{7}` and `4.4e7`, `\frac{x}{2}` and `x / 2` share."""
    text = _POWER_OF_TEN.sub(lambda found: f"e{found[1] or found[2]}", _PYTHON.sub("", answer))
    return _FORM.sub("", _FRACTION.sub(r"\1/\2", text))
