"""Tuning: which settings of each variant run with which seeds, and which of them is chosen for the verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from random import Random
from statistics import fmean
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from swerve.errors import nearest
from swerve.seeds import derive_seed
from swerve.settings import Model, PositiveInt


def check_known(name: str, known: Collection[str], said: str, *, otherwise: str = "") -> None:
    """Raise ValueError with what is said, the nearest and all known names unless the name is one of them."""
    if name not in known:
        raise ValueError(f"{said}{nearest(name, known)}; use {', '.join(known)}{otherwise}")


def _counted(value: Any) -> Any:
    if type(value) is int:
        if not 0 < value < 10_000:
            raise ValueError(f"must be a list of seeds, or how many there are (1 to 9999), got {value}")
        return tuple(range(value))
    return tuple(value) if isinstance(value, list) else value


def _different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is given twice: {list(seeds)}")
    return seeds


Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**31)], ...],
    BeforeValidator(_counted),
    Field(min_length=1),
    AfterValidator(_different),
]
"""A list, or a number n for 0 to n - 1."""
Changes = dict[str, JsonValue]
"""Dotted keys of a recipe and their values."""
Grid = dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]]
"""Dotted keys of a recipe, each with the values to try."""


_LUCK = 0.5
"""Variance that the choice among close settings adds to what is chosen, in variances of a mean over the tuning seeds.
Simulated with methods that are alike, five shapes of a grid of 9 and the shape's worst distance between settings: .1 to
.6, and .9 to 1 where one setting is 1.5 standard deviations better than eight others."""


class Tuning(Model):
    """How the settings of each variant are chosen: with seeds, and on problems, that its verdict never sees."""

    grid: Grid = Field(default_factory=dict)
    """Dotted keys and the values that each variant tries."""
    own: dict[str, Grid] = Field(default_factory=dict)
    """Those of single variants, in place of the grid."""
    trials: PositiveInt | None = None
    """Settings that each variant tries, drawn from its grid; null: all, of which each variant has as many."""
    seeds: Seeds
    """All settings run with the first, the better half of them with the next, and so on; no seeds of the study."""
    num_problems: PositiveInt = 200
    """Held-out problems that settings are judged on: those after `eval.num_problems`."""

    def settings(self, variant: str) -> list[Changes]:
        """Return the grid of a variant, a setting each; the last key changes fastest."""
        grid = self.own.get(variant, self.grid)
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def drawn(self, variant: str) -> list[int]:
        """Return the numbers of the settings that a variant tries, from 0; variants of one grid try the same.

        More trials try those of fewer, and others.
        """
        settings = self.settings(variant)
        numbers = list(range(len(settings)))
        Random(derive_seed(0, "trials", json.dumps(settings))).shuffle(numbers)
        return sorted(numbers[: self.trials])

    def at_end(self, variant: str, changes: Changes) -> tuple[str, ...]:
        """Return the keys of a setting whose value is the lowest or the highest of the numbers that a variant tries.

        >>> tuning = Tuning(grid={"lr": (1e-5, 3e-5, 1e-4), "kind": ("a", "b", "c")}, seeds=(9,))
        >>> tuning.at_end("clip", {"lr": 1e-4, "kind": "a"})
        ('lr',)
        """
        settings = self.settings(variant)
        ends = []
        for key, value in changes.items():
            tried = [settings[number][key] for number in self.drawn(variant)]
            numbers = [other for other in tried if isinstance(other, int | float) and not isinstance(other, bool)]
            is_range = len(numbers) == len(tried) and len(set(numbers)) > 1
            if is_range and value in (min(numbers), max(numbers)):
                ends.append(key)
        return tuple(ends)

    @property
    def num_by_seed(self) -> tuple[int, ...]:
        """How many settings of a variant run with each seed."""
        num = self.trials or len(self.settings(next(iter(self.own), "")))
        return tuple(math.ceil(num / 2**place) for place in range(len(self.seeds)))

    def widening(self, num_seeds: int) -> float:
        """Return how many times as wide as over seeds alone an interval is that counts what another tuning chose.

        The mean of n paired differences of variance s^2, at settings chosen with k seeds, has s^2 / n + .5 s^2 / k.
        Without it, of methods that are alike up to 32% were called better or worse with 8 seeds and 2; with it 1 to 6%,
        11% in the worst shape.
        """
        return math.sqrt(1 + _LUCK * num_seeds / len(self.seeds))

    def check(self, variants: Sequence[str], seeds: Sequence[int]) -> None:
        """Check the grids against the variants, and the seeds against those of the verdict.

        Raises:
            ValueError: a variant is unknown, grids are too small for the trials, or seeds are shared.
        """
        if shared := sorted(set(self.seeds) & set(seeds)):
            raise ValueError(f"seeds {shared} are also those of the study, by whose runs no setting may be chosen")
        for name in self.own:
            check_known(name, variants, f"own: there is no variant '{name}'")
        sizes = {variant: len(self.settings(variant)) for variant in variants}
        few = min(sizes, key=sizes.__getitem__)
        if self.trials is not None and sizes[few] < self.trials:
            raise ValueError(f"variant '{few}' has a grid of {sizes[few]} settings, and trials are {self.trials}")
        if self.trials is None and len(set(sizes.values())) > 1:
            listed = ", ".join(f"{variant} {size}" for variant, size in sizes.items())
            raise ValueError(
                f"grids of different sizes ({listed}); give trials, the same for all, at most {sizes[few]}"
            )


def better_half(scores: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the half of the settings whose mean over the seeds so far is higher, the larger half of an odd number.

    Of equals the first of the grid is kept.

    >>> better_half({0: [0.4], 3: [0.6], 5: [0.6]})
    [3, 5]
    """
    ranked = sorted(scores, key=lambda number: (-fmean(scores[number]), number))
    return sorted(ranked[: math.ceil(len(scores) / 2)])


def chosen(scores: Mapping[int, Sequence[float]]) -> int:
    """Return the setting with the highest mean over all seeds, of those that ran with all; of equals the first.

    >>> chosen({0: [0.9], 3: [0.6, 0.4], 5: [0.5, 0.6]})
    5
    """
    return max(scores, key=lambda number: (len(scores[number]), fmean(scores[number]), -number))
