from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f as f_distribution
from scipy.stats import linregress

from swerve.artifacts.files import dump_json
from swerve.artifacts.tables import BIOGRAPHIES_SCHEMA, read_table, write_table
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.biography import (
    biographies,
    biography_rows,
    change_points,
    line_fit,
    null_gain,
    num_reversals,
    onsets,
    summarise_biographies,
)
from swerve.probe.intervals import Intervals
from tests.builders import measurements, response

STEPS = (1, 2, 4, 6, 10, 20, 40, 80)
SERIES = st.lists(st.integers(-4, 4), min_size=4, max_size=9)


def followed(logprobs: list[list[float]], references: list[float], wrong: dict[int, str]) -> Measurements:
    """One series a token; two sequences, the last token alone in the second."""
    num = len(logprobs)
    return measurements(
        [response(4, num - 1, wrong=wrong), response(6, 1)],
        checkpoints=[f"rl-{index}" for index in range(len(logprobs[0]))],
        logprob=np.array(logprobs, dtype=np.float32).T,
        logprob_ref=np.tile(np.array(references, dtype=np.float32), (len(logprobs[0]), 1)),
    )


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8))
def test_onset_is_the_first_point_from_which_on_all_are_away(moves: list[int]) -> None:
    expected = [index for index in range(len(moves)) if all(abs(move) > 1.5 for move in moves[index:])]
    assert onsets(np.array(moves)[:, None], threshold=1.5).tolist() == [min(expected, default=-1)]


def test_at_the_threshold_is_not_beyond_it() -> None:
    assert onsets([[2.0, -2.1]], threshold=2.0).tolist() == [-1, 0]


@given(SERIES, st.integers(0, 3))
def test_reversals_are_sign_changes_of_large_differences(series: list[int], noise: int) -> None:
    steps = [b - a for a, b in pairwise(series) if abs(b - a) > noise]
    expected = sum(a * b < 0 for a, b in pairwise(steps))
    assert num_reversals(np.array(series)[:, None], noise=noise).tolist() == [expected]


@given(SERIES)
def test_line_fit_is_least_squares(series: list[int]) -> None:
    steps = STEPS[: len(series)] if len(series) <= len(STEPS) else tuple(range(len(series)))
    slope, fit = line_fit(np.array(series)[:, None], steps)
    if len(set(series)) == 1:
        assert slope[0] == 0
        assert math.isnan(fit[0])
        return
    expected = linregress(steps, series)
    assert slope[0] == pytest.approx(expected.slope, abs=1e-9)
    assert fit[0] == pytest.approx(expected.rvalue**2, abs=1e-9)


def test_a_line_needs_two_points() -> None:
    slope, fit = line_fit([[1.0]], [3])
    assert math.isnan(slope[0])
    assert math.isnan(fit[0])


def brute_change_point(series: list[float], confidence: float) -> tuple[int, int, int, float] | None:
    """Fit every split by hand, in float64."""
    num = len(series)

    def rest(part: list[float]) -> float:
        return sum((value - sum(part) / len(part)) ** 2 for value in part)

    rests = {cut: rest(series[:cut]) + rest(series[cut:]) for cut in range(1, num)}
    best = min(rests, key=lambda cut: rests[cut])
    gain = num * math.log(rest(series) / rests[best])
    if gain <= null_gain(tuple(range(num)), confidence=confidence):
        return None
    level = num * math.log(1 + f_distribution.ppf(confidence, 1, num - 3) / (num - 3))
    inside = [cut for cut in rests if num * math.log(rests[cut] / rests[best]) <= level]
    size = sum(series[best:]) / (num - best) - sum(series[:best]) / best
    return best, min(inside), max(inside), size


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize("num_points", [4, 5, 8, 15])
def test_change_points_by_brute_force(num_points: int, confidence: float) -> None:
    rng = np.random.default_rng(num_points)
    series = rng.normal(size=(num_points, 60)) + 7
    for column in range(60):
        series[1 + column % (num_points - 1) :, column] -= column / 2
    found = change_points(series, confidence=confidence)
    num_found = 0
    for column in range(60):
        expected = brute_change_point(series[:, column].tolist(), confidence)
        got = tuple(one[column].item() for one in (found.index, found.low, found.high))
        num_found += expected is not None
        assert got == ((-1, -1, -1) if expected is None else expected[:3])
        assert found.size[column] == pytest.approx(math.nan if expected is None else expected[3], nan_ok=True)
    assert num_found >= 5


def test_where_there_is_no_change_point() -> None:
    series = np.array(
        [[1, 0, 0, 0, 3], [1, 0, 0, 0, 3], [1, 0, 2, 0.1, 3], [1, 0, 2, 0.1, 3], [1, math.inf, 2, 0.1, 4]]
    )
    assert change_points(series).index.tolist() == [-1, -1, 2, 2, 4]
    assert change_points(series, noise=0.05).index.tolist() == [-1, -1, 2, -1, 4]
    assert change_points(series[:3]).index.tolist() == [-1] * 5
    assert np.isnan(change_points(series[:3]).size).all()


