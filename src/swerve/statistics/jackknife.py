"""Intervals from what a statistic is without each cluster: the delete-one-cluster jackknife.

Source: Efron and Stein, Annals of Statistics 9 (1981); Davison and Hinkley, Bootstrap Methods (1997), section 3.2.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array

Bounds = tuple[float, float]
"""Smallest and largest possible value; either may be infinite."""

UNBOUNDED: Bounds = (-math.inf, math.inf)
_ROUNDING = 1e-9
_LEAST_DEGREES = 3.0


def quantile(confidence: float, degrees: float = math.inf) -> float:
    """Return how many standard errors a two-sided interval reaches: Student's t with so many degrees of freedom.

    Raises:
        ValueError: the confidence is not between 0 and 1.

    >>> round(quantile(0.95), 3), round(quantile(0.95, 9), 3)
    (1.96, 2.262)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
    level = (1 + confidence) / 2
    return float(scipy.special.ndtri(level) if math.isinf(degrees) else scipy.special.stdtrit(degrees, level))


def pseudo_values(sums: Array) -> tuple[float, Array]:
    """Return the mean over the rows of all clusters, and each cluster's pseudo-value less it: (C - 1) (T - T_c).

    Of clusters of one size these are their means less the mean.

    Args:
        sums: `[C, 2]`, sum of the values and number of rows.

    >>> mean, values = pseudo_values(np.array([[1.0, 2.0], [3.0, 2.0]]))
    >>> mean, values.tolist()
    (1.0, [-0.5, 0.5])
    """
    total, size = sums.sum(axis=0).tolist()
    mean = total / size
    rest = size - sums[:, 1]
    left = np.divide(sums[:, 0] - mean * sums[:, 1], rest, out=np.zeros(len(sums)), where=rest > 0)
    return mean, left * (len(sums) - 1)


def degrees_of_freedom(deviations: Array) -> float:
    """Return the degrees of freedom of a variance estimated from n deviations: min(n - 1, 2 n / (kurtosis - 1)).

    The sample variance varies as that of a chi-square of so many degrees does: with one deviation that outweighs all
    others little is known of the variance, however large n. Source: Satterthwaite, Biometrics Bulletin 2 (1946).

    >>> degrees_of_freedom(np.array([1.0, -1.0, 1.0, -1.0])), degrees_of_freedom(np.array([9.0] + [-1.0] * 9))
    (3.0, 2.81...)
    """
    squares = deviations * deviations
    spread = float(squares @ squares) * len(squares) / float(squares.sum()) ** 2 - 1
    return max(1.0, min(len(squares) - 1.0, 2 * len(squares) / spread if spread > 0 else math.inf))


def jackknife_interval(
    value: float,
    without: Array,
    *,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    most_degrees: float = math.inf,
) -> Estimate | None:
    """Return a statistic with the t interval of its delete-one jackknife; None where the value is not finite.

    se^2 = (C - 1) / C sum over c of (T_c - mean T)^2

    with T_c the statistic without cluster c, and Student's t with the degrees of freedom of `degrees_of_freedom`. Ends
    stay within the bounds: between two of one sign (shares) the interval is that of a share of p (1 - p) / se^2 trials,
    between two around 0 (correlations) it is made on the logit, which is Fisher's z, with one bound on the log. A share
    has at least three degrees of freedom: with fewer, one cluster that makes all the variation of 19 in 20 would leave
    everything open. Where all T_c are equal, or a cluster is needed for there to be a value, the interval is that of
    `equal_values`.

    Args:
        value: the statistic of all clusters.
        without: `[C]`, the statistic without each cluster; NaN where it is not defined.
        bounds: of the statistic.
        confidence: coverage of the interval.
        most_degrees: of freedom, where more is known of the clusters than their jackknife values say.
    """
    if not math.isfinite(value):
        return None
    if len(without) < 2 or not np.isfinite(without).all():
        return equal_values(value, 1, bounds=bounds, confidence=confidence)
    # Where nothing varies the rule of three says how much might.
    deviations = without - without.mean()
    error = math.sqrt(float(deviations @ deviations) * (len(without) - 1) / len(without))
    low, width = bounds[0], bounds[1] - bounds[0]
    scale = max(abs(value), width if math.isfinite(width) else 0.0)
    if error <= _ROUNDING * scale or value in bounds:
        return equal_values(value, len(without), bounds=bounds, confidence=confidence)
    degrees = min(degrees_of_freedom(deviations), most_degrees)
    if low < 0 or not math.isfinite(width):
        return transformed(value, error * quantile(confidence, degrees), bounds)
    # A share: of as many trials as have its variance.
    t = quantile(confidence, max(degrees, min(_LEAST_DEGREES, len(without) - 1.0)))
    part = (value - low) / width
    wilson = share_of_trials(part, part * (1 - part) / (error / width) ** 2, t)
    return Estimate(mean=value, low=low + width * wilson.low, high=low + width * wilson.high)


