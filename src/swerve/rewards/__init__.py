"""Rewards: what a completion is worth, verified by a program. Free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from swerve.rewards.final_answer import grade_final_answer
from swerve.types import Problem, Reward

__all__ = ["grade", "grade_final_answer", "known_families"]

_GRADERS: Mapping[str, Callable[[Problem, str], Reward]] = MappingProxyType(
    {"addition": grade_final_answer, "knights_knaves": grade_final_answer}
)


def known_families() -> tuple[str, ...]:
    """Return the problem families that have a grader.

    >>> known_families()
    ('addition', 'knights_knaves')
    """
    return tuple(sorted(_GRADERS))


def grade(problem: Problem, text: str) -> Reward:
    """Return the reward of a completion by the grader of the problem's family; never raises on any text.

    Raises:
        ValueError: no grader is known for the family.

    >>> grade(Problem(id="p", family="addition", question="1 2 + 3 4 =", answer="0 4 6"), "answer 0 4 7").value
    0.0
    """
    grader = _GRADERS.get(problem.family)
    if grader is None:
        raise ValueError(f"no grader for problem family {problem.family!r}; known: {', '.join(known_families())}")
    return grader(problem, text)
