"""Correlations, with intervals over clusters."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr
from scipy.stats import rankdata

from swerve.estimates import Correlation
from swerve.statistics.clusters import Array, Clusters, cluster_sums, paired_arrays
from swerve.statistics.jackknife import degrees_of_freedom, jackknife_interval

_BOUNDS = (-1.0, 1.0)


def pearson(
    x: ArrayLike, y: ArrayLike, *, clusters: Clusters | None = None, confidence: float = 0.95
) -> Correlation | None:
    """Return the linear correlation of rows with its jackknife interval over clusters, on Fisher's z.

    With y of zeros and ones it is the point-biserial correlation. The p-value is of no dependence:

        t = r sqrt((n - 2) / (1 - r^2)),  n = N / (1 + sum_c n_c (n_c - 1) / N rho_x rho_y)

    with rho the correlation of two rows of a cluster (at least 0), so that of rows of their own it is the usual one; it
    rests on second moments only, and holds where the interval, which needs fourth ones, does not. The two may then
    contradict. Simulated size at 5%: 3 to 6%, ones and zeros against lognormal values included; coverage of the
    interval at 95% is .96 for normal values, and .81 to .88 for heavy tails. None with fewer than three rows or two
    clusters, or where x or y is constant. Source of the design effect: Kish, Survey Sampling (1965); for correlations
    Clifford, Richardson and Hemon, Biometrics 45 (1989).

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> round(pearson([1, 2, 3, 4], [2, 4, 5, 9]).mean, 6)
    0.964764
    """
    return _correlation(*paired_arrays(x, y), clusters, confidence, ranked=False)


def spearman(
    x: ArrayLike, y: ArrayLike, *, clusters: Clusters | None = None, confidence: float = 0.95
) -> Correlation | None:
    """Return the rank correlation of rows with its jackknife interval over clusters, on Fisher's z.

    Ties share their mean rank. The jackknife is the infinitesimal one: without a cluster its rows' products of ranks
    are left out, and what they add to the products of others by being counted in their ranks. The p-value is of t = z
    / se(z), from the same jackknife. Simulated size at 5%: 3 to 5.6%, also where four fifths of y are equal. None with
    fewer than three rows or two clusters, or where x or y is constant. Source: Spearman, American Journal of
    Psychology 15 (1904).

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 100, 90]).mean, 6)
    0.8
    """
    first, second = paired_arrays(x, y)
    if not first.size:
        return None
    return _correlation(rankdata(first), rankdata(second), clusters, confidence, ranked=True)


def _correlation(
    x: Array, y: Array, clusters: Clusters | None, confidence: float, *, ranked: bool
) -> Correlation | None:
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    # Sums by cluster of what the correlation is made of; without a cluster its sums are left out.
    widths = float(np.ptp(x)), float(np.ptp(y))
    x, y = (x - x.mean()) / widths[0], (y - y.mean()) / widths[1]
    columns = [np.ones(x.size), x, y, x * x, y * y, x * y]
    sums = cluster_sums(columns, clusters)
    if len(sums) < 2:
        return None
    if ranked:
        # Leaving a cluster out also changes the ranks of the others.
        of_x, of_y = _counted(x, x) / widths[0], _counted(y, y) / widths[1]
        of_both = _counted(x, y) / widths[0] + _counted(y, x) / widths[1]
        sums += cluster_sums([np.zeros(x.size), -x, -y, 2 * of_x, 2 * of_y, of_both], clusters)
    totals = sums.sum(axis=0)
    values = _of_moments(np.concatenate([totals[None], totals - sums]))
    degrees = _effective_degrees(sums[:, 5])
    estimate = jackknife_interval(
        float(values[0]), values[1:], bounds=_BOUNDS, confidence=confidence, most_degrees=degrees
    )
    if estimate is None:
        return None
    if 1 - abs(estimate.mean) < 1e-12:
        # How rarely the clusters' means rise or fall together: 2 m_1! m_2! ... / C! of C, m the ties.
        means = cluster_sums(columns, clusters)
        _, ties = np.unique(np.round(means[:, 1] / means[:, 0], 12), return_counts=True)
        p_value = min(1.0, 2 * math.exp(math.fsum(map(math.lgamma, ties + 1.0)) - math.lgamma(len(means) + 1)))
    elif ranked:
        p_value = _jackknife_p(estimate.mean, values[1:], degrees)
    else:
        p_value = _null_p(estimate.mean, sums)
    return Correlation(
        mean=estimate.mean, low=estimate.low, high=estimate.high, p_value=p_value, num_clusters=len(sums)
    )


def _counted(ranked: Array, values: Array) -> Array:
    """Return `[N]`: by how much each row, counted in the ranks of the others, changes the sum of rank times value.

    It is the sum of the values of the rows ranked above it, half of those ranked with it, less the mean of that.
    """
    order = np.argsort(ranked, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(values[order])])
    left, right = (np.searchsorted(ranked[order], ranked, side=side) for side in ("left", "right"))
    changes = below[-1] - (below[left] + below[right]) / 2
    return np.asarray(changes - changes.mean())


def _of_moments(sums: Array) -> Array:
    """Return the correlations of `[R, 6]` sums of 1, x, y, x^2, y^2 and x y; NaN where one of the two is constant."""
    num, sum_x, sum_y, sum_xx, sum_yy, sum_xy = sums.T
    size = np.maximum(num, 1.0)
    spread_x, spread_y = sum_xx - sum_x**2 / size, sum_yy - sum_y**2 / size
    # What is left of equal values is rounding.
    defined = (spread_x > 1e-12 * sum_xx) & (spread_y > 1e-12 * sum_yy)
    scale = np.sqrt(np.where(defined, spread_x * spread_y, 1.0))
    return np.where(defined, np.clip((sum_xy - sum_x * sum_y / size) / scale, -1.0, 1.0), np.nan)


def _effective_degrees(products: Array) -> float:
    """Return two fewer than the clusters whose products count, (sum |u|)^2 / sum u^2, and at least one.

    Where most products are near 0 (effects of tokens, most of which have none) few clusters make the correlation, and
    signs of few clusters agree by chance more often than the t distribution of all of them knows.
    """
    squares = float(products @ products)
    return max(1.0, float(np.abs(products).sum()) ** 2 / squares - 2) if squares > 0 else 1.0


def _jackknife_p(value: float, without: Array, most_degrees: float) -> float:
    """Return the two-sided p-value of t = z / se(z); 1 where a cluster is needed for there to be a correlation."""
    deviations = without - without.mean()
    error = math.sqrt(float(deviations @ deviations) * (len(without) - 1) / len(without))
    if not error > 0:
        return 1.0
    t = math.atanh(value) * (1 - value**2) / error
    return float(2 * stdtr(min(degrees_of_freedom(deviations), most_degrees), -abs(t)))


def _null_p(value: float, sums: Array) -> float:
    """Return the two-sided p-value of t = r sqrt((n - 2) / (1 - r^2)), n the rows over their design effect."""
    sizes = sums[:, 0]
    pairs = float((sizes * (sizes - 1)).sum())
    effect = 1.0
    if pairs:
        # the covariance of two rows of a cluster over the variance, of x and of y
        within = [float((sums[:, first] ** 2 - sums[:, second]).sum()) / pairs for first, second in ((1, 3), (2, 4))]
        variances = [float(sums[:, second].sum() / sizes.sum()) for second in (3, 4)]
        likeness = [max(0.0, first) / second for first, second in zip(within, variances, strict=True)]
        effect += pairs / float(sizes.sum()) * likeness[0] * likeness[1]
    num = max(3.0, float(sizes.sum()) / effect)
    return float(2 * stdtr(num - 2, -abs(value) * math.sqrt((num - 2) / (1 - value**2))))
