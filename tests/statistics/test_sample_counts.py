"""Counts of right samples: against enumeration, oracles in plain Python, and planted mixtures of problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from swerve.statistics import paired_interval
from swerve.statistics.pass_at_k import pass_at_k
from swerve.statistics.sample_counts import pass_at_k_differences


@pytest.fixture(scope="module")
def counts():
    """Numbers right of 200 problems with 64 samples each: a mixture with mass at 0, and what sharpening makes of it."""
    rng = np.random.default_rng(0)
    before = np.where(rng.random(200) < 0.15, 0, rng.beta(0.7, 1.5, 200))
    after = np.where((before > 0) & (rng.random(200) < (1 - before) ** 2), 0, before**0.3)
    return rng.binomial(64, before), rng.binomial(64, after)


def test_values_of_the_simulated_example(counts):
    before, after = counts
    curve, crossing = pass_at_k_differences(before, after, 64)
    rows = {row.k: row for row in curve}
    assert list(rows) == [1, 2, 4, 8, 16, 32, 64]
    assert (rows[1].difference.mean, rows[32].difference.mean) == pytest.approx((0.025781, -0.370317), abs=1e-6)
    assert (rows[1].difference.low, rows[1].difference.high) == pytest.approx((-0.010926, 0.062473), abs=1e-6)
    assert (rows[32].difference.low, rows[32].difference.high) == pytest.approx((-0.435902, -0.304508), abs=1e-6)
    # The band rests on 2,000 draws.
    assert (rows[1].band.low, rows[1].band.high) == pytest.approx((-0.0156, 0.0672), abs=1e-3)
    assert (rows[32].band.low, rows[32].band.high) == pytest.approx((-0.4443, -0.2961), abs=2e-3)

    assert crossing == (None, 3)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample():
    before, after, num = [0, 1, 4, 7], [3, 0, 2, 8], 8
    rows, _ = pass_at_k_differences(before, after, num)

    def share(right, k):
        subsets = list(itertools.combinations([True] * right + [False] * (num - right), k))
        return sum(map(any, subsets)) / len(subsets)

    for row in rows:
        shares = [[share(right, row.k) for right in side] for side in (before, after)]
        assert (row.base.mean, row.trained.mean) == pytest.approx(tuple(map(np.mean, shares)))
        assert row.difference.mean == pytest.approx(np.mean(shares[1]) - np.mean(shares[0]))
    assert [row.k for row in rows] == [1, 2, 4, 8]  # of all samples: whether any is right


def test_pass_at_k_of_many_samples_is_that_of_the_product():
    rows, _ = pass_at_k_differences([3, 0], [1000, 17], 1024)
    expected = [(pass_at_k(1024, 3, row.k) / 2, (1 + pass_at_k(1024, 17, row.k)) / 2) for row in rows[-2:]]
    assert [(row.base.mean, row.trained.mean) for row in rows[-2:]] == [pytest.approx(pair) for pair in expected]


def test_intervals_are_those_of_paired_differences():
    rows, _ = pass_at_k_differences([0, 1, 1], [1, 2, 1], 2)
    expected = paired_interval([0.5, 0.5, 0.0])
    assert rows[0].difference == expected
    # Of both samples: +1, 0, 0.
    assert rows[1].difference == paired_interval([1.0, 0.0, 0.0])
    # With one k the band is the interval, but for the 2,000 draws.
    (row,), _ = pass_at_k_differences([0, 1, 1], [1, 1, 1], 1)
    assert (row.band.low, row.band.high) == pytest.approx((row.difference.low, row.difference.high), abs=0.06)


def test_problems_of_one_group_are_one_case():
    before, after = np.array([1, 2, 4, 0, 3, 2]), np.array([2, 4, 4, 1, 3, 1])
    once, crossing = pass_at_k_differences(before, after, 4)
    copies = np.repeat(before, 10), np.repeat(after, 10)
    rows, of_copies = pass_at_k_differences(*copies, 4, clusters=np.repeat([*"abcdef"], 10))
    assert crossing == of_copies
    for row, copy in zip(once, rows, strict=True):
        for own, other in zip(row[1:], copy[1:], strict=True):
            assert (own.mean, own.low, own.high) == pytest.approx((other.mean, other.low, other.high))
    assert pass_at_k_differences(*copies, 4)[0][0].difference.high < rows[0].difference.high


def test_where_the_curves_cross():
    """A sharpened model, right always or never, is better at 1 and worse where the base has had many tries."""
    base, sharpened = [4] * 100, [16] * 60 + [0] * 40
    # pass@k is 1 - C(12, k) / C(16, k): .25, .45, .61, .73 against .6, shown from .1 on.
    assert pass_at_k_differences(base, sharpened, 16)[1] == (2, 4)
    assert pass_at_k_differences(sharpened, base, 16)[1] == (None, None)
    assert pass_at_k_differences(base, base, 16)[1] == (None, None)
    assert pass_at_k_differences(base, [8] * 100, 16)[1] == (8, None)
