from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from scipy.stats import binom, binomtest

from swerve.estimates import Estimate
from swerve.statistics import (
    accuracy_interval,
    difference_interval,
    draw_difference,
    mean_interval,
    median_interval,
    ranking_intervals,
    ratio_interval,
    share,
    share_difference,
    skewed_mean_interval,
    statistic_interval,
)
from swerve.statistics.jackknife import jackknife_interval
from tests.cases import each


def test_ends_of_a_share_leave_a_fortieth_of_the_binomial():
    estimate = share(45, 50)
    assert binom.sf(44, 50, estimate.low) == pytest.approx(0.025)
    assert binom.cdf(45, 50, estimate.high) == pytest.approx(0.025)


@each("rate", [0.5, 0.9, 0.98, 0.99, 0.999])
@each("num", [15, 100])
def test_a_share_is_covered_as_often_as_it_says_by_enumeration(rate, num):
    held = [right for right in range(num + 1) if not share(right, num).excludes(rate)]
    assert binom.pmf(held, num, rate).sum() >= 0.95


@each(("right", "num"), [(0, 7), (7, 7), (3, 7), (1, 1), (499, 1000)])
@each("confidence", [0.5, 0.95, 0.998])
def test_the_interval_of_a_share_is_scipys(right, num, confidence):
    low, high = binomtest(right, num).proportion_ci(confidence_level=confidence, method="exact")
    expected = Estimate(mean=right / num, low=low, high=high)
    assert asdict(share(right, num, confidence=confidence)) == pytest.approx(asdict(expected), abs=1e-9)


@pytest.mark.parametrize("right", [-1, 8])
def test_a_share_of_impossible_counts_is_refused(right):
    with pytest.raises(ValueError, match=f"from 0 to the number of trials, 7, got {right}"):
        share(right, 7)


def test_nothing_measured_is_none():
    assert share(0, 0) is None
    assert mean_interval([]) is None


def test_a_mean_without_bounds_has_students_interval():
    values = [3.0, -1.0, 4.0, 1.0, 5.0, 9.0, -2.0]
    low, high = stats.t.interval(0.9, 6, np.mean(values), stats.sem(values))
    found = mean_interval(values, confidence=0.9)
    assert asdict(found) == pytest.approx({"mean": 19 / 7, "low": low, "high": high})


def test_accuracy_of_several_rollouts_adds_a_problem_at_either_bound():
    values = [0.5, 0.75, 1.0, 0.25, 0.75]
    padded = [*values, 0.0, 1.0]
    low, high = stats.t.interval(0.95, 6, np.mean(padded), stats.sem(padded))
    found = mean_interval(values, bounds=(0.0, 1.0))
    assert asdict(found) == pytest.approx({"mean": 0.65, "low": low, "high": high})
    solved = mean_interval([1.0, 1.0, 1.0, 1.0, 0.99], bounds=(0.0, 1.0))
    assert solved.high == 1.0  # not beyond the bound, and not below the mean
    assert solved.low < 0.6


def test_one_rollout_per_problem_has_the_interval_of_a_share():
    found = mean_interval([1, 0, 1, 1], bounds=(0.0, 1.0))
    assert found == share(3, 4) == accuracy_interval([[True], [False], [True], [True]])
    twice = mean_interval([1, 1, 0, 0, 1, 1, 1, 1], clusters=[*"aabbccdd"], bounds=(0.0, 1.0))
    assert twice == found


def test_every_problem_counts_once_in_an_accuracy_however_many_samples_it_has():
    right = [[True], [False] * 8, [True, False], [True]]
    assert accuracy_interval(right) == mean_interval([1.0, 0.0, 0.5, 1.0], bounds=(0.0, 1.0))


def test_a_difference_is_padded_at_the_bounds_of_the_measure_not_at_the_farthest_value():
    values = [0.0, 0.1, 0.0, -0.1, 0.05]
    padded = [*values, -1.0, 1.0]
    low, high = stats.t.interval(0.95, 6, np.mean(padded), stats.sem(padded))
    assert asdict(mean_interval(values, bounds=(-1.0, 1.0))) == pytest.approx({"mean": 0.01, "low": low, "high": high})


