"""Biographies: what became of each token's log-probability over the checkpoints of a stage.

A series is the log-probability (nats) of one realised token at K checkpoints. Onset: when it left the reference for
good. Reversals: how often it turned. Linearity: how well a straight line in training steps fits. Change point: where a
constant became another constant, with an interval. The last is a statement under one model of the series, a single
shift of the mean in equal noise; a slow drift has a change point too, in its middle, but there the line fits better
(`share_line_better`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.probe.regions import Resampling, problem_clusters
from swerve.probe.series import MIN_POINTS, ChangePoints, change_points, line_fit, num_reversals, onsets
from swerve.probe.tables import Measurements

__all__ = [
    "Biographies",
    "BiographySettings",
    "biographies",
    "biography_figures",
    "biography_rows",
    "biography_settings",
]

_FLOOR_FACTOR = 10.0
_MIN_THRESHOLD = 0.1
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BiographySettings:
    """What counts as a move of a log-probability, in nats."""

    threshold: float = _MIN_THRESHOLD
    """A token has left the reference while |logprob - logprob_ref| is above it."""
    noise: float = 0.0
    """Changes up to this size are noise: no reversal, no change point."""
    confidence: float = 0.95
    """Of the intervals of change points."""


def biography_settings(noise: float, *, confidence: float = 0.95) -> BiographySettings:
    """Return the settings that a noise floor calls for.

    Ten times the floor is noise, as everywhere in the probe, and the threshold of onset is that or 0.1 nats.

    Args:
        noise: largest |logprob - logprob_ref| (nats) of a model compared with itself.
        confidence: of the intervals of change points.

    Raises:
        ValueError: the floor is negative or not finite.

    >>> settings = biography_settings(0.03)
    >>> round(settings.threshold, 6), round(settings.noise, 6)
    (0.3, 0.3)
    """
    if not 0 <= noise < float("inf"):
        raise ValueError(f"the noise floor is a finite number of nats, at least 0; got {noise}")
    floor = _FLOOR_FACTOR * noise
    return BiographySettings(threshold=max(floor, _MIN_THRESHOLD), noise=floor, confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Biographies:
    """The biography of each of N tokens over K checkpoints; -1 and NaN where there is nothing to tell."""

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


def biographies(
    data: Measurements,
    steps: Sequence[int],
    *,
    start_step: int | None = None,
    settings: BiographySettings | None = None,
) -> Biographies:
    """Return the biography of every token's log-probability.

    Args:
        data: one stage's checkpoints against one reference.
        steps: the stage step of each checkpoint, increasing.
        start_step: where the reference is the model the stage began with, its step (0): its log-probs are then the
            first point of every series. None: the series are those of the checkpoints alone.
        settings: thresholds in nats.

    Raises:
        ValueError: as many increasing steps as checkpoints are needed, after the start's; the pairs must have one
            reference.
    """
    how = settings or BiographySettings()
    times = tuple(steps) if start_step is None else (start_step, *steps)
    if len(steps) != len(data.checkpoints) or any(one >= other for one, other in pairwise(times)):
        raise ValueError(
            f"{len(data.checkpoints)} checkpoints need as many increasing steps (after the start's); got {times}"
        )
    if len(set(data.references)) > 1:
        raise ValueError(f"a biography needs one reference for all checkpoints, got {sorted(set(data.references))}")
    series, reference = data.columns["logprob"].astype(np.float64), data.columns["logprob_ref"].astype(np.float64)
    finite = np.isfinite(series).all(axis=0) & np.isfinite(reference).all(axis=0)
    kept, base = np.where(finite, series, 0.0), np.where(finite, reference, 0.0)
    points = kept if start_step is None else np.concatenate([base[:1], kept])
    slope, linearity = line_fit(points, times)
    return Biographies(
        steps=tuple(steps),
        onset=np.where(finite, onsets(kept - base, threshold=how.threshold), -1),
        reversals=num_reversals(points, noise=how.noise),
        slope=np.where(finite, slope, np.nan),
        linearity=linearity,
        changes=change_points(points, noise=how.noise, confidence=how.confidence),
        times=times,
    )


def biography_rows(data: Measurements, found: Biographies) -> list[dict[str, Any]]:
    """Return the rows of `biographies.parquet`, by sequence and position."""
    ids = np.array([one.sequence_id for one in data.sequences], dtype=np.int64)[data.sequence_index]
    changes, times = found.changes, (*found.times, None)  # index -1 is None
    columns = {
        "sequence_id": ids.tolist(),
        "position": data.positions.tolist(),
        "onset_step": [(*found.steps, None)[index] for index in found.onset.tolist()],
        "num_reversals": found.reversals.tolist(),
        "linearity": _known(found.linearity),
        "slope": _known(found.slope),
        "change_step": [times[index] for index in changes.index.tolist()],
        "change_low": [times[index] for index in changes.low.tolist()],
        "change_high": [times[index] for index in changes.high.tolist()],
        "change_size": _known(changes.size),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def biography_figures(
    data: Measurements,
    found: Biographies,
    *,
    settings: BiographySettings | None = None,
    resampling: Resampling | None = None,
) -> dict[str, Any]:
    """Return the biographies in figures: of all tokens, of those known to be wrong, and of the others beside them.

    `others` are the tokens of the same rollouts that are not wrong steps. Reversals, linearity and change points are
    given for tokens that left the reference for good (`num_moved`): what the others do is noise. `change_points` has
    the tokens with a change point that a line does not explain as well (`share_line_better` do), counted by its step,
    with the median ends of its intervals; it is null with fewer than 4 points, of which none could be found.

    Args:
        data: the measurements the biographies were made of.
        found: the biographies.
        settings: those they were made with; they are stated.
        resampling: of the intervals.
    """
    how, resample = settings or BiographySettings(), resampling or Resampling()
    clusters = problem_clusters(data)
    wrong = np.array([t in one.wrong for one in data.sequences for t in range(len(one.completion_ids))], dtype=np.bool_)
    known = np.repeat([bool(one.wrong) for one in data.sequences], data.lengths).astype(np.bool_)
    groups = {"all": np.ones(len(wrong), dtype=np.bool_), "wrong_steps": wrong, "others": known & ~wrong}
    return {
        "checkpoints": list(data.checkpoints),
        "steps": list(found.steps),
        "threshold": how.threshold,
        "noise": how.noise,
        "confidence": how.confidence,
        "tokens": {name: _group_figures(found, inside, clusters, resample) for name, inside in groups.items()},
    }


def _group_figures(
    found: Biographies, inside: NDArray[np.bool_], clusters: NDArray[np.int64], resample: Resampling
) -> dict[str, Any]:
    moved = inside & (found.onset >= 0)
    problems = clusters[moved]
    onset = Counter(found.onset[moved].tolist())
    known = moved & np.isfinite(found.linearity) & np.isfinite(found.changes.share)
    linear = found.linearity[moved & np.isfinite(found.linearity)]
    return {
        "num_tokens": int(inside.sum()),
        "num_moved": int(moved.sum()),
        "share_moved": resample.share(found.onset[inside] >= 0, clusters[inside]),
        "onset_steps": [{"step": step, "num_tokens": onset[index]} for index, step in enumerate(found.steps)],
        "share_reversed": resample.share(found.reversals[moved] > 0, problems),
        "mean_reversals": resample.mean(found.reversals[moved], problems),
        "median_linearity": float(np.median(linear)) if linear.size else None,
        "share_line_better": resample.share(_line_better(found)[known], clusters[known]),
        "change_points": _change_figures(found, moved, problems, resample),
    }


def _line_better(found: Biographies) -> NDArray[np.bool_]:
    """Return whether a line explains a series at least as well as the two means of its best split do."""
    return found.linearity >= found.changes.share


def _change_figures(
    found: Biographies, moved: NDArray[np.bool_], problems: NDArray[np.int64], resample: Resampling
) -> dict[str, Any] | None:
    changes, times = found.changes, np.array(found.times, dtype=np.int64)
    if len(times) < MIN_POINTS:
        return None
    changed = moved & (changes.index >= 0) & ~_line_better(found)
    by_step = []
    for index in sorted(set(changes.index[changed].tolist())):
        here = changed & (changes.index == index)
        by_step.append(
            {
                "step": int(times[index]),
                "num_tokens": int(here.sum()),
                "median_low": float(np.median(times[changes.low[here]])),
                "median_high": float(np.median(times[changes.high[here]])),
                "median_size": float(np.median(changes.size[here])),
            }
        )
    return {"num_tokens": int(changed.sum()), "share": resample.share(changed[moved], problems), "by_step": by_step}
