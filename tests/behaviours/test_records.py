from __future__ import annotations

from swerve.behaviours import BehaviourRecord


def test_the_whole_answer_begins_with_what_the_model_was_given():
    assert BehaviourRecord(problem_id="p", response="a</think>", prefix="<think>").text == "<think>a</think>"
