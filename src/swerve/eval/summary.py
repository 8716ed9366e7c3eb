"""Problem-level results -> the figures of one checkpoint, each with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from swerve.statistics import Estimate, bootstrap_mean, share
from swerve.statistics.pass_at_k import sampling_curve
from swerve.types import RewardStatus

__all__ = ["summarise"]

Row = Mapping[str, Any]


def summarise(rows: Sequence[Row], *, confidence: float) -> dict[str, Any]:
    """Return accuracy (Wilson interval) and means (bootstrap over problems), overall and by kind of problem.

    `mean_reward` is over the samples at the evaluation temperature, a failure counting 0; `failures` says how many
    completions, greedy and sampled, have no value, `statuses` how many the grader judged, found no answer in, gave up
    on and failed on. `trace_right` is None where no problem's steps are checked. Lengths are in tokens, entropy in
    nats. `by_num_samples` has pass@k, pass^k and the majority vote of the samples; `by_part` is there for mixtures.
    """
    statuses = Counter(status for row in rows for status in row["statuses"])
    parts = sorted({row["part"] for row in rows} - {None})
    by_kind: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["kind"]):
        by_kind.setdefault(row["kind"], []).append(row)
    return {
        **_figures(rows, confidence),
        "truncated": sum(row["truncated"] for row in rows) / len(rows),
        "failures": statuses.total() - statuses["graded"],
        "statuses": {name: statuses[name] for name in get_args(RewardStatus)},
        "by_num_samples": sampling_curve(
            [{"answers": row["sampled_answers"], "right": row["sampled_correct"]} for row in rows],
            confidence=confidence,
        ),
        "by_kind": {kind: _figures(part, confidence) for kind, part in by_kind.items()},
        **({"by_part": {part: _figures(_of_part(rows, part), confidence) for part in parts}} if parts else {}),
    }


def _of_part(rows: Sequence[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def _figures(rows: Sequence[Row], confidence: float) -> dict[str, Any]:
    within = all(0.0 <= row["sampled_reward"] <= 1.0 for row in rows)
    reward_bounds = (0.0, 1.0) if within else None

    def mean(name: str, bounds: tuple[float, float] | None = None) -> Estimate | None:
        return bootstrap_mean([row[name] for row in rows], confidence=confidence, bounds=bounds)

    def share_of(name: str) -> Estimate | None:
        known = [row[name] for row in rows if row[name] is not None]
        return share(sum(known), len(known), confidence=confidence)

    return {
        "num_problems": len(rows),
        "accuracy": share_of("correct"),
        "trace_right": share_of("trace_right"),
        "mean_reward": mean("sampled_reward", bounds=reward_bounds),
        "num_tokens": mean("num_tokens"),
        "entropy": mean("entropy"),
    }
