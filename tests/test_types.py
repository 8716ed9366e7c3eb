from __future__ import annotations

import pytest

from swerve.types import Reward


@pytest.mark.parametrize(
    ("reward", "right"),
    [
        (Reward(value=1.0, status="graded"), True),
        (Reward(value=2.5, status="graded"), True),
        (Reward(value=0.5, status="graded"), False),
        (Reward(value=3.0, status="graded", parts={"correct": 1.0}), True),
        (Reward(value=-0.5, status="graded", parts={"correct": 1.0}), True),
        (Reward(value=1.0, status="graded", parts={"correct": 0.0}), False),
        (Reward(value=None, status="timeout", parts={"correct": 1.0}), False),
        (Reward(value=None, status="unparsed"), False),
    ],
)
def test_right_is_what_the_grader_calls_correct_or_else_a_value_of_one_or_more(reward, right):
    assert reward.is_right is right


@pytest.mark.parametrize(("value", "status"), [(None, "graded"), (1.0, "timeout")])
def test_a_reward_has_a_value_exactly_when_it_is_graded(value, status):
    with pytest.raises(ValueError, match="exactly when it is graded"):
        Reward(value=value, status=status)


def test_what_was_read_of_a_text_without_an_answer_is_no_answer():
    assert Reward(value=-3.0, status="graded", answered=False, extracted="Zoey is odd").extracted is None
    assert Reward(value=None, status="unparsed", extracted="Zoey is odd").extracted is None
    assert Reward(value=None, status="timeout", extracted="9^9^9").extracted == "9^9^9"
