"""Rates of the card's claims at cards of several sizes: `python -m tests.claim.planted.designs` records them.

For each size: how often two models that are equal in what is claimed show the claim, of several such truths the
largest; and the effect that 80% of cards show. Problems in groups count as so many groups (`test_groups`).
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import scipy

from swerve.claim.answers import CLAIMED
from swerve.claim.gained import GainedRow, reached
from swerve.claim.rates import Design
from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.intervals import rows_and_columns_interval
from swerve.statistics.sample_counts import most_judged
from tests.claim.planted.rates import RATES, write_rates

PROBLEMS, SAMPLES, RUNS = (10, 30, 200, 1000, 3000), (1, 4, 16, 64), (2, 3, 5)
GAINED = (1, 4, 10, 30, 200)
"""Problems that only the trained model solved."""
POWER, NEAR = 0.8, 0.07
ONE, CURVES = ("accuracy_rose", "accuracy_fell"), ("better_at_every_k", "curves_cross")
OVER, REACHES = ("accuracy_rose_over_runs", "accuracy_fell_over_runs"), ("base_reaches_gained",)

Lines = dict[str, tuple[np.ndarray, np.ndarray]]
"""Claim -> `[D]` whether each of D cards shows it, and `[D]` the estimate of what it claims."""
Truth = Callable[[np.random.Generator, int, float], tuple[np.ndarray, np.ndarray]]
"""Generator, number of problems and size -> chances of success of the base and of the trained model."""
Cards = Callable[[np.random.Generator, float, int], Lines]
"""Generator, size of the truth and number of cards -> their lines."""


def draws_of(num_problems: int) -> int:
    """Return how many cards of nothing are drawn: fewer of large ones, where each takes long."""
    return 2000 if num_problems <= 200 else 600


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


def skill(rng, num, size):
    """A fraction of the problems is always solved."""
    base = base_chances(rng, num)
    return base, np.where(rng.random(num) < size, 1.0, base)


def sharpened(rng, num, size, *, k: float):
    """A fraction is answered always alike, and right with the chance of one right answer among k.

    The trained model is better at fewer than k samples, worse at more, and as good at k: of 1 it is never better.
    """
    base = base_chances(rng, num)
    always = (rng.random(num) < 1 - (1 - base) ** k).astype(float)
    return base, np.where(rng.random(num) < size, always, base)


# Cards.


def interval_ends(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `[...]`: both ends of `paired_interval` for `[..., N]` differences at once, without clusters."""
    num, mean = differences.shape[-1], differences.mean(axis=-1)
    apart = differences - mean[..., None]
    squares, fourths = (apart**2).sum(axis=-1), (apart**4).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.clip(2 * num / (fourths * num / squares**2 - 1), 1.0, num - 1.0)
    weight = np.where(np.abs(apart).max(axis=-1) <= 1e-6, 1.0, np.minimum(1.0, 6.0 / degrees))
    cases = num + 2 * weight
    centre = num * mean / cases
    square = squares + num * (mean - centre) ** 2 + weight * ((1 + centre) ** 2 + (1 - centre) ** 2)
    reach = scipy.special.stdtrit(cases - 1, 0.975) * np.sqrt(square / (cases - 1) / cases)
    return np.maximum(-1, np.minimum(mean, centre - reach)), np.minimum(1, np.maximum(mean, centre + reach))


def lines_at_one(truth: Truth, num_problems: int, num_samples: int, rng, size: float, draws: int) -> Lines:
    right = [[rng.binomial(num_samples, own) for own in truth(rng, num_problems, size)] for _ in range(draws)]
    gains = np.diff(np.array(right), axis=1)[:, 0] / num_samples
    (low, high), mean = interval_ends(gains), gains.mean(axis=1)
    return {"accuracy_rose": (low > 0, mean), "accuracy_fell": (high < 0, -mean)}


