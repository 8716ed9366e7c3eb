"""Which part of a gain in accuracy is of samples that end, of readable answers, and of right ones."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, membership
from swerve.statistics.paired import cases_interval

GAIN_PARTS = ("truncation", "format", "correctness")
_LEAST = 5
"""Clusters of which a rate is known of both models, from which it is told how it changed."""
_TIMES = (1.0, 0.0, 2.0)
"""How often the mean change of a rate is what unknown ones change by; the first of the figure, all of its interval."""


class GainPart(NamedTuple):
    """A part of the gain in accuracy."""

    part: str
    gain: Estimate | None
    missing: str = ""
    """Why it is not known, as a clause; empty: it is."""


def accuracy_parts(
    num_samples: ArrayLike,
    before: ArrayLike,
    after: ArrayLike,
    *,
    clusters: Clusters | None = None,
    labels: tuple[str, str] = ("the base", "the trained model"),
) -> tuple[list[GainPart], float]:
    """Return the parts of the gain in accuracy that are of ends, of readable answers and of right ones.

    Accuracy is a product, finished t * parsed of those f * right of those c. Its change is shared out by Shapley values
    of each problem, then averaged:

        truncation = (t1 - t0) ((f0 c0 + f1 c1) / 3 + (f0 c1 + f1 c0) / 6)

    and the others alike: they sum to the gain exactly, in no order. Rates pooled over problems are biased by up to .09.

    A rate of no samples is the other model's, moved by the mean change of that rate over the problems where both are
    known: to take the other's as it is gives a part to format where only correctness changed (a third of the gain, of
    one sample). Of neither it is 0. The intervals are those of `paired_interval`, that change estimated too.

    With fewer than five clusters that know both rates, no change can be told (a base that reads nothing). Then a part
    is known where it has one sign whatever the unknown rates are, from 0 to 1: its interval holds all of these, its
    mean takes the other model's.

    Args:
        num_samples: of each problem by each model; or `[2, N]`, of each one before and after.
        before: `[3, N]` counts: samples that ended, of those the parsed, of those the right ones.
        after: the same after.
        clusters: which problems belong together (their groups); by default each is its own cluster.
        labels: what both models are called where a part is not known.

    Returns:
        The parts, and the fraction of problems of which a rate is unknown.

    Raises:
        ValueError: more samples are right than parsed, more parsed than ended, or more ended than there are.

    >>> [row.gain.mean for row in accuracy_parts(2, ([2], [1], [0]), ([2], [2], [2]))[0]]
    [0.0, 0.25, 0.75]
    """
    sides = [np.asarray(counts, dtype=np.float64) for counts in (before, after)]
    nums, rates = np.broadcast_to(num_samples, (2, sides[0].shape[1])), []
    for side, num in zip(sides, nums, strict=True):
        wholes = np.vstack([num, side[:2]])
        if (side > wholes).any():
            raise ValueError("each count is of those before it: samples that ended, of those parsed, of those right")
        rates.append(np.divide(side, wholes, out=np.full_like(side, np.nan), where=wholes > 0))
    is_known: NDArray[np.bool_] = ~np.isnan(rates)
    filled = float((~is_known).any(axis=(0, 1)).mean())

    # How much each rate changes can be told where enough clusters know it of both models, or none lacks it of one.
    num_clusters, index = membership(clusters, sides[0].shape[1])
    in_both = np.all(is_known, axis=0)
    lacking = is_known[0] != is_known[1]
    num_known = [np.unique(index[known]).size for known in in_both]
    too_few = [rate for rate in (1, 2) if lacking[rate].any() and num_known[rate] < _LEAST]
    if too_few:
        return _within_bounds(rates, clusters, _why(too_few[0], num_known[too_few[0]], is_known, labels)), filled
    needed = [num for num, lacks in zip(num_known, lacking, strict=True) if lacks.any()]
    most = min(needed, default=num_clusters + 2) - 1.0
    usual, *others = (
        [cases_interval(row, clusters, most_degrees=most) for row in _influences(rates, in_both, times)]
        for times in _TIMES
    )
    rows = []
    for part, gain, *ends in zip(GAIN_PARTS, usual, *others, strict=True):
        low, high = (end(getattr(each, name) for each in (gain, *ends)) for end, name in ((min, "low"), (max, "high")))
        rows.append(GainPart(part, Estimate(mean=gain.mean, low=low, high=high)))
    return rows, filled


def _influences(rates: list[Array], in_both: NDArray[np.bool_], times: float) -> Array:
    """Return `[3, N]`: what each problem adds to the parts, with what it adds to the changes that others are filled by.

    Parts are linear in each change, so that a step of 1 gives the slope.

    Args:
        rates: two of `[3, N]`, NaN where unknown.
        in_both: `[3, N]`, whether a rate is known of both models.
        times: how often the mean change is what unknown rates change by.
    """
    num = np.maximum(in_both.sum(axis=1), 1)
    apart = np.where(in_both, rates[1] - rates[0], 0.0)
    changes = apart.sum(axis=1) / num
    values = _shapley(*_filled(rates, times * changes))
    influences = values.copy()
    for rate in (1, 2):
        moved = times * changes + (np.arange(3) == rate)
        slopes = (_shapley(*_filled(rates, moved)) - values).mean(axis=1)
        own = (apart[rate] - changes[rate] * in_both[rate]) * in_both.shape[1] / num[rate]
        influences += times * slopes[:, None] * own
    return influences


def _within_bounds(rates: list[Array], clusters: Clusters | None, why: str) -> list[GainPart]:
    """Return the parts whose sign no unknown rate can change."""
    corners = []
    for fills in product((0.0, 1.0), repeat=4):
        filling = np.array([[0.0, *fills[:2]], [0.0, *fills[2:]]])[:, :, None]
        corners.append(_shapley(*np.where(np.isnan(rates), filling, rates)))
    usual = _shapley(*_filled(rates, np.zeros(3)))
    rows = []
    ends = np.min(corners, axis=0), np.max(corners, axis=0)
    for part, least, most, value in zip(GAIN_PARTS, *ends, usual, strict=True):
        low, high = cases_interval(least, clusters).low, cases_interval(most, clusters).high
        is_known = low > 0 or high < 0 or np.array_equal(least, most)
        estimate = Estimate(mean=float(value.mean()), low=low, high=high)
        rows.append(GainPart(part, estimate if is_known else None, "" if is_known else why))
    return rows


def _why(rate: int, num_known: int, is_known: NDArray[np.bool_], labels: tuple[str, str]) -> str:
    """Return why it cannot be told how a rate changed, as a clause."""
    what, unknown = (
        ("ended", "how many would have an answer that can be read")
        if rate == 1
        else ("could be read", "how many of them are right")
    )
    for label, known in zip(labels, is_known[:, rate], strict=True):
        if not known.any():
            return f"none of the {'samples' if rate == 1 else 'answers'} of {label} {what}, so {unknown} is not known"
    problems = f"{num_known} problem{'s' * (num_known != 1)}"
    return f"answers of both models {what} in {problems}, and it takes {_LEAST}, so {unknown} is not known"


def _filled(rates: list[Array], changes: Array) -> tuple[Array, Array]:
    """Return the rates, unknown ones as the other model's, moved by how much the rate changes; of neither, 0."""
    first, second = rates
    moved = changes[:, None]
    filled = np.where(np.isnan(first), second - moved, first), np.where(np.isnan(second), first + moved, second)
    return np.nan_to_num(filled[0]), np.nan_to_num(filled[1])


def _shapley(before: Array, after: Array) -> Array:
    """Return `[3, N]`: each rate's share of the change of their product.

    It is the mean of the other two's product while all go straight from before to after, by Simpson's rule exactly.
    """
    start, middle, end = (
        np.roll(rates, 1, axis=0) * np.roll(rates, 2, axis=0) for rates in (before, (before + after) / 2, after)
    )
    return (after - before) * (start + 4 * middle + end) / 6
