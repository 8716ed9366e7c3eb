"""Counts of right samples: against enumeration, oracles in plain Python, and planted mixtures of problems."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from swerve.statistics.mixtures import cover_at, newly_solved, newly_solved_at_most
from swerve.statistics.pass_at_k import pass_at_k
from swerve.statistics.sample_counts import pass_at_k_differences


@pytest.fixture(scope="module")
def counts():
    """Numbers right of 200 problems with 64 samples each: a mixture with mass at 0, and what sharpening makes of it."""
    rng = np.random.default_rng(0)
    before = np.where(rng.random(200) < 0.15, 0, rng.beta(0.7, 1.5, 200))
    after = np.where((before > 0) & (rng.random(200) < (1 - before) ** 2), 0, before**0.3)
    return rng.binomial(64, before), rng.binomial(64, after)


def test_values_of_the_simulated_example(counts):
    before, after = counts
    curve, crossing = pass_at_k_differences(before, after, 64)
    rows = {row.k: row for row in curve}
    assert list(rows) == [1, 2, 4, 8, 16, 32]
    assert (rows[1].difference.mean, rows[32].difference.mean) == pytest.approx((0.025781, -0.370317), abs=1e-6)
    assert (rows[1].difference.low, rows[1].difference.high) == pytest.approx((-0.013291, 0.064343), abs=1e-6)
    assert (rows[32].difference.low, rows[32].difference.high) == pytest.approx((-0.433313, -0.299988), abs=1e-6)
    # The band rests on 2,000 draws.
    assert (rows[1].band.low, rows[1].band.high) == pytest.approx((-0.0191, 0.0702), abs=1e-3)
    assert (rows[32].band.low, rows[32].band.high) == pytest.approx((-0.4434, -0.2899), abs=2e-3)

    assert crossing == (None, 3)
    assert newly_solved_at_most(before) == pytest.approx(11.669952)
    solved = newly_solved(before, 64)
    assert solved.mean == pytest.approx(3.173996, abs=1e-6)
    assert (solved.low, solved.high) == (0, 10)


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        (0.05, (0.682827, 0.616644, 0.749011)),
        (0.25, (0.441048, 0.372178, 0.509918)),
        (0.5, (0.258217, 0.195128, 0.321306)),
        (0.95, (0.009830, 0.0, 0.023600)),
    ],
)
def test_cover_of_the_simulated_example(counts, probability, expected):
    cover = cover_at(counts[0], 64, [probability])[0]
    assert (cover.mean, cover.low, cover.high) == pytest.approx(expected, abs=1e-5)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample():
    before, after, num = [0, 1, 4, 7], [3, 0, 2, 8], 8
    rows, _ = pass_at_k_differences(before, after, num)

    def share(right, k):
        subsets = list(itertools.combinations([True] * right + [False] * (num - right), k))
        return sum(map(any, subsets)) / len(subsets)

    for row in rows:
        shares = [[share(right, row.k) for right in side] for side in (before, after)]
        assert (row.base.mean, row.trained.mean) == pytest.approx(tuple(map(np.mean, shares)))
        assert row.difference.mean == pytest.approx(np.mean(shares[1]) - np.mean(shares[0]))
    assert [row.k for row in rows] == [1, 2, 4]


def test_pass_at_k_of_many_samples_is_that_of_the_product():
    rows, _ = pass_at_k_differences([3, 0], [1000, 17], 1024)
    expected = [(pass_at_k(1024, 3, row.k) / 2, (1 + pass_at_k(1024, 17, row.k)) / 2) for row in rows[-2:]]
    assert [(row.base.mean, row.trained.mean) for row in rows[-2:]] == [pytest.approx(pair) for pair in expected]


def test_intervals_are_those_of_two_added_problems():
    """N = 3, k = 1: differences .5, .5, 0 and the two added, +1 and -1."""
    (row,), _ = pass_at_k_differences([0, 1, 1], [1, 2, 1], 2)
    values = np.array([0.5, 0.5, 0, 1, -1])
    half = stats.t.ppf(0.975, 4) * values.std(ddof=1) / math.sqrt(5)
    assert (row.difference.low, row.difference.high) == pytest.approx((0.2 - half, min(1, 0.2 + half)))
    # With one k the band is the interval, but for the 2,000 draws.
    assert (row.band.low, row.band.high) == pytest.approx((0.2 - half, min(1, 0.2 + half)), abs=0.06)
    # Where nothing differs the added problems keep it from being certain.
    (same,), _ = pass_at_k_differences([1] * 30, [1] * 30, 2)
    assert same.difference.mean == 0
    assert same.difference.high == pytest.approx(stats.t.ppf(0.975, 31) * math.sqrt(2 / 31 / 32))


def test_where_the_curves_cross():
    """A sharpened model, right always or never, is better at 1 and worse where the base has had many tries."""
    base, sharpened = [4] * 100, [16] * 60 + [0] * 40
    # pass@k is 1 - C(12, k) / C(16, k): .25, .45, .61, .73 against .6, shown from .1 on.
    assert pass_at_k_differences(base, sharpened, 16)[1] == (2, 4)
    assert pass_at_k_differences(sharpened, base, 16)[1] == (None, None)
    assert pass_at_k_differences(base, base, 16)[1] == (None, None)
    assert pass_at_k_differences(base, [8] * 100, 16)[1] == (8, None)


def test_how_the_newly_solved_are_extrapolated():
    """The mixture after a hundred steps of EM, by loops."""
    num, counts = 4, [0, 0, 0, 1, 2, 4]
    chances = [0.0, *np.geomspace(0.001, 0.05, 8), *np.linspace(0.075, 0.95, 36), 0.97, 0.985, 1.0]
    weights = [1 / len(chances)] * len(chances)
    for _ in range(100):
        after = [0.0] * len(chances)
        for right in counts:
            joint = [
                weight * math.comb(num, right) * p**right * (1 - p) ** (num - right)
                for weight, p in zip(weights, chances, strict=True)
            ]
            after = [value + part / sum(joint) / len(counts) for value, part in zip(after, joint, strict=True)]
        weights = after
    pairs = list(zip(weights, chances, strict=True))
    unsolved = sum(weight * (1 - p) ** num for weight, p in pairs)
    solved = sum(weight * (1 - p) ** num * (1 - (1 - p) ** num) for weight, p in pairs)
    assert newly_solved(counts, num).mean == pytest.approx(3 * solved / unsolved)


def test_nothing_is_newly_solved_where_everything_was():
    for num in (1, 16, 1024):
        estimate = newly_solved([num] * 30, num)
        assert (estimate.mean, estimate.low, estimate.high) == (0, 0, 0)
    assert newly_solved_at_most([16] * 30) == 0
    assert newly_solved_at_most([1] * 30) == 0


def test_the_bound_of_what_is_newly_solved():
    # Nothing solved once of 60: at most 1 - .05^(1 / 60) of them are, expected.
    assert newly_solved_at_most([0] * 20 + [9] * 40) == pytest.approx(60 * (1 - 0.05 ** (1 / 60)))
    assert newly_solved_at_most([0] * 2 + [1] * 58) == 2


def test_cover_of_sure_problems():
    (cover,) = cover_at([64] * 80 + [0] * 20, 64, [0.5])
    assert cover.mean == pytest.approx(81 / 102, abs=1e-4)
    assert cover.low < 0.74
    assert cover.high > 0.84