def lines_of_curves(truth: Truth, num_problems: int, num_samples: int, rng, size: float, draws: int) -> Lines:
    # pass@k of every number that can be right.
    half = most_judged(num_samples)
    ks, wrong = np.arange(1, half + 1), num_samples - np.arange(num_samples + 1)[:, None]
    table = 1 - np.cumprod(np.maximum(wrong - ks + 1, 0) / (num_samples - ks + 1), axis=1)
    lows, highs = np.zeros((2, draws, half))
    last = np.zeros(draws)
    for draw in range(draws):
        base, trained = (rng.binomial(num_samples, own) for own in truth(rng, num_problems, size))
        gains = (table[trained] - table[base]).T
        lows[draw], highs[draw] = interval_ends(gains)
        last[draw] = gains[-1].mean()
    tried = np.array(sorted({half, *(2**power for power in range(half.bit_length()))})) - 1
    every = (lows[:, tried] > 0).all(axis=1)
    crosses = (lows[:, 0] > 0) & (highs[:, -1] < 0)
    return {"better_at_every_k": (every, last), "curves_cross": (crosses, -last)}


def lines_of_parts(
    changed: int | None, num_problems: int, num_samples: int, rng, size: float, draws: int, *, readable: float = 4.0
) -> Lines:
    """One rate rose toward 1 at every problem, by so much accuracy; None: nothing did."""
    rows = []
    for _ in range(draws):
        before = [rng.beta(4, 1, num_problems), rng.beta(readable, 1, num_problems), rng.beta(1, 1, num_problems)]
        after = [*before]
        if changed is not None:
            others = np.prod([rates for part, rates in enumerate(before) if part != changed], axis=0)
            rise = ((1 - before[changed]) * others).mean()
            after[changed] = before[changed] + (1 - before[changed]) * min(1.0, size / rise)
        counts = []
        for rates in (before, after):
            own = [np.full(num_problems, num_samples)]
            for rate in rates:
                own.append(rng.binomial(own[-1], rate))
            counts.append(own[1:])
        gains = [row.gain for row in accuracy_parts(num_samples, *counts)[0]]
        rows.append([(gain is not None and gain.low > 0, gain.mean if gain is not None else 0.0) for gain in gains])
    found = np.array(rows)
    return {claim: (found[:, part, 0] > 0, found[:, part, 1]) for part, claim in enumerate(CLAIMED)}


def lines_over_runs(
    spread: float, num_problems: int, num_samples: int, rng, size: float, draws: int, *, num_runs: int, turned=0.0
) -> Lines:
    """Runs change a chance of one half by `size` on average, others by 4 p (1 - p) as much; some become another's."""
    rows = []
    for _ in range(draws):
        chances = rng.beta(0.7, 1.3, num_problems)
        base = rng.binomial(num_samples, chances) / num_samples
        moved = np.where(rng.random(num_problems) < turned, rng.beta(0.7, 1.3, num_problems), chances)
        moved = moved + 4 * moved * (1 - moved) * rng.normal(size, spread, num_runs)[:, None]
        runs = rng.binomial(num_samples, np.clip(moved, 0, 1)) / num_samples
        over = rows_and_columns_interval(runs - base, bounds=(-1.0, 1.0))
        rows.append((over.low, over.mean, over.high))
    low, mean, high = np.array(rows).T
    return {OVER[0]: (low > 0, mean), OVER[1]: (high < 0, -mean)}


def lines_of_gained(chances: Callable, num_gained: int, num_samples: int, rng, size: float, draws: int) -> Lines:
    """The base has never solved any; both models spread their right answers over 30 texts, in orders of their own."""
    weights, shown = 1 / np.arange(1, 31) / (1 / np.arange(1, 31)).sum(), []
    for _ in range(draws):
        unsolved = np.zeros(0)
        while unsolved.size < num_gained:
            drawn = chances(rng, 2 * num_gained, num_samples, size)
            unsolved = np.r_[unsolved, drawn[rng.binomial(num_samples, drawn) == 0]]
        texts = rng.multinomial(np.maximum(1, rng.binomial(num_samples, 0.7, num_gained)), weights) > 0
        other = rng.permuted(np.tile(weights, (num_gained, 1)), axis=1)
        own = np.where(rng.random(texts.shape) < 0.5, weights, other)
        bounds = unsolved[:num_gained] * (own * texts).sum(axis=1) / own.sum(axis=1)
        rows = [GainedRow(problem="p", right=1, bound=bound, samples_needed=None) for bound in bounds.tolist()]
        shown += [line.shown for line in reached("base", rows, num_samples)]
    return {REACHES[0]: (np.array(shown), np.full(draws, num_samples / max(size, 1e-9)))}


