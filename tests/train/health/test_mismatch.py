"""The stop where sampler and trainer disagree, from the records alone."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.config.engines import MismatchConfig
from swerve.config.stages import RlStage
from swerve.errors import EngineError
from swerve.train.health.mismatch import judge_mismatch

STAGE = RlStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}})
SETTINGS = MismatchConfig(stop=0.25, window=3)


def _records(*gaps: float | None, **more: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"stage_step": step, "logprob_gap": gap} for step, gap in enumerate(gaps, start=1)]
    records[-1] |= more
    return records


def test_a_mean_above_the_bound_over_the_window_stops_and_says_so():
    verdict = judge_mismatch(STAGE, SETTINGS, _records(0.0, 0.25, None, 0.25, 0.625))
    assert verdict.figures == {"stopped_logprob_gap": 0.375}
    assert isinstance(verdict.error, EngineError)
    assert str(verdict.error).startswith(
        "stage 'rl' stopped at its step 5: over the last 3 steps the log-probabilities of sampler and trainer differ "
        "by 0.375 nats per token, more than rollout.mismatch.stop=0.25; the state is saved: "
    )


@pytest.mark.parametrize("gaps", [(0.75, 0.75), (9.0, 0.25, 0.25, 0.25), (9.0, 9.0, None), (None,)])
def test_too_few_steps_or_a_mean_at_the_bound_do_not_stop(gaps):
    assert judge_mismatch(STAGE, SETTINGS, _records(*gaps)).error is None


def test_a_gap_that_no_rounding_explains_stops_at_the_first_step():
    verdict = judge_mismatch(STAGE, SETTINGS, _records(0.76))
    assert verdict.figures == {"stopped_logprob_gap": 0.76}
    assert "stopped at its step 1: over the last step the log-probabilities of sampler" in str(verdict.error)


def test_without_a_bound_nothing_is_judged():
    assert judge_mismatch(STAGE, None, _records(9.0, 9.0, 9.0)).error is None


def test_after_a_stop_the_window_begins_afresh():
    before = _records(0.5, 0.5, 0.5, stopped_logprob_gap=0.5)
    assert judge_mismatch(STAGE, SETTINGS, [*before, *_records(0.5, 0.5)]).error is None
    assert judge_mismatch(STAGE, SETTINGS, [*before, *_records(0.5, 0.5, 0.5)]).error is not None
