from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.config import CountdownTask
from swerve.problems.countdown import Countdown
from swerve.rewards import grade
from swerve.types import Problem

PROBLEM = Problem(
    id="p",
    family="countdown",
    question="?",
    answer="(8 + 2) * 3",
    metadata={"numbers": [2, 3, 8], "target": 30, "use_all": True},
)
SOME = replace(PROBLEM, metadata={"numbers": [2, 3, 8, 5], "target": 30, "use_all": False})
DRAWN = Countdown(CountdownTask(num_train=60)).problems("train", seed=3)


@pytest.mark.parametrize(
    "text",
    [
        "(8 + 2) * 3",
        "3 × (2 + 8)",  # noqa: RUF001 - a sign that people write
        "3 * (8 + 2) = 30",
        "<answer>(8+2)*3</answer>",
        r"\boxed{3 \times (8 + 2) = 30}",
        "<answer>$(8 + 2) \\cdot 3$</answer>",
        "first 8 + 2 = 10\n(8 + 2) * 3 = 30",
    ],
)
def test_right_answers(text) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value, reward.parts) == (1.0, {"expression": 1.0, "numbers": 1.0, "target": 1.0})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("8 + 2 * 3", (1, 1, 0)),
        ("30", (1, 0, 1)),
        ("8 + 22", (1, 0, 1)),
        ("3 * 8 + 3 * 2", (1, 0, 1)),
        ("(8 + 2) * 3 + 0", (1, 0, 1)),
        ("8 + 2", (1, 0, 0)),
        ("(8 + 2) * 3 = 31", (0, 0, 0)),
        ("30 = (8 + 2) * 3", (0, 0, 0)),
        ("(8 + 2) * 3 = 30 = 30", (0, 0, 0)),
        ("-(8 + 2) * -3", (0, 0, 0)),
        ("(8 + 2) * 3.", (0, 0, 0)),
        ("83 - 53", (1, 0, 1)),
        ("(8 + 2) ** 3", (0, 0, 0)),
        ("__import__('os').system('true')", (0, 0, 0)),
        ("I do not know", (0, 0, 0)),
    ],
)
def test_wrong_answers_and_what_is_wrong_with_them(text, parts) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value, reward.status) == (0.0, "graded")
    assert tuple(reward.parts.values()) == parts


def test_some_of_the_numbers_where_that_is_allowed() -> None:
    for text, value in (("(8 + 2) * 3", 1.0), ("5 * 3 * 2", 1.0), ("5 * 3 + 5 * 3", 0.0), ("30", 0.0)):
        assert grade(SOME, text).value == value


def test_a_limit_is_not_a_wrong_answer() -> None:
    for text in ("(" * 100 + "8", "1+" * 2000, "9" * 40):
        reward = grade(PROBLEM, text)
        assert (reward.status, reward.value) == ("timeout", None)
        assert reward.detail


def test_no_answer_is_unparsed_and_a_problem_without_numbers_is_an_error() -> None:
    assert grade(PROBLEM, " \n").status == "unparsed"
    reward = grade(replace(PROBLEM, metadata={"numbers": [1, 2]}), "1 + 2")
    assert reward.status == "error"
    assert "target" in (reward.detail or "")


@given(st.sampled_from(DRAWN), st.integers(0, 2**20))
def test_own_solutions_are_right_and_changed_ones_are_wrong(problem, seed) -> None:
    rng = random.Random(seed)
    assert grade(problem, problem.answer).value == 1.0
    assert grade(problem, problem.answer.replace(" ", "").replace("*", r"\times ")).value == 1.0
    number = rng.choice(problem.metadata["numbers"])
    assert grade(problem, problem.answer.replace(str(number), str(number + 1), 1)).value == 0.0
    assert grade(problem, f"{problem.answer} - 0").value == 0.0
    assert grade(problem, f"({problem.answer}) + 1").value == 0.0
    other = replace(problem, metadata={**problem.metadata, "target": problem.metadata["target"] + 1})
    assert grade(other, problem.answer).value == 0.0


@given(st.text() | st.text(alphabet="238+-*/()= \\boxed{}<answer>$"))
def test_only_arithmetic_with_the_numbers_is_right(text) -> None:
    reward = grade(PROBLEM, text)
    assert reward.status in ("graded", "unparsed", "timeout")
    if reward.value == 1.0:
        assert sorted(digit for digit in (reward.extracted or "").split("=")[0] if digit.isdigit()) == ["2", "3", "8"]
