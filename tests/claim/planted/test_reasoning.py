"""Answers that rest on their reasoning at some of the problems, and answers that do not."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.claim.reasoning import KEPT, reasoning_verdict
from tests.claim.planted.rates import check_rates

NUM_PROBLEMS, DRAWS, SIZE = 100, 400, 0.07
_GAIN_AT_A_PROBLEM = sum(KEPT[1:]) / 4


def rate(size: float, noise: float = 0.1) -> float:
    """Return how often it is shown that answers rest on their reasoning.

    At some of the problems an answer becomes as probable as the part kept of its own reasoning, and never after another
    problem's; at the others it has one probability whatever stands before it, with noise.
    """
    shown = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        chances = rng.beta(0.5, 0.5, (NUM_PROBLEMS, 1, 1)) + noise * rng.standard_normal((NUM_PROBLEMS, 2, len(KEPT)))
        chances = np.clip(chances, 0, 1)
        rests = rng.random(NUM_PROBLEMS) < size / _GAIN_AT_A_PROBLEM
        chances[rests, 0], chances[rests, 1] = KEPT, 0
        shown.append(reasoning_verdict("rl", chances).shown)
    return float(np.mean(shown))


@pytest.mark.planted
def test_reasoning_matters_where_it_does():
    check_rates(
        "reasoning_matters",
        size="7 points on 100 problems",
        right=rate(SIZE),
        right_more=rate(1.3 * SIZE),
        false=max(rate(0.0, noise) for noise in (0.0, 0.1, 0.3)),
        draws=DRAWS,
    )
