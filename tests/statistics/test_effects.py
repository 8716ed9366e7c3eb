from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.statistics import cliffs_delta, cohens_d_paired


def test_cohens_d_of_paired_values() -> None:
    assert cohens_d_paired([1, 1, 1, 1], [2, 4, 2, 4]) == pytest.approx(2 / math.sqrt(4 / 3))
    assert cohens_d_paired([2, 4, 2, 4], [1, 1, 1, 1]) == pytest.approx(-2 / math.sqrt(4 / 3))


def test_pairs_of_a_cluster_count_once() -> None:
    once = cohens_d_paired([0, 0, 0], [1, 2, 4])
    assert once == pytest.approx(7 / 3 / math.sqrt(7 / 3))
    assert cohens_d_paired([0, 0, 0, 0], [0, 2, 2, 4], clusters=["a", "a", "b", "c"]) == pytest.approx(once)


def test_effects_of_nothing_are_none() -> None:
    assert cohens_d_paired([], []) is None
    assert cohens_d_paired([1], [2]) is None
    assert cohens_d_paired([1, 1], [2, 3], clusters=["a", "a"]) is None
    assert cohens_d_paired([1, 1], [2, 2]) is None
    assert cliffs_delta([], [1]) is None
    assert cliffs_delta([1], []) is None
    with pytest.raises(ValueError, match="paired values are needed"):
        cohens_d_paired([1, 1], [2])


SMALL = st.lists(st.integers(-3, 3), min_size=1, max_size=8)


@given(SMALL, SMALL)
def test_cliffs_delta_over_all_pairs(values: list[int], others: list[int]) -> None:
    signs = [(value > other) - (value < other) for value in values for other in others]
    assert cliffs_delta(values, others) == pytest.approx(sum(signs) / len(signs))
