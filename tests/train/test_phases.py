"""Phases of an RL stage: what each step is made with, and that a kill around a boundary changes nothing."""

from __future__ import annotations

import os
import signal

import pytest
from safetensors.torch import load_file

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.errors import InterruptedRunError
from swerve.recipes import load_config
from tests.builders import figures, trained_run

RECIPE = """
name: phased
seed: 5
task: {kind: addition, digits: 2, num_train: 100, num_heldout: 24, mistake_rate: 0.5}
model: {kind: pretrained, path: MODEL}
max_new_tokens: 36
stages:
  - kind: rl
    prompts_per_step: 4
    samples_per_prompt: 4
    kl: {kind: loss, estimator: k3, coef: 0.1}
    optimizer: {lr: 4e-4, schedule: linear}
    checkpoints: [1]
    STEPS
runtime: {device: cpu, threads: 1, max_rows: 64}
"""
PHASES = """phases:
      - {steps: 2}
      - {steps: 2, samples_per_prompt: 6, temperature: 1.3, lr: 2e-4, loss: clip, num_minibatches: 2}
      - {steps: 2, keep_optimizer: false, keep_reference: false, advantages: gae, kl: {coef: 0.2}}"""
BOUNDARIES = (2, 4)


@pytest.fixture(scope="module")
def phased(small_run, tmp_path_factory):
    """Return a function that loads the recipe with other lines in the place of its steps."""
    folder = tmp_path_factory.mktemp("phased")

    def load(steps=PHASES):
        path = folder / "recipe.yaml"
        path.write_text(RECIPE.replace("MODEL", str(small_run.checkpoint_path(220))).replace("STEPS", steps))
        return load_config(path)

    return load


@pytest.fixture(scope="module")
def whole(phased, tmp_path_factory):
    return trained_run(phased(), tmp_path_factory.mktemp("whole") / "run")


def _weights(run):
    return {path.parent.name: path.read_bytes() for path in run.path.glob("checkpoints/*/model.safetensors")}


def test_each_boundary_has_a_checkpoint_and_each_step_its_phase(whole):
    assert [one.label for one in whole.checkpoints] == ["rl-1", "rl-2", "rl-4", "rl-6"]
    assert [one.final for one in whole.checkpoints] == [False, False, False, True]
    records = read_metrics(whole.metrics_path)
    assert [record["phase"] for record in records] == [1, 1, 2, 2, 3, 3]
    assert [record["num_completions"] for record in records] == [16, 16, 24, 24, 16, 16]
    assert [record["value_loss"] is None for record in records] == [True] * 4 + [False] * 2
    assert [record["kl_coef"] for record in records] == [0.1] * 4 + [0.2] * 2


def test_sampling_follows_the_phase(whole):
    """The log-probabilities that were sampled with belong to the temperature of their phase."""
    gaps = [record["logprob_gap"] for record in read_metrics(whole.metrics_path)]
    assert max(gap for gap in gaps if gap is not None) < 1e-5
    rows = read_table(whole.rollouts_path(3), ROLLOUTS_SCHEMA).to_pylist()
    assert len(rows) == 24


def test_one_learning_rate_schedule_until_the_optimizer_begins_anew(whole):
    rates = [record["lr"] for record in read_metrics(whole.metrics_path) if "lr" in record]
    assert rates == pytest.approx([4e-4, 3e-4, 1e-4, 0.5e-4, 4e-4, 2e-4])


def test_the_optimizer_is_kept_or_begins_anew(whole):
    def updates(step):
        state = load_file(whole.checkpoint_path(step) / "trainer_state" / "optimizer.safetensors")
        return {int(value) for name, value in state.items() if name.endswith("/step") and "value_head" not in name}

    assert [updates(step) for step in (1, 2, 4, 6)] == [{1}, {2}, {6}, {2}]  # two minibatches in the second phase


def test_the_reference_is_kept_or_the_policy_that_the_phase_begins_with(whole):
    divergences = [record["kl"] for record in read_metrics(whole.metrics_path)]
    assert divergences[0] == pytest.approx(0.0, abs=1e-9)
    assert divergences[2] > 1e-6
    assert divergences[4] == pytest.approx(0.0, abs=1e-9)
    assert divergences[5] > 1e-9


