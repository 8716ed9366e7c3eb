"""What a study expects of curves and differences, answered from literal runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from swerve.errors import ConfigError
from swerve.recipes.loader import load_document
from swerve.study.compare import compare_runs
from swerve.study.study_file import Expectation, StudyFile
from swerve.study.trends import tokens_at_equal_accuracy


def study(*expected: dict[str, Any]) -> StudyFile:
    return StudyFile(
        name="s", recipe="r", variants={"base": {}, "spo": {}}, seeds=(0, 1, 2),
        expected=tuple(Expectation(**each) for each in expected),
    )  # fmt: skip


def line(*knots: float, seed: int, num: int = 60) -> dict[int, float]:
    values = np.interp(np.linspace(0, 1, num), np.linspace(0, 1, len(knots)), knots)
    noise = np.random.default_rng(seed).normal(0, 0.02, num)
    return {step: float(value) for step, value in enumerate(values + noise, start=1)}


def test_a_shape_is_shown_where_most_runs_have_it(measured) -> None:
    runs = [
        measured("base", 0, "10", {"loss": line(0.5, 0.5, seed=1)}),
        measured("spo", 0, "10", {"loss": line(0.2, 0.8, 0.4, seed=2)}),
        measured("spo", 1, "10", {"loss": line(0.2, 0.8, 0.4, seed=3)}),
        measured("spo", 2, "10", {"loss": line(0.2, 0.8, seed=4)}),
    ]
    asked = study(
        {"variants": ["spo"], "measure": "loss", "shape": "up_then_down"},
        {"variants": ["spo", "base"], "measure": "loss", "shape": "rises"},
        {"variants": ["base"], "measure": "loss", "shape": "not_rising"},
        {"variants": ["base"], "measure": "training_accuracy", "shape": "rises"},
    )
    turns, rises, flat, not_rising, unmeasured = compare_runs(asked, runs).trends
    assert (turns.is_shown, turns.num_shown, turns.num_runs) == (True, 2, 3)
    assert turns.levels == pytest.approx((0.24, 0.77, 0.55), abs=0.03)
    assert turns.turn == pytest.approx((30 + 30 + 57) / 3, abs=6)
    # The change is the last level less the first, by Student's t over the three seeds.
    ends = [0.2, 0.2, 0.5]
    assert turns.change is not None
    assert turns.change.mean == pytest.approx(np.mean(ends), abs=0.05)
    reach = student.ppf(0.975, 2) * np.std(ends, ddof=1) / 3**0.5
    assert turns.change.high - turns.change.mean == pytest.approx(reach, abs=0.12)
    assert (rises.is_shown, rises.num_shown) == (False, 1)
    assert (flat.is_shown, flat.change) == (False, None)  # one run has no interval over seeds
    assert not_rising.is_shown
    assert (unmeasured.is_shown, unmeasured.num_runs) == (None, 0)


def test_only_the_last_stage_counts(measured) -> None:
    curve = {**line(0.9, 0.1, seed=5, num=30), **{step + 30: value for step, value in line(0.1, 0.5, seed=6).items()}}
    run = measured("spo", 0, "10", {"loss": curve})
    asked = study({"variants": ["spo"], "measure": "loss", "shape": "rises"})
    assert not compare_runs(asked, [run]).trends[0].is_shown
    (trend,) = compare_runs(asked, [replace(run, begins=30)]).trends
    assert trend.is_shown
    assert trend.levels == pytest.approx((0.13, 0.47, 0.47), abs=0.04)


def test_a_difference_is_shown_by_its_interval_over_seeds(measured) -> None:
    runs = [
        *(measured("base", seed, "1000", entropy=value) for seed, value in enumerate((0.5, 0.6, 0.4))),
        *(measured("spo", seed, "1100", entropy=value) for seed, value in enumerate((0.8, 0.9, 0.8))),
    ]
    asked = study(
        {"variants": ["spo"], "measure": "entropy", "shape": "higher"},
        {"variants": ["spo"], "measure": "entropy", "shape": "lower"},
        {"variants": ["spo"], "measure": "entropy", "shape": "no_difference_shown"},
        {"variants": ["spo"], "measure": "similarity", "shape": "lower"},
    )
    higher, lower, alike, unmeasured = compare_runs(asked, runs).trends
    assert [higher.is_shown, lower.is_shown, alike.is_shown, unmeasured.is_shown] == [True, False, False, None]
    assert higher.change.mean == pytest.approx(1 / 3)
    assert (higher.num_runs, higher.num_shown) == (3, None)


def test_tokens_at_equal_accuracy_are_the_fewest_that_reach_it(measured) -> None:
    base = measured("base", 0, "10", {"accuracy": {0: 0.2, 10: 0.6, 20: 0.8}, "length": {0: 100, 10: 200, 20: 150}})
    spo = measured("spo", 0, "10", {"accuracy": {0: 0.4, 10: 0.6, 20: 0.5}, "length": {0: 80, 10: 120, 20: 100}})
    # Levels from .4 to .6: the baseline's last point has 150 at all; the other 80 at .4, 100 to .5, 120 above.
    levels = np.linspace(0.4, 0.6, 20)
    own = [80 if level <= 0.4 else 100 if level <= 0.5 else 120 for level in levels]
    assert tokens_at_equal_accuracy(base, spo) == pytest.approx(np.mean(own) - 150)
    assert tokens_at_equal_accuracy(spo, base) == pytest.approx(150 - np.mean(own))
    late = measured("spo", 0, "10", {"accuracy": {0: 0.9, 10: 0.95}, "length": {0: 80, 10: 120}})
    assert tokens_at_equal_accuracy(base, late) is None
    assert tokens_at_equal_accuracy(base, measured("spo", 0, "10")) is None


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ("[{variants: [spoo], measure: loss, shape: rises}]", r"variant 'spoo' that there is not; did you mean 'spo'"),
        ("[{variants: [spo], measure: los, shape: rises}]", r"no curve 'los' that is 'rises'; did you mean 'loss'"),
        ("[{variants: [spo], measure: loss, shape: lower}]", r"no measure 'loss' that is 'lower than the baseline'"),
        ("[{variants: [spo], measure: loss, shape: up}]", r"up_then_down"),
    ],
)  # fmt: skip
def test_what_cannot_be_expected_is_refused(expected: str, message: str, tmp_path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nrecipe: demo_addition\nvariants: {base: {}, spo: {}}\n")
    with pytest.raises(ConfigError, match=message):
        load_document(StudyFile, str(path), [f"expected={expected}"], use="study")
