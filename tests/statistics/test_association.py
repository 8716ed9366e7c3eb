from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from swerve.statistics import bootstrap_statistic, pearson, spearman

RNG = np.random.default_rng(11)
CLUSTERS = RNG.integers(0, 12, 60)
X = np.round(RNG.normal(size=60) + 0.5 * CLUSTERS, 1)
Y = np.round(0.4 * X + RNG.normal(size=60), 1)


def oracle(function: Callable[..., tuple[float, float]], rows: np.ndarray) -> float:
    return float(function(X[rows], Y[rows])[0])


@pytest.mark.parametrize(("found", "function"), [(pearson, stats.pearsonr), (spearman, stats.spearmanr)])
def test_intervals_against_rows_resampled_one_by_one(found: Callable, function: Callable) -> None:
    options = {"clusters": CLUSTERS, "confidence": 0.9, "num_resamples": 200, "seed": 7}
    result = found(X, Y, **options)
    expected = bootstrap_statistic(lambda rows: oracle(function, rows), 60, **options)
    assert expected is not None
    assert {name: getattr(result, name) for name in asdict(expected)} == pytest.approx(asdict(expected), abs=1e-12)
    assert result.num_clusters == len(set(CLUSTERS))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [one(X, Y, clusters=CLUSTERS, num_resamples=50) for one in (pearson, spearman)]
    monkeypatch.setattr("swerve.statistics.resampling._MAX_DRAWS", 700)
    blocks = [one(X, Y, clusters=CLUSTERS, num_resamples=50) for one in (pearson, spearman)]
    assert [asdict(one) for one in whole] == [pytest.approx(asdict(one)) for one in blocks]


def test_p_values_invert_the_bootstrap() -> None:
    strong = spearman(range(40), range(40), num_resamples=199)
    assert strong is not None
    assert strong.mean == pytest.approx(1.0)
    assert strong.p_value == 2 / 200  # no resample on the other side of 0
    resampled: list[float] = []

    def kept(rows: np.ndarray) -> float:
        resampled.append(float(stats.pearsonr(X[rows], X[::-1][rows])[0]))
        return resampled[-1]

    bootstrap_statistic(kept, 60, num_resamples=199)
    other = min(sum(one <= 0 for one in resampled[1:]), sum(one >= 0 for one in resampled[1:]))
    weak = pearson(X, X[::-1], num_resamples=199)
    assert weak is not None
    assert weak.p_value == pytest.approx(min(1.0, 2 * (1 + other) / 200))
    assert other > 5


def test_falls_as_well_as_rises() -> None:
    for one in (pearson, spearman):
        down = one([1, 2, 3, 4, 5], [9, 7, 5, 3, 1])
        assert down is not None
        assert (down.mean, down.high) == (pytest.approx(-1.0), pytest.approx(-1.0))


def test_independent_values_are_seldom_significant() -> None:
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(150):
        found = spearman(rng.normal(size=30), rng.normal(size=30), num_resamples=199)
        assert found is not None
        p_values.append(found.p_value)
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=0.07)
    assert np.mean(np.array(p_values) <= 0.5) == pytest.approx(0.5, abs=0.12)


def test_scale_and_large_means_do_not_matter() -> None:
    plain = pearson(X, Y, num_resamples=100)
    moved = pearson(X * 1e-6 + 1e3, Y * 1e6 - 1e9, num_resamples=100)
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