def test_a_single_phase_is_the_stage_without_phases(phased, tmp_path):
    plain = trained_run(phased("steps: 3"), tmp_path / "plain")
    single = trained_run(phased("phases: [{steps: 3}]"), tmp_path / "single")
    assert _weights(single) == _weights(plain)
    assert [{k: v for k, v in one.items() if k != "phase"} for one in figures(single)] == figures(plain)


def _die(message="killed"):
    raise KeyboardInterrupt(message)


@pytest.mark.parametrize(
    ("boundary", "place", "after"),
    [
        pytest.param(boundary, place, after, id=f"{words} {boundary}", marks=() if is_quick else pytest.mark.slow)
        for boundary in BOUNDARIES
        for words, place, after, is_quick in (
            ("before the last step", "judge_grading", -1, False),
            ("before the boundary's checkpoint", "judge_grading", 0, boundary == BOUNDARIES[0]),
            ("after it", "tidy", 0, boundary == BOUNDARIES[1]),
            ("in the next phase", "judge_grading", 1, False),
        )
    ],
)
def test_killed_around_a_boundary_and_resumed_gives_the_same_bytes(
    phased, whole, tmp_path, monkeypatch, boundary, place, after
):
    from swerve.train import checkpointer, loop

    module, step = checkpointer if place == "tidy" else loop, boundary + after
    real = getattr(module, place)

    def dying(*arguments, **keywords):
        done = real(*arguments, **keywords)
        # A run that begins is tidied too, before it has a checkpoint.
        now = getattr(arguments[1], "step", None) if place == "tidy" else arguments[1][-1]["stage_step"]
        return _die() if now == step else done

    monkeypatch.setattr(module, place, dying)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        trained_run(phased(), tmp_path / "run")
    monkeypatch.undo()
    run = trained_run(phased(), tmp_path / "run", resume=True)
    assert _weights(run) == _weights(whole)
    assert figures(run) == figures(whole)


@pytest.mark.parametrize("step", [3, 5])
def test_interrupted_inside_a_phase_and_resumed_gives_the_same_bytes(phased, whole, tmp_path, monkeypatch, step):
    import swerve.train.loop as loop

    real = loop.judge_grading

    def interrupted(stage, records):
        if records[-1]["stage_step"] == step:
            os.kill(os.getpid(), signal.SIGINT)
        return real(stage, records)

    monkeypatch.setattr(loop, "judge_grading", interrupted)
    with pytest.raises(InterruptedRunError, match=f"interrupted after step {step}"):
        trained_run(phased(), tmp_path / "run")
    monkeypatch.undo()
    run = trained_run(phased(), tmp_path / "run", resume=True)
    assert _weights(run) == _weights(whole)
    assert figures(run) == figures(whole)


_STOPPED = """stages:
  - kind: sft
    steps: 12
    batch_size: 8
    validation_share: 0.2
    validate_every: 1
    early_stopping: {patience: 2}
    optimizer: {lr: 2e-2}
"""


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_stop_early_and_make_the_phases_as_one_does(on_two_processes, phased, tmp_path):
    path = tmp_path / "recipe.yaml"
    recipe = RECIPE.replace("stages:\n", _STOPPED).replace("STEPS", PHASES).replace("num_train: 100", "num_train: 400")
    path.write_text(recipe.replace("MODEL", str(phased().model.path)))
    alone = trained_run(load_config(path), tmp_path / "alone")
    on_two_processes("-m", "swerve", "train", path, "--out", tmp_path / "together")
    together = RunDirectory(tmp_path / "together")
    assert [one.label for one in together.checkpoints] == [one.label for one in alone.checkpoints]
    records = figures(alone)
    assert [one["stage"] for one in records].count("sft") < 12  # it stopped early
    for one, two in zip(records, figures(together), strict=True):
        for name, value in one.items():
            if name != "logprob_gap":  # rounding itself
                expected = pytest.approx(value, rel=2e-3, abs=1e-4) if isinstance(value, float) else value
                assert two[name] == expected, (one["stage"], one["stage_step"], name)
