from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swerve.config import CountdownTask
from swerve.errors import ConfigError
from swerve.grading.arithmetic import parse_arithmetic
from swerve.problems import Countdown
from swerve.problems.countdown import find_expression
from swerve.rewards import grade

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
    for problem in problems[:25]:
        found = find_expression(problem.metadata["numbers"], problem.metadata["target"], use_all=use_all)
        assert found is not None
        assert grade(problem, found).value == 1.0


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


@pytest.mark.parametrize(
    ("numbers", "target", "found"),
    [([3, 3, 8, 8], 24, True), ([1, 1, 1], 24, False), ([5, 5, 5, 1], 24, True), ([2, 2], 5, False)],
)
def test_search_knows_classic_cases(numbers, target, found) -> None:
    assert (find_expression(numbers, target) is not None) == found


def test_search_may_leave_numbers_out() -> None:
    assert find_expression([7, 2, 40], 42, use_all=False) == "2 + 40"
    assert find_expression([7, 2, 40], 42) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 40))
def test_what_search_finds_is_right(numbers, target) -> None:
    found = find_expression(numbers, target)
    if found is not None:
        parsed = parse_arithmetic(found)
        assert (parsed.value, sorted(parsed.numbers)) == (Fraction(target), sorted(numbers))
