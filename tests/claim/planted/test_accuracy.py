"""The claims of accuracy on planted chances of success: 200 problems drawn anew, 16 samples of each by both models."""

from __future__ import annotations

import functools
import zlib

import numpy as np
import pytest

from swerve.claim.accuracy import accuracy_part
from tests.claim.planted.rates import check_rates

pytestmark = pytest.mark.planted

NUM_PROBLEMS, NUM_SAMPLES, DRAWS = 200, 64, 400


@pytest.fixture(autouse=True)
def _without_cover(monkeypatch):
    """Leave out what no claim rests on and takes longest."""
    monkeypatch.setattr(
        "swerve.claim.accuracy.cover_at", lambda right, num, probabilities, **given: [None] * len(probabilities)
    )


def _base(rng):
    """A tenth of the problems is never solved, a tenth always, the others as a beta distribution says."""
    kind = rng.random(NUM_PROBLEMS)
    return np.select([kind < 0.1, kind > 0.9], [0.0, 1.0], rng.beta(0.7, 1.3, NUM_PROBLEMS))


def nothing(rng, size):
    base = _base(rng)
    return base, base


def turned(rng, size):
    """A fifth of the problems has the chance of another: neither model is better at any k."""
    base = _base(rng)
    return base, np.where(rng.random(NUM_PROBLEMS) < 0.2, _base(rng), base)


def skill(rng, size):
    """A fraction of the problems is always solved."""
    base = _base(rng)
    return base, np.where(rng.random(NUM_PROBLEMS) < size, 1.0, base)


def lost(rng, size):
    return skill(rng, size)[::-1]


def sharpened(rng, size):
    """A fraction is answered always alike, and right with a chance of p^(1/3): more at 1, and less of many samples."""
    base = _base(rng)
    always = (rng.random(NUM_PROBLEMS) < base ** (1 / 3)).astype(float)
    return base, np.where(rng.random(NUM_PROBLEMS) < size, always, base)


def narrowed(rng, size):
    """All are answered always alike and right with the chance that they had: the same at 1, less of many samples."""
    base = _base(rng)
    return base, (rng.random(NUM_PROBLEMS) < base).astype(float)


def quicker(rng, size):
    """Half of what is solved at times is solved always; as many are lost as are gained of those never and always
    solved: more at 1, and the same of many samples, but for what a chance near 0 loses."""
    base = _base(rng)
    after = np.where((base > 0.3) & (rng.random(NUM_PROBLEMS) < 0.5), 1.0, base)
    swapped = rng.random(NUM_PROBLEMS) < 0.5
    return base, np.where(swapped & np.isin(base, (0.0, 1.0)), 1 - base, after)


@functools.cache
def _shown(truth, size=0.0):
    """Return in which fraction of draws each claim is shown."""
    rng = np.random.default_rng(zlib.crc32(f"{truth.__name__} {size}".encode()))
    claims = []
    for _ in range(DRAWS):
        right = [rng.binomial(NUM_SAMPLES, chances) for chances in truth(rng, size)]
        verdicts = accuracy_part(("base", "rl"), NUM_SAMPLES, np.array(right)).verdicts
        claims += [verdict.claim for verdict in verdicts if verdict.shown]
    return {claim: claims.count(claim) / DRAWS for claim in set(claims)}


def test_a_rise():
    check_rates(
        "accuracy_rose",
        size="a gain of 4.4 points on 200 problems, 64 samples of each",
        right=_rate("accuracy_rose", (skill, 0.07)),
        right_more=_rate("accuracy_rose", (skill, 0.091)),
        false=_rate("accuracy_rose", (nothing, 0), (turned, 0), (narrowed, 0), (lost, 0.07)),
        draws=DRAWS,
    )


def test_a_fall():
    check_rates(
        "accuracy_fell",
        size="a loss of 4.4 points on 200 problems, 64 samples of each",
        right=_rate("accuracy_fell", (lost, 0.07)),
        right_more=_rate("accuracy_fell", (lost, 0.091)),
        false=_rate("accuracy_fell", (nothing, 0), (turned, 0), (narrowed, 0), (skill, 0.07)),
        draws=DRAWS,
    )


def test_better_at_every_k():
    check_rates(
        "better_at_every_k",
        size="a gain of 19 points at 1 and 5 points at 32 on 200 problems, 64 samples of each",
        right=_rate("better_at_every_k", (skill, 0.3)),
        right_more=_rate("better_at_every_k", (skill, 0.39)),
        false=_rate("better_at_every_k", (nothing, 0), (turned, 0), (quicker, 0), (sharpened, 0.3)),
        draws=DRAWS,
    )


def test_curves_that_cross():
    check_rates(
        "curves_cross",
        size="a gain of 7 points at 1 and a loss of 6 points at 32 on 200 problems, 64 samples of each",
        right=_rate("curves_cross", (sharpened, 0.3)),
        right_more=_rate("curves_cross", (sharpened, 0.39)),
        false=_rate("curves_cross", (nothing, 0), (turned, 0), (narrowed, 0), (quicker, 0), (skill, 0.3)),
        draws=DRAWS,
    )


def _rate(claim, *truths):
    """Return the largest of the fractions of draws in which truths show a claim."""
    return max(_shown(*truth).get(claim, 0.0) for truth in truths)
