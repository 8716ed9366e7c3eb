"""Processes that are really killed, and runs that end with the same weights, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from swerve.artifacts.metrics import read_metrics, truncate_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table
from swerve.progress import SilentProgress
from swerve.train import train


def _begun(whole, path) -> RunDirectory:
    """Copy a run as it was when killed after its first checkpoint."""
    shutil.copytree(whole.path, path, ignore=shutil.ignore_patterns("rollouts", "eval"))
    run = RunDirectory(path)
    first, *others = run.checkpoints()
    for checkpoint in others:
        run.remove_checkpoint(checkpoint)
    truncate_metrics(run.metrics_path, last_step=first.step)
    return run


def _start(*arguments) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "swerve", "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _wait_for_step(process, run, step):
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if run.metrics_path.exists() and run.metrics_path.read_bytes().count(b"\n") >= step:
            return
        time.sleep(0.002)
    raise AssertionError(f"step {step} was not reached: {process.communicate()}")


def _kill_at(run, step, *arguments, number=signal.SIGKILL):
    process = _start(*arguments)
    _wait_for_step(process, run, step)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def _fingerprints(run):
    return {checkpoint.label: checkpoint.weights_sha256 for checkpoint in run.checkpoints() if checkpoint.scheduled}


def _figures(run):
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in read_metrics(run.metrics_path)
    ]


def _same_as(run, expected):
    assert _fingerprints(run) == _fingerprints(expected)
    assert _figures(run) == _figures(expected)
    for step in range(223, 227):
        assert read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA) == read_table(
            expected.rollouts_path(step), ROLLOUTS_SCHEMA
        )
    assert not list(run.path.rglob(".tmp-*"))


@pytest.mark.slow
def test_killed_twice_and_resumed_gives_the_same_weights(small_recipe, small_run, tmp_path):
    run = RunDirectory(tmp_path / "run")
    status, _ = _kill_at(run, 130, small_recipe, "--out", run.path)
    assert status == -signal.SIGKILL
    assert [checkpoint.label for checkpoint in run.checkpoints()] == ["sft-100"]
    status, errors = _kill_at(run, 223, run.path, "--resume")
    assert status == -signal.SIGKILL
    assert "continuing after sft-100 (step 100)" in errors
    finished = _start(run.path, "--resume")
    _, errors = finished.communicate(timeout=120)
    assert finished.returncode == 0, errors
    _same_as(run, small_run)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_interrupted_saves_and_resumes(small_config, small_run, tmp_path, number, status):
    run = _begun(small_run, tmp_path / "run")
    found, errors = _kill_at(run, 130, run.path, "--resume", number=number)
    assert found == status
    _, checkpoint = run.checkpoints()
    assert not checkpoint.scheduled
    assert errors.splitlines()[-1].startswith(
        f"swerve: interrupted after step {checkpoint.step}; its checkpoint is saved; continue with: swerve train "
    )
    assert run.read_provenance()["status"] == "interrupted"
    train(small_config, run, resume=True, progress=SilentProgress())
    _same_as(run, small_run)


def test_interrupted_before_the_first_update_of_a_stage(small_recipe, tmp_path):
    """A signal while preference pairs are sampled, which takes long here because there are none to be found."""
    run = RunDirectory(tmp_path / "run")
    endless = ["stages.sft.steps=2", "stages.dpo.max_prompts=1000000"]
    process = _start(small_recipe, *endless, "--out", run.path)
    _wait_for_step(process, run, 2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted after step 2; its checkpoint is saved" in errors.splitlines()[-1]
    assert run.read_provenance()["status"] == "interrupted"


@pytest.mark.slow
def test_interrupted_leaves_no_spare_checkpoint_once_resumed(small_recipe, small_config, tmp_path):
    run = RunDirectory(tmp_path / "run")
    _kill_at(run, 30, small_recipe, "--out", run.path, number=signal.SIGINT)
    (spare,) = run.checkpoints()
    train(small_config, run, resume=True, progress=SilentProgress())
    assert spare.path not in [checkpoint.path for checkpoint in run.checkpoints()]


class _Notes(SilentProgress):
    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


@pytest.mark.parametrize("file", ["model.safetensors", "trainer_state/optimizer.safetensors", "MANIFEST.json"])
def test_a_damaged_checkpoint_is_passed_over_loudly(small_config, small_run, tmp_path, file):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    run = RunDirectory(path)
    target = run.checkpoint_path(226) / file
    raw = bytearray(target.read_bytes())
    raw[len(raw) // 2] ^= 4
    target.write_bytes(raw)
    progress = _Notes()
    train(small_config, run, resume=True, progress=progress)
    assert any("passing over" in note and "step_000226" in note for note in progress.notes)
    _same_as(run, small_run)


def test_a_damaged_checkpoint_in_the_middle_is_made_again(small_config, small_run, tmp_path):
    shutil.copytree(small_run.path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    (run.checkpoint_path(224) / "model.safetensors").write_bytes(b"")
    train(small_config, run, resume=True, progress=SilentProgress())
    _same_as(run, small_run)


def test_resumed_figures_are_the_same_to_the_last_bit_for_a_width_that_is_no_power_of_two(tmp_path):
    """Weights mapped from a file are not aligned, and unaligned operands round otherwise: the figures showed it."""
    from swerve.recipes import load_config

    recipe = tmp_path / "width48.yaml"
    recipe.write_text(WIDTH_48)
    config = load_config(recipe)
    expected = RunDirectory(tmp_path / "expected")
    train(config, expected, resume=False, progress=SilentProgress())
    run = RunDirectory(tmp_path / "run")
    stopped = config.model_copy(update={"stages": config.stages[:1]})
    train(stopped, run, resume=False, progress=SilentProgress())
    train(config, run, resume=True, progress=SilentProgress())
    assert _figures(run) == _figures(expected)


WIDTH_48 = """
name: width48
task: {kind: addition, digits: 2, num_train: 400, num_heldout: 4}
model: {kind: tiny, hidden_size: 48, intermediate_size: 96}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 40, batch_size: 8, optimizer: {lr: 4e-3}}
  - {kind: rl, steps: 4, prompts_per_step: 16, samples_per_prompt: 4, optimizer: {lr: 1e-4}}
