"""Shapes of noisy curves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from swerve.statistics.shapes import MIN_POINTS, curve_shape
from tests.cases import each


@each(
    ("knots", "name"),
    [
        ([0.0, 1.0], "rises"),
        ([1.0, 0.0], "falls"),
        ([0.0, 1.0, 0.2], "up_then_down"),
        ([1.0, 0.0, 0.8], "down_then_up"),
        ([0.5, 0.5], "steady"),
    ],
)
@pytest.mark.parametrize("num", [20, 60, 400])
def test_planted_shapes_are_told_through_noise(knots: list[float], name: str, num: int) -> None:
    at = np.linspace(0, 1, len(knots))
    values = np.interp(np.linspace(0, 1, num), at, knots) + np.random.default_rng(num).normal(0, 0.08, num)
    shape = curve_shape(list(values))
    assert shape is not None
    assert shape.name == name
    if name == "up_then_down":
        assert shape.extreme_at == pytest.approx((num - 1) / 2, abs=num * 0.12)
        assert shape.first < shape.extreme > shape.last


def test_levels_are_means_of_three_blocks_and_a_short_curve_has_no_shape() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    assert curve_shape(values[: MIN_POINTS - 1]) is None
    shape = curve_shape(values)
    assert shape is not None
    assert (shape.first, shape.last) == pytest.approx((8 / 3, 17 / 3))
    assert (shape.extreme, shape.extreme_at) == (17 / 3, 6)
    # 40 values in 20 blocks of two: a level is a mean of six, in whose middle it stands.
    shape = curve_shape([float(at) for at in range(40)])
    assert shape is not None
    assert (shape.first, shape.extreme, shape.extreme_at) == (2.5, 36.5, 36)


def test_the_random_orders_agree_with_all_orders() -> None:
    """With 8 points all 40,320 orders can be tried: the drawn ones give the verdict of the exact probability."""

    for slope, verdict in ((0.0, "steady"), (3.0, "rises")):
        values = np.random.default_rng(1).normal(0, 1, 8) + slope * np.arange(8)
        orders = np.array(list(itertools.permutations(values)))
        levels = np.stack([orders[:, at : at + 3].mean(axis=1) for at in range(6)], axis=1)
        noise = np.sqrt(np.square(orders[:, 1:] - orders[:, :-1]).mean(axis=1))
        moves = (levels.max(axis=1) - levels[:, 0]) / noise
        exact = float(np.mean(moves >= moves[0] - 1e-9))
        assert (exact <= 0.0025) == (verdict == "rises")
        shape = curve_shape(list(values))
        assert shape is not None
        assert shape.name == verdict


@pytest.mark.planted
@pytest.mark.parametrize("num", [8, 20, 200])
def test_noise_is_steady(num: int) -> None:
    rng = np.random.default_rng(num)
    names = [curve_shape(list(rng.normal(size=num))) for _ in range(1000)]
    assert sum(shape is not None and shape.name != "steady" for shape in names) <= 20
