from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.probe.spikes import Spike, top_position, zscore_spikes


def positions(values: list[float], *, num_sd: float = 2.0, min_distance: int = 3) -> list[int]:
    return [spike.position for spike in zscore_spikes(values, num_sd=num_sd, min_distance=min_distance)]


def test_one_spike_with_its_threshold() -> None:
    values = [0.0] * 9 + [1.0]  # mean 0.1, sd 0.3
    (spike,) = zscore_spikes(values, num_sd=2, min_distance=3)
    assert spike == Spike(position=9, value=1.0, threshold=pytest.approx(0.7), height=1)


def test_flat_and_single_sequences_have_none() -> None:
    assert positions([0.3] * 20) == []
    assert positions([5.0]) == []
    assert positions([]) == []


def test_of_close_ones_the_highest_is_kept() -> None:
    values = [0.0] * 40
    values[10], values[12], values[13], values[20] = 5.0, 6.0, 4.0, 5.5
    spikes = zscore_spikes(values, num_sd=1, min_distance=3)
    assert [(spike.position, spike.height) for spike in spikes] == [(12, 1), (20, 2)]
    assert positions(values, num_sd=1, min_distance=2) == [10, 12, 20]
    assert positions(values, num_sd=1, min_distance=1) == [10, 12, 13, 20]


def test_infinite_values_are_spikes_and_do_not_spoil_the_threshold() -> None:
    (spike,) = zscore_spikes([0.0, 1.0, math.inf, 1.0, 0.0], num_sd=2, min_distance=3)
    assert (spike.position, spike.threshold) == (2, pytest.approx(0.5 + 2 * 0.5))


VALUES = st.lists(st.integers(0, 6400).map(lambda value: value / 64), min_size=1, max_size=60)


@settings(deadline=None)
@given(VALUES)
def test_scale_does_not_matter(values: list[float]) -> None:
    assert positions([value * 1024 for value in values]) == positions(values)


@settings(deadline=None)
@given(VALUES, st.integers(1, 8))
def test_spikes_keep_their_distance_and_exceed_their_threshold(values: list[float], min_distance: int) -> None:
    spikes = zscore_spikes(values, num_sd=1, min_distance=min_distance)
    found = [spike.position for spike in spikes]
    assert all(later - earlier >= min_distance for earlier, later in pairwise(found))
    assert all(spike.value == values[spike.position] > spike.threshold for spike in spikes)
    assert sorted(spike.height for spike in spikes) == list(range(1, len(spikes) + 1))
    if spikes:
        highest = next(spike for spike in spikes if spike.height == 1)
        assert highest.position == top_position(values)


def test_top_position_is_always_defined() -> None:
    assert top_position([0.0, 0.0]) == 0
    assert top_position(np.array([0.1, 0.9, 0.9], dtype=np.float32)) == 1
    with pytest.raises(ValueError, match="empty"):
        top_position([])
