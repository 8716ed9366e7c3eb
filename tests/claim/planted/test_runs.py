"""The claims over runs of one training, whose effect differs from run to run."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from swerve.claim.runs import runs_part
from tests.claim.planted.rates import check_rates

pytestmark = pytest.mark.planted

NUM_RUNS, NUM_PROBLEMS, NUM_SAMPLES, DRAWS = 3, 200, 16, 1000
SPREAD, CHANGE = 0.02, 0.11
"""Standard deviation over runs and mean of the change at a chance of one half; elsewhere it is 4 p (1 - p) as much."""


@functools.cache
def _shown(change: float) -> dict[str, float]:
    """Return in which fraction of draws each claim is shown."""
    rng, claims = np.random.default_rng([7, int(1000 * change) + 1000]), list[str]()
    for _ in range(DRAWS):
        chances = rng.beta(0.7, 1.3, NUM_PROBLEMS)
        base = rng.binomial(NUM_SAMPLES, chances) / NUM_SAMPLES
        moved = [chances + 4 * chances * (1 - chances) * own for own in rng.normal(change, SPREAD, NUM_RUNS)]
        runs = np.array([rng.binomial(NUM_SAMPLES, np.clip(each, 0, 1)) / NUM_SAMPLES for each in moved])
        (line,) = runs_part(["rl", "rl-2", "rl-3"], base, runs).verdicts
        claims += [line.claim] * bool(line.shown)
    return {claim: claims.count(claim) / DRAWS for claim in ("accuracy_rose_over_runs", "accuracy_fell_over_runs")}


@pytest.mark.parametrize(
    ("claim", "sign", "word"), [("accuracy_rose_over_runs", 1, "gain"), ("accuracy_fell_over_runs", -1, "loss")]
)
def test_a_change_over_runs(claim: str, sign: int, word: str) -> None:
    # 4 p (1 - p) is .56 on average.
    check_rates(
        claim,
        size=f"a {word} of 6.1 points over 3 runs that differ by 1.1 points, on 200 problems, 16 samples of each",
        right=_shown(sign * CHANGE)[claim],
        right_more=_shown(sign * 1.3 * CHANGE)[claim],
        false=_shown(0.0)[claim],
        draws=DRAWS,
    )
