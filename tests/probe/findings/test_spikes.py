from __future__ import annotations

import math
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.config.probe import SpikeConfig
from swerve.probe.findings.spikes import (
    SPIKE_METHODS,
    Spike,
    calibrated_threshold,
    find_spikes,
    null_false_discoveries,
    spikes_by_method,
    thresholds,
)
from swerve.statistics import benjamini_hochberg


def zscore_spikes(values: list[float], *, num_sd: float, min_distance: int) -> list[Spike]:
    how = SpikeConfig(method="zscore", num_sd=num_sd, min_distance=min_distance)
    (spikes,) = find_spikes([np.array(values)], how)
    return spikes


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
        assert highest.position == np.argmax(values)


def found_by(method: str, series: list[list[float]], **options: object) -> list[list[int]]:
    pooled, null = options.pop("pooled", None), options.pop("null", None)
    settings_ = SpikeConfig(method=method, **options)
    found = find_spikes([np.array(values) for values in series], settings_, pooled=pooled, null=null)
    return [[spike.position for spike in spikes] for spikes in found]


def test_there_are_five_methods() -> None:
    assert SPIKE_METHODS == ("zscore", "percentile", "adaptive", "absolute", "calibrated")


def test_each_sequence_has_its_own_zscore_threshold() -> None:
    series = [[0.0] * 9 + [1.0], [], [5.0] * 9 + [6.0]]
    assert found_by("zscore", series) == [[9], [], [9]]
    (first, _, last) = thresholds([np.array(values) for values in series], SpikeConfig())
    assert first.tolist() == pytest.approx([0.7] * 10)
    assert last.tolist() == pytest.approx([5.7] * 10)


def test_absolute_is_strictly_above_and_feels_scale() -> None:
    assert found_by("absolute", [[0.1, 0.0, 0.0, 0.2], [math.inf]], threshold=0.1) == [[3], [0]]
    assert found_by("absolute", [[0.01, 0.0, 0.0, 0.02]], threshold=0.1) == [[]]


def test_percentile_is_of_the_run_not_of_the_sequence() -> None:
    pooled = np.arange(101.0)  # 95 is the 95th percentile
    series = [[0.0, 1.0, 2.0], [95.0, 0.0, 0.0, 96.0], [97.0, 98.0, 99.0, 100.0]]
    assert found_by("percentile", series, pooled=pooled) == [[], [3], [0, 3]]
    assert found_by("percentile", series, pooled=pooled, percentile=94.0) == [[], [0, 3], [0, 3]]


