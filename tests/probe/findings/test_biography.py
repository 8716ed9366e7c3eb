from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress

from swerve.artifacts.files import dump_json
from swerve.artifacts.tables import BIOGRAPHIES_SCHEMA, read_table, write_table
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.biography import (
    best_splits,
    biographies,
    biography_rows,
    line_fit,
    num_reversals,
    onsets,
    summarise_biographies,
)
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


def brute_split(series: list[float]) -> tuple[int, float, float]:
    """Fit every split by hand."""

    def rest(part: list[float]) -> float:
        return sum((value - sum(part) / len(part)) ** 2 for value in part)

    num = len(series)
    best = min(range(1, num), key=lambda cut: rest(series[:cut]) + rest(series[cut:]))
    size = sum(series[best:]) / (num - best) - sum(series[:best]) / best
    return best, size, 1 - (rest(series[:best]) + rest(series[best:])) / rest(series)


@pytest.mark.parametrize("num_points", [4, 5, 8, 15])
def test_best_splits_by_brute_force(num_points: int) -> None:
    series = np.random.default_rng(num_points).normal(size=(num_points, 60)) + 7
    for column in range(60):
        series[1 + column % (num_points - 1) :, column] -= column / 20
    for column, row in enumerate(zip(*best_splits(series), strict=True)):
        assert [value.item() for value in row] == pytest.approx(brute_split(series[:, column].tolist()))


def test_constants_and_short_series_have_no_split() -> None:
    _, size, share = best_splits([[1.0], [1.0], [1.0], [1.0]])
    assert (size[0], math.isnan(share[0])) == (0, True)
    place, size, share = best_splits([[1.0], [1.0], [2.0]])
    assert (place[0], math.isnan(size[0]), math.isnan(share[0])) == (-1, True, True)


@settings(max_examples=50)
@given(SERIES, st.floats(-5, 5), st.sampled_from([0.001, 3.0, 1000.0]))
def test_best_splits_ignore_shift_and_scale(series: list[int], shift: float, scale: float) -> None:
    one = np.array(series, dtype=float)[:, None] + np.linspace(0, 0.1, len(series))[:, None] ** 2
    (place, size, share), (again, scaled, same) = best_splits(one), best_splits(scale * one + shift)
    assert place == again
    assert scaled[0] == pytest.approx(scale * size[0], rel=1e-6)
    assert same[0] == pytest.approx(share[0], rel=1e-6)


def test_settings_from_a_noise_floor() -> None:
    data = followed([[-1.0, -1.5]], [-1.0], {})
    for floor, threshold, noise in ((0.0, 0.1, 0.0), (0.001, 0.1, 0.01), (0.05, 0.5, 0.5)):
        found = biographies(data, [1, 2], noise=floor)
        assert (found.threshold, found.noise) == (threshold, noise)
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
    assert (rows[0]["jump_step"], rows[0]["jump_size"]) == (10, pytest.approx(-3))
    assert rows[1]["jump_step"] is None  # a line
    assert (rows[1]["slope"], rows[1]["linearity"]) == pytest.approx((-0.06, 1))
    assert (rows[3]["slope"], rows[3]["linearity"], rows[3]["jump_step"], rows[3]["jump_size"]) == (0, None, None, None)
    assert (rows[4]["slope"], rows[4]["linearity"], rows[4]["jump_step"]) == (None, None, None)


def test_noise_is_no_reversal_and_no_jump() -> None:
    data = followed([[-1.0, -1.01, -0.99, -1.0, -1.03, -1.03, -1.03, -1.03]], [-1.0], {})
    assert biographies(DATA, STEPS, noise=0.005).reversals.tolist() == [0, 0, 3, 0, 0]
    assert [biographies(data, STEPS, noise=noise).jumps.tolist() for noise in (0.0, 0.005)] == [[4], [-1]]


def test_the_start_is_a_point_of_the_series() -> None:
    """A token that moved before the first checkpoint has its change there, which the checkpoints alone cannot show."""
    data = followed([[-3.0, -3.1, -3.0, -2.9], [0.0] * 4], [-1.0, 0.0], {})
    steps = (10, 20, 30, 40)
    assert biography_rows(data, biographies(data, steps))[0]["jump_step"] == 40
    with_start = biographies(data, steps, start_step=0)
    row = biography_rows(data, with_start)[0]
    assert (row["jump_step"], row["onset_step"]) == (10, 10)
    assert row["jump_size"] == pytest.approx(-2)
    assert row["slope"] == pytest.approx(linregress([0, *steps], [-1, -3.0, -3.1, -3.0, -2.9]).slope)


def test_the_rows_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "biographies.parquet"
    rows = biography_rows(DATA, FOUND)
    write_table(path, rows, BIOGRAPHIES_SCHEMA)
    assert [row["jump_step"] for row in read_table(path, BIOGRAPHIES_SCHEMA).to_pylist()] == [
        row["jump_step"] for row in rows
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
    assert tokens["all"].jumps.num_tokens == 1
    assert tokens["all"].jumps.share.mean == 0.5
    (jump,) = tokens["wrong_steps"].jumps.by_step
    assert jump.model_dump() == {"step": 10, "num_tokens": 1, "median_size": pytest.approx(-3)}
    assert tokens["others"].jumps.by_step == ()  # a drift is none
    dump_json(figures)


def test_few_checkpoints_have_no_jumps() -> None:
    data = followed([[-1.0, -1.0, -4.0], [0.0] * 3], [-1.0, 0.0], {})
    figures = summarise_biographies(data, biographies(data, [1, 2, 3]))
    assert figures.tokens["all"].jumps is None
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