def test_what_no_value_comes_near_only_cuts_off():
    values = [0.1, 0.4, 2.0]
    free = mean_interval(values, bounds=(0.0, math.inf))
    assert mean_interval(values, bounds=(0.0, 100.0), padded=False) == free
    assert mean_interval(values, bounds=(0.0, 2.0), padded=False) == replace(free, high=2.0)
    single = float(np.float32(math.log(2)))  # beyond ln 2 by rounding
    assert mean_interval([single] * 3, bounds=(0.0, math.log(2)), padded=False).high == single
    assert skewed_mean_interval([0.0, 0.1, 0.6], most=math.log(2)).high == math.log(2)
    change = mean_interval([0.1, 2.0], bounds=(-3.0, 3.0), padded=False)
    assert (change.low, change.high) == (-3.0, 3.0)


def test_copies_within_a_cluster_add_no_certainty():
    values = [0.0, 1.0, 0.0, 1.0, 1.0, 0.2]
    for bounds in ((-math.inf, math.inf), (0.0, math.inf), (0.0, 1.0), (-1.0, 1.0)):
        once = mean_interval(values, clusters=list(range(6)), bounds=bounds)
        copied = mean_interval(np.repeat(values, 50), clusters=list(np.repeat(range(6), 50)), bounds=bounds)
        assert asdict(once) == pytest.approx(asdict(copied))


def test_clusters_of_different_sizes_have_the_jackknife_interval():
    values, clusters = np.array([1.0, 2.0, 6.0, 3.0, 5.0, 5.0]), np.array([0, 0, 0, 1, 1, 2])
    without = np.array([values[clusters != one].mean() for one in range(3)])
    error = math.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    found = mean_interval(values, clusters=clusters)
    assert found.mean == pytest.approx(22 / 6)
    assert found.high - found.mean == pytest.approx(error * stats.t.ppf(0.975, 2))


@each("bounds", [(-math.inf, math.inf), (0.0, math.inf), (0.0, 1.0), (-1.0, 1.0)])
@each("values", [[0.0], [1.0], [0.0] * 20, [1.0] * 20, [0.5] * 3, [1.0, 0.0], [0.0] * 9 + [1e-9]])
def test_no_interval_is_without_width(values, bounds):
    found = mean_interval(values, bounds=bounds)
    assert bounds[0] <= found.low <= found.mean <= found.high <= bounds[1]
    assert found.high - found.low > 1e-10
    ratio = ratio_interval(values, [1.0] * len(values))
    assert 0.0 <= ratio.low < ratio.high <= 1.0


def test_equal_values_leave_room():
    assert asdict(mean_interval([59.0] * 5)) == pytest.approx(
        {"mean": 59.0, "low": 59 * 0.05 ** (1 / 5), "high": 59 * (2 - 0.05 ** (1 / 5))}
    )
    only = mean_interval([2.0])  # x +- 9.68 |x|: Wall, Boen and Tweedie 2001
    assert (only.low, only.high) == pytest.approx((2 - 2 * 9.68, 2 + 2 * 9.68), abs=0.01)
    assert mean_interval([2.0], bounds=(0.0, math.inf)).low == 0.0


def test_symmetric_values_have_a_symmetric_skewed_interval():
    found = skewed_mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    reach = stats.sem([1, 2, 3, 4, 5]) * stats.t.ppf(0.975, 4)
    assert (found.low, found.high) == pytest.approx((3 - reach, 3 + reach))


def test_a_long_tail_moves_both_ends_of_a_skewed_interval_up():
    values = np.exp(1.5 * np.random.default_rng(3).normal(size=60))
    plain, skewed = mean_interval(values), skewed_mean_interval(values)
    assert plain.low < skewed.low < skewed.mean == plain.mean < plain.high < skewed.high


def test_a_skewed_mean_says_whether_it_is_reliable_and_what_to_read_instead():
    rng = np.random.default_rng(2)
    assert skewed_mean_interval(np.exp(rng.normal(size=40))).reliable
    assert skewed_mean_interval(rng.normal(5.0, 1.0, size=20)).reliable
    assert not skewed_mean_interval([5.0, 5.1]).reliable
    assert not skewed_mean_interval(np.exp(1.5 * rng.normal(size=20))).reliable
    few = skewed_mean_interval([0.0] * 45 + [1.0, 2.0, 3.0, 4.0, 5.0])
    assert not few.reliable
    assert few.median is None  # its interval is 0 to 0
    assert few.above == share(5, 50)
    assert skewed_mean_interval([0.0] * 45 + [1.0, 2.0, 3.0, 4.0, 5.0], threshold=2.0).above == share(3, 50)
    two = skewed_mean_interval([1.0, 2.0, 7.0, 8.0, 9.0, 3.0], clusters=[*"aabbbc"])
    assert (two.median, two.above) == (None, share(3, 3))
    with pytest.raises(ValueError, match="values must be from 0.0 to inf, got -1.0 to 1.0"):
        skewed_mean_interval([1.0, -1.0])


