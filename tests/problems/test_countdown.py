from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swerve.errors import ConfigError
from swerve.problems.countdown import Countdown, CountdownTask
from swerve.rewards import grade
from swerve.types import Problem
from tests.cases import each

TASK = CountdownTask(num_train=200, num_heldout=60)


@pytest.mark.parametrize("use_all", [True, False])
def test_problems_are_distinct_and_solved_by_search_and_by_their_solution(use_all) -> None:
    family = Countdown(TASK.model_copy(update={"use_all": use_all}))
    problems = family.problems("train", seed=1)
    assert problems == family.problems("train", seed=1)
    assert len({(*sorted(problem.metadata["numbers"]), problem.metadata["target"]) for problem in problems}) == 200
    assert {problem.kind for problem in problems} == {"3 numbers", "4 numbers"}
    for problem in problems:
        numbers, target = problem.metadata["numbers"], problem.metadata["target"]
        assert max(numbers) <= 50
        assert 1 <= target <= 200
        assert grade(problem, problem.solution or "").value == 1.0
        assert use_all or target not in numbers


def test_all_four_operations_and_parentheses_occur() -> None:
    answers = " ".join(problem.answer for problem in Countdown(TASK).problems("train", seed=1))
    assert {"+", "-", "*", "/", "("} <= set(answers)


def test_splits_share_no_numbers_with_the_same_target() -> None:
    family = Countdown(CountdownTask(min_numbers=2, max_numbers=2, max_value=20, num_train=300, num_heldout=60))
    keys = [
        {
            (*sorted(problem.metadata["numbers"]), problem.metadata["target"])
            for problem in family.problems(split, seed=seed)
        }
        for split, seed in (("train", 1), ("heldout", 2))
    ]
    assert not keys[0] & keys[1]


def test_too_few_problems() -> None:
    task = CountdownTask(min_numbers=2, max_numbers=2, max_value=3, max_target=5)
    with pytest.raises(ConfigError, match=r"task\.num_train=4000; lower it or raise task\.max_numbers"):
        Countdown(task).problems("train", seed=1)
    with pytest.raises(ValidationError, match=r"min_numbers \(4\) must be at most max_numbers \(3\)"):
        CountdownTask(min_numbers=4, max_numbers=3)


def test_six_numbers_are_found_quickly_enough() -> None:
    task = CountdownTask(min_numbers=6, max_numbers=6, num_heldout=50)
    assert all(len(problem.metadata["numbers"]) == 6 for problem in Countdown(task).problems("heldout", seed=1))


def test_the_spaced_form_has_a_vocabulary() -> None:
    family = Countdown(TASK.model_copy(update={"spaced": True}))
    for problem in family.problems("heldout", seed=1):
        text = f"{problem.question} {problem.solution}"
        assert text == " ".join(text.split())
        assert set(text.split()) <= set(family.words)
        assert grade(problem, problem.solution or "").value == 1.0


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


@each(
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
        ("--(8 + 2) * 3", (0, 0, 0)),
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
