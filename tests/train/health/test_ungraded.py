"""Counts of what graders said, and the stop where they say nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.config.objectives import CollapseConfig
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import CollapseError, SwerveError
from swerve.train.health.ungraded import check_end, judge_grading, note_of_failures, outcome_figures
from swerve.types import Reward
from swerve.world import World


def _reward(status: Any, detail: str | None = None) -> Reward:
    return Reward(value=0.0 if status == "graded" else None, status=status, detail=detail)


def test_outcomes_are_counted_apart_with_the_most_frequent_reasons():
    rewards = [
        *[_reward("graded")] * 2,
        Reward(value=-3.0, status="graded", answered=False),  # paid for its format
        *[_reward("unparsed", "no answer")] * 2,
        _reward("timeout", "2 s of CPU time"),
        *[_reward("error", "ValueError: x")] * 2,
        _reward("error"),
    ]
    assert outcome_figures(rewards, World()) == {
        "num_completions": 9,
        "num_failures": 6,
        "num_unanswered": 3,
        "num_unparsed": 2,
        "num_timeouts": 1,
        "num_errors": 3,
        "error_details": {"ValueError: x": 2, "2 s of CPU time": 1, "error": 1},
    }


def test_few_short_reasons_are_kept():
    rewards = [_reward("error", f"{name}{'x' * 300}") for name in "abcdefg"]
    assert outcome_figures(rewards, World())["error_details"] == {f"{name}{'x' * 199}": 1 for name in "abcde"}


def test_without_limits_and_errors_there_are_no_reasons():
    figures = outcome_figures([_reward("graded"), _reward("unparsed", "no answer")], World())
    assert "error_details" not in figures


def _record(step: int, num: int, *, timeouts: int = 0, errors: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"num_completions": num, "num_timeouts": timeouts, "num_errors": errors, "num_unparsed": num}
    return {"stage_step": step, **counts, **more}


STAGE = RlStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}, "max_error_share": 0.25})


def test_a_share_above_the_threshold_stops_and_says_why():
    details = {"memory limit": 10, "2 s of CPU time": 7}
    verdict = judge_grading(STAGE, [_record(1, 64, timeouts=10, errors=7, error_details=details)])
    assert verdict.figures == {"stopped_error_share": 17 / 64}
    assert str(verdict.error).startswith(
        "stage 'rl' stopped at its step 1: 27% of the last 64 completions could not be graded, more than "
        "max_error_share=0.25: memory limit (10); 2 s of CPU time (7); repair the grader or its limits "
        "(runtime.grader_*), then go on with --resume"
    )


def test_the_threshold_itself_does_not_stop():
    assert judge_grading(STAGE, [_record(1, 64, errors=16)]).error is None


def test_texts_without_an_answer_never_stop():
    assert judge_grading(STAGE, [_record(1, 640)]).error is None


def test_fewer_completions_than_the_window_are_not_judged():
    records = [_record(step, 16, errors=16) for step in range(1, 4)]
    assert judge_grading(STAGE, records).error is None
    assert judge_grading(STAGE, [*records, _record(4, 16, errors=16)]).error is not None


@pytest.mark.parametrize(("early", "late", "stops"), [(32, 0, False), (0, 17, True), (32, 16, False)])
def test_only_the_last_steps_that_fill_the_window_count(early, late, stops):
    records = [_record(1, 32, errors=early), _record(2, 32), _record(3, 32, timeouts=late)]
    assert (judge_grading(STAGE, records).error is not None) == stops


def test_what_led_to_a_stop_does_not_lead_to_another():
    stopped = _record(1, 64, errors=64, stopped_error_share=1.0)
    assert judge_grading(STAGE, [stopped, _record(2, 32, errors=32)]).error is None
    assert judge_grading(STAGE, [stopped, _record(2, 32, errors=32), _record(3, 32, errors=32)]).error is not None


def test_at_the_end_of_a_stage_however_few_are_judged():
    assert judge_grading(STAGE, [_record(9, 4, errors=1)]).error is None
    verdict = judge_grading(STAGE, [_record(8, 4), _record(9, 4, errors=3, error_details={"KeyError: 'x'": 3})])
    assert verdict.figures == {"stopped_error_share": 3 / 8}
    assert "its step 9: 38% of the last 8 completions could not be graded" in str(verdict.error)
    assert judge_grading(STAGE, [_record(9, 0)]).error is None


def test_a_stage_that_ended_so_is_no_success_when_training_goes_on():
    newest = partial(CheckpointRef, step=9, stage="rl", stage_step=9, path=Path("c"), scheduled=True)
    records = [_record(8, 4), _record(9, 4, errors=4, stopped_error_share=0.5)]
    with pytest.raises(SwerveError, match="stage 'rl' ended because 50% of its last .* start another run"):
        check_end([STAGE], newest(final=True), records)
    check_end([STAGE], newest(final=False), records)  # has steps left, which are judged
    check_end([STAGE], newest(final=True), records[:1])
    check_end([STAGE], None, [])


def test_a_run_that_ended_in_a_collapse_stays_collapsed():
    newest = CheckpointRef(step=9, stage="rl", stage_step=9, path=Path("c"), scheduled=True, final=True)
    record = _record(9, 4, collapse="reward", collapse_message="the reward fell from 0.5 to 0.1")
    stopping = STAGE.model_copy(update={"label": "rl", "collapse": CollapseConfig(action="stop")})
    with pytest.raises(CollapseError, match="stage 'rl' ended in a collapse: the reward fell .* no step is left"):
        check_end([stopping], newest, [record])
    check_end([stopping, STAGE.model_copy(update={"label": "next"})], newest, [record])  # goes on regardless
    check_end([stopping.model_copy(update={"collapse": CollapseConfig(action="warn")})], newest, [record])


def test_the_first_step_without_a_graded_completion_is_said_once():
    failed = _record(2, 4, errors=3, timeouts=1, error_details={"KeyError: 'x'": 3, "CPU time limit 2 s": 1})
    records = [_record(1, 4, errors=3)]
    assert note_of_failures([]) is None
    assert note_of_failures([{"stage_step": 1, "loss": 0.5}]) is None
    assert note_of_failures(records) is None
    assert note_of_failures([*records, failed]) == (
        "step 2: none of 4 completions could be graded: KeyError: 'x' (3); CPU time limit 2 s (1)"
    )
    assert note_of_failures([*records, failed, {**failed, "stage_step": 3}]) is None


def test_one_means_never():
    stage = STAGE.model_copy(update={"max_error_share": 1.0})
    assert judge_grading(stage, [_record(1, 64, errors=64)]).error is None


def test_stages_that_grade_nothing_are_not_judged():
    stage = SftStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}})
    assert judge_grading(stage, [{"stage_step": 1, "loss": 0.5}]).error is None
