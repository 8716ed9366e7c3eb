"""Rewards: what a completion is worth, verified by a program. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from swerve.grading.answers import final_text
from swerve.grading.text import given_beginning, grade_final_answer
from swerve.rewards.graders import GRADERS, entry_for
from swerve.rewards.sandbox.confinement import GraderLimits
from swerve.rewards.sandbox.wire import too_long
from swerve.types import Problem, Reward

__all__ = ["grade", "grade_all", "grade_final_answer", "known_graders"]

_MAX_CHARS = GraderLimits().max_chars
_MAX_CHARS_HERE = 50_000
"""Of a text and its gold answers that are judged in this process: 50 ms of CPU time at most."""


def known_graders() -> tuple[str, ...]:
    """Return the names of the graders; a family's problems are judged by the grader of its name.

    >>> "math" in known_graders()
    True
    """
    return tuple(sorted(GRADERS))


def grade(problem: Problem, text: str) -> Reward:
    """Return the reward of a completion by the problem's grader; never raises on any text.

    Raises:
        ValueError: there is no grader of the name that the problem or its family gives.

    >>> grade(Problem(id="p", family="addition", question="1 2 + 3 4 =", answer="0 4 6"), "answer 0 4 7").value
    0.0
    """
    return grade_all([(problem, text)])[0]


def grade_all(pairs: Sequence[tuple[Problem, str]]) -> list[Reward]:
    """Return the reward of each (problem, completion), in their order; isolated graders work side by side.

    A text longer than graders look at (`GraderLimits.max_chars`) has the status `timeout`, whatever the grader; one of
    more than 50,000 characters, its gold answers included, is judged in a worker process, also by graders that are not
    isolated. A text whose prompt began the thinking is judged with that beginning, so that one that never ends its
    thinking has no answer; a Python file of the user's gets what the model wrote.

    Raises:
        ValueError: there is no grader of the name that a problem or its family gives.
    """
    pairs = [(problem, _with_thinking(problem, text)) for problem, text in pairs]
    rewards = [graded_here(problem, text) for problem, text in pairs]
    left = [number for number, reward in enumerate(rewards) if reward is None]
    if left:
        from swerve.rewards.sandbox.pool import shared_pool

        graded = shared_pool().grade_all([pairs[number] for number in left])
        for number, reward in zip(left, graded, strict=True):
            rewards[number] = reward
    return [reward for reward in rewards if reward is not None]


def _with_thinking(problem: Problem, text: str) -> str:
    given = "" if (problem.grader or problem.family) == "python" else given_beginning(problem, text)
    return f"{given}{text}" if given and final_text(given) is None else text


def graded_here(problem: Problem, text: str) -> Reward | None:
    """Return the reward of a completion if this process can tell it in a few milliseconds; None: a worker has to.

    Raises:
        ValueError: there is no grader of the name that the problem or its family gives.
    """
    entry = entry_for(problem)
    judge = entry.load_quick() if entry.isolated else entry.load()
    if len(text) > _MAX_CHARS:
        return too_long(text, _MAX_CHARS)
    num_chars = len(text) + sum(map(len, (problem.answer, *problem.alternatives)))
    return None if judge is None or num_chars > _MAX_CHARS_HERE else judge(problem, text)
