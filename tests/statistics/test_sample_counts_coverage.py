"""Intervals of counts of right samples keep their level where the truth is planted."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.mixtures import cover_at, newly_solved, newly_solved_at_most
from swerve.statistics.sample_counts import pass_at_k_differences
from swerve.statistics.sufficiency import smallest_sufficient

pytestmark = pytest.mark.planted

DRAWS = 300
SLACK = 0.035  # about three standard errors of a rate of .95


def beta_with_zeros(rng, num):
    return np.where(rng.random(num) < 0.15, 0, rng.beta(0.7, 1.5, num))


def hardly_ever(rng, num):
    """A fifth of the problems is solved once in 250 samples."""
    return np.where(rng.random(num) < 0.2, 0.004, rng.beta(2, 2, num))


def two_groups(rng, num):
    return np.where(rng.random(num) < 0.58, 0.05, 0.85)


def lognormal(rng, num):
    return np.minimum(1, np.exp(rng.normal(-3, 2, num)))


def _pass(chances, k):
    return 1 - (1 - chances) ** k


@pytest.mark.parametrize("num_problems", [30, 200])
@pytest.mark.parametrize("mass", [0.5, 0.95])
def test_bands_of_pass_at_k(num_problems, mass):
    """Where most problems are always solved, few draws hold one that is not."""
    rng = np.random.default_rng(num_problems)

    def chances(num):
        before = np.where(rng.random(num) < mass, 1, rng.beta(0.5, 2, num))
        return before, np.where(rng.random(num) < 0.3, before**0.3, before)

    truth = {
        k: float(np.mean(_pass(after, k) - _pass(before, k)))
        for before, after in [chances(10**6)]
        for k in (1, 2, 4, 8, 16, 32, 64)
    }
    covered = alone = 0
    for _ in range(DRAWS):
        before, after = (rng.binomial(64, side) for side in chances(num_problems))
        rows, _ = pass_at_k_differences(before, after, 64)
        covered += all(not row.band.excludes(truth[row.k]) for row in rows)
        alone += not rows[-1].difference.excludes(truth[rows[-1].k])
    assert covered / DRAWS >= 0.94 - SLACK
    assert alone / DRAWS >= 0.95 - SLACK


def test_where_curves_cross():
    """Half of the problems are answered always alike, right with a chance that makes the curves cross at a known k."""
    rng = np.random.default_rng(1)

    def chances(num):
        before = rng.beta(0.7, 1.5, num)
        return before, (rng.random(num) < before**0.35).astype(float)

    before, after = chances(10**6)
    differences = [np.mean(after) - np.mean(_pass(before, k)) for k in range(1, 33)]
    true = next(k for k, difference in enumerate(differences, 1) if difference < 0)
    assert 2 < true < 8
    held = bounded = 0
    for _ in range(DRAWS):
        _, (better, worse) = pass_at_k_differences(*(rng.binomial(64, side) for side in chances(200)), 64)
        held += (better or 0) < true <= (worse or 99)
        bounded += bool(better and worse)
    assert held / DRAWS >= 0.96 - SLACK
    assert bounded / DRAWS >= 0.28


@pytest.mark.parametrize("mixture", [beta_with_zeros, hardly_ever, two_groups, lognormal])
@pytest.mark.parametrize("num_samples", [16, 64])
def test_what_is_newly_solved(mixture, num_samples):
    rng = np.random.default_rng(num_samples)
    covered = held = 0
    for _ in range(DRAWS):
        chances = mixture(rng, 200)
        right = rng.binomial(num_samples, chances)
        solved = (rng.binomial(num_samples, chances) > 0) & (right == 0)
        covered += not newly_solved(right, num_samples).excludes(int(solved.sum()))
        expected = _pass(chances, num_samples)[right == 0].sum()
        held += newly_solved_at_most(right) >= expected
    assert covered / DRAWS >= 0.90 - 0.05
    assert held / DRAWS >= 0.95


@pytest.mark.parametrize("mixture", [beta_with_zeros, two_groups])
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.75])
def test_cover(mixture, probability):
    rng = np.random.default_rng(3)
    many = mixture(rng, 10**6)
    truth = float(np.mean(many > probability) + np.mean(many == probability) / 2)
    estimates = [cover_at(rng.binomial(16, mixture(rng, 200)), 16, [probability])[0] for _ in range(DRAWS)]
    assert np.mean([not estimate.excludes(truth) for estimate in estimates]) >= 0.91 - SLACK
    assert abs(np.mean([estimate.mean for estimate in estimates]) - truth) < 0.03


def test_parts_of_a_gain():
    """Chances differ between problems; the truth is the mean of each problem's parts."""
    rng = np.random.default_rng(4)

    def rates(num):
        ability = rng.normal(0, 1, num)
        return [
            1 / (1 + np.exp(-(level + slope * ability)))
            for level, slope in ((0.6, 0.5), (1.5, 0.5), (0, 1), (2.5, 0.5), (3, 0.5), (0.4, 1))
        ]

    scale = 10**7
    many = np.array(rates(10**5))
    exact = [np.cumprod(side, axis=0) * scale for side in (many[:3], many[3:])]
    truth = [row.gain.mean for row in accuracy_parts(scale, *exact)[0]]
    covered = np.zeros(3)
    for _ in range(DRAWS):
        sides = []
        chances = rates(200)
        for finished, parsed, right in (chances[:3], chances[3:]):
            ended = rng.binomial(16, finished)
            read = rng.binomial(ended, parsed)
            sides.append((ended, read, rng.binomial(read, right)))
        rows, filled = accuracy_parts(16, *sides)
        assert filled < 0.1
        covered += [not row.gain.excludes(value) for row, value in zip(rows, truth, strict=True)]
    assert (covered / DRAWS >= 0.93 - SLACK).all()


def test_the_step_down_is_rarely_false():
    """Six sizes that all lose just the margin."""
    rng = np.random.default_rng(5)
    false = 0
    for _ in range(2000):
        whole = rng.random(200) < 0.85
        # Of those that differ .85 are lost and .15 won.
        parts = {size: np.where(rng.random(200) < 0.05 / 0.7, ~whole, whole) for size in (1, 2, 4, 8, 16, 32)}
        false += smallest_sufficient(whole, parts, 0.05) is not None
    assert false / 2000 <= 0.04
