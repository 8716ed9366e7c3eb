from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from swerve.statistics import spearman
from tests.cases import each

RNG = np.random.default_rng(11)
CLUSTERS = RNG.integers(0, 12, 60)
X = np.round(RNG.normal(size=60) + 0.5 * CLUSTERS, 1)
Y = np.round(0.4 * X + RNG.normal(size=60), 1)


def test_intervals_are_the_jackknife_on_fishers_z() -> None:
    result = spearman(X, Y, clusters=CLUSTERS, confidence=0.9)
    assert result is not None
    value = stats.spearmanr(X, Y)[0]
    names = np.unique(CLUSTERS)
    without = np.array([stats.spearmanr(X[name != CLUSTERS], Y[name != CLUSTERS])[0] for name in names])  # ranked anew
    deviations, num = without - without.mean(), len(names)
    error = math.sqrt((num - 1) / num * (deviations**2).sum())
    z, reach = math.atanh(value), error / (1 - value**2)
    assert result.mean == pytest.approx(value)
    assert result.num_clusters == num
    reaches = (math.atanh(result.high) - z) / reach, (z - math.atanh(result.low)) / reach
    assert reaches[0] == pytest.approx(reaches[1])
    # The infinitesimal jackknife is near the one that ranks anew.
    assert stats.t.ppf(0.95, num - 1) < reaches[0] < stats.t.ppf(0.95, 4)


@each(
    ("x", "y", "clusters"),
    [
        ([1, 2, 3, 4, 5, 6], [3, 2, 1, 6, 5, 4], None),
        ([0, 0, 1, 1, 1], [5, 5, 3, 3, 3], None),
        ([1, 5, 2, 6, 3, 7, 4, 9], [2, 1, 4, 3, 8, 9, 6, 5], [0, 0, 1, 1, 2, 2, 3, 3]),
        (X[:15], Y[38:53], np.arange(15) % 5),
    ],
)
def test_the_p_value_of_few_clusters_is_over_all_their_arrangements(x: Any, y: Any, clusters: Any) -> None:
    result = spearman(x, y, clusters=clusters)
    names = np.arange(len(x)) if clusters is None else np.asarray(clusters)
    ranks, others = stats.rankdata(x) - (len(x) + 1) / 2, stats.rankdata(y) - (len(x) + 1) / 2
    places = [np.flatnonzero(names == name) for name in np.unique(names)]
    sums = np.array(
        [
            sum(float(ranks[here] @ others[there]) for here, there in zip(places, order, strict=True))
            for order in itertools.permutations(places)
        ]
    )
    assert result is not None
    distances = np.abs(sums - sums.mean())
    assert result.p_value == pytest.approx(np.mean(distances >= distances[0] - 1e-9))


def test_the_p_value_of_rows_of_their_own_is_near_the_usual_one() -> None:
    x, y = X[:20], Y[20:40]
    expected = stats.permutation_test(
        (x,), lambda values: stats.spearmanr(values, y)[0], permutation_type="pairings", n_resamples=1999, rng=1
    )
    result = spearman(x, y)
    assert result is not None
    assert result.p_value == pytest.approx(expected.pvalue, abs=0.04)


@pytest.mark.parametrize(("num", "zeros"), [(30, 0.8), (100, 0.95)])
def test_sparse_values_without_dependence_are_seldom_significant(num: int, zeros: float) -> None:
    rng = np.random.default_rng(4)
    results = [spearman(*(rng.random((2, num)) * (rng.random((2, num)) >= zeros))) for _ in range(200)]
    rejected = [result.p_value <= 0.05 for result in results if result is not None]
    assert np.mean(rejected) <= 0.07


def test_clusters_of_several_sizes_keep_the_level_and_are_found() -> None:
    rng, rejected, found = np.random.default_rng(6), 0, 0
    for _ in range(100):
        names = rng.integers(0, 40, 160)
        own, others, noise = rng.normal(size=(2, 40))[:, names], rng.normal(size=(2, 160)), rng.normal(size=160)
        independent, dependent = (
            spearman(*pair, clusters=names) for pair in (own + others, (noise + others[0], noise))
        )
        assert independent is not None
        assert dependent is not None
        rejected += independent.p_value <= 0.05
        found += dependent.p_value <= 0.05
    assert rejected <= 7
    assert found == 100