def test_an_exact_shift_has_an_exact_interval() -> None:
    series = np.full((8, 1), 0.25)
    series[5:] = -1.5
    found = change_points(series)
    assert (found.index[0], found.low[0], found.high[0], found.size[0]) == (5, 5, 5, -1.75)
    assert found.share[0] == pytest.approx(1)


@pytest.mark.parametrize(("size", "power", "coverage"), [(3, 0.12, 0.95), (4, 0.3, 0.99), (6, 0.75, 1), (8, 0.97, 1)])
def test_steps_are_found_and_their_interval_covers_as_stated(size: float, power: float, coverage: float) -> None:
    """K = 8, a shift in the middle of `size` standard deviations, nominal 95%."""
    series = np.random.default_rng(1).normal(size=(8, 20_000))
    series[4:] += size
    found = change_points(series)
    there = found.index >= 0
    assert there.mean() == pytest.approx(power, abs=0.015)
    held = (found.low <= 4) & (found.high >= 4)
    assert held[there].mean() >= coverage - 0.005


def wandering(times: Sequence[int], *, keeps: float = 1.0, in_time: bool = False, drift: float = 0.0) -> np.ndarray:
    """Series `[K, 20000]` that keep a share of their distance from 0 at each point; 1: random walks, 0: white noise."""
    rng = np.random.default_rng(len(times))
    spans = np.diff(np.array(times, dtype=float))
    values = [rng.normal(size=20_000) / math.sqrt(1 - keeps**2 if keeps < 1 else 1)]
    for span in spans:
        scale, trend = (math.sqrt(span), drift * span) if in_time else (1.0, drift)
        values.append(keeps * values[-1] + trend + scale * rng.normal(size=20_000))
    return np.array(values)


@pytest.mark.parametrize("times", [tuple(range(5)), tuple(range(8)), tuple(range(12)), (0, *STEPS)])
@pytest.mark.parametrize(
    "how",
    [
        {"keeps": 0.0},
        {"keeps": 0.5},
        {"keeps": 0.9},
        {},
        {"in_time": True},
        *({"drift": drift, "in_time": in_time} for drift in (0.3, 0.5, 1.0) for in_time in (False, True)),
    ],
    ids=str,
)
def test_series_that_wander_show_a_shift_no_more_often_than_stated(times: tuple[int, ...], how: dict[str, Any]) -> None:
    """A null of white noise finds one in 17% of AR(1) series of .5 and 42% of walks with K = 8."""
    found = change_points(wandering(times, **how), times=times).index >= 0
    assert found.mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 20_000) + 0.002  # the null's own simulation
    often = change_points(wandering(times, **how), times=times, confidence=0.8).index >= 0
    assert often.mean() <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 20_000) + 0.004


@settings(max_examples=50)
@given(SERIES, st.floats(-5, 5), st.sampled_from([0.001, 3.0, 1000.0]))
def test_change_points_ignore_shift_and_scale(series: list[int], shift: float, scale: float) -> None:
    one = np.array(series, dtype=float)[:, None] + np.linspace(0, 0.1, len(series))[:, None] ** 2
    first, second = change_points(one), change_points(scale * one + shift)
    assert (first.index, first.low, first.high) == (second.index, second.low, second.high)
    assert second.size[0] == pytest.approx(scale * first.size[0], rel=1e-6, nan_ok=True)


def test_settings_from_a_noise_floor() -> None:
    data = followed([[-1.0, -1.5]], [-1.0], {})
    for floor, threshold, noise in ((0.0, 0.1, 0.0), (0.001, 0.1, 0.01), (0.05, 0.5, 0.5)):
        found = biographies(data, [1, 2], noise=floor)
        assert (found.threshold, found.noise) == (threshold, noise)
    assert biographies(replace(data, intervals=Intervals(confidence=0.9)), [1, 2]).confidence == 0.9
    for floor in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="noise floor"):
            biographies(data, [1, 2], noise=floor)


# One token each: jumps for good at 10; drifts; leaves and comes back; stands still; is infinite.
DATA = followed(
    [
        [-1.0, -1.01, -0.99, -1.0, -4.0, -4.01, -4.0, -3.99],
        [-1 - 0.06 * step for step in STEPS],
        [-1.0, -2.0, -1.0, -2.0, -1.0, -1.0, -1.0, -1.0],
        [-1.0] * 8,
        [-1.0] * 7 + [-math.inf],
    ],
    [-1.0, -1.0, -1.0, -1.0, -1.0],
    {0: "x"},
)
FOUND = biographies(DATA, STEPS)


