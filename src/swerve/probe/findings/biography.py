"""Biographies: what became of each token's log-probability over the checkpoints of a stage.

A series is the log-probability (nats) of one realised token at K checkpoints. Onset: when it left the reference for
good. Reversals: how often it turned. Linearity: how well a straight line in training steps fits. Change point: where a
constant became another constant, with an interval, where it is more of a step than random walks make: what a training
does to a token at one checkpoint stays, so that trajectories wander and no series of training is noise around a
constant. A slow drift has a best split too, in its middle, but there the line fits better (`share_line_better`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import f as f_distribution

from swerve.artifacts.probe_dynamics import (
    BiographySummary,
    ChangePointCounts,
    ChangePointStep,
    OnsetStep,
    TokenBiographies,
)
from swerve.probe.engine.measured import Measurements
from swerve.probe.intervals import Mask, TokenIntervals

_FLOOR_FACTOR = 10.0

_MIN_THRESHOLD = 0.1

Floats = NDArray[np.float64]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Biographies:
    """The biography of each of N tokens over K checkpoints; -1 and NaN where there is nothing to tell."""

    threshold: float
    """Nats: a token has left the reference while |logprob - logprob_ref| is above it."""
    noise: float
    """Nats: changes up to this size are no reversal and no change point."""
    confidence: float
    """Of the intervals of change points."""
    steps: tuple[int, ...]
    """Of the K checkpoints."""
    onset: Ints
    """Index of the checkpoint."""
    reversals: Ints
    slope: Floats
    """Nats a step."""
    linearity: Floats
    """R^2 of the line."""
    changes: ChangePoints
    """Of the series: with a start, point 0 is the start and point i the (i-1)-th checkpoint."""
    times: tuple[int, ...]
    """Step of each point of the series: the steps, after 0 where the start is a point."""

    @property
    def line_better(self) -> Mask:
        """Whether a line explains a series at least as well as the two means of its best split do."""
        return self.linearity >= self.changes.share


def biographies(
    data: Measurements, steps: Sequence[int], *, start_step: int | None = None, noise: float = 0.0
) -> Biographies:
    """Return the biography of every token's log-probability.

    Args:
        data: one stage's checkpoints against one reference.
        steps: the stage step of each checkpoint, increasing.
        start_step: where the reference is the model the stage began with, its step (0): its log-probs are then the
            first point of every series. None: the series are those of the checkpoints alone.
        noise: largest |logprob - logprob_ref| (nats) of a model compared with itself. Ten times that is noise, as
            everywhere in the probe, and the threshold of onset is that or 0.1 nats.

    Raises:
        ValueError: as many increasing steps as checkpoints are needed, after the start's; the pairs must have one
            reference; the noise is negative or not finite.
    """
    if not 0 <= noise < math.inf:
        raise ValueError(f"the noise floor is a finite number of nats, at least 0; got {noise}")
    floor, confidence = _FLOOR_FACTOR * noise, data.intervals.confidence
    threshold = max(floor, _MIN_THRESHOLD)
    times = tuple(steps) if start_step is None else (start_step, *steps)
    if len(steps) != len(data.checkpoints) or any(step >= after for step, after in pairwise(times)):
        raise ValueError(
            f"{len(data.checkpoints)} checkpoints need as many increasing steps (after the start's); got {times}"
        )
    if len(set(data.references)) > 1:
        raise ValueError(f"a biography needs one reference for all checkpoints, got {sorted(set(data.references))}")
    # A series with an infinite log-probability has no biography.
    series, reference = data.columns["logprob"].astype(np.float64), data.columns["logprob_ref"].astype(np.float64)
    finite = np.isfinite(series).all(axis=0) & np.isfinite(reference).all(axis=0)
    kept, base = np.where(finite, series, 0.0), np.where(finite, reference, 0.0)
    points = kept if start_step is None else np.concatenate([base[:1], kept])
    slope, linearity = line_fit(points, times)
    return Biographies(
        threshold=threshold,
        noise=floor,
        confidence=confidence,
        steps=tuple(steps),
        onset=np.where(finite, onsets(kept - base, threshold=threshold), -1),
        reversals=num_reversals(points, noise=floor),
        slope=np.where(finite, slope, np.nan),
        linearity=linearity,
        changes=change_points(points, times=times, noise=floor, confidence=confidence),
        times=times,
    )


def biography_rows(data: Measurements, histories: Biographies) -> list[dict[str, Any]]:
    """Return the rows of `biographies.parquet`, by sequence and position."""
    ids = np.array([sequence.sequence_id for sequence in data.sequences], dtype=np.int64)[data.sequence_index]
    changes, steps, times = histories.changes, (*histories.steps, None), (*histories.times, None)  # index -1 is None
    columns = {
        "sequence_id": ids.tolist(),
        "position": data.positions.tolist(),
        "onset_step": [steps[index] for index in histories.onset.tolist()],
        "num_reversals": histories.reversals.tolist(),
        "linearity": _known(histories.linearity),
        "slope": _known(histories.slope),
        "change_step": [times[index] for index in changes.index.tolist()],
        "change_low": [times[index] for index in changes.low.tolist()],
        "change_high": [times[index] for index in changes.high.tolist()],
        "change_size": _known(changes.size),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def summarise_biographies(data: Measurements, histories: Biographies) -> BiographySummary:
    """Summarise the biographies of all tokens, of those known to be wrong, and of the others beside them.

    `others` are the tokens of the same rollouts that are not wrong steps. Reversals, linearity and change points are
    given for tokens that left the reference for good (`num_moved`): what the others do is noise. `change_points` has
    the tokens with a change point that a line does not explain as well (`share_line_better` do), counted by its step,
    with the median ends of its intervals; up to 1 - confidence of tokens that wander have one by chance. It is null
    with fewer than 4 points, of which none could be found.

    Args:
        data: the measurements the biographies were made of.
        histories: the biographies.
    """
    # Wrong steps are set beside the other tokens of the same rollouts.
    tokens, wrong = data.over, data.wrong
    groups: dict[Literal["all", "wrong_steps", "others"], Mask] = {
        "all": tokens.everywhere,
        "wrong_steps": wrong,
        "others": data.in_marked_rollouts & ~wrong,
    }
    return BiographySummary(
        checkpoints=data.checkpoints,
        steps=histories.steps,
        threshold=histories.threshold,
        noise=histories.noise,
        confidence=histories.confidence,
        tokens={name: _token_biographies(histories, inside, tokens) for name, inside in groups.items()},
    )


def _token_biographies(histories: Biographies, inside: Mask, tokens: TokenIntervals) -> TokenBiographies:
    left, moved = histories.onset >= 0, inside & (histories.onset >= 0)
    onset = Counter(histories.onset[moved].tolist())
    # A constant has no line, and an exact fit no split.
    has_line = moved & np.isfinite(histories.linearity)
    linear = histories.linearity[has_line]
    return TokenBiographies(
        num_tokens=int(inside.sum()),
        num_moved=int(moved.sum()),
        share_moved=tokens.share(left, inside),
        onset_steps=tuple(OnsetStep(step=step, num_tokens=onset[index]) for index, step in enumerate(histories.steps)),
        share_reversed=tokens.share(histories.reversals > 0, moved),
        mean_reversals=tokens.mean(histories.reversals, moved, bounds=(0.0, math.inf)),
        median_linearity=float(np.median(linear)) if linear.size else None,
        share_line_better=tokens.share(histories.line_better, has_line & np.isfinite(histories.changes.share)),
        change_points=_change_points(histories, moved, tokens) if len(histories.times) >= MIN_POINTS else None,
    )


def _change_points(histories: Biographies, moved: Mask, tokens: TokenIntervals) -> ChangePointCounts:
    """Count the change points that a line does not explain as well, by their step."""
    changes, times = histories.changes, np.array(histories.times, dtype=np.int64)
    changed = moved & (changes.index >= 0) & ~histories.line_better
    by_step = []
    for index in np.unique(changes.index[changed]).tolist():
        here = changed & (changes.index == index)
        by_step.append(
            ChangePointStep(
                step=int(times[index]),
                num_tokens=int(here.sum()),
                median_low=float(np.median(times[changes.low[here]])),
                median_high=float(np.median(times[changes.high[here]])),
                median_size=float(np.median(changes.size[here])),
            )
        )
    return ChangePointCounts(num_tokens=int(changed.sum()), share=tokens.share(changed, moved), by_step=tuple(by_step))


MIN_POINTS = 4
"""A shorter series has no change point."""

_NUM_SIMULATED = 20_000

_DRIFTS = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0)  # more makes a line


def onsets(moves: ArrayLike, *, threshold: float) -> Ints:
    """Return, for each of N series, the first point from which on |move| stays above the threshold; -1: none.

    Args:
        moves: `[K, N]`, the difference from the reference at K checkpoints.
        threshold: in the unit of the moves.

    >>> onsets([[0.0, 0.5, 0.2], [0.3, 0.0, 0.2], [0.3, 0.3, 0.0]], threshold=0.1).tolist()
    [1, 2, -1]
    """
    away = np.abs(np.asarray(moves, dtype=np.float64)) > threshold
    stays = np.logical_and.accumulate(away[::-1], axis=0)[::-1]
    return np.where(stays.any(axis=0), stays.argmax(axis=0), -1).astype(np.int64)


def num_reversals(series: ArrayLike, *, noise: float = 0.0) -> Ints:
    """Return how often each of N series turned: sign changes between successive differences larger than the noise.

    Args:
        series: `[K, N]`.
        noise: differences of at most this size have no sign; they are passed over.

    >>> num_reversals([[0.0, 0.0], [1.0, 1.0], [0.9, 0.0], [2.0, 1.0]], noise=0.2).tolist()
    [0, 2]
    """
    steps = np.diff(np.asarray(series, dtype=np.float64), axis=0)
    signs = np.where(np.abs(steps) > noise, np.sign(steps), 0).astype(np.int64)
    last = np.zeros(signs.shape[1], dtype=np.int64)
    turns = np.zeros(signs.shape[1], dtype=np.int64)
    for row in signs:
        turns += row * last < 0
        last = np.where(row != 0, row, last)
    return turns


def line_fit(series: ArrayLike, steps: Sequence[int]) -> tuple[Floats, Floats]:
    """Return slope and R^2 of the least-squares line of each of N series against the steps.

    R^2 is NaN where the series is constant, both are NaN with fewer than two points.

    Args:
        series: `[K, N]`.
        steps: K of them, increasing.

    >>> slope, fit = line_fit([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]], [0, 1, 3])
    >>> slope.tolist(), fit.tolist()
    ([1.0, 0.0], [1.0, nan])
    """
    values, times = np.asarray(series, dtype=np.float64), np.asarray(steps, dtype=np.float64)
    if len(values) < 2:
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    # With both centred the slope is their product over the spread of the times.
    times = times - times.mean()
    centred = values - values.mean(axis=0)
    total, covered = (centred**2).sum(axis=0), times @ centred
    spread = float((times**2).sum())
    moved = np.ptp(values, axis=0) > 0
    share = np.divide(covered**2 / spread, total, out=np.full(total.shape, np.nan), where=moved)
    return np.where(moved, covered / spread, 0.0), np.minimum(share, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoints:
    """The change point of each of N series; -1 and NaN for a series without one."""

    index: Ints
    """The first point after the change: 1 .. K-1."""
    low: Ints
    """First and last point that the data do not exclude."""
    high: Ints
    size: Floats
    """Mean after the change minus mean before it."""
    share: Floats
    """R^2 of the two means; given for every series that is not constant, also without a change."""


def change_points(
    series: ArrayLike, *, times: Sequence[int] | None = None, noise: float = 0.0, confidence: float = 0.95
) -> ChangePoints:
    """Fit one shift of the mean to each of N series by least squares and keep it where random walks show none so clear.

        RSS(c) = sum_{i<c} (y_i - mean_{i<c})^2 + sum_{i>=c} (y_i - mean_{i>=c})^2,   c* = argmin RSS(c)
        G = K ln(RSS_0 / RSS(c*)),   shift  <=>  G > null_gain   and   |size| > noise
        interval = { c : K ln(RSS(c) / RSS(c*)) <= K ln(1 + F / (K - 3)) }, given by its ends,   F ~ F(1, K - 3)

    with `null_gain` what a share `confidence` of random walks over the same checkpoints stay below, with or without a
    drift. Simulated at confidence .95 with K = 5 to 20 a shift is found in 3 to 5% of walks (steps of equal size or in
    proportion to training), 5% of drifting ones, 2 to 5% of AR(1) series with .95, 1 to 4% with .5 at K = 8 and 5, and
    2% or less of white noise. What is left is the power for clear steps: with K = 8 and white noise, steps in the
    middle of 3, 4, 6 and 8 standard deviations of it are found in 12, 30, 75 and 97%, with K = 5 steps of 10 in 90%.
    The interval is that of the profile likelihood under equal Gaussian noise, at the small-sample form of its
    chi-square level with one degree of freedom (which it approaches as K grows). It holds the true place of such steps
    in 95% of those found at a size of 3, 99% at 4, all at 6 and more; in a walk there is no place to hold. Sources:
    Hinkley, Biometrika 57 (1970); Worsley, Journal of the American Statistical Association 74 (1979).

    Args:
        series: `[K, N]`; with fewer than 4 points nothing is found. A series with a value that is not finite has none.
        times: training step of each point, increasing; None: equally spaced.
        noise: shifts of at most this size are none; the noise also bounds RSS / K below by noise^2.
        confidence: of the interval; 1 - confidence is the share of random walks that show a shift.

    >>> found = change_points([[0.0], [0.1], [0.0], [2.1], [2.0], [2.0]])
    >>> found.index.tolist(), found.low.tolist(), found.high.tolist(), found.size.round(2).tolist()
    ([3], [3], [3], [2.0])
    """
    values = np.asarray(series, dtype=np.float64)
    num_points, num_series = values.shape
    finite = np.isfinite(values).all(axis=0)
    if num_points < MIN_POINTS:
        nowhere, nothing = np.full(num_series, -1, dtype=np.int64), np.full(num_series, np.nan)
        return ChangePoints(index=nowhere, low=nowhere, high=nowhere, size=nothing, share=nothing)
    values = np.where(finite, values, 0.0)
    total, rests, sizes = _split_fits(values - values.mean(axis=0))
    moved = np.ptp(values, axis=0) > 0
    best = rests.argmin(axis=0)
    columns = np.arange(num_series)
    least, size = rests[best, columns], sizes[best, columns]
    # Exact fits have no spread left; rounding errors of the sums are not a spread either.
    smallest = np.maximum(num_points * noise**2, 1e-12 * total) + np.finfo(np.float64).tiny
    gain = num_points * (np.log(np.maximum(total, smallest)) - np.log(np.maximum(least, smallest)))
    needed = null_gain(tuple(range(num_points) if times is None else times), confidence=confidence)
    shifted = finite & moved & (gain > needed) & (np.abs(size) > noise)
    distance = num_points * (np.log(np.maximum(rests, smallest)) - np.log(np.maximum(least, smallest)))
    inside = distance <= num_points * np.log1p(f_distribution.ppf(confidence, 1, num_points - 3) / (num_points - 3))
    low, high = inside.argmax(axis=0), num_points - 2 - inside[::-1].argmax(axis=0)
    share = np.divide(total - least, total, out=np.full(num_series, np.nan), where=moved & finite)
    return ChangePoints(
        index=np.where(shifted, best + 1, -1),
        low=np.where(shifted, low + 1, -1),
        high=np.where(shifted, high + 1, -1),
        size=np.where(shifted, size, np.nan),
        share=share,
    )


@cache
def null_gain(times: tuple[int, ...], *, confidence: float) -> float:
    """Return the gain G of a mean shift that a share `confidence` of Gaussian random walks over these times stay below.

    The largest figure of walks that step alike from point to point or with a variance in proportion to the time between
    points, without a drift and with one of up to three standard deviations of the whole walk. G does not depend on
    start or scale, so that one simulation of each (20,000 series, seed 0) serves all.

    >>> 16 < null_gain(tuple(range(8)), confidence=0.95) < 20
    True
    """
    spans = np.diff(np.array(times, dtype=np.float64))[:, None]
    noise = np.random.default_rng(0).standard_normal((len(spans), _NUM_SIMULATED))
    gains = []
    for variances in (np.ones_like(spans), spans):
        for drift in _DRIFTS:
            steps = np.sqrt(variances) * noise + drift * variances / np.sqrt(variances.sum())
            walks = np.concatenate([np.zeros((1, _NUM_SIMULATED)), np.cumsum(steps, axis=0)])
            total, rests, _ = _split_fits(walks - walks.mean(axis=0))
            gains.append(np.quantile(len(times) * np.log(total / rests.min(axis=0)), confidence))
    return float(max(gains))


def _split_fits(centred: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the sum of squares of each centred series `[N]`, and of each split of it the rest and the size `[K-1, N]`.

    Row c - 1 is the split before point c: with S the sum of the first c of K centred values, the means are S / c and
    -S / (K - c), and the rest is what they leave, total - S^2 K / (c (K - c)).
    """
    num_points = len(centred)
    before = np.cumsum(centred, axis=0)[:-1]
    counts = np.arange(1, num_points, dtype=np.float64)[:, None]
    total = (centred**2).sum(axis=0)
    rests = np.maximum(total - before**2 * num_points / (counts * (num_points - counts)), 0.0)
    sizes = -before / (num_points - counts) - before / counts
    return total, rests, sizes
