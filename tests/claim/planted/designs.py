"""Rates of the card's claims at cards of several sizes: `python -m tests.claim.planted.designs` records them.

For each size: how often two models that are equal in what is claimed show the claim, of several such truths the
largest; and the effect that 80% of cards show. Problems in groups count as so many groups (`test_groups`).
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from swerve.claim.answers import CLAIMED
from swerve.claim.gained import GainedRow, reached
from swerve.claim.rates import Design
from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.intervals import rows_and_columns_interval
from swerve.statistics.paired import paired_interval
from swerve.statistics.sample_counts import pass_at_k_differences
from tests.claim.planted.rates import RATES, write_rates

PROBLEMS, SAMPLES, RUNS = (10, 30, 200, 1000, 3000), (1, 4, 16, 64), (2, 3, 5)
GAINED = (1, 4, 10, 30, 200, 1000)
"""Problems that only the trained model solved."""
POWER, STEPS, LEAST = 0.8, 8, 1e-3
Lines = dict[str, tuple[bool, float]]
"""Claim -> whether a card shows it, and the estimate of what it claims."""
Truth = Callable[[np.random.Generator, int, float], tuple[np.ndarray, np.ndarray]]
"""Generator, number of problems and size -> chances of success of the base and of the trained model."""


def draws_of(num_problems: int, num_samples: int) -> int:
    """Return how many cards of nothing are drawn: fewer of large ones."""
    return 2000 if num_problems * num_samples <= 16_000 else 600


# Truths of accuracy and pass@k.


def base_chances(rng: np.random.Generator, num: int) -> np.ndarray:
    """A tenth of the problems is never solved, a tenth always, the others as a beta distribution says."""
    kind = rng.random(num)
    return np.select([kind < 0.1, kind > 0.9], [0.0, 1.0], rng.beta(0.7, 1.3, num))


def nothing(rng, num, size):
    base = base_chances(rng, num)
    return base, base


def alike(rng, num, size):
    """All problems are equally hard."""
    return np.full(num, 0.3), np.full(num, 0.3)


def rare(rng, num, size):
    """Most problems are hardly ever solved."""
    base = rng.beta(0.05, 1.0, num)
    return base, base


def turned(rng, num, size):
    """A fifth of the problems has the chance of another: neither model is better at any k."""
    base = base_chances(rng, num)
    return base, np.where(rng.random(num) < 0.2, base_chances(rng, num), base)


def narrowed(rng, num, size):
    """All are answered always alike and right with the chance that they had: the same at 1, less of many samples."""
    base = base_chances(rng, num)
    return base, (rng.random(num) < base).astype(float)


def quicker(rng, num, size):
    """More at 1, and the same of many samples: half of what is solved at times is solved always, others are swapped."""
    base = base_chances(rng, num)
    after = np.where((base > 0.3) & (rng.random(num) < 0.5), 1.0, base)
    return base, np.where((rng.random(num) < 0.5) & np.isin(base, (0.0, 1.0)), 1 - base, after)


def skill(rng, num, size):
    """A fraction of the problems is always solved."""
    base = base_chances(rng, num)
    return base, np.where(rng.random(num) < size, 1.0, base)


def lost(rng, num, size):
    return skill(rng, num, size)[::-1]


def sharpened(rng, num, size):
    """A fraction is answered always alike, and right with a chance of p^(1/3): more at 1, and less of many samples."""
    base = base_chances(rng, num)
    always = (rng.random(num) < base ** (1 / 3)).astype(float)
    return base, np.where(rng.random(num) < size, always, base)


def shown_at_one(rng, truth: Truth, num_problems: int, num_samples: int, size: float) -> Lines:
    base, trained = (rng.binomial(num_samples, chances) for chances in truth(rng, num_problems, size))
    found = paired_interval((trained - base) / num_samples)
    return {"accuracy_rose": (found.low > 0, found.mean), "accuracy_fell": (found.high < 0, -found.mean)}


def shown_of_curves(rng, truth: Truth, num_problems: int, num_samples: int, size: float) -> Lines:
    right = [rng.binomial(num_samples, chances) for chances in truth(rng, num_problems, size)]
    rows, (better, worse) = pass_at_k_differences(*right, num_samples)
    curve = [row.difference for row in rows if row.k <= max(1, num_samples // 2)]
    every = all(each is not None and each.low > 0 for each in curve)
    last = curve[-1].mean
    return {"better_at_every_k": (every, last), "curves_cross": (bool(better and worse), -last)}


def shown_parts(rng, changed: int | None, num_problems: int, num_samples: int, size: float, readable=4.0) -> Lines:
    """One rate rose toward 1 at every problem, by so much accuracy; None: nothing did."""
    before = [rng.beta(4, 1, num_problems), rng.beta(readable, 1, num_problems), rng.beta(1, 1, num_problems)]
    after = [*before]
    if changed is not None:
        rise = (1 - before[changed]) * np.prod([rates for part, rates in enumerate(before) if part != changed], axis=0)
        after[changed] = before[changed] + (1 - before[changed]) * min(1.0, size / rise.mean())
    counts = []
    for rates in (before, after):
        own = [np.full(num_problems, num_samples)]
        for rate in rates:
            own.append(rng.binomial(own[-1], rate))
        counts.append(own[1:])
    gains = [row.gain for row in accuracy_parts(num_samples, *counts)[0]]
    return {
        claim: (getattr(gain, "low", -1.0) > 0, float(getattr(gain, "mean", gain) or 0.0))
        for claim, gain in zip(CLAIMED, gains, strict=True)
    }


def shown_over_runs(rng, spread: float, num_problems: int, num_samples: int, size: float, num_runs: int) -> Lines:
    """Runs change a chance of one half by `size` on average, others by 4 p (1 - p) as much."""
    chances = rng.beta(0.7, 1.3, num_problems)
    base = rng.binomial(num_samples, chances) / num_samples
    moved = chances + 4 * chances * (1 - chances) * rng.normal(size, spread, num_runs)[:, None]
    runs = rng.binomial(num_samples, np.clip(moved, 0, 1)) / num_samples
    over = rows_and_columns_interval(runs - base, bounds=(-1.0, 1.0))
    if over is None:
        return {}
    return {
        "accuracy_rose_over_runs": (over.low > 0, over.mean),
        "accuracy_fell_over_runs": (over.high < 0, -over.mean),
    }


def shown_gained(rng, chances: Callable, num_gained: int, num_samples: int, size: float) -> Lines:
    """The base has never solved any; both models spread their right answers over 30 texts, in orders of their own."""
    unsolved = np.zeros(0)
    while unsolved.size < num_gained:
        drawn = chances(rng, 4 * num_gained, num_samples, size)
        unsolved = np.r_[unsolved, drawn[rng.binomial(num_samples, drawn) == 0]]
    unsolved, weights = unsolved[:num_gained], 1 / np.arange(1, 31) / (1 / np.arange(1, 31)).sum()
    texts = rng.multinomial(np.maximum(1, rng.binomial(num_samples, 0.7, num_gained)), weights) > 0
    other = rng.permuted(np.tile(weights, (num_gained, 1)), axis=1)
    own = np.where(rng.random(texts.shape) < 0.5, weights, other)
    bounds = unsolved * (own * texts).sum(axis=1) / own.sum(axis=1)
    rows = [GainedRow(problem="p", right=1, bound=bound, samples_needed=None) for bound in bounds.tolist()]
    return {line.claim: (bool(line.shown), num_samples / size) for line in reached("base", rows, num_samples)}


def about(rng, num, num_samples, size):
    """Chances of about `size` in the samples that were taken."""
    return np.minimum(1.0, size / num_samples * np.exp(rng.normal(0, 1, num)))


def below(rng, num, num_samples, size):
    """Every chance is a little below what is claimed."""
    return np.full(num, 1 / (11 * num_samples))


def mostly_impossible(rng, num, num_samples, size):
    return np.where(rng.random(num) < 0.6, 0.0, 1 / num_samples)


# How often each claim is shown, and of which size.

Card = Callable[[np.random.Generator, float], Lines]
"""A card of one size, of its truth at some size."""


def rate(card: Card, claim: str, size: float, draws: int, seed: int = 0) -> tuple[float, float]:
    """Return in which fraction of draws a claim is shown, and the mean estimate of what it claims."""
    rng = np.random.default_rng([zlib.crc32(claim.encode()), seed])
    lines = [card(rng, size).get(claim, (False, 0.0)) for _ in range(draws)]
    return float(np.mean([shown for shown, _ in lines])), float(np.mean([size for _, size in lines]))


def rates(cards: list[Card], claims: tuple[str, ...], size: float, draws: int) -> dict[str, float]:
    """Return the largest rate of each claim over truths of which none is what it claims; the first has all draws."""
    rng, most = np.random.default_rng(zlib.crc32(claims[0].encode())), dict.fromkeys(claims, 0.0)
    for number, card in enumerate(cards):
        num = draws // 4 if number else draws
        lines = [card(rng, size) for _ in range(num)]
        for claim in claims:
            most[claim] = max(most[claim], sum(own[claim][0] for own in lines if claim in own) / num)
    return most


def detectable(card: Card, claim: str, draws: int, most: float = 1.0) -> float | None:
    """Return the effect, as cards estimate it on average, that 80% of them show; None: not even the largest."""
    low, high = LEAST, most
    if rate(card, claim, high, draws)[0] < POWER:
        return None
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rate(card, claim, middle, draws)[0] >= POWER else (middle, high)
    return rate(card, claim, math.sqrt(low * high), draws)[1]


def _of(shown: Callable, truth: object, num_problems: int, num_samples: int, **more) -> Card:
    return lambda rng, size: shown(rng, truth, num_problems, num_samples, size, **more)


ONE, CURVES = ("accuracy_rose", "accuracy_fell"), ("better_at_every_k", "curves_cross")
OVER = ("accuracy_rose_over_runs", "accuracy_fell_over_runs")


def measured(num_problems: int, num_samples: int) -> Iterator[tuple[str, Design]]:
    """Yield each claim and its rates at one size."""
    draws = draws_of(num_problems, num_samples)
    size = {"num_problems": num_problems, "num_samples": num_samples}
    few, of = max(100, draws // 10), partial(_of, num_problems=num_problems, num_samples=num_samples)

    # Accuracy: a fall is a rise the other way round, of the same size.
    false = rates([of(shown_at_one, each) for each in (nothing, turned, narrowed, alike, rare)], ONE, 0.0, draws)
    for claim in ONE:
        found = detectable(of(shown_at_one, skill), ONE[0], few)
        yield claim, Design(**size, false=false[claim], size=found)

    # The curves of pass@k, which begin at four samples.
    if num_samples >= 4:
        for claim, own, true in zip(CURVES, (sharpened, skill), (skill, sharpened), strict=True):
            cards = [of(shown_of_curves, each) for each in (nothing, turned, quicker, narrowed, own)]
            false = rates(cards, (claim,), 0.3, draws // 2)
            yield claim, Design(**size, false=false[claim], size=detectable(of(shown_of_curves, true), claim, few))

    # Parts of the gain: beside no change a small or large change of another part, also where little is readable.
    for part, claim in enumerate(CLAIMED):
        others = [other for other in range(3) if other != part]
        cards = [of(shown_parts, None)] + [
            of(shown_parts, other, readable=readable) for other in others for readable in (4, 1.5)
        ]
        false = rates(cards, (claim,), 0.1, draws // 2)
        yield claim, Design(**size, false=false[claim], size=detectable(of(shown_parts, part), claim, few, most=0.5))

    # Over runs that differ by 1.1 points, or do not.
    for num_runs in RUNS:
        cards = [of(shown_over_runs, spread, num_runs=num_runs) for spread in (0.02, 0.0, 0.1)]
        false = rates(cards, OVER, 0.0, draws // 2)
        found = detectable(of(shown_over_runs, 0.02, num_runs=num_runs), OVER[0], few)
        for claim in OVER:
            yield claim, Design(**size, num_runs=num_runs, false=false[claim], size=found)


def measured_gained(num_gained: int, num_samples: int) -> Iterator[tuple[str, Design]]:
    """Yield the rates of the claim about problems that only the trained model solved, by their number."""
    claim, of = "base_reaches_gained", partial(_of, num_problems=num_gained, num_samples=num_samples)
    false = rates([of(shown_gained, truth) for truth in (below, mostly_impossible)], (claim,), 1.0, 200)
    found = detectable(of(shown_gained, about), claim, 100, most=30.0)
    yield claim, Design(num_problems=num_gained, num_samples=num_samples, false=false[claim], size=found)


def record() -> None:
    """Measure every claim at every size and write it beside the claim's other rates."""
    known = json.loads(RATES.read_text())
    designs: dict[str, list] = {}
    for num_samples in SAMPLES:
        for num, measure in [(num, measured) for num in PROBLEMS] + [(num, measured_gained) for num in GAINED]:
            start = time.process_time()
            for claim, design in measure(num, num_samples):
                designs.setdefault(claim, []).append(design)
            print(f"{measure.__name__} {num} x {num_samples}: {time.process_time() - start:.0f} CPU s", flush=True)
    for claim, own in designs.items():
        known[claim]["designs"] = [_rounded(design) for design in own]
    write_rates(known)


def _rounded(design: Design) -> dict:
    values = design.model_dump(exclude_defaults=True)
    size = None if design.size is None else float(f"{design.size:.3g}")
    return {**values, "false": round(design.false, 4), "size": size}


if __name__ == "__main__":
    record()
