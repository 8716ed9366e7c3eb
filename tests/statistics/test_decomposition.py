"""Parts of a gain in accuracy: they add up, in no order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from swerve.statistics import paired_interval
from swerve.statistics.decomposition import accuracy_parts


def test_the_worked_example():
    """(.9, .7, .5) to (.98, .98, .6)."""
    rows, filled = accuracy_parts(10_000, ([9000], [6300], [3150]), ([9800], [9604], [9604 * 0.6]))
    assert [row.part for row in rows] == ["truncation", "format", "correctness"]
    assert [row.gain.mean for row in rows] == pytest.approx([0.0371, 0.1449, 0.0791], abs=5e-5)
    assert sum(row.gain.mean for row in rows) == pytest.approx(0.98 * 0.98 * 0.6 - 0.9 * 0.7 * 0.5)
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
            (0.158393, 0.147787, 0.168891),
            (0.24968, 0.234038, 0.265084),
            (0.045365, 0.022869, 0.068021),
        ]
    ]
    assert filled == pytest.approx(0.005)


def test_unknown_rates_are_moved_by_the_mean_change():
    """One sample each. In six problems both are read and the change is +1/3; in one the base's answer is not."""
    before = ([1] * 7, [1] * 6 + [0], [1, 1, 0, 0, 0, 0, 0])
    after = ([1] * 7, [1] * 7, [1, 1, 1, 1, 0, 0, 1])
    rows, filled = accuracy_parts(1, before, after)
    assert filled == pytest.approx(1 / 7)
    # Of the last c0 is 1 - 1/3: format (2/3 + 1) / 2, correctness (1/3) (0 + 1) / 2; of the others 2 in correctness.
    assert [row.gain.mean for row in rows] == pytest.approx([0, 5 / 6 / 7, (2 + 1 / 6) / 7])
    assert sum(row.gain.mean for row in rows) == pytest.approx(3 / 7)


def test_of_one_sample_no_part_is_taken_for_another():
    """Only correctness changes, from .3 to .6 of what is read, which is half: taking the other's rate as it is would
    give a quarter of .3 to format."""
    rng = np.random.default_rng(6)
    num = 20_000
    sides = []
    for chance in (0.3, 0.6):
        read = rng.random(num) < 0.5
        sides.append((np.ones(num), read, read & (rng.random(num) < chance)))
    rows, filled = accuracy_parts(1, *sides)
    assert filled == pytest.approx(0.75, abs=0.01)
    assert [row.gain.mean for row in rows] == pytest.approx([0, 0, 0.15], abs=0.01)
    assert [row.gain.excludes(0) for row in rows] == [False, False, True]


def test_a_base_that_reads_nothing_gains_by_format_whatever_its_answers_are():
    """Eight of sixteen right after: half of it at least is format, and it is at most (1 + .5) / 2."""
    rows, filled = accuracy_parts(16, ([16] * 30, [0] * 30, [0] * 30), ([16] * 30, [16] * 30, [8] * 30))
    assert filled == 1
    _, form, correctness = rows
    assert form.gain.mean == 0.5
    assert form.gain.low == pytest.approx(paired_interval([0.25] * 30).low)
    assert form.gain.high == pytest.approx(paired_interval([0.75] * 30).high)
    assert form.gain.low > 0
    assert (correctness.gain, correctness.missing) == (
        None,
        "none of the answers of the base could be read, so how many of them are right is not known",
    )
    # The same of ends: what none of the base's samples would have had is not known.
    rows, _ = accuracy_parts(16, ([0] * 30, [0] * 30, [0] * 30), ([16] * 30, [8] * 30, [8] * 30))
    assert [row.gain is None for row in rows] == [False, True, True]
    assert rows[1].missing == (
        "none of the samples of the base ended, so how many would have an answer that can be read is not known"
    )


def test_it_takes_five_clusters_that_know_a_rate_of_both():
    def missing(num, clusters=None):
        read = [2] * num + [0] * (20 - num)
        sides = ([2] * 20, read, read), ([2] * 20, [2] * 20, [1] * 20)
        return accuracy_parts(2, *sides, clusters=clusters)[0][2].missing

    assert missing(5) == ""
    assert missing(4) == (
        "answers of both models could be read in 4 problems, and it takes 5, so how many of them are right is not known"
    )
    assert "in 2 problems" in missing(10, clusters=np.arange(20) // 5)


def test_clusters_are_the_cases():
    sides = ([8] * 10, [8] * 10, [4] * 10), ([16] * 10, [16] * 10, [8, 9, 7, 8, 8, 6, 10, 8, 8, 8])
    once, _ = accuracy_parts(16, *sides)
    copies, _ = accuracy_parts(16, *np.repeat(sides, 4, axis=2), clusters=np.repeat(np.arange(10), 4))
    for row, copy in zip(once, copies, strict=True):
        assert (row.gain.low, row.gain.high) == pytest.approx((copy.gain.low, copy.gain.high))


def test_counts_are_of_those_before_them() -> None:
    with pytest.raises(ValueError, match="each count is of those before it"):
        accuracy_parts(2, ([2], [0], [1]), ([2], [2], [2]))
    (none_ended, *_), unknown = accuracy_parts(2, ([0], [0], [0]), ([2], [2], [1]))
    assert (none_ended.gain, unknown) == (None, 1.0)
