"""Intervals of ratios of sums, their differences, and other statistics of sums over clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, cluster_sums, finite_array
from swerve.statistics.jackknife import UNBOUNDED, Bounds, jackknife_interval

_ROUNDING = 1e-9


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    bounds: Bounds = (0.0, 1.0),
) -> Estimate | None:
    """Return a ratio of sums, sum(numerators) / sum(denominators), with its jackknife interval over clusters.

    The share of a sum is such a ratio: with the divergence of the tokens of one category (0 elsewhere) over that of
    all tokens, it is the category's share of the divergence. The interval is `jackknife_interval`'s: a share of as many
    trials as have its variance (on the log without an upper bound). None where the denominators sum to 0. It assumes
    independent clusters, more than a few of which matter: simulated coverage at 95% is .88 and more for fractions .01
    to .99 of counts and lognormal sums from 20 problems on, but .86 where one problem in fifty is all of the numerator
    and sizes differ a hundredfold.

    Args:
        numerators: one number per row.
        denominators: one number per row, none negative.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the interval.
        bounds: smallest and largest possible ratio.

    Raises:
        ValueError: the lengths differ, a number is not finite, or the ratio is not within the bounds.

    >>> found = ratio_interval([1.0, 3.0, 2.0], [2.0, 5.0, 5.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (0.5, 0.211, 0.789)
    """
    above, below = finite_array(numerators), finite_array(denominators)
    if above.shape != below.shape:
        raise ValueError(f"{above.size} numerators need as many denominators, got {below.size}")
    return statistic_interval(_ratio, [above, below], clusters=clusters, confidence=confidence, bounds=bounds)


def _ratio(sums: Array) -> Array:
    return divided(sums[:, 0], sums[:, 1])


def divided(numerators: Array, denominators: Array) -> Array:
    """Return numerators / denominators, NaN where the denominator is 0.

    >>> divided(np.array([1.0, 1.0]), np.array([4.0, 0.0])).tolist()
    [0.25, nan]
    """
    ratios = np.full(numerators.shape, np.nan)
    np.divide(numerators, denominators, out=ratios, where=denominators != 0)
    return ratios


def statistic_interval(
    function: Callable[[Array], Array],
    columns: Sequence[ArrayLike],
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    bounds: Bounds = UNBOUNDED,
) -> Estimate | None:
    """Return any statistic of sums over rows with its jackknife interval over clusters; None where it has no value.

    Args:
        function: `[R, K]` sums of K columns -> `[R]` values, NaN where the statistic is not defined.
        columns: K columns of one number per row.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the interval.
        bounds: of the statistic; see `jackknife_interval`.

    Raises:
        ValueError: as many clusters as rows are needed; the value is not within the bounds.

    >>> found = statistic_interval(lambda sums: sums[:, 0] / sums[:, 1], [[1.0, 2.0, 6.0], [1.0, 1.0, 1.0]])
    >>> found.mean, round(found.low, 3), round(found.high, 3)  # a mean: the t interval
    (3.0, -3.572, 9.572)
    """
    rows = [finite_array(column) for column in columns]
    if rows[0].size == 0:
        return None
    sums = cluster_sums(rows, clusters)
    sums = sums[(sums != 0).any(axis=1)]  # a cluster without anything to count is no observation
    if not len(sums):
        return None
    totals = sums.sum(axis=0)
    values = function(np.concatenate([totals[None], totals - sums]))
    value = float(values[0])
    low, high = bounds
    if value < low or value > high:
        if not low - _ROUNDING <= value <= high + _ROUNDING:
            raise ValueError(f"the value must be from {low} to {high}, got {value}")
        value = min(max(value, low), high)
    return jackknife_interval(value, values[1:], bounds=bounds, confidence=confidence)


def share_difference(
    own: Array, others: Sequence[Array], *, clusters: Clusters | None = None, confidence: float = 0.95
) -> Estimate | None:
    """Return a share minus the mean of others on the same rows with its jackknife interval; None where one is 0 / 0.

    Each share is a ratio of sums, sum(numerators) / sum(denominators). It assumes independent clusters, more than a few
    of which matter: simulated coverage at 95%, shares of lognormal sums of .05 to .95, is .92 and more from 20 problems
    on.

    Args:
        own: `[2, N]`, numerators and denominators.
        others: the same of each other share.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the interval.

    >>> own, other = np.array([[1.0, 3.0, 2.0], [2.0, 5.0, 5.0]]), np.array([[1.0, 1.0, 1.0], [3.0, 3.0, 4.0]])
    >>> round(share_difference(own, [other]).mean, 3)
    0.2
    """

    def difference(sums: Array) -> Array:
        ratios = divided(sums[:, ::2], sums[:, 1::2])
        return np.asarray(ratios[:, 0] - ratios[:, 1:].mean(axis=1))

    columns, bounds = np.concatenate([own, *others]), (-1.0, 1.0)
    return statistic_interval(difference, list(columns), clusters=clusters, confidence=confidence, bounds=bounds)
