"""How often the claim about gained problems is right and false, where the base's chances are known."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.claim.gained import GainedRow, reached
from tests.claim.planted.rates import check_rates

pytestmark = pytest.mark.planted

NUM_SAMPLES, NUM_PROBLEMS, NUM_FORMS = 16, 40, 30
"""Right completions of each problem: 1/i of both models' right mass is on the i-th, in orders of their own."""


def shown(rng: np.random.Generator, chances: np.ndarray) -> bool:
    """Sample a base with these chances and a trained model that is right in .7; judge the problems that are gained."""
    weights = 1 / np.arange(1, NUM_FORMS + 1)
    weights /= weights.sum()
    rows = []
    for chance in chances:
        if rng.binomial(NUM_SAMPLES, chance):
            continue
        written = np.unique(rng.choice(NUM_FORMS, size=rng.binomial(NUM_SAMPLES, 0.7), p=weights))
        own = np.where(rng.random(NUM_FORMS) < 0.5, weights, rng.permutation(weights))
        bound = float(chance * (own / own.sum())[written].sum())
        rows.append(
            GainedRow(problem="p", right=len(written), bound=bound, samples_needed=1 / bound if bound else None)
        )
    return any(verdict.shown for verdict in reached("base", rows, NUM_SAMPLES))


def rate(draws: int, chances) -> float:
    rng = np.random.default_rng(0)
    return float(np.mean([shown(rng, chances(rng)) for _ in range(draws)]))


def of_size(size: float):
    """Chances of about `size` in the samples that were taken, lognormal."""
    return lambda rng: np.minimum(1.0, size / NUM_SAMPLES * np.exp(rng.normal(0, 1, NUM_PROBLEMS)))


def test_rates():
    draws = 300
    # Nothing there: every chance is a little below what is claimed; or six of ten problems are impossible.
    below = rate(draws, lambda rng: np.full(NUM_PROBLEMS, 1 / (11 * NUM_SAMPLES)))
    impossible = rate(draws, lambda rng: np.where(np.arange(NUM_PROBLEMS) < 0.6 * NUM_PROBLEMS, 0.0, 1 / NUM_SAMPLES))
    check_rates(
        "base_reaches_gained",
        size="40 problems that the base solves once in 28 samples or so, 16 taken",
        right=rate(draws, of_size(16 / 28)),
        right_more=rate(draws, of_size(1.3 * 16 / 28)),
        false=max(below, impossible),
        draws=draws,
    )
