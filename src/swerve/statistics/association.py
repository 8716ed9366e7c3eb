"""Correlations, with intervals over clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Correlation
from swerve.statistics.resampling import Clusters, cluster_counts, membership, paired_arrays, percentile_estimate

Array = NDArray[np.float64]


def pearson(
    x: ArrayLike,
    y: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Correlation | None:
    """Return the linear correlation of rows with its percentile bootstrap interval over clusters.

    With y of zeros and ones it is the point-biserial correlation. The p-value inverts the bootstrap: twice the share
    of resamples on the other side of 0. None with fewer than three rows or two clusters, or where x or y is constant.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> round(pearson([1, 2, 3, 4], [2, 4, 5, 9]).mean, 6)
    0.964764
    """
    return _correlation(x, y, _moments, clusters, confidence, num_resamples, seed)


def spearman(
    x: ArrayLike,
    y: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Correlation | None:
    """Return the rank correlation of rows with its percentile bootstrap interval over clusters.

    Ties share their mean rank; every resample is ranked anew. The p-value inverts the bootstrap: twice the share of
    resamples on the other side of 0. None with fewer than three rows or two clusters, or where x or y is constant.
    Source: Spearman, American Journal of Psychology 15 (1904).

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 100, 90]).mean, 6)
    0.8
    """
    return _correlation(x, y, _rank_moments, clusters, confidence, num_resamples, seed)


Moments = Callable[[Array, Array, NDArray[np.intp], NDArray[np.int64]], Array]
"""(x, y, each row's cluster, `[R, C]` counts) -> `[R]` correlations."""


def _correlation(
    first: ArrayLike,
    second: ArrayLike,
    moments: Moments,
    clusters: Clusters | None,
    confidence: float,
    num_resamples: int,
    seed: int,
) -> Correlation | None:
    x, y = paired_arrays(first, second)
    num_clusters, index = membership(clusters, x.size)
    if x.size < 3 or num_clusters < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    value = float(moments(x, y, index, np.ones((1, num_clusters), dtype=np.int64))[0])
    width = 1 + 4 * x.size // num_clusters
    resampled = np.concatenate(
        [moments(x, y, index, counts) for counts in cluster_counts(num_clusters, num_resamples, seed, width=width)]
    )
    estimate = percentile_estimate(value, resampled, confidence)
    if estimate is None:
        return None
    defined = resampled[np.isfinite(resampled)]
    rarer = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    p_value = min(1.0, 2 * (1 + rarer) / (1 + len(defined)))
    return Correlation(
        mean=estimate.mean, low=estimate.low, high=estimate.high, p_value=p_value, num_clusters=num_clusters
    )


def _moments(x: Array, y: Array, index: NDArray[np.intp], counts: NDArray[np.int64]) -> Array:
    """Return each resample's linear correlation: sums by cluster are all that is needed."""
    x, y = x - x.mean(), y - y.mean()
    num = counts @ np.bincount(index).astype(np.float64)
    sum_x, sum_y, sum_xx, sum_yy, sum_xy = (
        counts @ np.bincount(index, weights=one).astype(np.float64) for one in (x, y, x * x, y * y, x * y)
    )
    spread_x, spread_y = sum_xx - sum_x**2 / num, sum_yy - sum_y**2 / num
    # A resample of equal values has a spread of rounding errors only.
    defined = (spread_x > 1e-12 * sum_xx) & (spread_y > 1e-12 * sum_yy)
    return _scaled(sum_xy - sum_x * sum_y / num, spread_x, spread_y, defined)


def _rank_moments(x: Array, y: Array, index: NDArray[np.intp], counts: NDArray[np.int64]) -> Array:
    """Return each resample's rank correlation: the rows are sorted once, ranks are sums of weights below."""
    weights = counts[:, index].astype(np.float64)
    half = weights.sum(axis=1, keepdims=True) / 2  # the mean of the ranks
    first, second = _weighted_ranks(x, weights) - half, _weighted_ranks(y, weights) - half
    spread_x, spread_y = (weights * first**2).sum(axis=1), (weights * second**2).sum(axis=1)
    # Ranks and weights are whole or halves: equal values have a spread of exactly 0.
    return _scaled((weights * first * second).sum(axis=1), spread_x, spread_y, (spread_x > 0) & (spread_y > 0))


def _weighted_ranks(values: Array, weights: Array) -> Array:
    """Return, `[R, N]`, the weight below each value plus half of the weight at it: the mean rank less 1/2."""
    levels, index = np.unique(values, return_inverse=True)
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index, minlength=len(levels))) - 1
    upto = np.cumsum(weights[:, order], axis=1)[:, ends]
    below = np.concatenate([np.zeros((len(weights), 1)), upto[:, :-1]], axis=1)
    ranks: Array = ((upto + below) / 2)[:, index]
    return ranks


def _scaled(product: Array, spread_x: Array, spread_y: Array, defined: NDArray[np.bool_]) -> Array:
    scale = np.sqrt(np.where(defined, spread_x * spread_y, 1.0))
    return np.where(defined, np.clip(product / scale, -1.0, 1.0), np.nan)
