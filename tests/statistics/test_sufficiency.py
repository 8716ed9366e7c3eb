"""Sufficiency: Tango's test against its definition, its level by enumeration, and the step down."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from swerve.statistics.sufficiency import above_random, loses_less, smallest_sufficient


def _cases(whole_only, part_only, num):
    """Return what whole and part get right where they differ so often."""
    whole = [True] * whole_only + [False] * part_only + [True] * (num - whole_only - part_only)
    part = [False] * whole_only + [True] * part_only + [True] * (num - whole_only - part_only)
    return whole, part


@pytest.mark.parametrize(
    ("whole_only", "part_only"), [(0, 0), (2, 0), (5, 0), (4, 4), (6, 2), (0, 7), (9, 3), (12, 12)]
)
@pytest.mark.parametrize("margin", [0.05, 0.1])
def test_tango_by_maximising_the_likelihood(whole_only, part_only, margin):
    """The chances are maximised over numerically where the loss is the margin."""
    num = 200

    def loss(chance):
        rest = num - whole_only - part_only
        return -(
            whole_only * math.log(chance + margin)
            + part_only * math.log(max(chance, 1e-300))
            + rest * math.log(1 - 2 * chance - margin)
        )

    best = optimize.minimize_scalar(loss, bounds=(0, (1 - margin) / 2), method="bounded", options={"xatol": 1e-12}).x
    z = (whole_only - part_only - num * margin) / math.sqrt(num * (2 * best + margin * (1 - margin)))
    assert loses_less(*_cases(whole_only, part_only, num), margin) == (z <= stats.norm.ppf(0.025))


def test_literal_values():
    assert [loses_less(*_cases(lost, 0, 200), 0.05) for lost in (0, 3, 4)] == [True, True, False]
    assert [loses_less(*_cases(lost, 3, 200), 0.05) for lost in (5, 6, 7)] == [True, False, False]
    assert loses_less([True] * 60, [True] * 60, 0.05) is False
    assert loses_less([True] * 80, [True] * 80, 0.05) is True


@pytest.mark.parametrize("chance", [0.0, 0.01, 0.03, 0.1])
def test_level_by_enumeration(chance):
    """Every outcome of 100 cases of which the part loses just the margin."""
    num, margin = 100, 0.1
    level = 0.0
    for whole_only in range(50):
        weight = stats.binom.pmf(whole_only, num, chance + margin)
        rest = num - whole_only
        part_only = np.arange(rest + 1)
        chances = weight * stats.binom.pmf(part_only, rest, chance / (1 - chance - margin))
        level += sum(
            chances[number]
            for number in part_only[chances > 1e-9]
            if loses_less(*_cases(whole_only, int(number), num), margin)
        )
    assert 0.01 < level < 0.033


def test_the_step_down_stops_at_the_first_that_fails():
    whole, worse = _cases(30, 0, 200)
    assert smallest_sufficient(whole, {1: whole, 2: worse, 4: whole, 8: whole}, 0.05) == 4
    assert smallest_sufficient(whole, {1: whole, 8: worse}, 0.05) is None
    assert smallest_sufficient(whole, {}, 0.05) is None


def test_above_every_random_direction():
    assert above_random(0.9, [0.5] * 19) is True
    assert above_random(0.9, [0.5] * 39) is True
    assert above_random(0.9, [0.5] * 18) is False
    assert above_random(0.9, [0.5] * 38 + [0.9]) is False
    assert above_random(0.9, []) is False
