"""Problem-level results -> the figures of one checkpoint, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.statistics import bootstrap_mean, share

__all__ = ["summarise"]

Row = Mapping[str, Any]


def summarise(rows: Sequence[Row], *, confidence: float) -> dict[str, Any]:
    """Return accuracy (Wilson interval) and means (bootstrap over problems), overall and by kind of problem.

    `mean_reward` is over the samples at the evaluation temperature, a failure counting 0; `failures` says how many
    completions, greedy and sampled, the grader could not judge. Lengths are in tokens, entropy in nats.
    """

    def mean(name: str, bounds: tuple[float, float] | None = None) -> Any:
        return bootstrap_mean([row[name] for row in rows], confidence=confidence, bounds=bounds)

    def accuracy(part: Sequence[Row], name: str = "correct") -> Any:
        return share(sum(row[name] for row in part), len(part), confidence=confidence)

    kinds = sorted({row["kind"] for row in rows})
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in kinds}
    return {
        "num_problems": len(rows),
        "accuracy": accuracy(rows),
        "trace_right": accuracy(rows, "trace_right"),
        "mean_reward": mean("sampled_reward", bounds=(0.0, 1.0)),
        "num_tokens": mean("num_tokens"),
        "entropy": mean("entropy"),
        "truncated": sum(row["truncated"] for row in rows) / len(rows),
        "failures": sum(row["num_failures"] for row in rows),
        "by_kind": {kind: {"num_problems": len(part), "accuracy": accuracy(part)} for kind, part in by_kind.items()},
    }