def share_of_trials(share: float, num: float, z: float) -> Estimate:
    """Return a share with the score interval of so many independent trials, which need not be a whole number.

    The ends are the q with (share - q)^2 = z^2 q (1 - q) / num. Source: Wilson, Journal of the American Statistical
    Association 22 (1927); with the number of trials that has the variance of a sample of clusters: Korn and Graubard,
    Survey Methodology 24 (1998).

    >>> found = share_of_trials(0.9, 50, 1.96)
    >>> round(found.low, 3), round(found.high, 3)
    (0.786, 0.957)
    """
    scale = 2 * (num + z**2)
    center = (2 * num * share + z**2) / scale
    reach = z / scale * math.sqrt(4 * num * share * (1 - share) + z**2)
    return Estimate(mean=share, low=0.0 if share == 0 else center - reach, high=1.0 if share == 1 else center + reach)


def transformed(value: float, reach: float, bounds: Bounds) -> Estimate:
    """Return value +- reach between two bounds on the logit, with a bound below on the log, else as it is.

    >>> found = transformed(0.9, 0.1, (0.0, 1.0))
    >>> round(found.low, 3), round(found.high, 3)
    (0.748, 0.965)
    """
    low, high = bounds
    if math.isfinite(low) and math.isfinite(high):
        part = (value - low) / (high - low)
        odds, step = part / (1 - part), reach / ((high - low) * part * (1 - part))
        below, above = odds * math.exp(-min(step, 700.0)), odds * math.exp(min(step, 700.0))
        return Estimate(
            mean=value, low=low + (high - low) * below / (1 + below), high=high - (high - low) / (1 + above)
        )
    if math.isfinite(low):
        factor = math.exp(min(reach / (value - low), 700.0))
        return Estimate(mean=value, low=low + (value - low) / factor, high=low + (value - low) * factor)
    return Estimate(mean=value, low=value - reach, high=value + reach)


def equal_values(value: float, num: int, *, bounds: Bounds = UNBOUNDED, confidence: float = 0.95) -> Estimate:
    """Return the interval of a mean of which n clusters all show the same value: the rule of three.

    With confidence c, a cluster of another value has a probability of at most p = 1 - (1 - c)^(1/n), so the mean is
    within p of the way to either bound. Source: Hanley and Lippman-Hand, Journal of the American Medical Association
    249 (1983). Where a bound is infinite there is no such limit; other values are then taken to lie within
    s = max(|value|, 1) of this one (an assumption), and of a single cluster the interval is value +- .484 s / (1 - c),
    which covers the mean of a normal distribution from one value: Wall, Boen and Tweedie, American Statistician 55
    (2001).

    >>> round(equal_values(1.0, 59, bounds=(0.0, 1.0)).low, 3), round(equal_values(5.0, 1).high, 1)
    (0.95, 53.4)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
    share = 1 - (1 - confidence) ** (1 / num)
    free = (share if num > 1 else 0.4839 / (1 - confidence)) * max(abs(value), 1.0)
    low, high = (share * abs(value - bound) if math.isfinite(bound) else free for bound in bounds)
    return Estimate(mean=value, low=value - low, high=value + high)
