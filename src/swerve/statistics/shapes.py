"""Which way a noisy curve goes: whether it rises, falls, rises and falls again, or shows neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ShapeName = Literal["rises", "falls", "up_then_down", "down_then_up", "steady"]

MIN_POINTS = 8
"""With fewer points no shape is told."""
_BLOCKS, _WINDOW, _ORDERS, _ALPHA = 20, 3, 1999, 0.0025


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveShape:
    """Levels of a curve and what they show; indices are those of its points, counted from 0."""

    name: ShapeName
    first: float
    """Level at the beginning."""
    extreme: float
    """Highest level, of `down_then_up` the lowest."""
    extreme_at: int
    """Point in the middle of that level."""
    last: float
    """Level at the end."""


def curve_shape(values: Sequence[float]) -> CurveShape | None:
    """Return the shape of a curve, or None with fewer than `MIN_POINTS` points.

    The curve is cut into at most 20 blocks of points; a level is the mean of three neighbouring blocks. It rises where
    its highest level lies above the first one, and falls where that lies above the last one, by more than in all but
    0.25% of 1,999 random orders of the blocks, measured in root mean squares of the steps from block to block; of the
    negative curve likewise. `steady` says that neither is shown. Of independent noise 1% to 2% of the curves get a
    shape; noise that wanders for longer than a block is taken for a trend.

    >>> curve_shape([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]).name
    'up_then_down'
    """
    if len(values) < MIN_POINTS:
        return None
    parts = np.array_split(np.asarray(values, dtype=float), min(_BLOCKS, len(values)))
    blocks = np.array([part.mean() for part in parts])
    starts = np.cumsum([0, *(len(part) for part in parts)])
    orders = np.random.default_rng(len(blocks)).permuted(np.tile(blocks, (_ORDERS, 1)), axis=1)
    rows = np.concatenate([blocks[None], orders])
    upwards, downwards = _moves(rows), _moves(-rows)

    # A curve that turns has both moves on one side; a straight one has one of each.
    levels = _levels(rows[:1])[0]
    name: ShapeName = "steady"
    at = int(levels.argmax())
    if all(upwards):
        name = "up_then_down"
    elif all(downwards):
        name, at = "down_then_up", int(levels.argmin())
    elif upwards[0] or downwards[1]:
        name = "rises"
    elif upwards[1] or downwards[0]:
        name = "falls"
    middle = (starts[at] + starts[at + _WINDOW] - 1) // 2
    return CurveShape(
        name=name, first=float(levels[0]), extreme=float(levels[at]), extreme_at=int(middle), last=float(levels[-1])
    )


def _levels(rows: Array) -> Array:
    """Return the means of neighbouring blocks, `[R, B]` -> `[R, B - 2]`."""
    sums: Array = rows.cumsum(axis=1)
    sums[:, _WINDOW:] -= sums[:, :-_WINDOW].copy()
    return sums[:, _WINDOW - 1 :] / _WINDOW


def _moves(rows: Array) -> tuple[bool, bool]:
    """Whether the highest level of the first row lies further above its first and its last one than in other rows."""
    levels, noise = _levels(rows), np.sqrt(np.square(np.diff(rows, axis=1)).mean(axis=1))
    moved = []
    for end in (0, -1):
        far = np.divide(levels.max(axis=1) - levels[:, end], noise, out=np.zeros(len(rows)), where=noise > 0)
        moved.append(bool(np.mean(far >= far[0] * (1 - 1e-9)) <= _ALPHA))
    return moved[0], moved[1]