def about(rng, num, num_samples, size):
    """Chances of about `size` in the samples that were taken."""
    return np.minimum(1.0, size / num_samples * np.exp(rng.normal(0, 1, num)))


def below(rng, num, num_samples, size):
    """Every chance is a little below what is claimed."""
    return np.full(num, 1 / (11 * num_samples))


# How often each claim is shown, and of which size.


def false_rates(
    cards: list[Cards], claims: tuple[str, ...], size: float, draws: int, seed: int = 0
) -> dict[str, float]:
    """Return the largest rate of each claim over truths of which none is what it claims."""
    rng, most = np.random.default_rng([zlib.crc32(claims[0].encode()), seed]), dict.fromkeys(claims, 0.0)
    for of_truth in cards:
        lines = of_truth(rng, size, draws)
        most = {claim: max(most[claim], float(lines[claim][0].mean())) for claim in claims}
    return most


def power(cards: Cards, claim: str, size: float, draws: int, seed: int = 0) -> tuple[float, float]:
    """Return in which fraction of cards a claim is shown, and the mean estimate of what it claims."""
    shown, sizes = cards(np.random.default_rng([zlib.crc32(claim.encode()), seed]), size, draws)[claim]
    return float(shown.mean()), float(sizes.mean())


def detectable(cards: Cards, claim: str, draws: int, most: float = 1.0, seed: int = 0) -> tuple[float, float] | None:
    """Return the size of the truth that 80% of cards show, and the mean estimate there; None: not even the largest.

    An interval of half width 2 s around an effect with error s excludes 0 in Phi(effect / s - 2) of draws; each step
    takes s from the last, until the power is near, and the rest of the way is that formula's.
    """
    size, bracket = 0.1 * most, [0.0, most]
    for _ in range(9):
        found, estimate = power(cards, claim, size, draws, seed)
        if abs(found - POWER) <= NEAR:
            rest = (2 + scipy.special.ndtri(POWER)) / (2 + scipy.special.ndtri(found))
            return size * rest, estimate * rest
        if size == most and found < POWER:
            return None
        bracket[int(found > POWER)] = size
        error = size / (2 + scipy.special.ndtri(np.clip(found, 0.05, 0.995)))
        size = (2 + scipy.special.ndtri(POWER)) * error
        if not bracket[0] < size < bracket[1]:
            size = most if bracket == [bracket[0], most] and size >= most else sum(bracket) / 2
    return size, estimate


def cards_of(lines: Callable, truth: object, num_problems: int, num_samples: int, **more: object) -> Cards:
    """Return a function that draws cards of one size and truth."""
    return partial(lines, truth, num_problems, num_samples, **more)


Rates = Iterator[tuple[str, Design]]


