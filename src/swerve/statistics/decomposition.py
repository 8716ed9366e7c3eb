"""Which part of a gain in accuracy is of samples that end, of readable answers, and of right ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters
from swerve.statistics.paired import paired_interval
from swerve.statistics.sample_counts import most_have
from swerve.text import counted, percent

_PARTS = ("truncation", "format", "correctness")
_LEAST_PROBLEMS, _LEAST_SAMPLES, _MOST_FILLED = 5, 16, 0.1


class GainPart(NamedTuple):
    """A part of the gain in accuracy."""

    part: str
    gain: Estimate | float | None
    missing: str = ""
    """Why it has no interval, as a clause; empty: it has one, or no problem has such a part."""


def accuracy_parts(
    num_samples: ArrayLike, before: ArrayLike, after: ArrayLike, *, clusters: Clusters | None = None
) -> tuple[list[GainPart], float]:
    """Return the parts of the gain in accuracy that are of ends, of readable answers and of right ones.

    Accuracy is a product, finished t * parsed of those f * right of those c. Its change is shared out by Shapley values
    of each problem, then averaged:

        truncation = (t1 - t0) ((f0 c0 + f1 c1) / 3 + (f0 c1 + f1 c0) / 6)

    and the others alike: they sum to the gain exactly, in no order. A rate of no samples takes the other model's; of
    neither, 0. Intervals are t over problems; none with fewer than 16 samples, where more than a tenth of the
    problems has an unknown rate, or where fewer than five have such a part. Simulated coverage: .93 to .97 with 16
    samples. Rates pooled over problems are biased by up to .09.

    Args:
        num_samples: of each problem by each model; or `[2, N]`, of each one before and after.
        before: `[3, N]` counts: samples that ended, of those the parsed, of those the right ones.
        after: the same after.

    Returns:
        The parts, and the fraction of problems of which a rate is unknown.

    Raises:
        ValueError: more samples are right than parsed, more parsed than ended, or more ended than there are.

    >>> [row.gain for row in accuracy_parts(2, ([2], [1], [0]), ([2], [2], [2]))[0]]
    [0.0, 0.25, 0.75]
    """
    sides = [np.asarray(counts, dtype=np.float64) for counts in (before, after)]
    nums, rates = np.broadcast_to(num_samples, (2, sides[0].shape[1])), []
    for side, num in zip(sides, nums, strict=True):
        wholes = np.vstack([num, side[:2]])
        if (side > wholes).any():
            raise ValueError("each count is of those before it: samples that ended, of those parsed, of those right")
        rates.append(np.divide(side, wholes, out=np.full_like(side, np.nan), where=wholes > 0))
    first, second = rates
    gains = _shapley(np.where(np.isnan(first), second, first), np.where(np.isnan(second), first, second))
    filled = float(np.isnan(first + second).any(axis=0).mean())
    why = ""
    if (most := most_have(nums)) < _LEAST_SAMPLES:
        why = f"most problems have {counted(most, 'sample')}, and it takes {_LEAST_SAMPLES}"
    elif filled > _MOST_FILLED:
        why = f"a rate of {percent(filled)} of the problems is unknown"
    rows = []
    for part, values in zip(_PARTS, gains, strict=True):
        num = int(np.count_nonzero(values))
        few = f"such a part is in {counted(num, 'problem')}, and it takes {_LEAST_PROBLEMS}"
        missing = why or (few if num < _LEAST_PROBLEMS else "")
        gain = float(values.mean()) if missing else paired_interval(values, clusters=clusters)
        rows.append(GainPart(part, gain, missing if num else ""))
    return rows, filled


def _shapley(before: Array, after: Array) -> Array:
    """Return `[3, N]`: each rate's share of the change of their product; unknown rates are 0.

    It is the mean of the other two's product while all go straight from before to after, by Simpson's rule exactly.
    """
    first, last = np.nan_to_num(before), np.nan_to_num(after)
    start, middle, end = (
        np.roll(rates, 1, axis=0) * np.roll(rates, 2, axis=0) for rates in (first, (first + last) / 2, last)
    )
    return (last - first) * (start + 4 * middle + end) / 6
