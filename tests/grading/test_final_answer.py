from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.rewards import grade
from swerve.types import Problem

PROBLEM = Problem(id="addition-12+34", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
WORDS = st.lists(st.sampled_from(["answer", "0", "4", "6", ";", "carry", "é"])).map(" ".join)


@pytest.mark.parametrize(
    ("text", "value", "extracted"),
    [
        ("2 + 4 + 0 = 0 6 write 6 carry 0 ; answer 0 4 6", 1.0, "0 4 6"),
        ("answer  0\t4\n6 ", 1.0, "0 4 6"),
        ("answer 0 4 7", 0.0, "0 4 7"),
        ("answer 0 4", 0.0, "0 4"),
        ("answer 0 4 6 6", 0.0, "0 4 6 6"),
        ("answer 046", 0.0, "046"),
    ],
)
def test_exact_match_of_words(text: str, value: float, extracted: str) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value, reward.status, reward.extracted) == (value, "graded", extracted)
    assert reward.parts == {"answer": value}


@pytest.mark.parametrize("text", ["", " ", "0 4 6", "0 4 6 answer", "answer", "answer answer 0 4 6", "answer: 0 4 6"])
def test_without_a_single_answer_there_is_no_value(text: str) -> None:
    reward = grade(PROBLEM, text)
    assert (reward.value, reward.status, reward.extracted, reward.parts) == (None, "unparsed", None, {})


def test_unknown_family_lists_the_known() -> None:
    problem = Problem(id="x", family="chess", question="e4", answer="e5")
    with pytest.raises(ValueError, match="'chess'; known: addition, arithmetic_sequence, .*knights_knaves"):
        grade(problem, "answer e5")


@given(st.one_of(st.text(), WORDS))
def test_any_text_is_graded_or_unparsed(text: str) -> None:
    reward = grade(PROBLEM, text)
    words = text.split()
    if words[-4:] == ["answer", "0", "4", "6"] and words.count("answer") == 1:
        assert reward.value == 1.0
    else:
        assert reward.value in (0.0, None)
    assert (reward.status == "unparsed") == (words.count("answer") != 1 or words[-1] == "answer")
