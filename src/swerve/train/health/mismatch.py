"""The stop where the log-probabilities of sampler and trainer differ too much to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any

from swerve.config.engines import MismatchConfig
from swerve.config.stages import StageConfig
from swerve.errors import EngineError
from swerve.train.health.verdict import HealthVerdict

_AT_ONCE = 3
"""How many times the bound the gap of a single step may be."""
_MARK = "stopped_logprob_gap"


def judge_mismatch(
    stage: StageConfig, settings: MismatchConfig | None, records: Sequence[Mapping[str, Any]]
) -> HealthVerdict:
    """Say whether training has to stop because sampler and trainer differ too much.

    Looked at is the mean of `logprob_gap` over the last `window` steps that measured it, after the last stop of this
    kind; where there are fewer, nothing is judged but a step whose gap no rounding explains, several times the bound.
    Depends on the records only.

    Args:
        stage: of the records.
        settings: the bound; None: no bound.
        records: the stage's lines of metrics.jsonl so far, the last one of the step that was just made.

    >>> records = [{"stage_step": step, "logprob_gap": 0.3} for step in (1, 2)]
    >>> judge_mismatch(None, MismatchConfig(window=3), records)
    HealthVerdict(figures={}, note=None, error=None)
    """
    # The last steps that measured it, after the last stop of this kind.
    since = takewhile(lambda record: _MARK not in record, reversed(records))
    gaps = [record["logprob_gap"] for record in since if record.get("logprob_gap") is not None]
    if settings is None or not gaps:
        return HealthVerdict()
    is_measured = records[-1].get("logprob_gap") is not None
    window = 1 if is_measured and gaps[0] > _AT_ONCE * settings.stop else settings.window
    if len(gaps) < window:
        return HealthVerdict()
    # Too far apart: the run stops with its state saved.
    mean = fmean(gaps[:window])
    if mean <= settings.stop:
        return HealthVerdict()
    steps = "step" if window == 1 else f"{window} steps"
    error = EngineError(
        f"stage '{stage.label}' stopped at its step {records[-1]['stage_step']}: over the last {steps} "
        f"the log-probabilities of sampler and trainer differ by {mean:.3g} nats per token, more than "
        f"rollout.mismatch.stop={settings.stop:g}; the state is saved: look at logprob_gap_q1 to logprob_gap_q4 in the "
        "metrics, at the engine's precision and weights, then continue with --resume"
    )
    return HealthVerdict(figures={_MARK: mean}, error=error)
