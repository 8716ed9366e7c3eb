from __future__ import annotations

import math

import numpy as np
import pytest

from swerve.statistics import bootstrap_mean, share


def test_wilson_interval_against_the_closed_form():
    n, p, z = 50, 0.9, 1.959963984540054
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert share(45, 50) == {
        "mean": 0.9,
        "low": pytest.approx(centre - half, abs=1e-9),
        "high": pytest.approx(centre + half, abs=1e-9),
    }


def test_nothing_measured_is_none():
    assert share(0, 0) is None
    assert bootstrap_mean([]) is None


def test_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(300):
        interval = bootstrap_mean(rng.normal(1.0, 1.0, 40), confidence=0.9, num_resamples=300, seed=seed)
        assert interval is not None
        hits += interval["low"] <= 1.0 <= interval["high"]
    assert 0.84 < hits / 300 < 0.95


def test_copies_within_a_cluster_add_no_certainty():
    values = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    once = bootstrap_mean(values, clusters=list(range(6)), seed=3)
    copied = bootstrap_mean(np.repeat(values, 50), clusters=list(np.repeat(range(6), 50)), seed=3)
    assert once == pytest.approx(copied)


def test_equal_values_leave_room_where_bounds_are_known():
    found = bootstrap_mean([0.0] * 5, bounds=(-1.0, 1.0))
    assert found == {"mean": 0.0, "low": pytest.approx(-0.450720, abs=1e-6), "high": pytest.approx(0.450720, abs=1e-6)}
    assert bootstrap_mean([1.0] * 59, bounds=(0.0, 1.0)) == {
        "mean": 1.0,
        "low": pytest.approx(0.05 ** (1 / 59)),
        "high": 1.0,
    }
    assert bootstrap_mean([59.0] * 5) == {"mean": 59.0, "low": 59.0, "high": 59.0}


def test_resampling_in_blocks_changes_nothing(monkeypatch):
    values = np.random.default_rng(1).normal(size=50)
    whole = bootstrap_mean(values, num_resamples=100)
    monkeypatch.setattr("swerve.statistics._MAX_DRAWS", 170)
    assert bootstrap_mean(values, num_resamples=100) == whole


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_mean([1.0, math.nan])
    with pytest.raises(ValueError, match="2 values need as many cluster names, got 1"):
        bootstrap_mean([1.0, 2.0], clusters=["a"])
