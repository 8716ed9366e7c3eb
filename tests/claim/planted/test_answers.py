"""Parts of a gain where only ends, only readability or only correctness changed, and where nothing did."""

from __future__ import annotations

import numpy as np
import pytest

import swerve
from swerve.claim.answers import CLAIMED, gain_verdict
from swerve.statistics.decomposition import accuracy_parts
from tests.claim.planted.models import planted_pair, table_settings
from tests.claim.planted.rates import check_rates

NUM_PROBLEMS, NUM_SAMPLES, DRAWS = 200, 16, 400
SIZES = {"gain_by_finishing": 0.015, "gain_by_format": 0.015, "gain_by_correctness": 0.03}


def shown(part: int, size: float, seed: int, *, readable: float) -> list[bool]:
    """Return which claims are shown where one rate rose toward 1 at every problem, by so much accuracy."""
    rng = np.random.default_rng(seed)
    before = [rng.beta(4, 1, NUM_PROBLEMS), rng.beta(readable, 1, NUM_PROBLEMS), rng.beta(1, 1, NUM_PROBLEMS)]
    after = [*before]
    rise = (1 - before[part]) * np.prod([rates for index, rates in enumerate(before) if index != part], axis=0)
    after[part] = before[part] + (1 - before[part]) * min(1.0, size / rise.mean())
    counts = [counted(rng, rates) for rates in (before, after)]
    gains, _ = accuracy_parts(NUM_SAMPLES, *counts)
    return [gain_verdict("rl", claim, row.gain, NUM_PROBLEMS).shown for claim, row in zip(CLAIMED, gains, strict=True)]


def counted(rng: np.random.Generator, rates: list[np.ndarray]) -> list[np.ndarray]:
    """Return how many samples ended, of those were read, of those are right."""
    counts = [np.full(NUM_PROBLEMS, NUM_SAMPLES)]
    for rate in rates:
        counts.append(rng.binomial(counts[-1], rate))
    return counts[1:]


@pytest.mark.planted
@pytest.mark.parametrize("part", range(3))
def test_each_part_is_shown_where_it_is(part):
    claim = list(CLAIMED)[part]
    size = SIZES[claim]

    def rate(changed: int, size: float, readable: float = 4) -> float:
        return float(np.mean([shown(changed, size, seed, readable=readable)[part] for seed in range(DRAWS)]))

    # Nothing is there: no change, or a small or large change of another part, also where little is readable.
    others = [other for other in range(3) if other != part]
    nothing = [
        rate(part, 0.0),
        *(rate(other, size, readable) for other in others for size in (0.02, 0.1) for readable in (4, 1.5)),
    ]
    check_rates(
        claim,
        size=f"{100 * size:g} points on 200 problems, 16 samples each",
        right=rate(part, size),
        right_more=rate(part, 1.3 * size),
        false=max(nothing),
        draws=DRAWS,
    )


@pytest.mark.planted
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("format", [False, True, False]),
        ("length", [True, False, False]),
        ("sharpening", [False, False, True]),
        ("nothing", [False, False, False]),
    ],
)
def test_planted_models(tmp_path, kind, expected):
    pair = planted_pair(tmp_path, kind, size=0.0 if kind == "nothing" else 0.12)
    settings = table_settings(pair.problems, parts=("answers",))
    part = swerve.claim(pair.base, pair.rl, settings, out=tmp_path / "card").answers
    assert [verdict.shown for verdict in part.verdicts] == expected
