"""The table of rates by the size of a card: it has every claim, and a few of its cells are simulated anew."""

from __future__ import annotations

import math
from functools import partial
from itertools import chain

import numpy as np
import pytest

from swerve.claim.accuracy import accuracy_part
from swerve.claim.answers import CLAIMED
from swerve.claim.rates import claim_rates
from swerve.statistics.paired import paired_interval
from tests.claim.planted import designs
from tests.claim.planted.designs import CURVES, ONE, OVER, PROBLEMS, REACHES, RUNS, SAMPLES, measured, measured_runs


def test_every_claim_on_the_samples_of_a_card_has_all_sizes() -> None:
    known = {claim: rates.designs for claim, rates in claim_rates().items() if rates.designs}
    assert known.keys() == {*ONE, *CURVES, *CLAIMED, *OVER, *REACHES}
    for claim, of_claim in known.items():
        problems = designs.GAINED if claim in REACHES else PROBLEMS
        samples = SAMPLES[1:] if claim in CURVES else SAMPLES
        runs = RUNS if claim in OVER else (1,)
        sizes = {(own.num_problems, own.num_samples, own.num_runs) for own in of_claim}
        assert sizes == {(num, each, of) for num in problems for each in samples for of in runs}, claim
        assert all(own.false <= 0.09 for own in of_claim), claim


def test_many_intervals_at_once_are_those_of_one() -> None:
    rng = np.random.default_rng(0)
    few, signs = rng.binomial(4, 0.5, 30) / 4 - 0.5, rng.choice([-1, 0, 1], 30)
    rows = np.array([few, signs, np.zeros(30), np.full(30, 0.25), np.eye(30)[3]])
    lows, highs = designs.interval_ends(rows)
    for row, low, high in zip(rows, lows, highs, strict=True):
        found = paired_interval(row)
        assert found is not None
        assert (low, high) == pytest.approx((found.low, found.high), abs=1e-9)


@pytest.mark.parametrize("truth", [designs.nothing, designs.skill, partial(designs.sharpened, k=3)])
def test_lines_of_many_cards_are_those_of_the_card(truth: designs.Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swerve.claim.accuracy.cover_at", lambda right, num, chances, **given: [None] * len(chances))
    curves = designs.lines_of_curves(truth, 60, 8, np.random.default_rng(5), 0.4, 12)
    one = designs.lines_at_one(truth, 60, 8, np.random.default_rng(5), 0.4, 12)
    rng = np.random.default_rng(5)
    for draw in range(12):
        right = np.array([rng.binomial(8, chances) for chances in truth(rng, 60, 0.4)])
        shown = {line.claim: line.shown for line in accuracy_part(("base", "rl"), 8, right).verdicts}
        for claim, (found, _) in (curves | one).items():
            assert found[draw] == shown.get(claim, False), claim


@pytest.mark.planted
@pytest.mark.parametrize(("num_problems", "num_samples"), [(10, 1), (30, 4), (200, 16)])
def test_cells_simulated_anew_are_those_of_the_table(num_problems: int, num_samples: int) -> None:
    for claim, now in chain(*(of(num_problems, num_samples, seed=1) for of in (measured, measured_runs))):
        known = claim_rates()[claim].at(num_problems, num_samples, now.num_runs)
        assert known is not None
        said = f"{now!r} against {known!r}"
        # The largest of several fractions, of 100 draws at least (parts, pooled over two truths: 200).
        draws = designs.draws_of(num_problems) // (10 if claim in CLAIMED else 2)
        noise = math.sqrt(2 * (known.false + 1 / draws) / draws)
        assert abs(now.false - known.false) <= 4 * noise, said
        # The error of a power of .8 is that of a size over its slope, .28 a standard error, of which it is 2.84.
        assert (now.size is None) == (known.size is None), said
        if now.size is not None and known.size is not None:
            noise = math.sqrt(2 * 0.16 / (80 if claim in CLAIMED else 200)) / (0.28 * 2.84)
            assert abs(math.log(now.size / known.size)) <= 4 * noise, said
