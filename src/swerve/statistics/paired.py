"""The interval of a difference of rates that is paired over problems."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, cluster_sums, finite_array
from swerve.statistics.jackknife import Bounds, degrees_of_freedom, pseudo_values, quantile

_SINGLE = 1e-6  # rounding of measurements in single precision
_FULL = 6.0  # degrees of freedom up to which the added cases count whole


def paired_interval(
    differences: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    bounds: Bounds = (-1.0, 1.0),
) -> Estimate | None:
    """Return the mean of paired differences of rates with its t interval over clusters; None if empty.

        c +- t(n - 1) s / sqrt(n),  n = C + 2 w,  w = min(1, 6 / nu)

    with c and s the mean and standard deviation of the C clusters' means and of two added cases, one at either bound,
    that count w each; nu are the degrees of freedom of what varies (`degrees_of_freedom`): where few problems differ,
    or none, the added cases count whole, and where many do hardly at all. Simulated coverage at 95%, 30 to 3,000
    problems of 1 to 64 samples, equal and heavy-tailed difficulty, accuracy and pass@k: .93 to 1; in groups of ten .93
    to 1. No interval shows what no problem did: where 1 in 100 of 200 problems, alike otherwise, changes from wrong to
    right, it covers .88 to .91.

    Args:
        differences: one number each.
        clusters: which differences belong together (a problem's group); by default each is its own cluster.
        confidence: coverage of the interval.
        bounds: smallest and largest possible difference.

    Raises:
        ValueError: as many clusters as differences are needed; they must be finite and within the bounds.

    >>> found = paired_interval([0.5, 0.25, 0.0, 0.25])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (0.25, -0.531, 0.864)
    """
    array = finite_array(differences)
    if array.size == 0:
        return None
    low, high = bounds
    if array.min() < low - _SINGLE or array.max() > high + _SINGLE:
        raise ValueError(f"differences must be from {low} to {high}, got {array.min()} to {array.max()}")
    return cases_interval(array, clusters, confidence=confidence, bounds=bounds)


def cases_interval(
    values: Array,
    clusters: Clusters | None,
    *,
    confidence: float = 0.95,
    bounds: Bounds = (-1.0, 1.0),
    most_degrees: float = math.inf,
) -> Estimate:
    """Return the interval of `paired_interval` of what problems add to a mean, which may leave its bounds.

    Args:
        values: one number each.
        clusters: which values belong together.
        confidence: coverage of the interval.
        bounds: of the mean.
        most_degrees: of freedom, where less is known than there are clusters.

    >>> found = cases_interval(np.array([0.5, 0.25, 0.0, 0.25]), None)
    >>> round(found.low, 3), round(found.high, 3)
    (-0.531, 0.864)
    """
    # Two cases are added; how much they count rests on how much of the spread is known.
    low, high = bounds
    mean, deviations = pseudo_values(cluster_sums([values, np.ones(values.size)], clusters))
    centred = deviations - deviations.mean()
    weight = 1.0
    if np.abs(centred).max() > _SINGLE:
        weight = min(1.0, _FULL / degrees_of_freedom(centred))
    num = len(centred) + 2 * weight
    center = (len(centred) * mean + weight * (low + high)) / num
    apart = centred + mean - center
    square = float(apart @ apart) + weight * ((low - center) ** 2 + (high - center) ** 2)
    reach = quantile(confidence, min(num - 1, most_degrees)) * math.sqrt(square / (num - 1) / num)
    return Estimate(mean=mean, low=max(low, min(mean, center - reach)), high=min(high, max(mean, center + reach)))
