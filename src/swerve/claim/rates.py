"""How often each claim of a card is right, and false, on planted models: measured, packaged, printed beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise

from swerve.artifacts.record import Record


class Design(Record):
    """What was measured of a claim on simulated cards of one size."""

    num_problems: int
    """Or groups of problems."""
    num_samples: int
    """Of each problem by each model."""
    num_runs: int = 1
    false: float
    """Fraction of cards of two equal models that show the claim; of several such truths the largest."""
    size: float | None
    """The effect that 80% of cards show, in the unit of the claim's line; None: no effect is shown as often."""


class ClaimRates(Record):
    """How a claim did over draws of a known truth."""

    size: str
    """The planted effect that is detectable, in words."""
    right: float
    """Fraction of draws in which it is shown where that is planted."""
    right_more: float
    """The same of an effect 1.3 times as large."""
    false: float
    """Fraction of draws in which it is shown where nothing is there."""
    draws: int
    """Of each, at least."""
    designs: tuple[Design, ...] = ()
    """The same for cards of several sizes; empty: of this one alone."""

    def at(self, num_problems: int, num_samples: int, num_runs: int = 1) -> Design | None:
        """Return what a card of some size would have: interpolated between those measured, None outside them.

        Both figures are linear in the logarithms of problems and samples, `size` by its own logarithm.

        Args:
            num_problems: that count as one observation each: problems, or groups of them.
            num_samples: of each problem by each model.
            num_runs: of the training; a number that was not measured is outside.
        """
        known = {(own.num_problems, own.num_samples): own for own in self.designs if own.num_runs == num_runs}
        problems = _weights(num_problems, sorted({each for each, _ in known}))
        samples = _weights(num_samples, sorted({each for _, each in known}))
        if not problems or not samples:
            return None
        near = [
            (first * second, known[problem, sample])
            for problem, first in problems.items()
            for sample, second in samples.items()
        ]
        sizes = [(weight, own.size) for weight, own in near]
        logs = [weight * math.log(size) for weight, size in sizes if size is not None]
        return Design(
            num_problems=num_problems,
            num_samples=num_samples,
            num_runs=num_runs,
            false=sum(weight * own.false for weight, own in near),
            size=math.exp(sum(logs)) if len(logs) == len(sizes) else None,
        )


def _weights(value: int, known: Sequence[int]) -> dict[int, float]:
    """Return the values on either side of one, with their weights by its logarithm; none where it is outside.

    >>> _weights(20, [10, 40]), _weights(10, [10, 40]), _weights(50, [10, 40])
    ({10: 0.5, 40: 0.5}, {10: 1.0}, {})
    """
    if value in known:
        return {value: 1.0}
    for low, high in pairwise(known):
        if low < value < high:
            above = math.log(value / low) / math.log(high / low)
            return {low: 1 - above, high: above}
    return {}


def alike_said(num_alike: int, num_problems: int) -> str:
    """Return that problems are near-copies, for which no rate is known, and what to do."""
    return f"{num_alike:,} of {num_problems:,} problems differ only in their numbers: give their group"


@cache
def claim_rates() -> Mapping[str, ClaimRates]:
    """Return the rates of every claim that a card can make, by its key, the `claim` of a verdict."""
    text = files("swerve").joinpath("claim", "rates.json").read_text(encoding="utf-8")
    return {claim: ClaimRates.model_validate(rates) for claim, rates in json.loads(text).items()}
