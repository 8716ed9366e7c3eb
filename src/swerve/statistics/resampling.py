"""Resampling of clusters: rows that belong together (those of a problem) are drawn together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate

Clusters = Sequence[str | int] | NDArray[np.str_] | NDArray[np.integer]
"""Which rows belong together, one name per row."""

_MAX_DRAWS = 1 << 22  # numbers held at a time while resampling
_MIN_SHARE_DEFINED = 0.5


def finite_array(values: ArrayLike) -> NDArray[np.float64]:
    """Return one number per row.

    Raises:
        ValueError: a number is not finite, or the values are not a list of numbers.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"one number per row is needed, got an array of shape {array.shape}; flatten it first")
    if not np.isfinite(array).all():
        raise ValueError("cannot average values that are not finite; leave them out or report None")
    return array


def paired_arrays(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two numbers per row.

    Raises:
        ValueError: the lengths differ, or a number is not finite.
    """
    one, other = finite_array(first), finite_array(second)
    if one.shape != other.shape:
        raise ValueError(f"paired values are needed, got {one.size} and {other.size}")
    return one, other


def membership(clusters: Clusters | None, num_rows: int) -> tuple[int, NDArray[np.intp]]:
    """Return the number of clusters and the index of each row's cluster; without names each row is its own cluster.

    Raises:
        ValueError: there are not as many names as rows.

    >>> number, index = membership(["b", "a", "b"], 3)
    >>> number, index.tolist()
    (2, [1, 0, 1])
    """
    if clusters is None:
        return num_rows, np.arange(num_rows)
    if len(clusters) != num_rows:
        raise ValueError(f"{num_rows} values need as many cluster names, got {len(clusters)}")
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    return len(names), index


def cluster_draws(num_clusters: int, num_resamples: int, seed: int, *, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """Yield `[some, C]` blocks of drawn clusters, `num_resamples` rows in all.

    Args:
        num_clusters: C, at least 1.
        num_resamples: number of resamples.
        seed: of the resampling; the draws do not depend on how they are cut into blocks.
        width: numbers the caller holds for each drawn cluster.
    """
    rng = np.random.default_rng(seed)
    at_once = max(1, _MAX_DRAWS // (num_clusters * width))
    for start in range(0, num_resamples, at_once):
        yield rng.integers(0, num_clusters, size=(min(at_once, num_resamples - start), num_clusters))


def cluster_counts(num_clusters: int, num_resamples: int, seed: int, *, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """Yield the same draws as `cluster_draws`, as how often each cluster was drawn: `[some, C]`, each row summing to C.

    >>> [block.sum(axis=1).tolist() for block in cluster_counts(3, 2, seed=0)]
    [[3, 3]]
    """
    for draws in cluster_draws(num_clusters, num_resamples, seed, width=width):
        flat = draws + num_clusters * np.arange(len(draws))[:, None]
        yield np.bincount(flat.reshape(-1), minlength=draws.size).reshape(draws.shape)


def percentile_estimate(value: float, resampled: ArrayLike, confidence: float) -> Estimate | None:
    """Return a statistic with the percentiles of its resampled values.

    A resample in which the statistic is not defined (NaN) is left out; None where fewer than half are defined, or the
    value itself is not.

    Raises:
        ValueError: the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
    array = np.asarray(resampled, dtype=np.float64)
    defined = array[np.isfinite(array)]
    if not np.isfinite(value) or len(defined) == 0 or len(defined) < _MIN_SHARE_DEFINED * len(array):
        return None
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(mean=float(value), low=float(low), high=float(high))


def ratio_or_nan(numerators: NDArray[np.floating], denominators: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return numerators / denominators, NaN where the denominator is 0."""
    ratios = np.full(numerators.shape, np.nan)
    np.divide(numerators, denominators, out=ratios, where=denominators != 0)
    return ratios


def rule_of_three(value: float, num: int, *, confidence: float, bounds: tuple[float, float]) -> Estimate:
    """Return the interval of a mean within known bounds of which n clusters all show the same value.

    Resampling equal values says nothing. With confidence c, a cluster of another value has a probability of at most
    p = 1 - (1 - c)^(1/n), so the mean is within p of the way to either bound. Source: Hanley and Lippman-Hand, Journal
    of the American Medical Association 249 (1983).

    >>> round(rule_of_three(1.0, 59, confidence=0.95, bounds=(0.0, 1.0)).low, 3)
    0.95
    """
    reach = 1 - (1 - confidence) ** (1 / num)
    return Estimate(mean=value, low=value - reach * (value - bounds[0]), high=value + reach * (bounds[1] - value))