def test_medians_have_the_order_statistics_of_the_binomial():
    for num in (6, 20, 25, 400):
        found = median_interval(range(num))
        place = int(found.low)  # the place-th value from either end, counted from 0
        assert found.high == num - 1 - place
        assert 2 * binom.cdf(place, num, 0.5) <= 0.05 < 2 * binom.cdf(place + 1, num, 0.5)
    assert median_interval(range(5)) is None
    assert median_interval([]) is None


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        mean_interval([1.0, math.nan])
    with pytest.raises(ValueError, match="2 values need as many cluster names, got 1"):
        mean_interval([1.0, 2.0], clusters=["a"])


def test_newcombe_intervals_of_the_paper():
    """Newcombe 1998, table II, method 10."""

    def ends(*counts: int) -> tuple[float, float]:
        found = difference_interval(*counts)
        assert found is not None
        return round(found.low, 4), round(found.high, 4)

    assert ends(56, 70, 48, 80) == (0.0524, 0.3339)
    assert ends(9, 10, 3, 10) == (0.1705, 0.8090)
    assert ends(6, 7, 2, 7) == (0.0582, 0.8062)
    assert ends(5, 56, 0, 29) == (-0.0381, 0.1926)
    assert ends(0, 10, 0, 20) == (-0.1611, 0.2775)
    assert ends(10, 10, 0, 10) == (0.6075, 1.0)


def test_a_difference_turns_its_sign_with_its_arguments():
    there, back = difference_interval(7, 20, 3, 30), difference_interval(3, 30, 7, 20)
    assert there is not None
    assert back is not None
    assert there.mean == pytest.approx(0.25)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert difference_interval(0, 0, 3, 30) is None
    assert difference_interval(3, 30, 0, 0) is None


VALUES = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
OTHERS = [5.0, 2.0, 6.0, 4.0, 7.0, 9.5, 2.0]
CLUSTERS = ["b", "a", "b", "c", "a", "d", "c"]


def test_a_ratio_has_the_interval_of_a_share_of_as_many_trials_as_have_its_jackknife_variance():
    tops, bottoms, names = np.array(VALUES), np.array(OTHERS), np.array(CLUSTERS)
    value = tops.sum() / bottoms.sum()
    without = np.array([tops[names != one].sum() / bottoms[names != one].sum() for one in "abcd"])
    deviations = without - without.mean()
    error = math.sqrt(3 / 4 * (deviations**2).sum())
    spread = 4 * (deviations**4).sum() / (deviations**2).sum() ** 2 - 1
    found = ratio_interval(VALUES, OTHERS, clusters=CLUSTERS)
    for end in (found.low, found.high):  # as far from the value as t standard errors of a share of that size are
        distance = abs(end - value) / (error * math.sqrt(end * (1 - end) / (value * (1 - value))))
        assert distance == pytest.approx(stats.t.ppf(0.975, 3))
    assert found.low < value < found.high
    positive = ratio_interval(VALUES, OTHERS, clusters=CLUSTERS, bounds=(0.0, math.inf))
    assert positive.high == pytest.approx(value * math.exp(error * stats.t.ppf(0.975, min(3, 8 / spread)) / value))
    assert positive.low * positive.high == pytest.approx(value**2)


def test_one_problem_that_fails_leaves_an_interval_that_says_something():
    """19 of 20 hits: Wilson's interval, [0.764, 0.991], with three degrees of freedom."""
    found = ratio_interval([1.0] * 19 + [0.0], [1.0] * 20)
    assert (found.low, found.high) == pytest.approx((0.591, 0.996), abs=1e-3)
    scores, labels = np.concatenate([np.arange(20), [0.5], 100 + np.arange(19)]), np.arange(40) >= 20
    ranked = ranking_intervals(scores, labels, clusters=np.repeat(np.arange(20), 2))
    assert ranked.auc.mean < 1
    assert ranked.auc.low > 0.4
    assert ranked.average_precision.low > 0.7


