from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from swerve.artifacts.files import dump_json
from swerve.artifacts.responses import Response
from swerve.config.probe import SpikeConfig
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import all_spikes
from swerve.probe.findings.token_shares import (
    REGIONS,
    by_source,
    category_shares,
    region_shares,
    spike_densities,
    token_regions,
    turn_shares,
)
from swerve.probe.intervals import Intervals, TokenIntervals
from swerve.statistics import ratio_interval, share, skewed_mean_interval
from swerve.statistics.jackknife import UNBOUNDED
from swerve.types import Problem
from tests.builders import measurements, response

FAST = Intervals()


def sequence(index: int, length: int, *, problem: str | None = None, source: str = "reference") -> Response:
    posed = Problem(id=problem or f"p{index}", family="addition", question="", answer="")
    return response(index, length, problem=posed, label=source)


def diverged(js: list[list[float]], sequences: list[Response]) -> Measurements:
    """The other columns are 1 throughout."""
    checkpoints = [f"rl-{number}" for number in range(1, len(js) + 1)]
    return measurements(sequences, checkpoints=checkpoints, reference="reference", js=np.array(js, dtype=np.float32))


# Regions: early 0 1 | mid 2 3 | late 4 of 5 tokens; early | mid | late of 3.
DATA = diverged([[1, 2, 4, 0, 3, 5, 0, 1], [0] * 8], [sequence(7, 5), sequence(9, 3)])


@given(st.lists(st.integers(0, 40), max_size=6))
def test_regions_are_exact_thirds(lengths: list[int]) -> None:
    expected = [math.floor(Fraction(3 * t, n)) for n in lengths for t in range(n)]
    assert token_regions(lengths).tolist() == expected
    for n in lengths:
        sizes = Counter(token_regions([n]).tolist())
        assert max(sizes[region] for region in range(3)) - min(sizes[region] for region in range(3)) <= 1


def test_figures_of_each_third(spikes_at) -> None:
    entries = region_shares(DATA, spikes_at(DATA))[:3]
    assert [(one.checkpoint, one.region, one.num_tokens) for one in entries] == [
        ("rl-1", "early", 3),
        ("rl-1", "mid", 3),
        ("rl-1", "late", 2),
    ]
    assert [one.share_tokens for one in entries] == [3 / 8, 3 / 8, 2 / 8]
    assert [one.mean["js"].mean for one in entries] == pytest.approx([8 / 3, 4 / 3, 2.0])
    assert [one.share_divergence["js"].mean for one in entries] == pytest.approx([8 / 16, 4 / 16, 4 / 16])
    assert [one.share_divergence["kl_forward"].mean for one in entries] == pytest.approx([3 / 8, 3 / 8, 2 / 8])


def test_intervals_are_over_problems(spikes_at) -> None:
    """Two problems, with 3 of 10 and 5 of 6 there, in 2 and 1 tokens."""
    early = region_shares(DATA, spikes_at(DATA))[0]
    assert (early.mean["js"].reliable, early.mean["js"].above) == (False, share(2, 2))
    clusters, values = np.array([0] * 5 + [1] * 3), DATA.columns["js"][0]
    first, tokens = np.array([1, 1, 0, 0, 0, 1, 0, 0]), [0, 1, 5]
    assert early.share_divergence["js"] == ratio_interval(values * first, values, clusters=clusters)
    mean = skewed_mean_interval(values[tokens], clusters=clusters[tokens], threshold=0.01, most=math.log(2))
    assert early.mean["js"] == mean
    same = diverged([[1, 2, 4, 0, 3, 5, 0, 1]], [sequence(7, 5, problem="p"), sequence(9, 3, problem="p")])
    one = region_shares(same, spikes_at(same))[0].mean["kl_forward"]
    assert one.high > 9 * one.mean  # one problem says next to nothing