def measured(num_problems: int, num_samples: int, seed: int = 0) -> Rates:
    """Yield each claim and its rates at one size."""
    draws = draws_of(num_problems)
    size = {"num_problems": num_problems, "num_samples": num_samples}
    few, of = 200, partial(cards_of, num_problems=num_problems, num_samples=num_samples)

    # Accuracy: a fall is a rise the other way round, of the same size.
    narrowed = partial(sharpened, k=1)
    cards = [of(lines_at_one, each) for each in (nothing, turned, narrowed, alike, rare)]
    false = false_rates(cards, ONE, 1.0, draws, seed)
    found = detectable(of(lines_at_one, skill), ONE[0], few, seed=seed)
    for claim in ONE:
        yield claim, Design(**size, false=false[claim], size=found and found[1])

    # The curves of pass@k, which begin at four samples. Nothing is where they are as good at 1, or at the largest k.
    if num_samples >= 4:
        half = most_judged(num_samples)
        nulls = [of(lines_of_curves, each) for each in (nothing, turned, narrowed, partial(sharpened, k=half))]
        false = false_rates(nulls, CURVES, 1.0, draws // 2, seed)
        for claim, true in zip(CURVES, (skill, partial(sharpened, k=half**0.5)), strict=True):
            found = detectable(of(lines_of_curves, true), claim, few, seed=seed)
            yield claim, Design(**size, false=false[claim], size=found and found[1])

    # Parts of the gain: beside no change a large change of another part, where much is readable and where little is.
    claims = tuple(CLAIMED)
    false = false_rates([of(lines_of_parts, None)], claims, 0.0, draws // 4, seed)
    for part in range(3):
        others = tuple(claim for number, claim in enumerate(claims) if number != part)
        cards = (of(lines_of_parts, part, readable=own) for own in (4, 1.5))
        readable = [false_rates([each], others, 0.1, draws // 20, seed) for each in cards]
        false |= {claim: max(false[claim], float(np.mean([own[claim] for own in readable]))) for claim in others}
    for part, claim in enumerate(claims):
        found = detectable(of(lines_of_parts, part), claim, 80, most=0.5, seed=seed)
        yield claim, Design(**size, false=false[claim], size=found and found[1])


def measured_runs(num_problems: int, num_samples: int, seed: int = 0) -> Rates:
    """Yield the rates over runs that differ by 1.1 points, or do not, where some problems become another, or none."""
    draws, size = draws_of(num_problems), {"num_problems": num_problems, "num_samples": num_samples}
    of = partial(cards_of, lines_over_runs, num_problems=num_problems, num_samples=num_samples)
    for num_runs in RUNS:
        cards = [of(spread, num_runs=num_runs) for spread in (0.02, 0.0, 0.1)]
        cards += [of(spread, num_runs=num_runs, turned=0.3) for spread in (0.02, 0.0)]
        false = false_rates(cards, OVER, 0.0, draws // 2, seed)
        found = detectable(of(0.02, num_runs=num_runs), OVER[0], 200, seed=seed)
        for claim in OVER:
            yield claim, Design(**size, num_runs=num_runs, false=false[claim], size=found and found[1])


def measured_gained(num_gained: int, num_samples: int) -> Rates:
    """Yield the rates of the claim about problems that only the trained model solved, by their number."""
    of = partial(cards_of, lines_of_gained, num_problems=num_gained, num_samples=num_samples)
    false = false_rates([of(below)], REACHES, 1.0, 100)
    found = detectable(of(about), REACHES[0], 100, most=3.0)
    size = {"num_problems": num_gained, "num_samples": num_samples, "size": found and num_samples / found[0]}
    yield REACHES[0], Design(**size, false=false[REACHES[0]])


def record() -> None:
    """Measure every claim at every size and write it beside the claim's other rates."""
    designs: dict[str, list] = {}
    for num_samples in SAMPLES:
        whole = [(num, measure) for num in PROBLEMS for measure in (measured, measured_runs)]
        for num, measure in whole + [(num, measured_gained) for num in GAINED]:
            start = time.process_time()
            for claim, design in measure(num, num_samples):
                designs.setdefault(claim, []).append(_rounded(design))
            print(f"{measure.__name__} {num} x {num_samples}: {time.process_time() - start:.0f} CPU s", flush=True)
    known = json.loads(RATES.read_text())
    write_rates({claim: {**own, "designs": designs.get(claim, [])} for claim, own in known.items()})


def _rounded(design: Design) -> dict:
    values, size = design.model_dump(exclude_defaults=True), design.size
    return {**values, "false": round(design.false, 4), "size": size and float(f"{size:.3g}")}


if __name__ == "__main__":
    record()
