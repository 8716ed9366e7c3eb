"""The claim over prompts of the base, which answer the same problems with chances of their own."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from swerve.claim.prompts import prompts_part
from tests.claim.planted.rates import check_rates

pytestmark = pytest.mark.planted

NUM_PROBLEMS, NUM_SAMPLES, DRAWS = 200, 16, 1000
SPREAD, CHANGE = 0.1, 0.075
"""Of a problem's change from prompt to prompt, and mean of the trained model's, at a chance of one half; elsewhere it
is 4 p (1 - p) as much."""


def _drawn(rng: np.random.Generator, chances: np.ndarray, changes: np.ndarray | float) -> np.ndarray:
    moved = np.clip(chances + 4 * chances * (1 - chances) * changes, 0, 1)
    return rng.binomial(NUM_SAMPLES, moved) / NUM_SAMPLES


@functools.cache
def _shown(change: float, *prompts: float) -> float:
    """Return in which fraction of draws the claim is shown, where each prompt changes the base by so much as well."""
    rng, num = np.random.default_rng([11, int(1000 * change), len(prompts)]), 0
    for _ in range(DRAWS):
        chances = rng.beta(0.7, 1.3, NUM_PROBLEMS)
        trained = _drawn(rng, chances, change + rng.normal(0, SPREAD, NUM_PROBLEMS))
        bases = [_drawn(rng, chances, own + rng.normal(0, SPREAD, NUM_PROBLEMS)) for own in (0.0, *prompts)]
        (line,) = prompts_part(("base", "rl"), list("abcd")[: len(bases)], [(base, trained) for base in bases]).verdicts
        num += bool(line.shown)
    return num / DRAWS


def test_a_gain_over_prompts() -> None:
    # 4 p (1 - p) is .56 on average. A prompt that does as well as the trained model leaves nothing to be shown.
    check_rates(
        "accuracy_rose_over_prompts",
        size="a gain of 4.2 points over each of 3 prompts on 200 problems, 16 samples of each",
        right=_shown(CHANGE, 0.0, 0.0),
        right_more=_shown(1.3 * CHANGE, 0.0, 0.0),
        false=max(_shown(0.0, 0.0, 0.0), _shown(CHANGE, 0.0, CHANGE)),
        draws=DRAWS,
    )