def test_spikes_are_counted_where_they_are(spikes_at) -> None:
    places = {("rl-1", "js"): {7: [2], 9: [2]}, ("rl-2", "js"): {9: [0]}, ("rl-1", "kl_forward"): {7: [0]}}
    spikes = spikes_at(DATA, places)
    assert np.flatnonzero(spikes.mask("rl-1", "js")).tolist() == [2, 7]
    assert np.flatnonzero(spikes.mask("rl-2", "js")).tolist() == [5]
    assert np.flatnonzero(spikes.mask("rl-1", "kl_forward")).tolist() == [0]
    assert spikes.mask("rl-2", "kl_forward").tolist() == [False] * 8
    entries = region_shares(DATA, spikes)
    assert [one.num_spikes["js"] for one in entries] == [0, 1, 1, 1, 0, 0]
    assert entries[2].spike_rate["js"] == 1 / 2
    assert entries[2].base_rate["js"] == 2 / 8


def test_densities_are_of_methods_with_a_scale() -> None:
    """All divergences x 10: as many spikes by z-score, more above 0.1 nats."""
    values = [0.02, 0.0, 0.3, 0.0, 0.0, 0.05, 0.0, 0.0]
    data = diverged([values, [10 * one for one in values]], [sequence(7, 5), sequence(9, 3)])
    spikes = all_spikes(data, SpikeConfig(num_sd=1.0, min_distance=1))
    densities = spike_densities(data, spikes, divergence="js")
    assert any(spikes.found["rl-1", "js", "zscore"])
    assert {one.method for one in densities} == {"percentile", "absolute"}  # nothing to calibrate with
    found = [one for one in densities if one.method == "absolute"]
    assert [(one.checkpoint, one.region, one.num_spikes, one.num_tokens) for one in found] == [
        ("rl-1", "early", 0, 3), ("rl-1", "mid", 1, 3), ("rl-1", "late", 0, 2),
        ("rl-2", "early", 2, 3), ("rl-2", "mid", 1, 3), ("rl-2", "late", 0, 2),
    ]  # fmt: skip
    assert found[3].threshold == 0.1
    assert found[3].per_1000_tokens is not None
    assert found[3].per_1000_tokens.mean == pytest.approx(2000 / 3)
    assert found[0].per_1000_tokens is not None
    assert found[0].per_1000_tokens.high > 0  # none of two problems says little


def test_categories_have_a_mean() -> None:
    data = replace(DATA, categories=("word", "number") * 4)
    number, word = category_shares(data, all_spikes(data, SpikeConfig()), divergence="js")[:2]
    assert (number.mean["js"].mean, word.mean["js"].mean) == (pytest.approx(8 / 4), pytest.approx(8 / 4))
    assert number.mean["kl_forward"].mean == 1


def test_nothing_measured_is_none(spikes_at) -> None:
    zero = region_shares(DATA, spikes_at(DATA))[3]
    assert zero.share_divergence["js"] is None
    assert zero.mean["js"].mean == 0
    infinite = diverged([[math.inf, 1, 1]], [sequence(0, 3)])
    early, mid, _ = region_shares(infinite, spikes_at(infinite))
    assert (early.mean["js"], early.share_divergence["js"], mid.share_divergence["js"]) == (None, None, None)
    assert mid.mean["js"].mean == 1
    single = diverged([[1.0]], [sequence(0, 1)])
    short = region_shares(single, spikes_at(single))
    assert [one.num_tokens for one in short] == [1, 0, 0]
    assert (short[1].mean["js"], short[1].spike_rate["js"]) == (None, None)
    none = DATA.select(lambda one: False)
    empty = region_shares(none, spikes_at(none))
    assert empty[0].share_tokens is None
    dump_json([zero, early, short, empty])


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.floats(0.1, 100), st.randoms(use_true_random=False))
def test_shares_sum_to_one_ignore_scale_and_order(lengths: list[int], scale: float, random: Any) -> None:
    values = [random.random() + 0.01 for _ in range(sum(lengths))]
    sequences = [sequence(index, length) for index, length in enumerate(lengths)]

    def shares(data: Measurements) -> list[float]:
        entries = region_shares(data, all_spikes(data, SpikeConfig()))
        return [0.0 if one.num_tokens == 0 else one.share_divergence["js"].mean for one in entries]

    first = shares(diverged([values], sequences))
    assert sum(first) == pytest.approx(1)
    assert shares(diverged([[scale * value for value in values]], sequences)) == pytest.approx(first, rel=1e-5)
    ends = np.cumsum([0, *lengths])
    order = random.sample(range(len(lengths)), len(lengths))
    moved = [value for index in order for value in values[ends[index] : ends[index + 1]]]
    assert shares(diverged([moved], [sequences[index] for index in order])) == pytest.approx(first)


