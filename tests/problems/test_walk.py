from __future__ import annotations

import random

import pytest

from swerve.problems.family import is_heldout
from swerve.problems.walk import Walk, find_marks, fixed, slot, write_solution, write_trace
from swerve.types import StepMark
from tests.cases import each


def counting() -> Walk:
    """`1 then 2`: the second number is one more than the first that stands there."""
    first = yield slot("1", ("1", "2", "3"), misread="2")
    yield fixed("then")
    yield slot(str(int(first) + 1), ("2", "3", "4"), slips=True)


def test_the_solution_has_the_expected_words() -> None:
    assert write_solution(counting()) == "1 then 2"


@pytest.mark.parametrize(
    ("mistake_rate", "slip_rate", "texts"),
    [(0.0, 0.0, {"1 then 2"}), (1.0, 0.0, {"2 then 3"}), (0.0, 1.0, {"1 then 3", "1 then 4"})],
)
def test_mistakes_are_followed(mistake_rate: float, slip_rate: float, texts: set[str]) -> None:
    rng = random.Random(0)
    assert {write_trace(counting(), rng, mistake_rate=mistake_rate, slip_rate=slip_rate) for _ in range(50)} == texts


@each(
    ("text", "marks"),
    [
        ("1 then 2", []),
        ("  1\n then\t2 ", []),
        ("2 then 3", [(0, 1, "1")]),
        ("2 then 2", [(0, 1, "1"), (7, 8, "3")]),
        ("7 then 9", [(0, 1, "1")]),
        ("1 2 then", [(2, 3, "then")]),
        ("1 then 2 then 3", [(9, 13, "")]),
        ("1 the", [(2, 5, "then")]),
        ("", []),
    ],
)
def test_marks(text: str, marks: list[tuple[int, int, str]]) -> None:
    assert find_marks(counting(), text) == [StepMark(start=a, end=b, expected=word) for a, b, word in marks]


def test_about_one_key_in_six_is_held_out() -> None:
    assert sum(is_heldout(str(key)) for key in range(6000)) / 6000 == pytest.approx(1 / 6, abs=0.02)
