"""A whole study, of real trainings: killed at any time and continued, it says the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swerve.artifacts.files import read_sealed
from swerve.artifacts.study import Study, read_study
from swerve.claim.controls import controls_part
from swerve.recipes import load_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECIPE = """
name: NAME
task: {kind: addition, digits: 2, num_train: 200, num_heldout: 24, mistake_rate: 0.5}
model: MODEL
max_new_tokens: 36
stages:
  - STAGE
eval: {num_problems: 16, samples_per_problem: 2}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""
STUDY = """
name: pair
recipe: rl.yaml
seeds: 2
start: {recipe: sft.yaml}
variants:
  none: {}
  reverse: {stages.rl.kl: {kind: reward, estimator: k1, coef: 0.1}}
verdict: {measure: sampled_accuracy}
tuning: {grid: {stages.rl.optimizer.lr: [1e-4, 1e-3, 3e-3]}, trials: 2, seeds: [100, 101], num_problems: 8}
"""


@pytest.fixture
def folder(tmp_path):
    sft = "{kind: sft, steps: 150, batch_size: 24, optimizer: {lr: 4e-3, beta2: 0.95}}"
    rl = "{kind: rl, steps: 4, prompts_per_step: 6, samples_per_prompt: 4, optimizer: {lr: 1e-3}, checkpoints: [2]}"
    for name, model, stage in (("sft", "{kind: tiny}", sft), ("rl", "{kind: pretrained}", rl)):
        text = RECIPE.replace("NAME", name).replace("MODEL", model).replace("STAGE", stage)
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "pair.yaml").write_text(STUDY)
    return tmp_path


def begin(folder: Path, *arguments: str, source: str = "pair.yaml") -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "swerve", "study", source, "--jobs", "2", *arguments]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, *arguments: str, **source: str) -> str:
    process = begin(folder, *arguments, **source)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for children in /proc")
def test_a_study_killed_at_random_and_continued_gives_the_same_table(folder):
    table = finish(folder, "--out", "whole")
    draw = random.Random(int(time.time()))
    for kills_children in (True, False):
        process = begin(folder, "--out", "killed")
        time.sleep(draw.uniform(2, 10))
        doomed = [process.pid, *(children(process.pid) if kills_children and process.poll() is None else [])]
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert finish(folder, "--out", "killed") == table.replace("whole/", "killed/")
    whole, killed = folder / "whole", folder / "killed"
    assert (whole / "study.json").read_bytes() == (killed / "study.json").read_bytes()
    study = Study.model_validate(read_sealed(whole / "study.json"))
    assert [(run.variant, run.seed, run.state) for run in study.runs] == [
        (variant, seed, "trained") for variant in ("none", "reverse") for seed in (0, 1)
    ]
    weights = {run.weights_sha256 for run in study.runs}
    assert len(weights) == 4
    assert study.difference_of("accuracy", "reverse").num_seeds == 2

    # Two settings of each were tried with the first seed, one with both; those that are compared have the chosen one.
    assert sorted((trial.variant, len(trial.seeds), trial.is_chosen) for trial in study.trials) == [
        (variant, num, num == 2) for variant in ("none", "reverse") for num in (1, 2)
    ]
    for trial in study.trials:
        if trial.is_chosen:
            config = load_config(whole / "runs" / trial.variant / "seed-0" / "config.yaml")
            assert config.stages[0].optimizer.lr == trial.changes["stages.rl.optimizer.lr"]
    assert [verdict.variant for verdict in study.verdicts] == ["reverse"]


def test_a_recipe_with_controls_is_trained_and_compared(folder):
    given = ("controls=[random, inverted]", "seeds=3", "start={recipe: sft.yaml}", "stages.rl.steps=16")
    finish(folder, *given, source="rl.yaml")
    study = read_study(folder / "runs" / "studies" / "rl-controls")
    assert [run.state for run in study.runs] == ["trained"] * 9
    # The real reward teaches what the grader wants, its inverse the opposite.
    real, inverted = (study.mean_of("training_accuracy", name) for name in ("real", "control-inverted"))
    assert real.mean > inverted.mean
    assert [run.values["training_accuracy"] for run in study.runs][:3] != [0, 0, 0]
    assert [row.arm for row in controls_part(study).arms] == ["real", "control-random", "control-inverted"]
