"""How chances are distributed over problems: against loops in plain Python, copies of problems, and sure cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve.statistics.mixtures import cover_at, newly_solved, newly_solved_at_most


@pytest.fixture(scope="module")
def counts():
    """Numbers right of 200 problems with 64 samples each, of a mixture with mass at 0."""
    rng = np.random.default_rng(0)
    return rng.binomial(64, np.where(rng.random(200) < 0.15, 0, rng.beta(0.7, 1.5, 200)))


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        (0.05, (0.718311, 0.647457, 0.789165)),
        (0.25, (0.447638, 0.367938, 0.527339)),
        (0.5, (0.175508, 0.093998, 0.257017)),
        (0.95, (0.010160, 0.0, 0.023931)),
    ],
)
def test_cover_of_the_simulated_example(counts, probability, expected):
    cover = cover_at(counts, 64, [probability])[0]
    assert (cover.mean, cover.low, cover.high) == pytest.approx(expected, abs=1e-5)


def test_how_the_newly_solved_are_extrapolated():
    """The mixture after so many steps of EM that it moves no more."""
    num, counts = 4, [0] * 30 + [1] * 10 + [2] * 10 + [4] * 10
    chances = np.array([0.0, *np.geomspace(0.001, 0.05, 8), *np.linspace(0.075, 0.95, 36), 0.97, 0.985, 1.0])
    likelihoods = np.array([[math.comb(num, c) * p**c * (1 - p) ** (num - c) for c in counts] for p in chances])
    weights = np.full(len(chances), 1 / len(chances))
    for _ in range(20_000):
        weights = weights * (likelihoods / (weights @ likelihoods)).mean(axis=1)
    never = (1 - chances) ** num
    solved = 1 - (weights * never**2).sum() / (weights * never).sum()
    assert newly_solved(counts, num).mean == pytest.approx(30 * solved, abs=0.1)


def test_clusters_are_redrawn_whole():
    rng = np.random.default_rng(0)
    chances = np.repeat(rng.beta(0.5, 1.5, 30), 10)
    right, groups = rng.binomial(8, chances), np.repeat(np.arange(30), 10)
    alone, whole = newly_solved(right, 8), newly_solved(right, 8, clusters=groups)
    assert whole.mean == pytest.approx(alone.mean)
    assert whole.high - whole.low > 1.5 * (alone.high - alone.low)
    (alone,), (whole,) = cover_at(right, 8, [0.25]), cover_at(right, 8, [0.25], clusters=groups)
    assert whole.mean == pytest.approx(alone.mean)
    assert whole.high - whole.low > 1.3 * (alone.high - alone.low)


def test_all_probabilities_in_one_call_are_those_of_each():
    together = cover_at([0, 1, 3, 8, 8], 8, [0.25, 0.5])
    assert together == [cover_at([0, 1, 3, 8, 8], 8, [chance])[0] for chance in (0.25, 0.5)]


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


def test_names_and_order_of_clusters_change_nothing_and_clusters_leave_more_open(counts):
    few, names = counts[:40], np.repeat(np.arange(8), 5)
    new = np.random.default_rng(1).permutation(40)
    for function in (lambda right, clusters: newly_solved(right, 64, clusters=clusters), _cover):
        known = function(few, names)
        assert function(few, [f"{7 - name} other" for name in names]) == known
        assert function(few[new], names[new]) == known
        assert function(few, np.arange(40)) == function(few, None)
    together, alone = (newly_solved(few, 64, clusters=clusters) for clusters in (names, None))
    assert together.low <= alone.low <= alone.high <= together.high


def _cover(right, clusters):
    return cover_at(right, 64, [0.25], clusters=clusters)[0]
