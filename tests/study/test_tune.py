"""Grids, the settings drawn from them, halving, and the runs of a tuned study, without training any."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest

from swerve.artifacts.study import StudyRun
from swerve.errors import ConfigError
from swerve.study.job import StudyJob
from swerve.study.measure import MeasuredRun
from swerve.study.plan import plan_study
from swerve.study.tune import Tuning, better_half, chosen

STUDY = """
name: kl
recipe: small.yaml
set: {eval.num_problems: 12}
seeds: 2
variants:
  none: {}
  reverse: {stages.rl.kl: {kind: reward, estimator: k1, coef: 0.1}}
verdict: {measure: accuracy}
tuning:
  grid: {stages.rl.optimizer.lr: [1e-3, 2e-3]}
  own:
    none: {stages.rl.optimizer.lr: [1e-3, 2e-3, 3e-3, 4e-3]}
    reverse: {stages.rl.optimizer.lr: [1e-3, 2e-3], stages.rl.kl.coef: [0.1, 0.2]}
  trials: 3
  seeds: [100, 101, 102]
  num_problems: 12
"""


def test_a_grid_is_every_combination_and_a_variant_may_have_its_own():
    tuning = Tuning(grid={"a": (1, 2), "b": (5,)}, own={"x": {"b": (7, 8, 9), "c": (0, None)}}, seeds=(3,))
    assert tuning.settings("y") == [{"a": 1, "b": 5}, {"a": 2, "b": 5}]
    assert [tuple(one.values()) for one in tuning.settings("x")] == list(product((7, 8, 9), (0, None)))


def test_variants_of_one_grid_try_the_same_settings_and_more_trials_try_those_of_fewer():
    few, more = (Tuning(grid={"a": tuple(range(9))}, trials=num, seeds=(0,)) for num in (4, 6))
    assert few.drawn("x") == few.drawn("y")
    assert len(few.drawn("x")) == 4
    assert set(few.drawn("x")) < set(more.drawn("x")) < set(range(9))
    assert Tuning(grid={"a": (1, 2, 3)}, seeds=(0,)).drawn("x") == [0, 1, 2]
    # Other grids draw others: over many, each setting about as often.
    draws = [
        Tuning(grid={"a": tuple(range(first, first + 9))}, trials=6, seeds=(0,)).drawn("x") for first in range(300)
    ]
    assert all(150 < sum(number in drawn for drawn in draws) < 250 for number in range(9))


@pytest.mark.parametrize(("trials", "num_seeds", "expected"), [(6, 2, (6, 3)), (9, 3, (9, 5, 3)), (1, 2, (1, 1))])
def test_each_seed_halves_the_settings(trials, num_seeds, expected):
    tuning = Tuning(grid={"a": tuple(range(9))}, trials=trials, seeds=tuple(range(num_seeds)))
    assert tuning.num_by_seed == expected
    left = {number: [0.1 * number] for number in tuning.drawn("x")}
    for num in expected[1:]:
        left = {number: left[number] for number in better_half(left)}
        assert len(left) == num
    assert chosen(left) == max(left)


@pytest.fixture
def folder(small_recipe, tmp_path, monkeypatch):
    """A folder with a recipe and a study of it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_recipe, tmp_path / "small.yaml")
    (tmp_path / "kl.yaml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def finish(monkeypatch):
    """Pretend that runs are done, each with an accuracy; None: it collapsed before its first evaluation."""
    done: dict[Path, float | None] = {}

    def measure(path, *, variant, seed, shown_path):
        accuracy = done[path]
        values = {} if accuracy is None else {"accuracy": accuracy, "entropy": 2 * accuracy}
        return MeasuredRun(run=StudyRun(variant=variant, seed=seed, path=shown_path, state="trained", values=values))

    monkeypatch.setattr(StudyJob, "next_step", lambda job: None if job.run.path in done else "train")
    monkeypatch.setattr("swerve.study.plan.measure_run", measure)
    return lambda job, accuracy: done.update({job.run.path: accuracy})


def plan(*overrides):
    return plan_study("kl.yaml", overrides, out=None, runs=Path("runs"))


def test_settings_are_tried_halved_and_chosen_before_anything_is_compared(folder, finish):
    first = plan()
    assert [first.num_jobs, len(first.tuning), first.jobs, first.trials] == [2 * (3 + 2 + 1 + 2), 6, (), ()]
    assert {job.seed for job in first.tuning} == {100}
    numbers = [int(job.name.split("/")[2].removeprefix("setting-")) for job in first.tuning if job.variant == "none"]
    by_number = {1: 0.5, 2: 0.7, 3: 0.6, 4: 0.4}
    for job, number in zip(first.tuning, numbers, strict=False):
        finish(job, by_number[number])

    # The two better ones of three go on with the next seed; the other variant waits for its own.
    second = plan()
    better = sorted(sorted(numbers, key=lambda number: -by_number[number])[:2])
    added = [job for job in second.tuning if job.seed == 101]
    assert [job.name for job in added] == [f"tuning/none/setting-{number}/seed-101" for number in better]
    assert {job.config.stages[-1].optimizer.lr for job in added} == {number * 1e-3 for number in better}
    assert [trial.number for trial in second.trials] == numbers

    # The third seed has one; it is taken, whatever it does there.
    finish(added[0], 0.2)
    finish(added[1], None)
    (last,) = [job for job in plan().tuning if job.seed == 102]
    assert last.name == f"tuning/none/setting-{better[0]}/seed-102"
    finish(last, 0.0)
    found = plan()
    assert [(job.name, job.seed) for job in found.jobs] == [("none/seed-0", 0), ("none/seed-1", 1)]
    assert {job.config.stages[-1].optimizer.lr for job in found.jobs} == {better[0] * 1e-3}
    (taken,) = [trial for trial in found.trials if trial.is_chosen]
    assert (taken.number, taken.seeds) == (better[0], (100, 101, 102))
    assert taken.values == {
        "accuracy": pytest.approx((by_number[better[0]] + 0.2) / 3),
        "entropy": pytest.approx(2 * (by_number[better[0]] + 0.2) / 3),
    }


def test_settings_are_judged_on_problems_behind_those_of_the_verdict(folder, finish):
    first = plan()
    assert {(job.config.eval.skip, job.config.eval.num_problems) for job in first.tuning} == {(12, 12)}
    for job in first.tuning:
        finish(job, 0.5)
    for job in plan().tuning:
        finish(job, 0.5)
    for job in plan().tuning:
        finish(job, 0.5)
    assert {(job.config.eval.skip, job.config.eval.num_problems) for job in plan().jobs} == {(0, 12)}
    with pytest.raises(ConfigError, match=r"num_heldout is 24, and the verdict takes 12 .*num_heldout=32"):
        plan("tuning.num_problems=20")


def test_runs_are_selected_by_the_phase_they_belong_to(folder, finish):
    first = plan()
    assert first.select(["tuning"]) == first.tuning
    assert first.select(["tuning/none"]) == first.select(["none"]) == first.tuning[:3]
    with pytest.raises(ConfigError, match=r"'none/seed-0': .* before its settings are chosen; do --only tuning/none"):
        first.select(["none/seed-0"])
    with pytest.raises(ConfigError, match="'nnone': the study has no such run"):
        first.select(["nnone"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[100, 101, 102]", "[1, 2]", r"kl\.yaml:10: 'tuning': seeds \[1\] are also those of the study"),
        ("[100, 101, 102]", "[5, 5]", r"kl\.yaml:16: 'tuning\.seeds': a seed is given twice"),
        ("trials: 3", "trials: 5", "variant 'none' has a grid of 4 settings, and trials are 5"),
        ("    reverse: {stages.rl.op", "    revrse: {stages.rl.op", "own: .* 'revrse'; did you mean 'reverse'"),
        ("[0.1, 0.2]}\n  trials: 3", "[0.1]}", r"grids of different sizes \(none 4, reverse 2\); give trials"),
        ("verdict: {measure: accuracy}\n", "", r"'tuning': .*give verdict: \{measure: accuracy\}"),
        ("measure: accuracy", "measure: entropy", "'verdict.measure' must be one of 'accuracy', 'sampled_accuracy'"),
        ("measure: accuracy", "measure: accuracy, margin: 0", r"verdict\.margin.*greater than 0"),
        ("coef: [0.1", "cof: [0.1", r"kl\.yaml: variant 'reverse': .*cof"),
    ],
)  # fmt: skip
def test_errors_name_the_place(folder, old, new, message):
    assert old in STUDY
    (folder / "kl.yaml").write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        plan()