def test_difference_of_ratios() -> None:
    clusters = np.array([0, 0, 1])
    ones = np.ones(3)
    first, second = np.array([1.0, 2.0, 6.0]), np.array([1.0, 0.0, 0.0])
    tokens = TokenIntervals(problems=clusters, intervals=FAST)
    estimate = tokens.share_difference(first, ones, second, ones, bounds=UNBOUNDED)
    # Without the first problem 6 - 0, without the second 1.5 - 0.5: a standard error of 2.5, and one degree of freedom.
    reach = 2.5 * stats.t.ppf(0.975, 1)
    assert asdict(estimate) == pytest.approx({"mean": 8 / 3, "low": 8 / 3 - reach, "high": 8 / 3 + reach})
    assert tokens.share_difference(first, ones, second, 0 * ones) is None
    assert tokens.share_difference(first * math.inf, ones, second, ones) is None
    nothing = TokenIntervals(problems=clusters[:0], intervals=FAST)
    assert nothing.share_difference(*[ones[:0]] * 4) is None


def test_a_share_of_none_has_an_interval() -> None:
    estimate = FAST.share(np.zeros(10, dtype=bool), np.arange(10))
    assert estimate is not None
    assert (estimate.mean, estimate.low) == (0, 0)
    assert estimate.high == pytest.approx(1 - 0.025 ** (1 / 10))


def test_clusters_and_sources() -> None:
    data = diverged(
        [[1, 2, 3, 4]],
        [sequence(0, 2, problem="b"), sequence(1, 1, problem="a", source="rl-1"), sequence(2, 1, problem="b")],
    )
    assert data.over.problems.tolist() == [0, 0, 1, 0]
    parts = by_source(data)
    assert list(parts) == ["reference", "rl-1"]
    assert parts["reference"].columns["js"].tolist() == [[1, 2, 4]]
    assert parts["rl-1"].columns["js"].tolist() == [[3]]
    assert len(REGIONS) == 3


def test_turns_are_counted_by_their_number_and_only_where_there_are_several() -> None:
    two = replace(sequence(3, 6), sampled=(True, True, False, False, True, True), wrong={4: "", 5: ""})
    data = diverged([[1, 0, 0, 9, 2, 2, 2, 2]], [two, sequence(4, 4)])
    spikes = all_spikes(data, SpikeConfig(method="absolute", threshold=0.5, min_distance=1))
    assert data.positions.tolist() == [0, 1, 4, 5, 0, 1, 2, 3]
    assert data.first_wrong.tolist() == [False, False, True, False, *[False] * 4]
    assert spikes.tops["rl-1", "js"] == (5, 0)
    assert spikes.positions("rl-1", "js") == [[0, 5], [0, 1, 2, 3]]
    first, second = turn_shares(data, spikes)
    assert (first.turn, first.num_rollouts, first.num_tokens, first.mean["js"].mean) == (1, 2, 6, 1.5)
    assert (second.turn, second.num_rollouts, second.num_tokens, second.mean["js"].mean) == (2, 1, 2, 4.5)
    assert (first.spikes["js"].num_spikes, second.spikes["js"].num_spikes) == (5, 1)
    thirds = [one.num_spikes for one in spike_densities(data, spikes, divergence="js") if one.method == "absolute"]
    assert thirds == [3, 1, 2]
    one = data.select(lambda sequence: sequence.is_one_turn)
    assert turn_shares(one, spikes.select(lambda sequence: sequence.is_one_turn)) == ()
