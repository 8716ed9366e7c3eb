"""Intervals. The unit is the problem: its values are averaged before they come here, or resampled together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

__all__ = ["Estimate", "bootstrap_mean", "share"]


_MAX_DRAWS = 1 << 22  # numbers held at a time while resampling


class Estimate(TypedDict):
    """A mean with the ends of its interval."""

    mean: float
    low: float
    high: float


def share(num_successes: int, num: int, *, confidence: float = 0.95) -> Estimate | None:
    """Return a share of independent trials with its Wilson score interval; None of nothing.

    Source: Wilson, Journal of the American Statistical Association 22 (1927).

    Raises:
        ValueError: more successes than trials, or a negative number.

    >>> {name: round(value, 3) for name, value in share(45, 50).items()}
    {'mean': 0.9, 'low': 0.786, 'high': 0.957}
    """
    if num == 0:
        return None
    interval = binomtest(num_successes, num).proportion_ci(confidence_level=confidence, method="wilson")
    return {"mean": num_successes / num, "low": float(interval.low), "high": float(interval.high)}


def bootstrap_mean(
    values: ArrayLike | Sequence[float],
    *,
    clusters: Sequence[str | int] | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
    bounds: tuple[float, float] | None = None,
) -> Estimate | None:
    """Return the mean with its percentile bootstrap interval over clusters; None of nothing.

    Each resample draws as many clusters as there are, with replacement, and takes the mean over all values of the
    drawn clusters. Where all clusters have the same mean, resampling says nothing; if `bounds` are known, the interval
    then reaches as far as n equal observations allow: with confidence c another value has a probability of at most
    p = 1 - (1 - c)^(1/n), so the mean is within p of the way to either bound (the rule of three).

    Args:
        values: one number each.
        clusters: which values belong together (a problem's id); by default each value is its own cluster.
        confidence: coverage of the interval.
        num_resamples: number of resamples.
        seed: of the resampling.
        bounds: smallest and largest possible value.

    Raises:
        ValueError: as many clusters as values are needed; values must be finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return None
    if not np.isfinite(array).all():
        raise ValueError("cannot average values that are not finite")
    names = np.arange(array.size) if clusters is None else np.asarray(clusters)
    if len(names) != array.size:
        raise ValueError(f"{array.size} values need as many cluster names, got {len(names)}")
    _, membership = np.unique(names, return_inverse=True)
    sums, counts = np.bincount(membership, weights=array), np.bincount(membership)
    mean = float(array.mean())
    if bounds is not None and np.ptp(sums / counts) == 0:
        reach = 1 - (1 - confidence) ** (1 / len(sums))
        return {"mean": mean, "low": mean - reach * (mean - bounds[0]), "high": mean + reach * (bounds[1] - mean)}
    rng = np.random.default_rng(seed)
    at_once = max(1, _MAX_DRAWS // len(sums))
    means = []
    for start in range(0, num_resamples, at_once):
        draws = rng.integers(0, len(sums), size=(min(at_once, num_resamples - start), len(sums)))
        means.append(sums[draws].sum(axis=1) / counts[draws].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return {"mean": mean, "low": float(low), "high": float(high)}
