from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.rewards import grade
from swerve.types import Problem

PROBLEM = Problem(id="p", family="arithmetic_sequence", question="8 , 3 : 9 , 4", answer="7 2 6 1")


@pytest.mark.parametrize(
    ("text", "value", "terms"),
    [
        ("7 2 6 1", 1.0, 1.0),
        ("7,2,6,1", 1.0, 1.0),
        (" 7 , 2 , 6 , 1\n", 1.0, 1.0),
        ("7 2 6", 0.0, 0.75),
        ("7 2 6 1 5", 0.0, 1.0),
        ("7 3 6 1", 0.0, 0.25),
        ("2 6 1", 0.0, 0.0),
        ("7261", 0.0, 0.0),
        ("07 2 6 1", 0.0, 0.0),
        ("the next are 7 2 6 1", 0.0, 0.0),
    ],
)
def test_values_and_share_of_right_terms(text, value, terms) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value, reward.parts["terms"]) == (value, terms)


def test_nothing_is_unparsed() -> None:
    assert grade(PROBLEM, " , ,").status == "unparsed"


@given(st.text(alphabet="0123456789 ,", max_size=12) | st.text())
def test_nothing_else_is_right(text) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value == 1.0) == (text.replace(",", " ").split() == ["7", "2", "6", "1"])
