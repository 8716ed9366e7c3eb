"""Intervals of shares, means, ratios and any other statistic of rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from swerve.statistics.resampling import (
    Clusters,
    Estimate,
    cluster_draws,
    finite_array,
    membership,
    percentile_estimate,
    ratio_or_nan,
    rule_of_three,
)


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


def difference_interval(
    num_successes: int, num: int, other_successes: int, other_num: int, *, confidence: float = 0.95
) -> Estimate | None:
    """Return the first share minus the other with Newcombe's hybrid score interval; None where either is of nothing.

    low = d - sqrt((p - l)^2 + (u' - p')^2),  high = d + sqrt((u - p)^2 + (p' - l')^2)

    with d = p - p' and (l, u), (l', u') the Wilson intervals of two independent shares. Source: Newcombe, Statistics in
    Medicine 17 (1998) 873, method 10.

    >>> {name: round(value, 4) for name, value in difference_interval(56, 70, 48, 80).items()}
    {'mean': 0.2, 'low': 0.0524, 'high': 0.3339}
    """
    first = share(num_successes, num, confidence=confidence)
    other = share(other_successes, other_num, confidence=confidence)
    if first is None or other is None:
        return None
    difference = first["mean"] - other["mean"]
    below = math.hypot(first["mean"] - first["low"], other["high"] - other["mean"])
    above = math.hypot(first["high"] - first["mean"], other["mean"] - other["low"])
    return {"mean": difference, "low": difference - below, "high": difference + above}


def bootstrap_mean(
    values: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
    bounds: tuple[float, float] | None = None,
) -> Estimate | None:
    """Return the mean with its percentile bootstrap interval over clusters; None of nothing.

    Each resample draws as many clusters as there are, with replacement, and takes the mean over all values of the
    drawn clusters. Where all clusters have the same mean, resampling says nothing; if `bounds` are known, the interval
    then reaches as far as that many equal observations allow (`rule_of_three`).

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
    array = finite_array(values)
    if array.size == 0:
        return None
    _, index = membership(clusters, array.size)
    sums, counts = _cluster_sums(index, array), _cluster_sums(index, np.ones(array.size))
    mean = float(array.mean())
    if bounds is not None and np.ptp(sums / counts) == 0:
        return rule_of_three(mean, len(sums), confidence=confidence, bounds=bounds)
    return percentile_estimate(mean, _resampled_ratios(sums, counts, num_resamples, seed), confidence)


def bootstrap_ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Estimate | None:
    """Return a ratio of sums, sum(numerators) / sum(denominators), with its percentile bootstrap interval.

    The share of a sum is such a ratio: with the divergence of the tokens of one category (0 elsewhere) over that of
    all tokens, it is the category's share of the divergence. A resample whose denominators sum to 0 is left out; None
    where all of them do, or more than half of the resamples.

    Args:
        numerators: one number per row.
        denominators: one number per row.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the interval.
        num_resamples: number of resamples.
        seed: of the resampling.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> bootstrap_ratio([1.0, 3.0], [2.0, 6.0])
    {'mean': 0.5, 'low': 0.5, 'high': 0.5}
    """
    above, below = finite_array(numerators), finite_array(denominators)
    if above.shape != below.shape:
        raise ValueError(f"{above.size} numerators need as many denominators, got {below.size}")
    if above.size == 0 or below.sum() == 0:
        return None
    _, index = membership(clusters, above.size)
    ratios = _resampled_ratios(_cluster_sums(index, above), _cluster_sums(index, below), num_resamples, seed)
    return percentile_estimate(above.sum() / below.sum(), ratios, confidence)


def _cluster_sums(index: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(index, weights=values).astype(np.float64)


def _resampled_ratios(
    tops: NDArray[np.float64], bottoms: NDArray[np.float64], num_resamples: int, seed: int
) -> NDArray[np.float64]:
    """Return the ratio of sums over drawn clusters, NaN where it is not defined: `[num_resamples]`."""
    ratios = []
    for draws in cluster_draws(len(tops), num_resamples, seed):
        ratios.append(ratio_or_nan(tops[draws].sum(axis=1), bottoms[draws].sum(axis=1)))
    return np.concatenate(ratios)


def bootstrap_statistic(
    function: Callable[[NDArray[np.int64]], float | None],
    num_rows: int,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Estimate | None:
    """Return any statistic of rows with its percentile bootstrap interval over clusters.

    Each resample draws as many clusters as there are, with replacement, and calls `function` with the indices of all
    rows of the drawn clusters (a row as often as its cluster was drawn). A resample without a value is left out; None
    where the statistic has no value on all rows, or on fewer than half of the resamples. Source: Davison and Hinkley,
    Bootstrap Methods and their Application (1997), sections 2.4 and 3.8.

    Args:
        function: indices of rows -> the statistic; None or NaN where it is not defined.
        num_rows: number of rows.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the interval.
        num_resamples: number of resamples.
        seed: of the resampling.

    Raises:
        ValueError: as many clusters as rows are needed.

    >>> values = np.array([1.0, 2.0, 3.0, 10.0])
    >>> bootstrap_statistic(lambda rows: float(np.median(values[rows])), 4, num_resamples=200)
    {'mean': 2.5, 'low': 1.0, 'high': 10.0}
    """
    if num_rows == 0:
        return None
    num_clusters, index = membership(clusters, num_rows)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    value = _as_float(function(np.arange(num_rows)))
    if math.isnan(value):
        return None
    resampled = [
        _as_float(function(np.concatenate([members[cluster] for cluster in draw])))
        for draws in cluster_draws(num_clusters, num_resamples, seed)
        for draw in draws
    ]
    return percentile_estimate(value, resampled, confidence)


def _as_float(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)
