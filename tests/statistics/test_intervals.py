from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import binomtest

from swerve.estimates import Estimate
from swerve.statistics import bootstrap_mean, bootstrap_ratio, bootstrap_statistic, difference_interval, share


def test_wilson_interval_against_the_closed_form():
    n, p, z = 50, 0.9, 1.959963984540054
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert asdict(share(45, 50)) == {
        "mean": 0.9,
        "low": pytest.approx(centre - half, abs=1e-9),
        "high": pytest.approx(centre + half, abs=1e-9),
    }


@pytest.mark.parametrize(("right", "num"), [(0, 7), (7, 7), (3, 7), (1, 1), (499, 1000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.998])
def test_wilson_interval_is_scipys(right, num, confidence):
    low, high = binomtest(right, num).proportion_ci(confidence_level=confidence, method="wilson")
    assert share(right, num, confidence=confidence) == Estimate(mean=right / num, low=low, high=high)


@pytest.mark.parametrize("right", [-1, 8])
def test_a_share_of_impossible_counts_is_refused(right):
    with pytest.raises(ValueError, match=f"from 0 to the number of trials, 7, got {right}"):
        share(right, 7)


def test_nothing_measured_is_none():
    assert share(0, 0) is None
    assert bootstrap_mean([]) is None


def test_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(300):
        interval = bootstrap_mean(rng.normal(1.0, 1.0, 40), confidence=0.9, num_resamples=300, seed=seed)
        assert interval is not None
        hits += interval.low <= 1.0 <= interval.high
    assert 0.84 < hits / 300 < 0.95


def test_copies_within_a_cluster_add_no_certainty():
    values = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    once = bootstrap_mean(values, clusters=list(range(6)), seed=3)
    copied = bootstrap_mean(np.repeat(values, 50), clusters=list(np.repeat(range(6), 50)), seed=3)
    assert asdict(once) == pytest.approx(asdict(copied))


def test_equal_values_leave_room_where_bounds_are_known():
    found = bootstrap_mean([0.0] * 5, bounds=(-1.0, 1.0))
    assert asdict(found) == {
        "mean": 0.0,
        "low": pytest.approx(-0.450720, abs=1e-6),
        "high": pytest.approx(0.450720, abs=1e-6),
    }
    assert asdict(bootstrap_mean([1.0] * 59, bounds=(0.0, 1.0))) == {
        "mean": 1.0,
        "low": pytest.approx(0.05 ** (1 / 59)),
        "high": 1.0,
    }
    assert bootstrap_mean([59.0] * 5) == Estimate(mean=59.0, low=59.0, high=59.0)


def test_resampling_in_blocks_changes_nothing(monkeypatch):
    values = np.random.default_rng(1).normal(size=50)
    whole = bootstrap_mean(values, num_resamples=100)
    monkeypatch.setattr("swerve.statistics.resampling._MAX_DRAWS", 170)
    assert bootstrap_mean(values, num_resamples=100) == whole


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_mean([1.0, math.nan])
    with pytest.raises(ValueError, match="2 values need as many cluster names, got 1"):
        bootstrap_mean([1.0, 2.0], clusters=["a"])


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


VALUES = [3.0, -1.0, 4.0, 1.0, 5.0, 9.0, -2.0]
OTHERS = [1.0, 2.0, 1.0, 4.0, 3.0, 5.0, 2.0]
CLUSTERS = ["b", "a", "b", "c", "a", "d", "c"]


def test_bootstrap_statistic_of_a_mean_is_bootstrap_mean():
    array = np.array(VALUES)
    found = bootstrap_statistic(
        lambda rows: float(array[rows].mean()), 7, clusters=CLUSTERS, confidence=0.8, num_resamples=400, seed=5
    )
    assert found == pytest.approx(
        bootstrap_mean(VALUES, clusters=CLUSTERS, confidence=0.8, num_resamples=400, seed=5), abs=1e-12
    )


def test_bootstrap_ratio_against_rows_resampled_one_by_one():
    tops, bottoms = np.array(VALUES), np.array(OTHERS)
    found = bootstrap_ratio(VALUES, OTHERS, clusters=CLUSTERS, confidence=0.8, num_resamples=400, seed=5)
    slow = bootstrap_statistic(
        lambda rows: float(tops[rows].sum() / bottoms[rows].sum()),
        7,
        clusters=CLUSTERS,
        confidence=0.8,
        num_resamples=400,
        seed=5,
    )
    assert found is not None
    assert found == pytest.approx(slow, abs=1e-12)
    assert found.mean == pytest.approx(19 / 18)
    assert found.low < 19 / 18 < found.high


def test_every_pattern_of_resampling_is_equally_likely():
    """Two clusters: the larger twice, the smaller twice, or one each, with chances 1/4, 1/4 and 1/2."""
    seen = []
    bootstrap_statistic(lambda rows: seen.append(tuple(sorted(rows))) or 1.0, 3, clusters=["x", "y", "x"], seed=2)
    counts = {pattern: seen.count(pattern) / 2000 for pattern in set(seen[1:])}
    assert counts.keys() == {(0, 0, 2, 2), (0, 1, 2), (1, 1)}
    assert counts[0, 0, 2, 2] == pytest.approx(0.25, abs=0.03)
    assert counts[1, 1] == pytest.approx(0.25, abs=0.03)
    assert seen[0] == (0, 1, 2)


def test_statistics_that_are_often_undefined_are_none():
    # Of two rows the second is needed: it is missing from a quarter of the resamples.
    found = bootstrap_statistic(lambda rows: 2.0 if 1 in rows else None, 2)
    assert asdict(found) == {"mean": 2.0, "low": 2.0, "high": 2.0}
    # All of three rows are needed: they are in 6 of 27 resamples.
    assert bootstrap_statistic(lambda rows: 1.0 if len(set(rows)) == 3 else math.nan, 3) is None
    assert bootstrap_statistic(lambda rows: None, 4) is None
    assert bootstrap_statistic(lambda rows: math.inf, 4) is None
    assert bootstrap_statistic(lambda rows: 1.0, 0) is None


def test_ratios_of_nothing_are_none():
    assert bootstrap_ratio([], []) is None
    assert bootstrap_ratio([1.0, 2.0], [0.0, 0.0]) is None
    assert bootstrap_ratio([0.0] * 9 + [1.0], [0.0] * 9 + [2.0]) == Estimate(mean=0.5, low=0.5, high=0.5)
    # A denominator in 1 of 2 clusters is missing from 1/4 of the resamples, in 1 of 50 from 0.36 of them.
    assert bootstrap_ratio([0.0, 1.0], [0.0, 4.0]) == Estimate(mean=0.25, low=0.25, high=0.25)


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="2 numerators need as many denominators, got 1"):
        bootstrap_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="3 values need as many cluster names, got 2"):
        bootstrap_statistic(lambda rows: 1.0, 3, clusters=["a", "b"])
    with pytest.raises(ValueError, match="flatten it first"):
        bootstrap_mean([[1.0, 2.0]])
    with pytest.raises(ValueError, match="confidence must be above 0 and below 1, got 95"):
        bootstrap_mean([1.0, 2.0], confidence=95)
