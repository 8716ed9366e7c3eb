"""Intervals of shares, means, medians and differences from draws."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from swerve.estimates import Estimate, SkewedMean
from swerve.statistics.clusters import Array, Clusters, cluster_sums, finite_array
from swerve.statistics.jackknife import (
    UNBOUNDED,
    Bounds,
    degrees_of_freedom,
    equal_values,
    pseudo_values,
    quantile,
    share_of_trials,
)
from swerve.statistics.paired import cases_interval

_ROUNDING = 1e-9
_SINGLE = 1e-6  # rounding of measurements in single precision


def share(num_successes: int, num: int, *, confidence: float = 0.95) -> Estimate | None:
    """Return a share of independent trials with the exact interval of Clopper and Pearson; None if empty.

    low: P(X >= x) = a / 2,  high: P(X <= x) = a / 2,  X ~ Binomial(n, end),  a = 1 - confidence

    It covers at least as often as it says, whatever the share; Wilson's, which is narrower, covers .86 at 15 and .92 at
    100 trials with a share of .99. Source: Clopper and Pearson, Biometrika 26 (1934) 404.

    Raises:
        ValueError: more successes than trials, or a negative number.

    >>> estimate = share(45, 50)
    >>> estimate.mean, round(estimate.low, 3), round(estimate.high, 3)
    (0.9, 0.782, 0.967)
    """
    if num == 0:
        return None
    if not 0 <= num_successes <= num:
        raise ValueError(f"successes must be from 0 to the number of trials, {num}, got {num_successes}")
    quantile(confidence)  # checks it
    tail, rest = (1 - confidence) / 2, num - num_successes
    low = scipy.special.betaincinv(num_successes, rest + 1, tail) if num_successes else 0.0
    high = scipy.special.betaincinv(num_successes + 1, rest, 1 - tail) if rest else 1.0
    return Estimate(mean=num_successes / num, low=float(low), high=float(high))


def difference_interval(
    num_successes: int, num: int, other_successes: int, other_num: int, *, confidence: float = 0.95
) -> Estimate | None:
    """Return the first share minus the other with Newcombe's hybrid score interval; None where either is of nothing.

    low = d - sqrt((p - l)^2 + (u' - p')^2),  high = d + sqrt((u - p)^2 + (p' - l')^2)

    with d = p - p' and (l, u), (l', u') the Wilson intervals of two independent shares. Source: Newcombe, Statistics in
    Medicine 17 (1998) 873, method 10.

    >>> found = difference_interval(56, 70, 48, 80)
    >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4)
    (0.2, 0.0524, 0.3339)
    """
    if not num or not other_num:
        return None
    z = quantile(confidence)
    first = share_of_trials(num_successes / num, num, z)
    other = share_of_trials(other_successes / other_num, other_num, z)
    difference = first.mean - other.mean
    below = math.hypot(first.mean - first.low, other.high - other.mean)
    above = math.hypot(first.high - first.mean, other.mean - other.low)
    return Estimate(mean=difference, low=difference - below, high=difference + above)


def rows_and_columns_interval(
    values: ArrayLike, *, confidence: float = 0.95, bounds: Bounds = UNBOUNDED
) -> Estimate | None:
    """Return the mean of a table with its interval over new rows and new columns; None with fewer than two of either.

    h^2 = t_R-1^2 V_rows + max(d^2 - t_N-1^2 V_rest, 0),  V_rows = s^2 of the R rows' means / R,  V_rest = the mean
    square of what is left without rows' and columns' means / (R N),  d = reach of an interval over the N columns' means

    Rows (runs of a training) and columns (problems) are independent draws, which cross. V_rest is in both and counts
    once. Each variance keeps its own quantile: of two or three runs one quantile of Satterthwaite's degrees covers .88.
    Between two bounds d is that of `paired_interval` on each side, so that problems that all say the same do not pass
    for certainty; otherwise that of Student's t.

    Args:
        values: `[R, N]`.
        confidence: coverage of the interval.
        bounds: smallest and largest possible value, which the interval does not leave.

    Raises:
        ValueError: a value is not finite.

    >>> found = rows_and_columns_interval([[0.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (1.0, -3.355, 5.355)
    """
    table = np.asarray(values, dtype=np.float64)
    finite_array(table.ravel())
    num_rows, num_columns = table.shape
    if min(num_rows, num_columns) < 2:
        return None
    mean, by_row, by_column = float(table.mean()), table.mean(axis=1), table.mean(axis=0)
    rest = table - by_row[:, None] - by_column + mean
    left = float((rest**2).sum()) / ((num_rows - 1) * (num_columns - 1)) / table.size
    reach = [quantile(confidence, number - 1) for number in table.shape]
    of_rows = reach[0] ** 2 * float(by_row.var(ddof=1)) / num_rows
    below = above = reach[1] * math.sqrt(float(by_column.var(ddof=1)) / num_columns)
    if math.isfinite(bounds[0]) and math.isfinite(bounds[1]):
        over = cases_interval(by_column, None, confidence=confidence, bounds=bounds)
        below, above = mean - over.low, over.high - mean
    low, high = (math.sqrt(of_rows + max(side**2 - reach[1] ** 2 * left, 0.0)) for side in (below, above))
    return Estimate(mean=mean, low=max(bounds[0], mean - low), high=min(bounds[1], mean + high))


def mean_interval(
    values: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    bounds: Bounds = UNBOUNDED,
    padded: bool = True,
) -> Estimate | None:
    """Return the mean of all values with its t interval over clusters; None if empty.

    m +- t s / sqrt(C), from the C clusters' means; with clusters of different sizes from the pseudo-values of their
    delete-one jackknife. No interval leaves the bounds. The more they say, the better the interval keeps its level:

    - no bounds (differences of lengths): as it is;
    - (0, inf) (lengths): with Hall's correction for skewness, see `skewed_mean_interval`;
    - two bounds (accuracies, pass@k, their differences): two clusters are added for the interval, one at either bound,
      so that twenty problems all solved, or none of which shows an effect, do not pass for certainty (as Agresti and
      Coull, American Statistician 52 (1998), do for a proportion). The bounds are the measure's own: values near them
      may be so rare that the sample has none. Where every cluster is at 0 or 1, as with one rollout per problem, it is
      the exact interval of `share`;
    - two bounds that no value comes near (entropies) and not `padded`: as without the upper one.

    The mean is over rows: where a cluster's number of rows depends on its values (more rollouts of hard problems), the
    mean over problems is another, and has to be taken first (`accuracy_interval`). It assumes independent clusters.
    Simulated coverage at 95% with 20 to 400 problems and accuracies of .02 to .98: .94 and more.

    Args:
        values: one number each.
        clusters: which values belong together (a problem's id); by default each value is its own cluster.
        confidence: coverage of the interval.
        bounds: smallest and largest possible value.
        padded: whether values near the two bounds are plausible; False: single precision may pass them.

    Raises:
        ValueError: as many clusters as values are needed; values must be finite and within the bounds.

    >>> found = mean_interval([0.0, 1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (1.5, -0.554, 3.554)
    """
    array = finite_array(values)
    if array.size == 0:
        return None
    low, high = bounds
    if array.min() < low - _SINGLE or (padded and array.max() > high + _SINGLE):
        raise ValueError(f"values must be from {low} to {high}, got {array.min()} to {array.max()}")
    # What the bounds say decides which interval it is.
    sums = cluster_sums([array, np.ones(array.size)], clusters)
    if padded and math.isfinite(low) and math.isfinite(high):
        return _bounded_mean(sums, confidence, bounds)
    return _free_mean(sums, confidence, bounds)


def accuracy_interval(right: Sequence[Sequence[bool]], *, confidence: float = 0.95) -> Estimate | None:
    """Return the mean over problems of the fraction of samples that are right; None without a problem.

    Every problem counts once, however many samples it has: the mean over samples is of other problems where hard ones
    have more (it covers 8% and less where they have eight times as many). The interval is over problems, that of
    `mean_interval`; simulated coverage at 95%, where the number of samples depends on the problem's rate: .94 and more.

    Args:
        right: of each problem, whether each of its samples is right; one at least.
        confidence: coverage of the interval.

    >>> accuracy_interval([[True, False], [True, True], [True, False]]).mean
    0.6666666666666666
    >>> accuracy_interval([[True]] * 45 + [[False]] * 5) == share(45, 50)
    True
    """
    fractions = [sum(samples) / len(samples) for samples in right]
    return mean_interval(fractions, confidence=confidence, bounds=(0.0, 1.0))


def _bounded_mean(sums: Array, confidence: float, bounds: Bounds) -> Estimate:
    low, high = bounds
    mean = float(sums[:, 0].sum() / sums[:, 1].sum())
    at_low, at_high = (np.abs(sums[:, 0] - bound * sums[:, 1]) <= _ROUNDING for bound in bounds)
    if bounds == (0.0, 1.0) and (at_high | at_low).all() and np.ptp(sums[:, 1]) == 0:
        estimate = share(int(at_high.sum()), len(sums), confidence=confidence)
        assert estimate is not None
        return estimate
    size = float(sums[:, 1].mean())
    padded = np.concatenate([sums, [[end * size, size] for end in bounds]])
    center, deviations = pseudo_values(padded)
    reach = _standard_error(deviations) * quantile(confidence, len(padded) - 1)
    return Estimate(mean=mean, low=max(low, min(mean, center - reach)), high=min(high, max(mean, center + reach)))


def _free_mean(sums: Array, confidence: float, bounds: Bounds) -> Estimate:
    mean, deviations = pseudo_values(sums)
    num = int((sums[:, 1] > 0).sum())
    error = _standard_error(deviations)
    if num < 2 or error <= _ROUNDING * abs(mean):
        alike = equal_values(mean, num, confidence=confidence)
        return _within(alike, bounds)
    if bounds[0] == 0:
        return _within(_skewed(mean, deviations, confidence), bounds)
    reach = error * quantile(confidence, num - 1)
    return _within(Estimate(mean=mean, low=mean - reach, high=mean + reach), bounds)


def _within(estimate: Estimate, bounds: Bounds) -> Estimate:
    low, high = max(bounds[0], estimate.low), min(bounds[1], estimate.high)
    return Estimate(mean=estimate.mean, low=min(low, estimate.mean), high=max(high, estimate.mean))


def _standard_error(deviations: Array) -> float:
    num = len(deviations)
    centred = deviations - deviations.mean()
    return math.sqrt(float(centred @ centred) / (num * (num - 1))) if num > 1 else 0.0


def _skewed(mean: float, deviations: Array, confidence: float) -> Estimate:
    """Return the interval of a mean of non-negative values with Hall's cubic transformation of t."""
    num = len(deviations)
    centred = deviations - deviations.mean()
    square = float(centred @ centred)
    error = math.sqrt(square / (num * (num - 1)))
    skewness = float((centred**2) @ centred) / num / (square / num) ** 1.5
    a = skewness * math.sqrt(num * (num - 1)) / (num - 2) / math.sqrt(num) if num > 2 else 0.0
    t = quantile(confidence, degrees_of_freedom(centred))

    def inverse(y: float) -> float:
        return y if abs(a) < 1e-6 else 3 / a * (math.cbrt(1 + a * (y - a / 6)) - 1)

    low, high = mean - inverse(t) * error, mean - inverse(-t) * error
    return Estimate(mean=mean, low=min(mean, max(0.0, low)), high=max(mean, high))


_MANY = 30  # problems: the interval covers well whatever the tail
_FEW = 20  # problems: it does where they are alike
_NEGLIGIBLE = 0.01  # of the mean: a problem with less counts as one without any
_ALIKE = 0.35  # Gini coefficient


def skewed_mean_interval(
    values: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    most: float = math.inf,
    threshold: float = 0.0,
) -> SkewedMean | None:
    """Return the mean of non-negative values with many small and few large ones (divergences); None if empty.

    With t the quantile of Student's t and a = skewness / sqrt(C) the interval is

        m - g(t) se .. m - g(-t) se,   g(y) = 3 / a ((1 + a (y - a / 6))^(1/3) - 1)

    where the degrees of freedom fall with the kurtosis (`degrees_of_freedom`). It assumes independent problems, and
    that the sample has met the tail: simulated coverage at 95%, lognormal values with sigma .5 to 2 and 0 to 80% zeros,
    is .92 and more from 50 problems on (.86 at sigma 2 with 80% zeros) and .72 to .98 with 20, and .91 and more in
    every family of these where the mean is called reliable. No sample shows a tail that it has not met: of values of
    which 2% are fifty times as large every mean is called reliable, and .46 of the intervals of 30 problems hold it.
    So the median of the problems and the fraction of them above a threshold come first. Source: Hall, Journal of the
    Royal Statistical Society B 54 (1992) 221.

    Args:
        values: one number each.
        clusters: which values belong together (a problem's id); by default each value is its own cluster.
        confidence: coverage of the intervals.
        most: largest possible value.
        threshold: of the fraction of problems.

    Raises:
        ValueError: as many clusters as values are needed; values must be finite and not negative.

    >>> estimate = skewed_mean_interval([0.0] * 15 + [1.0, 1.0, 1.0, 2.0, 20.0])
    >>> estimate.mean, estimate.reliable, estimate.above.mean
    (1.25, False, 0.25)
    """
    interval = mean_interval(values, clusters=clusters, confidence=confidence, bounds=(0.0, most), padded=False)
    if interval is None:
        return None
    # Median and share above the threshold are of the problems' means.
    sums = cluster_sums([finite_array(values), np.ones(len(np.asarray(values)))], clusters)
    means = np.sort(sums[:, 0] / sums[:, 1])
    return SkewedMean(
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        reliable=_is_reliable(means),
        median=median_interval(means, confidence=confidence),
        above=share(int((means > threshold).sum()), len(means), confidence=confidence),
        threshold=threshold,
    )


def _is_reliable(ascending: Array) -> bool:
    """Return whether there are enough problems with a value that counts: a choice by shape would miss unseen tails."""
    num = int((ascending > _NEGLIGIBLE * ascending.mean()).sum())
    if num >= _MANY or num < max(_FEW, len(ascending)):
        return num >= _MANY
    places = np.arange(1, num + 1)
    gini = 2 * float(places @ ascending) / (num * float(ascending.sum())) - (num + 1) / num
    return gini < _ALIKE


def median_interval(values: ArrayLike, *, confidence: float = 0.95) -> Estimate | None:
    """Return the median of independent values with its order-statistic interval.

    Its ends are the l-th smallest and l-th largest value, l the largest with P(Binomial(n, 1/2) < l) <= (1 - c) / 2: it
    covers at least as often as it says whatever the distribution. None with fewer than six values (at 95%), and where
    so many values are equal that both ends are. Source: Conover, Practical Nonparametric Statistics (1999), 3.2.

    >>> median_interval([1, 2, 3, 4, 5, 6, 7, 8, 9])
    Estimate(mean=5.0, low=2.0, high=8.0)
    """
    array = np.sort(finite_array(values))
    place = _place(array.size, confidence)
    if place < 1 or array[place - 1] == array[array.size - place]:
        return None
    return Estimate(mean=float(np.median(array)), low=float(array[place - 1]), high=float(array[array.size - place]))


@functools.lru_cache(maxsize=256)
def _place(num: int, confidence: float) -> int:
    """Return the largest l with P(Binomial(num, 1/2) < l) <= (1 - confidence) / 2."""
    return int(np.searchsorted(scipy.stats.binom.cdf(np.arange(num), num, 0.5), (1 - confidence) / 2, side="right"))


def draw_difference(difference: Estimate, draws: Sequence[float], *, num: int, confidence: float = 0.95) -> Estimate:
    """Return a figure minus the mean of draws of a null, with an interval that holds for any other draw too.

    low = d - sqrt((d - l)^2 + (U - m)^2),  high = d + sqrt((h - d)^2 + (m - L)^2)

    with (l, h) the interval over problems of the difference d from the mean m of the draws, and (L, U) where another
    draw would be: on the logit, mean +- t s sqrt(1 + 1/K) with K - 1 degrees of freedom. Without the second part the
    next draw itself would differ from the mean of K: intervals over problems alone exclude 0 for 24 to 63% of further
    draws that differ by a standard deviation of .3 to 1 on the logit (100 problems, K = 5), this one for .3 to 5.3%.
    Source of the combination: Zou and Donner, Statistics in Medicine 27 (2008) 1693.

    Args:
        difference: of the figure from the mean of the draws, with its interval over problems.
        draws: the figure of each draw, from 0 to 1; at least two.
        num: of what a figure counts: a draw of 0 or 1 is taken to be half of one away from it.
        confidence: coverage of the interval.

    Raises:
        ValueError: there are fewer than two draws.

    >>> apart = Estimate(mean=0.15, low=0.12, high=0.18)
    >>> found = draw_difference(apart, [0.77, 0.85, 0.88, 0.9, 0.94], num=100)
    >>> round(found.low, 3), round(found.high, 3)
    (0.038, 0.459)
    """
    if len(draws) < 2:
        raise ValueError(f"the spread of draws needs at least two of them, got {len(draws)}")
    values = np.asarray(draws, dtype=np.float64)
    logits = scipy.special.logit(np.clip(values, 0.5 / num, 1 - 0.5 / num))
    reach = quantile(confidence, len(values) - 1) * float(logits.std(ddof=1)) * math.sqrt(1 + 1 / len(values))
    below, above = scipy.special.expit([logits.mean() - reach, logits.mean() + reach]).tolist()
    mean, middle = difference.mean, float(values.mean())
    return Estimate(
        mean=mean,
        low=max(-1.0, mean - math.hypot(mean - difference.low, max(0.0, above - middle))),
        high=min(1.0, mean + math.hypot(difference.high - mean, max(0.0, middle - below))),
    )
