"""Problems in groups of ten that share their chances and how these change: rates are those of so many groups."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swerve
from swerve.claim.accuracy import accuracy_part
from swerve.claim.answers import CLAIMED
from swerve.claim.rates import claim_rates
from swerve.claim.runs import runs_part
from swerve.statistics.decomposition import accuracy_parts
from tests.claim.planted.designs import base_chances

pytestmark = pytest.mark.planted

SIZE, DRAWS, DRAWS_OVER_RUNS = 10, 300, 1500
CELLS = [(200, 4), (300, 16), (2000, 4)]
"""Problems and samples; the first are 20 groups."""


@pytest.fixture(autouse=True)
def _without_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what no claim rests on and takes longest."""
    monkeypatch.setattr("swerve.claim.accuracy.cover_at", lambda right, num, chances, **given: [None] * len(chances))


def names(num_problems: int) -> np.ndarray:
    return np.repeat(np.arange(num_problems // SIZE), SIZE)


def chances(rng: np.random.Generator, num_problems: int) -> tuple[np.ndarray, np.ndarray]:
    """Return chances by problem: three in ten groups have that of another, so that neither model is better."""
    base = base_chances(rng, num_problems // SIZE)
    trained = np.where(rng.random(base.size) < 0.3, base_chances(rng, base.size), base)
    return np.repeat(base, SIZE), np.repeat(trained, SIZE)


def most(claim: str, num_problems: int, num_samples: int, num_runs: int = 1, draws: int = DRAWS) -> float:
    """Return the largest rate that passes: what the card prints, in hundredths rounded up, and two standard errors."""
    known = claim_rates()[claim].at(num_problems // SIZE, num_samples, num_runs)
    assert known is not None
    printed = max(1, math.ceil(100 * known.false - 1e-9)) / 100
    return printed + 2 * math.sqrt(printed * (1 - printed) / draws)


@pytest.mark.parametrize(("num_problems", "num_samples"), CELLS)
def test_accuracy_and_curves(num_problems: int, num_samples: int) -> None:
    rng, covered, alone = np.random.default_rng([1, num_problems]), 0, 0
    shown = dict.fromkeys(("accuracy_rose", "accuracy_fell", "better_at_every_k", "curves_cross"), 0)
    for _ in range(DRAWS):
        right = np.array([rng.binomial(num_samples, own) for own in chances(rng, num_problems)])
        part = accuracy_part(("base", "rl"), num_samples, right, clusters=names(num_problems))
        for line in part.verdicts:
            shown[line.claim] += bool(line.shown)
        difference: Any = part.difference
        covered += not difference.excludes(0)
        alone += bool(accuracy_part(("base", "rl"), num_samples, right).verdicts[0].shown)
    for claim, num in shown.items():
        assert num / DRAWS <= most(claim, num_problems, num_samples), f"{claim}: {num} of {DRAWS}"
    assert covered / DRAWS >= 0.93
    assert alone / DRAWS >= 0.15, "without groups the lines are false so often that this test tells the two apart"


@pytest.mark.parametrize(("num_problems", "num_samples"), CELLS)
def test_parts_of_the_gain(num_problems: int, num_samples: int) -> None:
    rng, shown, covered = np.random.default_rng([2, num_problems]), np.zeros(3), np.zeros(3)
    num_groups = num_problems // SIZE
    for _ in range(DRAWS):
        # Each rate of a group is drawn anew for the second model in three of ten groups.
        first = np.array([rng.beta(4, 1, num_groups), rng.beta(4, 1, num_groups), rng.beta(1, 1, num_groups)])
        anew = np.array([rng.beta(4, 1, num_groups), rng.beta(4, 1, num_groups), rng.beta(1, 1, num_groups)])
        second = np.where(rng.random(num_groups) < 0.3, anew, first)
        counts = []
        for rates in (first, second):
            own = [np.full(num_problems, num_samples)]
            for rate in rates:
                own.append(rng.binomial(own[-1], np.repeat(rate, SIZE)))
            counts.append(own[1:])
        gains, _ = accuracy_parts(num_samples, *counts, clusters=names(num_problems))
        known: list[Any] = [row.gain for row in gains]
        shown += [gain is not None and gain.low > 0 for gain in known]
        covered += [gain is None or not gain.excludes(0) for gain in known]
    for claim, num in zip(CLAIMED, shown, strict=True):
        assert num / DRAWS <= most(claim, num_problems, num_samples), f"{claim}: {num} of {DRAWS}"
    assert min(covered) / DRAWS >= 0.93


@pytest.mark.parametrize(("num_problems", "num_samples"), CELLS)
def test_accuracy_over_runs(num_problems: int, num_samples: int) -> None:
    rng, num_runs = np.random.default_rng([3, num_problems]), 3
    shown, covered = dict.fromkeys(("accuracy_rose_over_runs", "accuracy_fell_over_runs"), 0), 0
    for _ in range(DRAWS_OVER_RUNS):
        base, trained = chances(rng, num_problems)
        rates = rng.binomial(num_samples, base) / num_samples
        runs = rng.binomial(num_samples, np.tile(trained, (num_runs, 1))) / num_samples
        part = runs_part(["a", "b", "c"], rates, runs, clusters=names(num_problems))
        shown[part.verdicts[0].claim] += bool(part.verdicts[0].shown)
        difference: Any = part.difference
        covered += not difference.excludes(0)
    for claim, num in shown.items():
        largest = most(claim, num_problems, num_samples, num_runs, DRAWS_OVER_RUNS)
        assert num / DRAWS_OVER_RUNS <= largest, f"{claim}: {num} of {DRAWS_OVER_RUNS}"
    assert covered / DRAWS_OVER_RUNS >= 0.93


def test_cards_of_templates(tmp_path: Path) -> None:
    rng, shown, warned = np.random.default_rng(4), 0, 0
    for draw in range(6):
        files = []
        for name, own in zip(("base", "rl"), chances(rng, 200), strict=True):
            rows = [
                {"id": f"p{number}", "problem": f"Of {chr(97 + number // SIZE)} there are {number}?", "sample": sample}
                | {"template": number // SIZE, "response": "?", "correct": bool(rng.random() < chance)}
                for number, chance in enumerate(own)
                for sample in range(4)
            ]
            files.append(tmp_path / f"{name}-{draw}.jsonl")
            files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
        for fields in ({"group": "template"}, {}):
            card = swerve.claim(*files, out=tmp_path / f"{draw}-{len(fields)}", fields=fields, progress=False)
            assert card is not None
            assert (card.num_groups, card.num_alike) == ((20, 0) if fields else (None, 200))
            false = [line for line in card.verdicts if line.shown]
            shown += len(false) if fields else 0
            said = [line.sentence.endswith("differ only in their numbers: give their group.") for line in false]
            warned += 0 if fields else len(false)
            assert all(said) or fields
    assert shown <= 2
    assert warned >= 1
