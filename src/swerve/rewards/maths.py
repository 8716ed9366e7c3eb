"""Graders of mathematics: the answer of a text is compared with the gold answers."""

from __future__ import annotations

import functools
import json

from swerve.config.grading import MathGrading
from swerve.grading.answers import find_answer
from swerve.grading.maths.equivalence import equivalent
from swerve.grading.maths.limits import LimitReached
from swerve.grading.maths.rationals import NeedsNumbers
from swerve.types import Problem, Reward

_LONGEST_TEXT = 4_000_000


def grade_math(problem: Problem, text: str) -> Reward:
    r"""Return 1 if the answer in a text is the gold answer or one of its alternatives, else 0; never raises.

    `problem.grading` holds the policies that differ from `swerve.config.grading.MathGrading`. A text without an answer
    is `unparsed`; an answer past a limit of size is `timeout`, unless it is the gold answer's own text. It may take
    seconds on answers that are made to take long, so it belongs into a worker process that can be killed.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> grade_math(problem, r"<think>...</think> It is \boxed{0.5}.").value
    1.0
    >>> grade_math(problem, r"It is 0.5.").status
    'unparsed'
    """
    reward = _grade(problem, text, numerically=True)
    assert reward is not None
    return reward


def quick_math(problem: Problem, text: str) -> Reward | None:
    r"""Return `grade_math`'s reward where steps of linear time decide, else None; never raises.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> quick_math(problem, r"\boxed{1/3}").value
    0.0
    >>> quick_math(problem, r"\boxed{\sin 30^\circ}") is None
    True
    """
    return _grade(problem, text, numerically=False)


def _grade(problem: Problem, text: str, *, numerically: bool) -> Reward | None:
    if len(text) > _LONGEST_TEXT:
        return Reward(value=None, status="timeout", detail=f"characters of the text: {len(text)} > {_LONGEST_TEXT}")
    policy = _policy(json.dumps(dict(problem.grading), sort_keys=True))
    answer = find_answer(text, policy.extraction, after_thinking=policy.thinking == "after")
    if answer is None:
        return Reward(value=None, status="unparsed")
    try:
        golds = (problem.answer, *problem.alternatives)
        right = any(equivalent(gold, answer, policy, numerically=numerically) for gold in golds)
    except NeedsNumbers:
        return None
    except RecursionError:
        limited = Reward(value=None, status="timeout", extracted=answer, detail="depth of a formula")
        return limited if numerically else None
    except LimitReached as limit:
        return Reward(value=None, status="timeout", extracted=answer, detail=str(limit))
    value = float(right)
    return Reward(value=value, status="graded", parts={"answer": value}, extracted=answer)


@functools.lru_cache(maxsize=64)
def _policy(grading: str) -> MathGrading:
    return MathGrading.model_validate_json(grading)