def test_percentile_is_defined_among_infinite_values() -> None:
    assert found_by("percentile", [[1.0, math.inf]], pooled=[0.0, 1.0, math.inf], percentile=50.0) == [[1]]
    assert found_by("percentile", [[1.0, math.inf]], pooled=[0.0, math.inf, math.inf], percentile=75.0) == [[]]
    assert found_by("percentile", [], pooled=[]) == []


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30), max_size=15), min_size=1, max_size=3),
    st.integers(3, 9),
    st.sampled_from([math.inf, 31.0]),
)
def test_adaptive_thresholds_by_brute_force(series: list[list[int]], window: int, highest: float) -> None:
    arrays = [np.array([highest if one == 30 else one for one in values], float) for values in series]
    limits = thresholds(arrays, SpikeConfig(window=window, num_sd=1.5), method="adaptive")
    for values, limit in zip(arrays, limits, strict=True):
        assert len(limit) == len(values)
        for place in range(len(values)):
            near = [
                values[other]
                for other in range(max(0, place - window // 2), min(len(values), place + window // 2 + 1))
                if other != place and math.isfinite(values[other])
            ]
            assert limit[place] == (pytest.approx(np.mean(near) + 1.5 * np.std(near)) if near else math.inf)


def test_the_adaptive_threshold_reported_is_the_one_applied_there() -> None:
    values = np.array([0.0, 0.0, 3.0, 1.0, 1.0, 9.0, 1.0, 1.0])
    found = find_spikes([values], SpikeConfig(method="adaptive", window=3, min_distance=1))
    # the means of both neighbours are 0.5 and 1, their sds 0.5 and 0
    assert [(spike.position, spike.threshold) for spike in found[0]] == [(2, 1.5), (5, 1.0)]


def test_adaptive_keeps_tiny_differences_beside_huge_values() -> None:
    values = np.array([1e6] * 5 + [0.0] * 30 + [1e-9, 2e-9] * 10 + [1e-7] + [1e-9, 2e-9] * 3)
    limits = thresholds([values], SpikeConfig(window=7), method="adaptive")[0]
    assert limits[55] == pytest.approx(1.5e-9 + 2 * 0.5e-9, rel=1e-9)


def test_calibrated_is_benjamini_hochberg_over_empirical_p_values() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        null = rng.integers(0, 40, 300) / 10
        values = np.concatenate([rng.integers(0, 40, 60) / 10, rng.integers(35, 60, 8) / 10])
        p_values = [(1 + (null >= value).sum()) / 301 for value in values]
        rejected = [p_value is not None and p_value <= 0.2 for p_value in benjamini_hochberg(p_values)]
        cut = calibrated_threshold(values, null, false_discovery_rate=0.2)
        assert (values > (math.inf if cut is None else cut)).tolist() == rejected


def test_calibrated_needs_a_null_large_enough() -> None:
    values = np.array([0.0] * 19 + [5.0])  # one of 20 at a rate of 0.05: a p-value of 0.0025 or less
    assert calibrated_threshold(values, np.full(398, 0.5), false_discovery_rate=0.05) is None
    assert calibrated_threshold(values, np.full(399, 0.5), false_discovery_rate=0.05) == 0.5
    assert calibrated_threshold(values, [], false_discovery_rate=0.05) is None
    assert calibrated_threshold([], [0.5], false_discovery_rate=0.05) is None
    assert found_by("calibrated", [values.tolist()], null=np.full(399, 0.5)) == [[19]]
    assert found_by("calibrated", [values.tolist()], null=np.full(398, 0.5)) == [[]]


def test_calibrated_takes_the_null_of_all_sequences_together() -> None:
    series = [[0.0, 0.6, 0.0, 0.0, 0.6], [0.6]]
    null = np.linspace(0, 0.5, 199)
    assert found_by("calibrated", series, null=null, false_discovery_rate=0.05) == [[1, 4], [0]]


def test_false_discoveries_stay_at_the_stated_rate() -> None:
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(40):
        values = np.concatenate([rng.exponential(size=400), 8 + rng.exponential(size=40)])
        cut = calibrated_threshold(values, rng.exponential(size=4000), false_discovery_rate=0.2)
        assert cut is not None
        found = np.nonzero(values > cut)[0]
        shares.append(np.mean(found < 400))
    assert np.mean(shares) == pytest.approx(0.2 * 400 / 440, abs=0.04)


def test_sequences_do_not_reach_into_each_other() -> None:
    series = [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    assert found_by("absolute", series, min_distance=3) == [[2], [0]]
    assert found_by("absolute", [[*series[0], *series[1]]], min_distance=3) == [[3]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=4), st.integers(1, 5))
def test_picking_against_the_rule_in_words(series: list[list[int]], min_distance: int) -> None:
    found = find_spikes(
        [np.array(values, float) for values in series],
        SpikeConfig(method="absolute", threshold=4.5, min_distance=min_distance),
    )
    for values, spikes in zip(series, found, strict=True):
        kept: list[int] = []
        for place in sorted((i for i, value in enumerate(values) if value > 4.5), key=lambda i: (-values[i], i)):
            if all(abs(place - other) >= min_distance for other in kept):
                kept.append(place)
        assert spikes == [
            Spike(position=place, value=values[place], threshold=4.5, height=1 + kept.index(place))
            for place in sorted(kept)
        ]


def test_a_method_lacking_its_values_is_refused() -> None:
    with pytest.raises(ValueError, match="'percentile' needs pooled"):
        found_by("percentile", [[1.0]])
    with pytest.raises(ValueError, match="'calibrated' needs null"):
        found_by("calibrated", [[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        found_by("absolute", [[math.nan]])


def test_all_methods_at_once_pool_checkpoints_but_not_divergences() -> None:
    series = {
        ("rl-1", "js"): [np.array([0.0, 0.0, 0.0, 1.0])],
        ("rl-2", "js"): [np.array([0.0, 5.0, 0.0, 2.0])],
        ("rl-2", "kl_forward"): [np.array([50.0, 0.0, 0.0, 60.0])],
    }
    found = spikes_by_method(series, SpikeConfig(percentile=75.0, min_distance=1), nulls={"js": np.zeros(199)})
    methods = {(checkpoint, divergence) for checkpoint, divergence, method in found if method == "calibrated"}
    assert methods == {("rl-1", "js"), ("rl-2", "js")}
    assert len(found) == 3 * 4 + 2
    at = {key: [spike.position for spike in spikes[0]] for key, spikes in found.items()}
    # of 0 0 0 0 0 1 2 5 the value at three quarters is 1
    assert (at["rl-1", "js", "percentile"], at["rl-2", "js", "percentile"]) == ([], [1, 3])
    assert at["rl-2", "kl_forward", "percentile"] == [3]
    assert (at["rl-1", "js", "calibrated"], at["rl-2", "js", "calibrated"]) == ([3], [1, 3])


def test_false_discoveries_of_a_null_pair() -> None:
    rng = np.random.default_rng(0)
    null = [np.abs(rng.normal(0, 1e-7, 50)) for _ in range(40)]
    found = null_false_discoveries(
        null, SpikeConfig(), pooled=np.linspace(0, 1, 100), clusters=[i // 2 for i in range(40)]
    )
    zscore = found["zscore"].per_1000_tokens
    assert zscore is not None
    assert found["zscore"].num_tokens == 2000
    assert zscore.mean == pytest.approx(found["zscore"].num_spikes / 2)
    assert 20 < zscore.low < zscore.mean < zscore.high < 60  # however small the noise is
    none = found["absolute"]
    assert none.num_spikes == 0
    end = 1 - 0.025 ** (1 / 20)  # of 0 of 20 problems
    assert asdict(none.per_1000_tokens) == pytest.approx({"mean": 0.0, "low": 0.0, "high": 1000 * end * 20 / 2000})
    assert found["percentile"].num_spikes == found["calibrated"].num_spikes == 0


def test_calibrated_is_not_tested_on_its_own_null() -> None:
    low, high = np.linspace(0, 0.1, 500), np.linspace(1.0, 1.1, 500)
    found = null_false_discoveries([low, high], SpikeConfig(min_distance=1))
    assert found["calibrated"].num_spikes == 500  # all of `high` by the null `low`, none of `low` by `high`
    assert "percentile" not in found


def test_no_null_tokens_no_rate() -> None:
    found = null_false_discoveries([], SpikeConfig())
    assert found["zscore"].model_dump() == {"num_spikes": 0, "num_tokens": 0, "per_1000_tokens": None}
