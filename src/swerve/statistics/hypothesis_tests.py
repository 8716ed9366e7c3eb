"""Tests of paired outcomes and of families of hypotheses, how many samples a test needs, and effect sizes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate, McNemarResult, WilcoxonResult
from swerve.statistics.clusters import Array, Clusters, finite_array, membership, paired_arrays
from swerve.statistics.intervals import mean_interval
from swerve.statistics.jackknife import UNBOUNDED, Bounds
from swerve.statistics.paired import paired_interval
from swerve.statistics.ranking import auc

_MAX_ENUMERATED = 12
_NUM_DRAWN = 1999
_NUM_QUANTILES = 4000
_MAX_EXACT = 200  # pairs; beyond, the normal approximation is within 1e-3 of the exact p-value


def mcnemar(
    first_right: Sequence[bool] | NDArray[np.bool_],
    second_right: Sequence[bool] | NDArray[np.bool_],
    *,
    confidence: float = 0.95,
) -> McNemarResult:
    """Return the mid-p McNemar test of two accuracies on the same cases, and their difference.

    p = P(|X - n/2| >= |b - n/2|) - P(X = b) with X ~ Binomial(n = b + c, 1/2); b and c count the cases only one has
    right, and 1 where they are equal. Without the half of what was seen the exact test hardly ever rejects where few
    cases differ. The interval of the difference (c - b) / num is that of `paired_interval`. Simulated coverage at 95%
    is .93 and more, size of the test at 5% .7 to 5.2%. Sources of the test: McNemar, Psychometrika 12 (1947);
    Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13 (2013) 91.

    Raises:
        ValueError: the lengths differ.

    >>> found = mcnemar([True] * 2 + [False] * 8, [True] * 10)
    >>> found.num_first_only, found.num_second_only, round(found.p_value, 6)
    (0, 8, 0.003906)
    """
    first, second = np.asarray(first_right, dtype=bool), np.asarray(second_right, dtype=bool)
    if first.shape != second.shape:
        raise ValueError(f"the same cases are needed twice, got {first.size} and {second.size}")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    discordant, fewer = only_first + only_second, min(only_first, only_second)
    p_value = 1.0  # as many on both sides: the sum below is 1 but for its rounding, which goes either way
    if only_first != only_second:
        p_value = float(
            2 * scipy.stats.binom.cdf(fewer, discordant, 0.5) - scipy.stats.binom.pmf(fewer, discordant, 0.5)
        )
    if not first.size:
        return McNemarResult(num=0, num_first_only=0, num_second_only=0, difference=None, p_value=None)
    return McNemarResult(
        num=first.size,
        num_first_only=only_first,
        num_second_only=only_second,
        difference=paired_interval(second.astype(float) - first, confidence=confidence),
        p_value=p_value,
    )


def paired_wilcoxon(first: ArrayLike, second: ArrayLike, *, clusters: Clusters | None = None) -> WilcoxonResult | None:
    """Return the two-sided signed-rank test of second - first, one pair per cluster; None if empty.

    It does not test the mean: of skewed differences with a mean of 0 it rejects 38% at 100 pairs and 89% at 400, so it
    can contradict an interval of the mean; `sign_flip_p` (`sign_flip_test`) is the test that belongs beside one. Where
    the signs are exchangeable it rejects 3 to 6% at a level of 5%.

    The values of a cluster are averaged first, so that a problem counts once. Zero differences are ranked and then
    left out (Pratt), ties share their mean rank. Up to 200 pairs the p-value is exact given the ranks (all sign
    patterns equally likely, ties and zeros included); beyond, normal. Sources: Wilcoxon, Biometrics 1 (1945); Pratt,
    Journal of the American Statistical Association 54 (1959); effect size: Kerby, Comprehensive Psychology 3 (2014).

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> paired_wilcoxon([0, 0, 0, 0, 0], [1, 2, 3, 4, 5]).p_value
    0.0625
    """
    differences = _cluster_differences(first, second, clusters)
    if not len(differences):
        return None
    # Zero differences are ranked with the others, and have no sign.
    ranks = scipy.stats.rankdata(np.abs(differences))
    positive, negative = float(ranks[differences > 0].sum()), float(ranks[differences < 0].sum())
    total = positive + negative
    flips = sign_flip_test(first, second, clusters=clusters)
    assert flips is not None, "there are differences"
    return WilcoxonResult(
        num_pairs=len(differences),
        median_difference=float(np.median(differences)),
        statistic=positive,
        p_value=_signed_rank_p(ranks[differences != 0], positive),
        sign_flip_p=flips,
        effect_size=(positive - negative) / total if total else 0.0,
    )


def sign_flip_test(first: ArrayLike, second: ArrayLike, *, clusters: Clusters | None = None) -> float | None:
    """Return the two-sided p-value of a mean of second - first of 0, one pair per cluster; None if empty.

    p = P(|sum of s_c d_c| >= |sum of d_c|), every s_c +1 or -1 with probability 1/2

    over all patterns of signs up to 12 clusters whose difference is not 0; beyond, over 1,999 drawn ones and the one
    seen, always the same draws for a number of clusters. It holds its level where signs are exchangeable (nothing was
    changed, and each difference is as likely as its negative), whatever the tails: 3 to 6% at a level of 5%. Source:
    Fisher, The Design of Experiments (1935), section 21.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> sign_flip_test([0, 0, 0, 0, 0], [1, 2, 3, 4, 5])
    0.0625
    """
    differences = _cluster_differences(first, second, clusters)
    if not len(differences):
        return None
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    # In units of the largest difference, so that single precision is enough.
    moved = (moved / np.abs(moved).max()).astype(np.float32)
    flipped = np.abs(_signs(len(moved)) @ moved)
    as_large = int((flipped >= abs(moved.sum()) - 1e-4).sum())
    drawn = len(moved) > _MAX_ENUMERATED
    return (as_large + drawn) / (len(flipped) + drawn)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    bounds: Bounds = UNBOUNDED,
) -> tuple[Estimate | None, float | None]:
    """Return the mean of second - first, one pair per cluster, with its interval, and the p-value of 0; None if empty.

    The interval is that of `paired_interval` of rates (bounds -1 and 1), else of `mean_interval`. The p-value is that
    of `mcnemar` where each cluster is one pair of fractions that are all 0 or 1, else of `sign_flip_test`.

    Args:
        first: values of the cases.
        second: values of the same cases.
        clusters: which pairs belong together; by default each is its own cluster.
        confidence: coverage of the interval.
        bounds: smallest and largest possible difference; -1 and 1 of fractions.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> paired_difference([0, 0, 0, 0, 0], [1, 2, 3, 4, 5])[1]
    0.0625
    """
    before, after = paired_arrays(first, second)
    alone = clusters is None or len(set(clusters)) == before.size
    if bounds == (-1.0, 1.0) and alone and np.isin([before, after], [0, 1]).all():
        test = mcnemar(before == 1, after == 1, confidence=confidence)
        return test.difference, test.p_value
    interval = paired_interval if bounds == (-1.0, 1.0) else mean_interval
    estimate = interval(after - before, clusters=clusters, confidence=confidence, bounds=bounds)
    return estimate, sign_flip_test(before, after, clusters=clusters)


@functools.lru_cache(maxsize=4)
def _signs(num: int) -> NDArray[np.float32]:
    """Return `[patterns, num]` signs: all of them, or 1,999 drawn."""
    if num <= _MAX_ENUMERATED:
        bits = (np.arange(2**num)[:, None] >> np.arange(num)) & 1
    else:
        bits = np.random.default_rng(num).integers(0, 2, size=(_NUM_DRAWN, num), dtype=np.int8)
    return (2 * bits - 1).astype(np.float32)


def _cluster_differences(first: ArrayLike, second: ArrayLike, clusters: Clusters | None) -> NDArray[np.float64]:
    """Return each cluster's mean of second - first."""
    before, after = paired_arrays(first, second)
    _, index = membership(clusters, before.size)
    differences: NDArray[np.float64] = np.bincount(index, weights=after - before) / np.bincount(index)
    return differences