def test_the_share_of_the_complement_is_the_complement():
    there = ratio_interval(VALUES, OTHERS, clusters=CLUSTERS)
    back = ratio_interval(np.subtract(OTHERS, VALUES), OTHERS, clusters=CLUSTERS)
    assert (back.mean, back.low, back.high) == pytest.approx((1 - there.mean, 1 - there.high, 1 - there.low))


def test_a_statistic_of_sums_that_is_a_mean_has_its_interval():
    ones = np.ones(7)
    found = statistic_interval(lambda sums: sums[:, 0] / sums[:, 1], [VALUES, ones])
    error = np.std(VALUES, ddof=1) / math.sqrt(7)
    assert found.mean == pytest.approx(25 / 7)
    assert 1.0 < (found.high - found.mean) / (error * stats.t.ppf(0.975, 6)) < 1.1  # fewer degrees: one value is far


def test_statistics_that_need_one_cluster_have_its_interval():
    assert statistic_interval(lambda sums: np.full(len(sums), np.nan), [[1.0, 2.0]]) is None
    assert statistic_interval(lambda sums: sums[:, 0], [[]]) is None
    # the denominator is in one cluster alone: the rule of three over one
    found = ratio_interval([0.0] * 9 + [1.0], [0.0] * 9 + [2.0])
    assert asdict(found) == pytest.approx({"mean": 0.5, "low": 0.025, "high": 0.975})
    found = ratio_interval([1.0, 2.0], [2.0, 4.0])
    assert asdict(found) == pytest.approx(
        {"mean": 0.5, "low": 0.5 * math.sqrt(0.05), "high": 1 - 0.5 * math.sqrt(0.05)}
    )


def test_ratios_of_nothing_are_none():
    assert ratio_interval([], []) is None
    assert ratio_interval([1.0, 2.0], [0.0, 0.0]) is None
    assert ratio_interval([0.0, 0.0], [0.0, 0.0]) is None


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="2 numerators need as many denominators, got 1"):
        ratio_interval([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="3 values need as many cluster names, got 2"):
        statistic_interval(lambda sums: sums[:, 0], [[1.0, 1.0, 1.0]], clusters=["a", "b"])
    with pytest.raises(ValueError, match="flatten it first"):
        mean_interval([[1.0, 2.0]])
    with pytest.raises(ValueError, match="confidence must be above 0 and below 1, got 95"):
        mean_interval([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match=r"values must be from 0.0 to 1.0, got 0.5 to 2.0"):
        mean_interval([0.5, 2.0], bounds=(0.0, 1.0))
    with pytest.raises(ValueError, match=r"the value must be from 0.0 to 1.0, got 1.5"):
        ratio_interval([1.0, 2.0], [1.0, 1.0])


def test_a_share_minus_the_mean_of_others_is_their_difference_with_its_jackknife():
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(20), 3)
    own, *others = (np.stack([values * (np.arange(60) % 3 == 0), values]) for values in rng.exponential(size=(4, 60)))
    found = share_difference(own, others, clusters=names)

    def difference(rows):
        shares = [column[0, rows].sum() / column[1, rows].sum() for column in (own, *others)]
        return shares[0] - np.mean(shares[1:])

    assert found.mean == pytest.approx(difference(names >= 0))
    without = np.array([difference(names != name) for name in range(20)])
    assert found == jackknife_interval(found.mean, without, bounds=(-1.0, 1.0))
    assert share_difference(own, [np.zeros((2, 60))], clusters=names) is None


def test_a_figure_is_beyond_draws_only_where_another_draw_would_hardly_be():
    apart = Estimate(mean=0.15, low=0.12, high=0.18)
    draws = [0.77, 0.85, 0.88, 0.9, 0.94]
    found = draw_difference(apart, draws, num=100)
    reach = stats.t.ppf(0.975, 4) * logit(draws).std(ddof=1) * np.sqrt(6 / 5)
    below, above = expit(logit(draws).mean() - reach), expit(logit(draws).mean() + reach)
    assert found.low == pytest.approx(0.15 - np.hypot(0.03, above - np.mean(draws)))
    assert found.high == pytest.approx(0.15 + np.hypot(0.03, np.mean(draws) - below))
    equal = draw_difference(apart, [0.5] * 5, num=100)
    assert (equal.low, equal.high) == pytest.approx((apart.low, apart.high))
    assert draw_difference(apart, [0.0, 0.0, 1.0], num=10).excludes(0) is False, "no end is infinite"
    with pytest.raises(ValueError, match="needs at least two"):
        draw_difference(apart, [0.5], num=100)
