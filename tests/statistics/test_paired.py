"""The interval of paired differences of rates: by hand, between its two extremes, and by clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from swerve.statistics import mcnemar, mean_interval, paired_difference, paired_interval


def test_few_that_vary_have_both_added_cases_whole():
    """Differences .5, .5, 0 and the two added, +1 and -1; no end leaves the bounds."""
    found = paired_interval([0.5, 0.5, 0.0])
    half = stats.t.ppf(0.975, 4) * np.std([0.5, 0.5, 0, 1, -1], ddof=1) / math.sqrt(5)
    assert (found.mean, found.low, found.high) == pytest.approx((1 / 3, 0.2 - half, 1.0))


def test_where_nothing_varies_it_is_not_certain():
    same = paired_interval([0.0] * 30)
    assert same.mean == 0
    assert same.high == pytest.approx(stats.t.ppf(0.975, 31) * math.sqrt(2 / 31 / 32))
    assert paired_interval([1.0] * 3).high == 1
    assert paired_interval([]) is None


def test_the_added_cases_count_less_the_more_is_known():
    """Half .2 and half -.2: a kurtosis of 1, so 99 degrees of freedom and 6/99 of each case."""
    found = paired_interval([0.2] * 50 + [-0.2] * 50)
    weight = 6 / 99
    num = 100 + 2 * weight
    half = stats.t.ppf(0.975, num - 1) * math.sqrt((100 * 0.04 + 2 * weight) / (num - 1) / num)
    assert (found.low, found.high) == pytest.approx((-half, half))
    # Of many it is the plain t interval, and never wider than with both cases.
    many = np.random.default_rng(0).uniform(-0.5, 0.7, 20_000)
    plain = stats.ttest_1samp(many, 0).confidence_interval(0.95)
    found = paired_interval(many)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), abs=1e-6)
    whole = mean_interval(many[:100], bounds=(-1.0, 1.0))
    found = paired_interval(many[:100])
    assert whole.low < found.low < found.high < whole.high


def test_one_that_outweighs_all_others_leaves_them_whole():
    """One of 40 differs: a kurtosis of 38, 2.2 degrees of freedom."""
    differences = [1.0] + [0.0] * 39
    whole = mean_interval(differences, bounds=(-1.0, 1.0))
    found = paired_interval(differences)
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high))


def test_clusters_are_the_cases():
    differences, groups = [0.5, 0.1, 0.3, -0.1, 0.2, 0.4], ["a", "b", "a", "c", "c", "b"]
    found = paired_interval(differences, clusters=groups)
    assert found.low == pytest.approx(paired_interval([0.4, 0.25, 0.05]).low)
    copied = paired_interval(np.repeat(differences, 10), clusters=np.repeat(np.arange(6), 10))
    assert (copied.low, copied.high) == pytest.approx(
        (paired_interval(differences).low, paired_interval(differences).high)
    )


def test_wherever_a_difference_of_rates_stands_it_has_this_interval():
    before, after = np.array([0.0, 1, 1, 0, 0, 1]), np.array([1.0, 1, 0, 0, 1, 1])
    expected = paired_interval(after - before)
    assert paired_difference(before, after, bounds=(-1.0, 1.0))[0] == expected
    assert mcnemar(before == 1, after == 1).difference == expected
    halves = paired_difference(before / 2, after / 2, bounds=(-1.0, 1.0))[0]
    assert halves == paired_interval((after - before) / 2)


def test_what_is_no_difference_of_rates_is_refused():
    with pytest.raises(ValueError, match=r"differences must be from -1\.0 to 1\.0, got 0\.0 to 1\.5"):
        paired_interval([0.0, 1.5])
    with pytest.raises(ValueError, match="2 values need as many cluster names, got 1"):
        paired_interval([0.0, 1.0], clusters=["a"])