runtime: {device: cpu, threads: 1}
"""

MICRO = """
name: micro
task: {kind: addition, digits: 2, num_train: 50, num_heldout: 4}
model: {kind: tiny, hidden_size: 16, num_heads: 2, num_kv_heads: 1, num_layers: 1, intermediate_size: 16}
stages:
  - {kind: sft, steps: 4, batch_size: 2, save_every: 1, optimizer: {lr: 1e-3}}
runtime: {device: cpu, threads: 1}
"""


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_call_that_touches_the_disk(tmp_path, stride):
    """A forked child dies at its N-th fsync, rename or replace; each time the resumed run ends the same."""
    from swerve.artifacts import files
    from swerve.recipes import load_config

    recipe = tmp_path / "micro.yaml"
    recipe.write_text(MICRO)
    config = load_config(recipe)
    expected = RunDirectory(tmp_path / "expected")
    train(config, expected, resume=False, progress=SilentProgress())
    points = 0
    for point in range(1, 1000, stride):
        run = RunDirectory(tmp_path / f"run{point}")
        if not _train_in_a_fork_that_dies(config, run, files, point):
            break
        points += 1
        train(config, run, resume=True, progress=SilentProgress())
        assert _fingerprints(run) == _fingerprints(expected)
        assert _figures(run) == _figures(expected)
    assert points > 40 / stride


def _train_in_a_fork_that_dies(config, run, files, point) -> bool:
    """Return whether the child was killed at its `point`-th call, rather than finishing first."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)
    calls = 0

    def counting(function):
        def wrapper(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return wrapper

    try:
        for name in ("fsync", "rename", "replace"):
            setattr(files.os, name, counting(getattr(os, name)))
        train(config, run, resume=False, progress=SilentProgress())
    finally:
        os._exit(0)
