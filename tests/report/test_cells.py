"""Codes of numbers: what they keep, and how they are folded and laid out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from swerve.report.cells import HIGHEST, LOWEST, MISSING, codes, differences, planes


def decoded(codes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the values of codes as `cells.js` does."""
    values = LOWEST * (HIGHEST / LOWEST) ** ((codes - 1.0) / (MISSING - 2))
    return np.where(codes == 0, 0.0, np.where(codes == MISSING, np.nan, values))


@given(st.lists(st.floats(LOWEST, HIGHEST), min_size=1))
def test_a_code_keeps_a_value_to_four_in_a_thousand(values: list[float]) -> None:
    kept = decoded(codes(np.array(values)))
    assert np.all(np.abs(kept / np.array(values) - 1) < 0.004)


def test_ends_of_the_scale() -> None:
    values = np.array([-1e-9, 0, LOWEST / 2, HIGHEST, 5 * HIGHEST, np.inf, -np.inf, np.nan])
    kept = decoded(codes(values))
    np.testing.assert_allclose(kept, [0, 0, 0, HIGHEST, HIGHEST, np.nan, np.nan, np.nan])


def test_codes_are_in_the_order_of_the_values() -> None:
    values = np.geomspace(LOWEST, HIGHEST, 10_000)
    assert np.all(np.diff(codes(values).astype(int)) >= 0)


@given(st.lists(st.lists(st.integers(0, 4095), min_size=3, max_size=3), min_size=1))
def test_differences_add_up_again(rows: list[list[int]]) -> None:
    folded = differences(np.array(rows)).astype(np.int64)
    steps = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    np.testing.assert_array_equal(np.cumsum(steps, axis=0), rows)


@given(st.lists(st.integers(0, 2**24 - 1)))
def test_planes_hold_every_byte(values: list[int]) -> None:
    stored = np.frombuffer(planes(np.array(values, dtype=np.int64), 3), dtype=np.uint8).reshape(3, -1)
    assert (stored.astype(int) * [[1], [256], [65536]]).sum(axis=0).tolist() == values
