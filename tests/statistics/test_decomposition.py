"""Parts of a gain in accuracy: they add up, in no order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from swerve.statistics.decomposition import accuracy_parts


def test_the_worked_example():
    """(.9, .7, .5) to (.98, .98, .6)."""
    rows, filled = accuracy_parts(10_000, ([9000], [6300], [3150]), ([9800], [9604], [9604 * 0.6]))
    assert [row.part for row in rows] == ["truncation", "format", "correctness"]
    assert [row.gain for row in rows] == pytest.approx([0.0371, 0.1449, 0.0791], abs=5e-5)
    assert sum(row.gain for row in rows) == pytest.approx(0.98 * 0.98 * 0.6 - 0.9 * 0.7 * 0.5)
    assert filled == 0


def test_parts_are_means_over_the_six_orders():
    rng = np.random.default_rng(4)
    sides = []
    for rates in ((0.7, 0.8, 0.5), (0.95, 0.9, 0.6)):
        finished = rng.binomial(16, rates[0], 40)
        parsed = rng.binomial(finished, rates[1])
        sides.append((finished, parsed, rng.binomial(parsed, rates[2])))
    gains = [row.gain.mean for row in accuracy_parts(16, *sides)[0]]

    expected = np.zeros(3)
    for problem in range(40):
        rates = []
        for finished, parsed, right in sides:
            assert parsed[problem] > 0
            rates.append(
                [finished[problem] / 16, parsed[problem] / finished[problem], right[problem] / parsed[problem]]
            )
        for order in itertools.permutations(range(3)):
            current = list(rates[0])
            for step in order:
                before = math.prod(current)
                current[step] = rates[1][step]
                expected[step] += (math.prod(current) - before) / 6 / 40
    assert gains == pytest.approx(expected)
    assert sum(gains) == pytest.approx((sides[1][2] - sides[0][2]).mean() / 16)


def test_values_of_the_simulated_example():
    rng = np.random.default_rng(0)
    finished = rng.binomial(16, 0.6, 200)
    parsed = rng.binomial(finished, 0.4)
    right = rng.binomial(parsed, 0.5)
    finished_after = rng.binomial(16, 0.98, 200)
    parsed_after = rng.binomial(finished_after, 0.97)
    right_after = rng.binomial(parsed_after, 0.6)
    rows, filled = accuracy_parts(16, (finished, parsed, right), (finished_after, parsed_after, right_after))
    assert [(row.gain.mean, row.gain.low, row.gain.high) for row in rows] == [
        pytest.approx(values, abs=1e-6)
        for values in [
            (0.158409, 0.148167, 0.168651),
            (0.24984, 0.23475, 0.26493),
            (0.045188, 0.023009, 0.067367),
        ]
    ]
    assert filled == pytest.approx(0.005)


def test_unknown_rates_take_the_other_models():
    """The base ends never: what it would parse and get right is unknown, so that all of the gain is of ends."""
    rows, filled = accuracy_parts(16, ([0] * 10, [0] * 10, [0] * 10), ([16] * 10, [8] * 10, [4] * 10))
    assert [row.gain for row in rows] == [0.25, 0.0, 0.0]
    assert filled == 1
    assert rows[0].missing == "a rate of 100.0% of the problems is unknown"


def test_what_has_no_interval():
    sides = ([8] * 10, [8] * 10, [4] * 10), ([16] * 10, [16] * 10, [8] * 10)
    # Half more end, the half of them right: (1 - .5) * .5; on every problem, so that its interval has no width.
    assert [getattr(row.gain, "mean", None) for row in accuracy_parts(16, *sides)[0]] == [0.25, None, None]
    few, _ = accuracy_parts(15, ([8] * 10, [8] * 10, [4] * 10), ([15] * 10, [15] * 10, [7] * 10))
    assert [isinstance(row.gain, float) for row in few] == [True] * 3
    few_samples = "most problems have 15 samples, and it takes 16"
    assert [row.missing for row in few] == [few_samples, "", few_samples]  # of a part that no problem has, 0 is known
    # Four problems on which truncation changes have a mean and no interval.
    rows, _ = accuracy_parts(16, ([8] * 4 + [16] * 6, [8] * 4 + [16] * 6, [4] * 10), ([16] * 10, [16] * 10, [8] * 10))
    assert isinstance(rows[0].gain, float)
    assert [row.missing for row in rows] == ["such a part is in 4 problems, and it takes 5", "", ""]
    assert rows[2].gain.mean > 0


def test_counts_are_of_those_before_them() -> None:
    with pytest.raises(ValueError, match="each count is of those before it"):
        accuracy_parts(2, ([2], [0], [1]), ([2], [2], [2]))
    (none_ended, *_), unknown = accuracy_parts(2, ([0], [0], [0]), ([2], [2], [1]))
    assert (none_ended.gain, unknown) == (0.5, 1.0)
