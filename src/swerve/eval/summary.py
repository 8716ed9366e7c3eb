"""Problem-level results -> the figures of one checkpoint, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.statistics import Estimate, bootstrap_mean, share

__all__ = ["summarise"]

Row = Mapping[str, Any]


def summarise(rows: Sequence[Row], *, confidence: float) -> dict[str, Any]:
    """Return accuracy (Wilson interval) and means (bootstrap over problems), overall and by kind of problem.

    `mean_reward` is over the samples at the evaluation temperature, a failure counting 0; `failures` says how many
    completions, greedy and sampled, the grader could not judge. Lengths are in tokens, entropy in nats.
    """
    by_kind: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["kind"]):
        by_kind.setdefault(row["kind"], []).append(row)
    return {
        **_figures(rows, confidence),
        "truncated": sum(row["truncated"] for row in rows) / len(rows),
        "failures": sum(row["num_failures"] for row in rows),
        "by_kind": {kind: _figures(part, confidence) for kind, part in by_kind.items()},
    }


def _figures(rows: Sequence[Row], confidence: float) -> dict[str, Any]:
    def mean(name: str, bounds: tuple[float, float] | None = None) -> Estimate | None:
        return bootstrap_mean([row[name] for row in rows], confidence=confidence, bounds=bounds)

    def share_of(name: str) -> Estimate | None:
        return share(sum(row[name] for row in rows), len(rows), confidence=confidence)

    return {
        "num_problems": len(rows),
        "accuracy": share_of("correct"),
        "trace_right": share_of("trace_right"),
        "mean_reward": mean("sampled_reward", bounds=(0.0, 1.0)),
        "num_tokens": mean("num_tokens"),
        "entropy": mean("entropy"),
    }
