"""How often claims about parts of the weights' change are right and false, where what the parts do is known."""

from __future__ import annotations

import numpy as np
import pytest

import swerve
from swerve.claim.weights import beyond, suffices
from tests.claim.planted.models import planted_pair, table_settings
from tests.claim.planted.rates import check_rates

pytestmark = pytest.mark.planted

RANKS, MARGIN = (1, 2, 4, 8, 16), 0.05


def flipped(rng: np.random.Generator, right: np.ndarray, lost: float, won: float) -> np.ndarray:
    """Lose and win a share of all problems, in the mean."""
    chances = np.where(right, lost / max(1e-9, right.mean()), won / max(1e-9, 1 - right.mean()))
    return right ^ (rng.random(right.size) < chances)


def smallest(draws: int, num: int, *, gain: float, losses: dict[int, float], apart: float) -> list[str | None]:
    """Return the rank that is claimed to suffice in each draw.

    Args:
        draws: how many.
        num: problems.
        gain: of the whole change over a base that is right in half.
        losses: in accuracy, of each rank's part.
        apart: share of problems on which rank 1 and the whole differ beyond that; halved for each further rank.
    """
    rng, claimed = np.random.default_rng(0), []
    for _ in range(draws):
        base = rng.random(num) < 0.5
        whole = flipped(rng, base, 0.02, 0.02 + gain)
        parts = {}
        for place, (rank, loss) in enumerate(losses.items()):
            share = apart / 2 ** (place + 1)
            parts[rank] = list(flipped(rng, whole, share + loss, share))
        verdict = suffices(list(base), list(whole), parts, MARGIN)
        claimed.append(verdict.of if verdict.shown else None)
    return claimed


def test_rates_of_what_suffices():
    draws, none = 400, dict.fromkeys(RANKS, 0.0)
    right, more = (
        np.mean([of == "rank 1" for of in smallest(draws, num, gain=0.3, losses=none, apart=0.03)])
        for num in (200, 260)
    )
    # Nothing there: the whole change does nothing; every part loses the margin; only rank 1 does.
    false = [
        np.mean([of is not None for of in smallest(draws, 200, gain=0.0, losses=none, apart=0.03)]),
        np.mean(
            [of is not None for of in smallest(draws, 200, gain=0.3, losses=dict.fromkeys(RANKS, MARGIN), apart=0.03)]
        ),
        np.mean([of == "rank 1" for of in smallest(draws, 200, gain=0.3, losses={**none, 1: MARGIN}, apart=0.03)]),
    ]
    check_rates(
        "part_suffices",
        size="a part that loses nothing and differs on 3% of 200 problems, margin 5 points",
        right=float(right),
        right_more=float(more),
        false=float(max(false)),
        draws=draws,
    )


def above(draws: int, gain: float) -> float:
    """Return how often a part that gains so much is above 39 directions, which gain .00 with a deviation of .02."""
    rng, shown = np.random.default_rng(0), 0
    for _ in range(draws):
        base = rng.random(200) < 0.5
        gains = rng.normal(0, 0.02, 40)
        gains[0] += gain
        lost = np.maximum(0.05, -gains)  # no share is negative
        part, *directions = (flipped(rng, base, *pair).mean() for pair in zip(lost, lost + gains, strict=True))
        shown += beyond("rank 1", part, directions)[0].shown
    return shown / draws


def test_rates_of_what_is_beyond_its_size():
    draws = 400
    check_rates(
        "part_beyond_its_size",
        size="12 points more than 39 directions of its size, 200 problems",
        right=above(draws, 0.12),
        right_more=above(draws, 1.3 * 0.12),
        false=above(draws, 0.0),
        draws=draws,
    )


def test_planted_models(tmp_path):
    """A change that is one outer product is found; noise in every weight of the head has no part that suffices."""
    claimed = []
    for seed in range(5):
        for kind, size in (("rank1", 0.15), ("nothing", 0.05)):
            planted = planted_pair(tmp_path / f"{kind}{seed}", kind, size=size, num_problems=160, seed=seed)
            settings = table_settings(planted.problems, num_samples=2, parts=("weights",), directions=19, ranks=(1, 4))
            card = swerve.claim(planted.base, planted.rl, settings, out=tmp_path / f"card-{kind}{seed}", progress=False)
            claimed.append((kind, *[verdict.shown for verdict in card.weights.verdicts]))
    assert claimed.count(("rank1", True, True)) == 5, claimed
    assert claimed.count(("nothing", False, False)) == 5, claimed