def test_biographies_of_known_series() -> None:
    rows = biography_rows(DATA, FOUND)
    assert [(row["sequence_id"], row["position"]) for row in rows] == [(4, 0), (4, 1), (4, 2), (4, 3), (6, 0)]
    assert [row["onset_step"] for row in rows] == [10, 2, None, None, None]
    assert [row["num_reversals"] for row in rows] == [3, 0, 3, 0, 0]
    assert (rows[0]["change_step"], rows[0]["change_low"], rows[0]["change_high"]) == (10, 10, 10)
    assert rows[0]["change_size"] == pytest.approx(-3)
    assert (rows[1]["slope"], rows[1]["linearity"]) == pytest.approx((-0.06, 1))
    assert rows[2]["change_step"] is None
    assert (rows[3]["slope"], rows[3]["linearity"], rows[3]["change_size"]) == (0, None, None)
    assert (rows[4]["slope"], rows[4]["linearity"], rows[4]["change_step"]) == (None, None, None)


def test_noise_is_no_reversal() -> None:
    found = biographies(DATA, STEPS, noise=0.005)
    assert found.reversals.tolist() == [0, 0, 3, 0, 0]


def test_the_start_is_a_point_of_the_series() -> None:
    """A token that moved before the first checkpoint has its change there, which the checkpoints alone cannot show."""
    data = followed([[-3.0, -3.1, -3.0, -2.9], [0.0] * 4], [-1.0, 0.0], {})
    steps = (10, 20, 30, 40)
    assert biography_rows(data, biographies(data, steps))[0]["change_step"] is None
    with_start = biographies(data, steps, start_step=0)
    row = biography_rows(data, with_start)[0]
    assert (row["change_step"], row["onset_step"]) == (10, 10)
    assert row["change_size"] == pytest.approx(-2)
    assert row["slope"] == pytest.approx(linregress([0, *steps], [-1, -3.0, -3.1, -3.0, -2.9]).slope)


def test_the_rows_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "biographies.parquet"
    rows = biography_rows(DATA, FOUND)
    write_table(path, rows, BIOGRAPHIES_SCHEMA)
    assert [row["change_step"] for row in read_table(path, BIOGRAPHIES_SCHEMA).to_pylist()] == [
        row["change_step"] for row in rows
    ]


def test_figures_of_all_of_wrong_steps_and_of_others() -> None:
    figures = summarise_biographies(DATA, FOUND)
    tokens = figures.tokens
    assert (figures.steps, figures.threshold) == (tuple(STEPS), 0.1)
    assert {name: (one.num_tokens, one.num_moved) for name, one in tokens.items()} == {
        "all": (5, 2),
        "wrong_steps": (1, 1),
        "others": (3, 1),
    }
    assert tokens["all"].share_moved.mean == pytest.approx(2 / 5)
    assert {one.step: one.num_tokens for one in tokens["all"].onset_steps} == {
        **dict.fromkeys(STEPS, 0),
        2: 1,
        10: 1,
    }
    assert tokens["all"].share_reversed.mean == 0.5
    assert tokens["all"].mean_reversals.mean == 1.5
    assert tokens["others"].median_linearity == pytest.approx(1)
    assert tokens["all"].share_line_better.mean == 0.5
    assert tokens["all"].change_points.num_tokens == 1
    assert tokens["all"].change_points.share.mean == 0.5
    (change,) = tokens["wrong_steps"].change_points.by_step
    assert {**change.model_dump(), "median_size": round(change.median_size, 3)} == {
        "step": 10,
        "num_tokens": 1,
        "median_low": 10,
        "median_high": 10,
        "median_size": -3,
    }
    assert tokens["others"].change_points.by_step == ()  # a drift is no turning point
    dump_json(figures)


def test_few_checkpoints_have_no_change_points() -> None:
    data = followed([[-1.0, -1.0, -4.0], [0.0] * 3], [-1.0, 0.0], {})
    figures = summarise_biographies(data, biographies(data, [1, 2, 3]))
    assert figures.tokens["all"].change_points is None
    assert figures.tokens["wrong_steps"].share_moved is None
    assert figures.tokens["all"].num_moved == 1


@pytest.mark.parametrize("steps", [STEPS[:-1], (1, 2, 4, 6, 10, 20, 40, 40), tuple(reversed(STEPS))])
def test_wrong_steps_are_refused(steps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="8 checkpoints need as many increasing steps"):
        biographies(DATA, steps)


def test_a_start_after_the_first_checkpoint_and_two_references_are_refused() -> None:
    with pytest.raises(ValueError, match="increasing steps"):
        biographies(DATA, STEPS, start_step=1)
    with pytest.raises(ValueError, match="one reference"):
        biographies(
            Measurements(
                sequences=DATA.sequences,
                checkpoints=DATA.checkpoints,
                references=("dpo-1",) * 7 + ("rl-1",),
                columns=DATA.columns,
                categories=DATA.categories,
            ),
            STEPS,
        )
