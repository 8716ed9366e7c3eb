"""Coverage, false rates and power of what the claim card says of accuracy, by simulation on the functions themselves.

    python -m benchmarks.claim_coverage [--draws 2000] [--seed 1] > benchmarks/results/claim_coverage.jsonl

A cell is a figure, a construction, a number of problems and of samples of each, how difficulty is distributed, and
whether problems come in groups of ten with one chance of success. Counts are drawn from binomial distributions. At
1,000 and 3,000 problems there are a quarter of the draws, of the parts of a gain a tenth, of what is newly solved a
fortieth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.process import print_line
from swerve.estimates import Estimate
from swerve.statistics import mean_interval, paired_interval
from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.mixtures import newly_solved

Rng = np.random.Generator
Array = NDArray[np.float64]

PROBLEMS, SAMPLES, GROUPS = (30, 200, 1000, 3000), (1, 4, 16, 64), (1, 10)
_MANY = 200_000  # problems that a truth is taken from


def equal(rng: Rng, num: int) -> Array:
    """Half of the samples of every problem are right."""
    return np.full(num, 0.5)


def heavy_tailed(rng: Rng, num: int) -> Array:
    """A tenth of the problems is never solved, a tenth always, most of the others rarely."""
    kind = rng.random(num)
    return np.select([kind < 0.1, kind > 0.9], [0.0, 1.0], rng.beta(0.7, 1.3, num))


DIFFICULTY: dict[str, Callable[[Rng, int], Array]] = {"equal": equal, "heavy-tailed": heavy_tailed}


def raised(base: Array, size: float) -> Array:
    """Return chances after a gain: those neither 0 nor 1 are 1 - (1 - p)^(1 + size)."""
    return np.where((base > 0) & (base < 1), 1 - (1 - base) ** (1 + size), base)


def pass_table(num_samples: int, k: int) -> Array:
    """Return pass@k of 0, 1, ..., n right samples of n."""
    wrong = num_samples - np.arange(num_samples + 1)
    factors = np.maximum(wrong[:, None] - np.arange(k), 0) / (num_samples - np.arange(k))
    return np.asarray(1 - factors.prod(axis=1))


def differences(draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows of pass@1 and of pass@k of half the samples: by two whole cases without groups, and as it is now."""
    for num, samples, group, (name, chances) in product(PROBLEMS, SAMPLES, GROUPS, DIFFICULTY.items()):
        names = np.repeat(np.arange(num // group), group)
        for size in (0.0, 3.0 * (group / num) ** 0.5):
            rng = np.random.default_rng([seed, num, samples, group, len(name)])
            many = chances(rng, _MANY)
            gained = raised(many, size)
            pairs = []
            for _ in range(_fewer(draws, num)):
                base = np.repeat(chances(rng, num // group), group)
                pairs.append([rng.binomial(samples, side) for side in (base, raised(base, size))])
            for k in sorted({1, max(1, samples // 2)}):
                table, truth = pass_table(samples, k), float(((1 - many) ** k - (1 - gained) ** k).mean())
                values = [table[after] - table[before] for before, after in pairs]
                whole = [mean_interval(each, bounds=(-1.0, 1.0)) for each in values]
                now = [paired_interval(each, clusters=names if group > 1 else None) for each in values]
                for construction, found in (("two whole cases", whole), ("paired_interval", now)):
                    yield {
                        "figure": f"pass@{'1' if k == 1 else 'half'}",
                        "construction": construction,
                        **_cell(num, samples, group, name, size),
                        **_rates(found, truth),
                    }


def parts(draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows of the parts of a gain of which one alone is there, or none; rates rise with an ability."""
    for num, samples in product(PROBLEMS, SAMPLES[:3]):
        for changed in (None, 0, 1, 2):
            rng = np.random.default_rng([seed, num, samples, 1])
            found: list[list[Estimate | None]] = [[], [], []]
            truth = _shapley_of(*_part_rates(rng, _MANY, changed))
            for _ in range(max(20, _fewer(draws, num) // 10)):
                sides = _part_rates(rng, num, changed)
                rows, _ = accuracy_parts(samples, *(_counted(rng, samples, side) for side in sides))
                for kept, row in zip(found, rows, strict=True):
                    kept.append(row.gain)
            for part, kept, value in zip(("truncation", "format", "correctness"), found, truth, strict=True):
                known = [gain for gain in kept if gain is not None]
                yield {
                    "figure": part,
                    "construction": "accuracy_parts",
                    **_cell(num, samples, 1, f"changed: {changed}", 0.0),
                    "num_undetermined": len(kept) - len(known),
                    **(_rates(known, float(value)) if known else {}),
                }


def _part_rates(rng: Rng, num: int, changed: int | None) -> tuple[Array, Array]:
    ability = rng.standard_normal(num)
    levels = ((1.5, 0.5), (0.0, 0.7), (0.0, 1.2))
    before = np.array([1 / (1 + np.exp(-level - slope * ability)) for level, slope in levels])
    after = before.copy()
    if changed is not None:
        after[changed] += 0.3 * (1 - before[changed])
    return before, after


def _counted(rng: Rng, samples: int, rates: Array) -> list[NDArray[np.int64]]:
    counts: list[Any] = [np.full(rates.shape[1], samples)]
    for rate in rates:
        counts.append(rng.binomial(counts[-1], rate))
    return counts[1:]


def _shapley_of(before: Array, after: Array) -> Array:
    """Return the mean parts of given chances, over all orders: of one change all of it is its own."""
    gains = after.prod(axis=0).mean() - before.prod(axis=0).mean()
    return np.where((before != after).any(axis=1), gains, 0.0)


def solved(draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows of how many problems as many samples again would solve, at 90%."""
    mixtures: dict[str, Callable[[Rng, int], Array]] = {
        "heavy-tailed": heavy_tailed,
        "two groups": lambda rng, num: np.where(rng.random(num) < 0.58, 0.05, 0.85),
        "lognormal": lambda rng, num: np.minimum(1, np.exp(rng.normal(-3, 2, num))),
    }
    for num, samples, (name, chances) in product(PROBLEMS, (4, 16, 64), mixtures.items()):
        rng = np.random.default_rng([seed, num, samples, len(name)])
        held = []
        for _ in range(max(20, draws // 40)):
            own = chances(rng, num)
            right = rng.binomial(samples, own)
            again = int(((rng.binomial(samples, own) > 0) & (right == 0)).sum())
            held.append(not newly_solved(right, samples).excludes(again))
        row = {"figure": "newly solved", "construction": "newly_solved", **_cell(num, samples, 1, name, 0.0)}
        yield {**row, "num_draws": len(held), "coverage": float(np.mean(held))}


def _fewer(draws: int, num_problems: int) -> int:
    return draws if num_problems < 1000 else draws // 4


def _cell(num: int, samples: int, group: int, difficulty: str, size: float) -> dict[str, Any]:
    return {
        "num_problems": num,
        "num_samples": samples,
        "group": group,
        "difficulty": difficulty,
        "effect": round(size, 4),
    }


def _rates(found: list[Any], truth: float) -> dict[str, Any]:
    """Return how often intervals hold the truth and lie above or below 0, and their mean half width."""
    rounding = 1e-9
    return {
        "num_draws": len(found),
        "truth": round(truth, 4),
        "coverage": float(np.mean([each.low - rounding <= truth <= each.high + rounding for each in found])),
        "above": float(np.mean([each.low > rounding for each in found])),
        "below": float(np.mean([each.high < -rounding for each in found])),
        "half_width": round(float(np.mean([each.high - each.low for each in found])) / 2, 4),
    }


def main() -> None:
    """Measure every cell; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for measure in (differences, parts, solved):
        for row in measure(options.draws, options.seed):
            print_line(row)


if __name__ == "__main__":
    main()
