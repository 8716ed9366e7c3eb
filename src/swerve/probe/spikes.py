"""Spikes: positions whose divergence stands out of their sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Spike", "top_position", "zscore_spikes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """One position above its sequence's threshold."""

    position: int
    value: float
    """The divergence there, in nats."""
    threshold: float
    """The threshold applied, in nats."""
    height: int
    """1 for the highest spike of the sequence, 2 for the next, ..."""


def zscore_spikes(values: Sequence[float] | np.ndarray, *, num_sd: float, min_distance: int) -> list[Spike]:
    """Return the spikes of one sequence, in order of position; none where nothing exceeds the threshold.

    A position is a candidate when its value is above mean + num_sd x sd (population standard deviation) of its own
    sequence; of candidates closer than `min_distance` positions the highest is kept. The rule is free of scale: a
    sequence with all divergences multiplied by 1000 has the same spikes, so the *number* of spikes cannot compare
    checkpoints. Infinite values are always candidates and do not enter mean and sd.

    >>> [(spike.position, spike.height) for spike in zscore_spikes([0, 0, 9, 0, 0, 0, 0, 8], num_sd=1, min_distance=3)]
    [(2, 1), (7, 2)]
    """
    series = np.asarray(values, dtype=np.float64)
    finite = series[np.isfinite(series)]
    threshold = float(finite.mean() + num_sd * finite.std()) if len(finite) else 0.0
    kept: list[int] = []
    for position in np.argsort(-series, kind="stable"):  # highest first; of equal ones the first position
        if not series[position] > threshold:
            break
        if all(abs(int(position) - other) >= min_distance for other in kept):
            kept.append(int(position))
    heights = {position: height for height, position in enumerate(kept, start=1)}
    return [
        Spike(position=position, value=float(series[position]), threshold=threshold, height=heights[position])
        for position in sorted(kept)
    ]


def top_position(values: Sequence[float] | np.ndarray) -> int:
    """Return the position of the largest value, the first of equal ones: defined even where there is no spike.

    Raises:
        ValueError: there are no values.

    >>> top_position([0.1, 0.7, 0.7])
    1
    """
    return int(np.argmax(np.asarray(values, dtype=np.float64)))
