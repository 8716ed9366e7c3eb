"""The verdicts of the library, right and wrong ones, under the limits of the graders' processes."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.grading.grade_math import grade_math_verify
from swerve.rewards import grade
from swerve.types import Problem


def problem(gold: str, **changes: Any) -> Problem:
    return Problem(id="p", family="table", question="?", answer=gold, grader="math_verify", **changes)


@pytest.mark.parametrize(
    ("gold", "text", "value"),
    [
        (r"\frac{1}{2}", r"\boxed{0.5}", 1.0),
        (r"\frac{14}{3}", r"\boxed{\frac{14}{5}}", 0.0),
        ("5", r"\boxed{7=5}", 1.0),  # wrong, and as the library has it
    ],
)
def test_the_verdict_is_that_of_the_library(gold: str, text: str, value: float) -> None:
    assert grade_math_verify(problem(gold), text).value == value


def test_alternatives_and_extraction_are_as_for_math() -> None:
    several = problem("3", alternatives=("4",), grading={"extraction": ["hash"]})
    assert grade_math_verify(several, "#### 4").value == 1.0
    assert grade_math_verify(several, r"\boxed{4}").status == "unparsed"


@pytest.mark.parametrize(
    ("answer", "detail"), [("9^{9^{9^{9}}}", "exponents of exponents"), ("9" * 3000, "digits of a number")]
)
def test_what_is_too_large_is_a_limit(answer: str, detail: str) -> None:
    reward = grade_math_verify(problem("1"), f"\\boxed{{{answer}}}")
    assert (reward.status, reward.value) == ("timeout", None)
    assert detail in str(reward.detail)


def test_it_runs_in_a_worker() -> None:
    reward = grade(problem(r"\sqrt{8}"), r"\boxed{2\sqrt{2}}")
    assert (reward.value, reward.status) == (1.0, "graded")
