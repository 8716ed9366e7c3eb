"""How the page stores a number: a 12-bit code on a logarithmic scale, in byte planes that gzip makes small.

A code keeps a value to 0.4%: enough to colour and to read, not to rank, so rankings are made before coding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = 1e-12, 100.0
"""Ends of the scale, in nats: what is below has the code 0, which means 0; what is above has the highest code."""
MISSING = 4095
"""Code of what is not finite or was not measured."""
_LOG_STEP = np.log(HIGHEST / LOWEST) / (MISSING - 2)


def codes(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Return the codes of values in nats: 1 + log(value / LOWEST) / log(HIGHEST / LOWEST) * 4093, rounded.

    >>> codes(np.array([0.0, 1e-12, 0.5, 100.0, 1e9, np.inf, np.nan])).tolist()
    [0, 1, 3421, 4094, 4094, 4095, 4095]
    """
    values = values.astype(np.float64)
    steps = 1 + np.rint(np.log(np.clip(values, LOWEST, HIGHEST) / LOWEST) / _LOG_STEP)
    return np.where(np.isfinite(values), np.where(values < LOWEST, 0, steps), MISSING).astype(np.uint16)


def values_of(codes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return what codes stand for, in nats; NaN for what is missing.

    >>> values_of(np.array([0, 1, 4094, 4095])).round(12).tolist()
    [0.0, 1e-12, 100.0, nan]
    """
    known = LOWEST * np.exp((codes.astype(np.float64) - 1) * _LOG_STEP)
    return np.where(codes == MISSING, np.nan, np.where(codes == 0, 0.0, known))


def differences(values: NDArray[np.integer]) -> NDArray[np.uint32]:
    """Return each row less the one before it, folded to 0, -1, 1, -2, 2, ... -> 0, 1, 2, 3, 4, ...; rows: axis -2.

    >>> differences(np.array([[5, 7], [4, 7]])).tolist()
    [[10, 14], [1, 0]]
    """
    steps: NDArray[np.int32] = values.astype(np.int32)
    steps[..., 1:, :] -= values[..., :-1, :]
    return ((steps << 1) ^ (steps >> 31)).astype(np.uint32)


def planes(values: NDArray[Any], width: int) -> bytes:
    r"""Return the lowest bytes of all values, then their second bytes, and so on for `width` bytes.

    >>> planes(np.array([1, 258]), 2)
    b'\x01\x02\x00\x01'
    """
    return np.ascontiguousarray(values, dtype="<u4").reshape(-1, 1).view(np.uint8)[:, :width].T.tobytes()
