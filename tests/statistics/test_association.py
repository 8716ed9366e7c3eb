from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from swerve.statistics import Correlation, pearson, spearman

RNG = np.random.default_rng(11)
CLUSTERS = RNG.integers(0, 12, 60)
X = np.round(RNG.normal(size=60) + 0.5 * CLUSTERS, 1)
Y = np.round(0.4 * X + RNG.normal(size=60), 1)


@pytest.mark.parametrize("found", [pearson, spearman])
def test_intervals_are_the_jackknife_on_fishers_z(found: Callable[..., Correlation]) -> None:
    result = found(X, Y, clusters=CLUSTERS, confidence=0.9)
    by_scipy = stats.pearsonr if found is pearson else stats.spearmanr
    value = by_scipy(X, Y)[0]
    names = np.unique(CLUSTERS)
    without = np.array([by_scipy(X[one != CLUSTERS], Y[one != CLUSTERS])[0] for one in names])  # ranked anew
    deviations, num = without - without.mean(), len(names)
    error = math.sqrt((num - 1) / num * (deviations**2).sum())
    z, reach = math.atanh(value), error / (1 - value**2)
    assert result.mean == pytest.approx(value)
    assert result.num_clusters == num
    reaches = (math.atanh(result.high) - z) / reach, (z - math.atanh(result.low)) / reach
    assert reaches[0] == pytest.approx(reaches[1])
    if found is pearson:
        products = [((X - X.mean()) * (Y - Y.mean()))[one == CLUSTERS].sum() for one in names]
        many = np.abs(products).sum() ** 2 / np.square(products).sum() - 2
        degrees = min(many, 2 * num / (num * (deviations**4).sum() / (deviations**2).sum() ** 2 - 1))
        assert reaches[0] == pytest.approx(stats.t.ppf(0.95, degrees))
    else:  # the infinitesimal jackknife is near the one that ranks anew
        assert stats.t.ppf(0.95, num - 1) < reaches[0] < stats.t.ppf(0.95, 4)
        assert 2 * stats.t.sf(z / reach, num - 1) < result.p_value < 2 * stats.t.sf(z / reach, 4)


def test_ranks_of_others_count_in_the_error_of_a_rank_correlation() -> None:
    """Most y are equal: with ranks held as they are, the error would be too small."""
    rng = np.random.default_rng(5)
    scores = rng.choice(3, 400, p=(0.5, 0.35, 0.15))
    products = rng.choice((-2, -1, 1, 2), 400) * (scores > 0) * (rng.random(400) < 0.6)
    found = spearman(scores, products)
    without = np.array([stats.spearmanr(np.delete(scores, i), np.delete(products, i))[0] for i in range(400)])
    error = math.sqrt(399 / 400 * ((without - without.mean()) ** 2).sum())
    assert (math.atanh(found.high) - math.atanh(found.low)) / 2 == pytest.approx(1.97 * error, rel=0.02)


def test_the_p_value_of_rows_of_their_own_is_the_usual_one() -> None:
    found, expected = pearson(X, X[::-1]), stats.pearsonr(X, X[::-1])
    assert found.p_value == pytest.approx(expected.pvalue)


def test_copies_within_a_cluster_add_no_certainty() -> None:
    x, y, names = X[:20], Y[:20], np.arange(20)
    for one in (pearson, spearman):
        once = one(x, y, clusters=names)
        copied = one(np.repeat(x, 9), np.repeat(y, 9), clusters=np.repeat(names, 9))
        assert (copied.mean, copied.low, copied.high) == pytest.approx((once.mean, once.low, once.high))
        assert copied.p_value == pytest.approx(once.p_value, rel=0.05)


def test_a_perfect_correlation_leaves_room() -> None:
    found = spearman(range(40), range(40))
    assert (found.mean, found.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.low == pytest.approx(1 - 2 * (1 - 0.05 ** (1 / 40)))
    assert found.p_value == pytest.approx(2 / math.factorial(40))
    tied = pearson([0, 0, 1, 1, 1], [5, 5, 3, 3, 3])  # one of the 10 places of two among five
    assert (tied.mean, tied.p_value) == (pytest.approx(-1.0), pytest.approx(2 / 10))


def test_falls_as_well_as_rises() -> None:
    for one in (pearson, spearman):
        down = one([1, 2, 3, 4, 5], [9, 7, 5, 3, 1])
        assert down is not None
        assert (down.mean, down.low) == (pytest.approx(-1.0), pytest.approx(-1.0))
        assert down.high == pytest.approx(1 - 2 * 0.05**0.2)


def test_independent_values_are_seldom_significant() -> None:
    rng = np.random.default_rng(0)
    for one in (pearson, spearman):
        p_values = np.array([one(rng.normal(size=30), rng.normal(size=30)).p_value for _ in range(300)])
        assert np.mean(p_values <= 0.1) == pytest.approx(0.1, abs=0.05)
        assert np.mean(p_values <= 0.5) == pytest.approx(0.5, abs=0.09)


def test_scale_and_large_means_do_not_matter() -> None:
    plain = pearson(X, Y)
    moved = pearson(X * 1e-6 + 1e3, Y * 1e6 - 1e9)
    assert plain is not None
    assert moved is not None
    assert moved.mean == pytest.approx(plain.mean, abs=1e-6)
    assert (moved.low, moved.high) == pytest.approx((plain.low, plain.high), abs=1e-6)


def test_nothing_to_correlate_is_none() -> None:
    for one in (pearson, spearman):
        assert one([], []) is None
        assert one([1, 2], [3, 4]) is None
        assert one([1, 1, 1], [1, 2, 3]) is None
        assert one([1, 2, 3], [2, 2, 2]) is None
        assert one([1, 2, 3], [1, 3, 2], clusters=["a", "a", "a"]) is None
        with pytest.raises(ValueError, match="paired values are needed, got 3 and 2"):
            one([1, 2, 3], [1, 2])
        with pytest.raises(ValueError, match="not finite"):
            one([1, 2, np.inf], [1, 2, 3])
