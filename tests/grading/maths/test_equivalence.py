"""The cases of `equivalence.txt`: what counts as the same answer, kind by kind, half of them near misses."""

from __future__ import annotations

from pathlib import Path

from swerve.grading.grade_math import quick_math
from swerve.grading.maths.equivalence import equivalent
from swerve.grading.maths.limits import LimitReached
from swerve.grading.policies import MathGrading
from swerve.types import Problem
from tests.cases import each

LINES = [line for line in Path(__file__).with_name("equivalence.txt").read_text(encoding="utf-8").splitlines() if line]
ACCEPTED = [line.split(" === ") for line in LINES if " === " in line and not line.startswith("# ")]
REJECTED = [line.split(" =/= ") for line in LINES if " =/= " in line and not line.startswith("# ")]


def quick(gold: str, answer: str) -> float | None:
    problem = Problem(id="p", family="math", question="", answer=gold, grading={"extraction": ["whole"]})
    reward = quick_math(problem, answer)
    return None if reward is None else reward.value


@each(("gold", "answer"), ACCEPTED)
def test_the_same_answer_is_accepted(gold: str, answer: str) -> None:
    assert equivalent(gold, answer, MathGrading())
    assert quick(gold, answer) in (1.0, None)


@each(("gold", "answer"), REJECTED)
def test_another_answer_is_not_accepted(gold: str, answer: str) -> None:
    try:
        accepted = equivalent(gold, answer, MathGrading())
    except LimitReached:
        accepted = False
    assert not accepted
    assert quick(gold, answer) in (0.0, None)