def test_what_both_have_of_the_size_of_a_cluster_is_no_dependence() -> None:
    rng = np.random.default_rng(8)
    sizes = np.repeat([2, 20], 15)
    names = np.repeat(np.arange(30), sizes)
    result = spearman(*(sizes[names] + rng.normal(size=(2, len(names)))), clusters=names)
    assert result is not None
    assert result.p_value > 0.05
    assert result.low < 0 < result.mean


def test_the_interval_excludes_0_where_the_test_rejects() -> None:
    rng = np.random.default_rng(5)
    rejected = []
    for num in (12, 40):
        for zeros in (0.0, 0.9):
            for slope in (0.0, 0.5):
                for _ in range(20):
                    first = rng.normal(size=num) * (rng.random(num) >= zeros)
                    second = slope * first + rng.normal(size=num) * (rng.random(num) >= zeros)
                    found = spearman(first, second)
                    if found is not None:
                        assert found.excludes(0) == (found.p_value < 0.05)
                        rejected.append(found.p_value < 0.05)
    assert 0.1 < np.mean(rejected) < 0.9


def test_where_the_jackknife_is_too_short_the_interval_is_that_of_the_p_value() -> None:
    """Four of twenty values of either are not 0, none of one with one of the other."""
    first, second = np.zeros(20), np.zeros(20)
    first[:4], second[4:8] = (1, 2, 3, 4), (1, 2, 3, 4)
    found = spearman(first, second)
    assert found is not None
    assert found.p_value > 0.05
    z, reach = math.atanh(found.mean), 1.959964 / stats.norm.isf(found.p_value / 2)
    assert (found.low, found.high) == pytest.approx((math.tanh(z - abs(z) * reach), math.tanh(z + abs(z) * reach)))


def test_ranks_of_others_count_in_the_error_of_a_rank_correlation() -> None:
    """Most y are equal: with ranks held as they are, the error would be too small."""
    rng = np.random.default_rng(5)
    scores = rng.choice(3, 400, p=(0.5, 0.35, 0.15))
    products = rng.choice((-2, -1, 1, 2), 400) * (scores > 0) * (rng.random(400) < 0.6)
    found = spearman(scores, products)
    without = np.array([stats.spearmanr(np.delete(scores, i), np.delete(products, i))[0] for i in range(400)])
    error = math.sqrt(399 / 400 * ((without - without.mean()) ** 2).sum())
    assert (math.atanh(found.high) - math.atanh(found.low)) / 2 == pytest.approx(1.97 * error, rel=0.02)


def test_copies_within_a_cluster_add_no_certainty() -> None:
    x, y, names = X[:20], Y[:20], np.arange(20)
    once = spearman(x, y, clusters=names)
    copied = spearman(np.repeat(x, 9), np.repeat(y, 9), clusters=np.repeat(names, 9))
    assert once is not None
    assert copied is not None
    assert (copied.mean, copied.low, copied.high) == pytest.approx((once.mean, once.low, once.high))
    assert copied.p_value == pytest.approx(once.p_value)


def test_a_perfect_correlation_leaves_room() -> None:
    result = spearman(range(40), range(40))
    assert result is not None
    assert (result.mean, result.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert result.low == pytest.approx(1 - 2 * (1 - 0.05 ** (1 / 40)))
    assert result.p_value == 1 / 2000  # the least of drawn arrangements


def test_falls_as_well_as_rises() -> None:
    down = spearman([1, 2, 3, 4, 5], [9, 7, 5, 3, 1])
    assert down is not None
    assert (down.mean, down.low) == (pytest.approx(-1.0), pytest.approx(-1.0))
    assert down.high == pytest.approx(1 - 2 * 0.05**0.2)
    assert down.p_value == pytest.approx(2 / math.factorial(5))


def test_independent_values_are_seldom_significant() -> None:
    rng = np.random.default_rng(0)
    p_values = np.array([spearman(rng.normal(size=30), rng.normal(size=30)).p_value for _ in range(300)])
    assert np.mean(p_values <= 0.1) == pytest.approx(0.1, abs=0.05)
    assert np.mean(p_values <= 0.5) == pytest.approx(0.5, abs=0.09)


def test_nothing_to_correlate_is_none() -> None:
    assert spearman([], []) is None
    assert spearman([1, 2], [3, 4]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2, 3], [2, 2, 2]) is None
    assert spearman([1, 2, 3], [1, 3, 2], clusters=["a", "a", "a"]) is None
    with pytest.raises(ValueError, match="paired values are needed, got 3 and 2"):
        spearman([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="not finite"):
        spearman([1, 2, np.inf], [1, 2, 3])
