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

    Ties share their mean rank; ranks are those among all rows, not made anew without each cluster. The p-value is of t
    = z / se(z), from the same jackknife; simulated size at 5%: 3 to 5%, coverage at 95%: .94 and more. None with fewer
    than three rows or two clusters, or where x or y is constant. Source: Spearman, American Journal of Psychology 15
    (1904).

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
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    sums = cluster_sums([np.ones(x.size), x, y, x * x, y * y, x * y], clusters)
    if len(sums) < 2:
        return None
    totals = sums.sum(axis=0)
    values = _of_moments(np.concatenate([totals[None], totals - sums]))
    estimate = jackknife_interval(float(values[0]), values[1:], bounds=_BOUNDS, confidence=confidence)
    if estimate is None:
        return None
    return Correlation(
        mean=estimate.mean,
        low=estimate.low,
        high=estimate.high,
        p_value=_p_value(estimate.mean, values[1:], sums, ranked=ranked),
        num_clusters=len(sums),
    )


def _of_moments(sums: Array) -> Array:
    """Return the correlations of `[R, 6]` sums of 1, x, y, x^2, y^2 and x y; NaN where one of the two is constant."""
    num, sum_x, sum_y, sum_xx, sum_yy, sum_xy = sums.T
    size = np.maximum(num, 1.0)
    spread_x, spread_y = sum_xx - sum_x**2 / size, sum_yy - sum_y**2 / size
    # What is left of equal values is rounding.
    defined = (spread_x > 1e-12 * sum_xx) & (spread_y > 1e-12 * sum_yy)
    scale = np.sqrt(np.where(defined, spread_x * spread_y, 1.0))
    return np.where(defined, np.clip((sum_xy - sum_x * sum_y / size) / scale, -1.0, 1.0), np.nan)


def _p_value(value: float, without: Array, sums: Array, *, ranked: bool) -> float:
    if 1 - abs(value) < 1e-12:
        # Of all orders of the clusters' means one rises and one falls with them: 2 m_1! m_2! ... / C!, m the ties.
        _, ties = np.unique(np.round(sums[:, 1] / sums[:, 0], 12), return_counts=True)
        return min(1.0, 2 * math.exp(math.fsum(map(math.lgamma, ties + 1.0)) - math.lgamma(len(sums) + 1)))
    return _jackknife_p(value, without) if ranked else _null_p(value, sums)


def _jackknife_p(value: float, without: Array) -> float:
    """Return the two-sided p-value of t = z / se(z); 1 where a cluster is needed for there to be a correlation."""
    deviations = without - without.mean()
    error = math.sqrt(float(deviations @ deviations) * (len(without) - 1) / len(without))
    if not error > 0:
        return 1.0
    t = math.atanh(value) * (1 - value**2) / error
    return float(2 * stdtr(degrees_of_freedom(deviations), -abs(t)))


def _null_p(value: float, sums: Array) -> float:
    """Return the two-sided p-value of t = r sqrt((n - 2) / (1 - r^2)), n the rows over their design effect."""
    sizes = sums[:, 0]
    pairs = float((sizes * (sizes - 1)).sum())
    effect = 1.0
    if pairs:
        # the covariance of two rows of a cluster over the variance, of x and of y
        within = [float((sums[:, one] ** 2 - sums[:, two]).sum()) / pairs for one, two in ((1, 3), (2, 4))]
        variances = [float(sums[:, two].sum() / sizes.sum()) for two in (3, 4)]
        likeness = [max(0.0, one) / two for one, two in zip(within, variances, strict=True)]
        effect += pairs / float(sizes.sum()) * likeness[0] * likeness[1]
    num = max(3.0, float(sizes.sum()) / effect)
    return float(2 * stdtr(num - 2, -abs(value) * math.sqrt((num - 2) / (1 - value**2))))
