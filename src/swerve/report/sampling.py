"""What an evaluation says of several samples of a problem: pass@k, pass^k, the majority and different right answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from swerve.report.values import Interval, interval

__all__ = ["MANY_SAMPLES", "ks", "largest_k", "rewards_are_shares", "right_answers", "sampled"]

MANY_SAMPLES = 4
"""From so many samples a problem on pass@k says more than the mean of the samples does."""

Evaluation = Mapping[str, Any]


def _curve(evaluation: Evaluation) -> list[Mapping[str, Any]]:
    return [one for one in evaluation.get("by_num_samples") or [] if isinstance(one.get("k"), int)]


def ks(evaluations: Sequence[Evaluation]) -> list[int]:
    """Return the numbers of samples of which anything was measured, ascending.

    >>> ks([{"by_num_samples": [{"k": 1}, {"k": 2}]}, {}])
    [1, 2]
    """
    return sorted({one["k"] for entry in evaluations for one in _curve(entry)})


def largest_k(evaluations: Sequence[Evaluation]) -> int:
    """Return the largest number of samples; 0 where none were evaluated."""
    return max(ks(evaluations), default=0)


def sampled(evaluation: Evaluation, k: int, key: str) -> Interval | None:
    """Return `pass_at_k`, `pass_hat_k` or `majority_at_k` of k samples, if it was measured.

    >>> entry = {"by_num_samples": [{"k": 2, "pass_at_k": {"mean": 0.5, "low": 0.4, "high": 0.6}}]}
    >>> sampled(entry, 2, "pass_at_k"), sampled(entry, 4, "pass_at_k")
    (Interval(mean=0.5, low=0.4, high=0.6), None)
    """
    return next((interval(one.get(key)) for one in _curve(evaluation) if one["k"] == k), None)


def rewards_are_shares(evaluations: Sequence[Evaluation]) -> bool:
    """Whether no mean reward leaves 0 to 1, so that it reads as a share beside the accuracy.

    >>> rewards_are_shares([{"mean_reward": {"mean": -1.0, "low": -1.5, "high": 0.5}}]), rewards_are_shares([{}])
    (False, True)
    """
    found = [one for entry in evaluations if (one := interval(entry.get("mean_reward"))) is not None]
    return all(one.low >= 0.0 and one.high <= 1.0 for one in found)


def right_answers(samples: pa.Table) -> dict[str, set[str]]:
    """Return the different right answers among the samples of each problem, as written.

    Args:
        samples: rows of `eval/samples/`, with `problem_id`, `extracted` and `correct`.

    Returns:
        By problem id; empty where no answers were recorded.
    """
    if samples["extracted"].null_count == samples.num_rows:
        return {}
    answers: dict[str, set[str]] = {problem: set() for problem in pc.unique(samples["problem_id"]).to_pylist()}
    right = samples.filter(pc.and_(samples["correct"], pc.is_valid(samples["extracted"])))
    for problem, answer in zip(right["problem_id"].to_pylist(), right["extracted"].to_pylist(), strict=True):
        answers[problem].add(answer)
    return answers
