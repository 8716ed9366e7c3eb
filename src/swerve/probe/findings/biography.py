"""Biographies: what became of each token's log-probability over the checkpoints of a stage.

A series is the log-probability (nats) of one realised token at K checkpoints. Onset: when it left the reference for
good. Reversals: how often it turned. Linearity: how well a straight line in training steps fits. Jump: where two
levels fit better than that line, the best place between them. A jump is descriptive: noise, a walk and a curve that
levels off have a best place too, and a few checkpoints cannot tell them from a step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_dynamics import (
    BiographySummary,
    JumpCounts,
    JumpStep,
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
    """Nats: changes up to this size are no reversal and no jump."""
    steps: tuple[int, ...]
    """Of the K checkpoints."""
    onset: Ints
    """Index of the checkpoint."""
    reversals: Ints
    slope: Floats
    """Nats a step."""
    linearity: Floats
    """R^2 of the line."""
    jumps: Ints
    """First point after the jump: with a start, point 0 is the start and point i the (i-1)-th checkpoint."""
    sizes: Floats
    """Nats: mean after the jump minus mean before it."""
    times: tuple[int, ...]
    """Step of each point of the series: the steps, after 0 where the start is a point."""


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
    floor = _FLOOR_FACTOR * noise
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
    splits, sizes, explained = best_splits(points)
    # The comparison is false where a series is constant and nothing is explained.
    has_jump = finite & (explained > linearity) & (np.abs(sizes) > floor)
    return Biographies(
        threshold=threshold,
        noise=floor,
        steps=tuple(steps),
        onset=np.where(finite, onsets(kept - base, threshold=threshold), -1),
        reversals=num_reversals(points, noise=floor),
        slope=np.where(finite, slope, np.nan),
        linearity=linearity,
        jumps=np.where(has_jump, splits, -1),
        sizes=np.where(has_jump, sizes, np.nan),
        times=times,
    )


def biography_rows(data: Measurements, histories: Biographies) -> list[dict[str, Any]]:
    """Return the rows of `biographies.parquet`, by sequence and position."""
    ids = np.array([sequence.sequence_id for sequence in data.sequences], dtype=np.int64)[data.sequence_index]
    steps, times = (*histories.steps, None), (*histories.times, None)  # index -1 is None
    columns = {
        "sequence_id": ids.tolist(),
        "position": data.positions.tolist(),
        "onset_step": [steps[index] for index in histories.onset.tolist()],
        "num_reversals": histories.reversals.tolist(),
        "linearity": _known(histories.linearity),
        "slope": _known(histories.slope),
        "jump_step": [times[index] for index in histories.jumps.tolist()],
        "jump_size": _known(histories.sizes),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def summarise_biographies(data: Measurements, histories: Biographies) -> BiographySummary:
    """Summarise the biographies of all tokens, of those known to be wrong, and of the others beside them.

    `others` are the tokens of the same rollouts that are not wrong steps. Reversals, linearity and jumps are given for
    tokens that left the reference for good (`num_moved`): what the others do is noise. `jumps` has the tokens that two
    levels explain better than a line, counted by the step of the jump: descriptive, without a test. It is null with
    fewer than 4 points.

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
        tokens={name: _token_biographies(histories, inside, tokens) for name, inside in groups.items()},
        wrong_above_others=tokens.mean_difference(histories.onset >= 0, wrong, groups["others"], bounds=(-1.0, 1.0)),
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
        jumps=_jump_counts(histories, moved, tokens) if len(histories.times) >= MIN_POINTS else None,
    )


def _jump_counts(histories: Biographies, moved: Mask, tokens: TokenIntervals) -> JumpCounts:
    """Count the tokens that jump, by the step of the jump."""
    jumped = moved & (histories.jumps >= 0)
    by_step = []
    for index in np.unique(histories.jumps[jumped]).tolist():
        here = jumped & (histories.jumps == index)
        size = float(np.median(histories.sizes[here]))
        by_step.append(JumpStep(step=histories.times[index], num_tokens=int(here.sum()), median_size=size))
    return JumpCounts(num_tokens=int(jumped.sum()), share=tokens.share(jumped, moved), by_step=tuple(by_step))


MIN_POINTS = 4
"""A shorter series has no jump."""


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


def best_splits(series: ArrayLike) -> tuple[Ints, Floats, Floats]:
    """Return, for each of N series, the place of the best two levels, their difference and their R^2.

        RSS(c) = sum_{i<c} (y_i - mean_{i<c})^2 + sum_{i>=c} (y_i - mean_{i>=c})^2,   c* = argmin RSS(c)

    The place is the first point of the second level, the difference its mean minus the mean before it. R^2 is NaN where
    a series is constant; with fewer than 4 points nothing is fitted: -1 and NaN. It says nothing of what chance makes:
    of random walks it explains most too. Source: Hinkley, Biometrika 57 (1970).

    Args:
        series: `[K, N]`, finite.

    >>> place, size, share = best_splits([[0.0], [0.1], [0.0], [2.1], [2.0], [2.0]])
    >>> place.tolist(), size.round(2).tolist(), share.round(3).tolist()
    ([3], [2.0], [0.998])
    """
    values = np.asarray(series, dtype=np.float64)
    num_points, num_series = values.shape
    if num_points < MIN_POINTS:
        return (np.full(num_series, -1, dtype=np.int64), *np.full((2, num_series), np.nan))
    # With S the sum of the first c of K centred values, the two means leave total - S^2 K / (c (K - c)).
    centred = values - values.mean(axis=0)
    before = np.cumsum(centred, axis=0)[:-1]
    counts = np.arange(1, num_points, dtype=np.float64)[:, None]
    explained = before**2 * num_points / (counts * (num_points - counts))
    sizes = -before / (num_points - counts) - before / counts
    best, columns = explained.argmax(axis=0), np.arange(num_series)
    total, moved = (centred**2).sum(axis=0), np.ptp(values, axis=0) > 0
    share = np.divide(explained[best, columns], total, out=np.full(num_series, np.nan), where=moved)
    return best + 1, sizes[best, columns], np.minimum(share, 1.0)