def _signed_rank_p(ranks: NDArray[np.float64], positive: float) -> float:
    """Return P(|W - mean| >= |positive - mean|), W the sum of the ranks, each counted with probability 1/2."""
    if len(ranks) == 0:
        return 1.0
    distance = abs(positive - ranks.sum() / 2)
    if len(ranks) > _MAX_EXACT:
        z = max(0.0, distance - 0.25) / math.sqrt(float((ranks**2).sum()) / 4)  # mean ranks come in halves
        return float(min(1.0, 2 * scipy.stats.norm.sf(z)))
    doubled = np.sort(np.rint(2 * ranks).astype(np.int64))
    probs = _rank_sum_probs(tuple(doubled.tolist()))
    away = np.abs(np.arange(len(probs)) - doubled.sum() / 2)
    return float(min(1.0, probs[away >= 2 * distance - 1e-6].sum()))


@functools.lru_cache(maxsize=16)
def _rank_sum_probs(doubled: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the probability of each value of twice the sum of ranks, each counted with probability 1/2."""
    probs = np.ones(1)
    for rank in doubled:
        longer = np.zeros(len(probs) + rank)
        longer[: len(probs)] += probs / 2
        longer[rank:] += probs / 2
        probs = longer
    return probs


def _adjusted(p_values: Sequence[float | None], adjust: Callable[[Array], Array]) -> list[float | None]:
    """Return p-values as a rule adjusts the ascending ones of the family; None stays None."""
    known = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    values = np.array([value for value, _ in known], dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("p-values must be between 0 and 1, or None where there was no test")
    adjusted: list[float | None] = [None] * len(p_values)
    for (_, index), value in zip(known, adjust(values).tolist(), strict=True):
        adjusted[index] = value
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for the false discovery rate of the family; None stays None.

    adjusted_(k) = min over j >= k of p_(j) m / j, with p_(1) <= ... <= p_(m). At a rate, the hypotheses are rejected
    whose adjusted p-value is at most that. Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B
    57 (1995).

    Raises:
        ValueError: a p-value is not between 0 and 1.

    >>> benjamini_hochberg([0.01, None, 0.04, 0.03])
    [0.03, None, 0.04, 0.04]
    """
    return _adjusted(p_values, lambda p: np.minimum.accumulate((p * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1])


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted so that the chance of any false rejection in the family is controlled; None stays None.

    adjusted_(k) = max over j <= k of min(1, (m - j + 1) p_(j)), with p_(1) <= ... <= p_(m). It holds whatever the tests
    have in common, as comparisons with one baseline do. Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65.

    Raises:
        ValueError: a p-value is not between 0 and 1.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    return _adjusted(p_values, lambda p: np.minimum(1.0, np.maximum.accumulate((len(p) - np.arange(len(p))) * p)))


def paired_t_test(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return the two-sided p-value of a mean of second - first of 0, by Student's t; None with fewer than two pairs.

    p = P(|T| >= |m| sqrt(n) / s) with n - 1 degrees of freedom. It assumes that differences are normal, which few pairs
    cannot show. Simulated size at 5% with 3 to 8 pairs: 5% of normal values, 1.4 to 3.8% where 5 to 20% of the values
    on both sides are 0 in place of .6 +- .03, as those of collapsed runs are. Where all differences are equal there is
    no spread to compare with: 1 if they are 0, else None. Source: Student, Biometrika 6 (1908).

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> round(paired_t_test([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]), 4)
    0.0742
    """
    effect = cohens_d_paired(first, second)
    differences = _cluster_differences(first, second, None)
    if effect is None:
        return 1.0 if len(differences) > 1 and not differences.any() else None
    return float(2 * scipy.stats.t.sf(abs(effect) * math.sqrt(len(differences)), len(differences) - 1))


def detectable_difference(num: int, sd: float, *, power: float = 0.8, level: float = 0.05) -> float | None:
    """Return the mean difference that a paired t-test finds with a probability of `power`; None with one pair.

    The d with P(|T'| > t) = power, T' noncentral t with num - 1 degrees of freedom and noncentrality d sqrt(num) / sd,
    t the two-sided critical value of `level`. It assumes normal differences, and is no better than the guess of their
    standard deviation. Of right and wrong answers to the same problems, the standard deviation is at most the square
    root of the fraction of problems on which two models disagree. Source: Cohen, Statistical Power Analysis (1988),
    section 2.3.

    Raises:
        ValueError: a negative standard deviation, or a power that is not between the level and 1.

    >>> round(detectable_difference(5, 0.03), 4), round(detectable_difference(400, 0.2**0.5), 4)
    (0.0505, 0.0628)
    """
    if sd < 0 or not level < power < 1:
        raise ValueError(f"sd must be at least 0 and power between {level} and 1, got {sd} and {power}")
    if num < 2:
        return None
    degrees = num - 1
    critical = float(scipy.stats.t.isf(level / 2, degrees))

    # Over the distribution of s / sd, by its quantiles: scipy's noncentral t is NaN where it is needed most.
    spread = np.sqrt(scipy.stats.chi2.ppf((np.arange(_NUM_QUANTILES) + 0.5) / _NUM_QUANTILES, degrees) / degrees)

    def lacking(shift: float) -> float:
        rejected = scipy.stats.norm.cdf(shift - critical * spread) + scipy.stats.norm.cdf(-shift - critical * spread)
        return float(rejected.mean()) - power

    return float(scipy.optimize.brentq(lacking, 0.0, 4 * critical + 10)) * sd / math.sqrt(num)


def false_positive_rate(num: int, gap: float) -> float:
    """Return P(|X/n - Y/n| >= gap) of independent X, Y ~ Binomial(n, 1/2): no effect, yet a gap is seen.

    With another rate of success than 1/2 it is smaller.

    Raises:
        ValueError: no samples, or a gap outside 0..1.

    >>> round(false_positive_rate(10, 0.2), 3), round(false_positive_rate(64, 0.2), 3)
    (0.503, 0.027)
    """
    _check_gap(gap)
    if num < 1:
        raise ValueError(f"at least one sample is needed, got {num}")
    least = math.ceil(gap * num - 1e-9)  # successes that make the gap, whatever 0.2 * 10 is in binary
    return float(2 * scipy.stats.binom.sf(num + least - 1, 2 * num, 0.5))  # X + (n - Y) is Binomial(2n, 1/2)


def samples_for_false_positive_rate(gap: float, rate: float) -> int:
    """Return the least n such that n and every larger number of samples keep a `false_positive_rate`.

    The rate falls with n in a sawtooth (gap x n is not whole), so the first n that keeps it may be followed by ones
    that do not. By Hoeffding's inequality, P(|X - Y| >= gap n) <= 2 exp(-n gap^2), all n above ln(2 / rate) / gap^2
    keep it; the least is searched below. Source: Hoeffding, Journal of the American Statistical Association 58 (1963).

    Raises:
        ValueError: a gap or rate outside 0..1.

    >>> samples_for_false_positive_rate(0.2, 0.05)
    51
    """
    _check_gap(gap)
    if not 0 < rate < 1:
        raise ValueError(f"the false positive rate must be above 0 and below 1, got {rate}")
    num = math.ceil(math.log(2 / rate) / gap**2)
    while num > 1 and false_positive_rate(num - 1, gap) <= rate:
        num -= 1
    return num


def _check_gap(gap: float) -> None:
    if not 0 < gap <= 1:
        raise ValueError(f"the gap is a difference of shares, above 0 and at most 1; got {gap}")


def cohens_d_paired(first: ArrayLike, second: ArrayLike, *, clusters: Clusters | None = None) -> float | None:
    """Return the mean of second - first in units of its standard deviation (d_z), one pair per cluster.

    The values of a cluster are averaged first. None with fewer than two pairs, or where all differences are equal.
    Source: Cohen, Statistical Power Analysis (1988), section 2.3.5.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> cohens_d_paired([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    2.0
    """
    differences = _cluster_differences(first, second, clusters)
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return float(differences.mean() / differences.std(ddof=1))


def cliffs_delta(values: ArrayLike, others: ArrayLike) -> float | None:
    """Return P(value > other) - P(value < other) over all pairs: 1 where every value is larger; None if empty.

    Source: Cliff, Psychological Bulletin 114 (1993).

    Raises:
        ValueError: a number is not finite.

    >>> cliffs_delta([3, 4], [1, 2, 3])
    0.8333333333333333
    """
    first, second = finite_array(values), finite_array(others)
    area = auc(np.concatenate([first, second]), np.arange(first.size + second.size) < first.size)
    return None if area is None else 2 * area - 1
