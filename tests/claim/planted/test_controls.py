"""How often a study of so many seeds shows that the reward matters, where it does and where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.claim.controls import reward_verdict
from swerve.study.trends import seed_interval
from tests.claim.planted.rates import check_rates

SD = 0.02
"""Of the accuracy over seeds, of each reward's runs for themselves."""
DRAWS = 4000


def _rate(gain: float, num_seeds: int, seed: int) -> float:
    """Return the fraction of studies that show it; accuracies are those of 400 problems, two samples each."""
    rng = np.random.default_rng(seed)
    real = rng.normal(0.6 + gain, SD, (DRAWS, num_seeds))
    control = rng.normal(0.6, SD, (DRAWS, num_seeds))
    shown = 0
    for changes in np.round((control - real) * 800) / 800:
        interval = seed_interval(changes.tolist(), 0.95)
        shown += interval is not None and reward_verdict("control-random", interval, num_seeds).shown
    return shown / DRAWS


@pytest.mark.planted
@pytest.mark.parametrize(("num_seeds", "points"), [(3, 10), (5, 5)])
def test_reward_matters(num_seeds, points):
    right, more = (_rate(times * points / 100, num_seeds, seed) for seed, times in ((1, 1.0), (2, 1.3)))
    false = max(_rate(0.0, num_seeds, 3), _rate(-0.05, num_seeds, 4))
    size = f"{points} points over {num_seeds} seeds that vary by 2"
    if num_seeds == 3:
        check_rates("reward_matters", size=size, right=right, right_more=more, false=false, draws=DRAWS)
    assert right >= 0.8
    assert more >= 0.95
    assert false <= 0.04  # 2.5% by the level of the interval
