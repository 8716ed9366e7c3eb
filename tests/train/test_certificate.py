"""A run's checkpoints come out of its rollouts alone, and what was changed is named at the next one."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import swerve
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table, write_table
from swerve.cli.app import run_command
from swerve.errors import ArtifactError, CheckpointError, ConfigError, MismatchError
from swerve.recipes import load_config
from swerve.train.certificate import ReplayedCheckpoint, _causes
from swerve.world import World
from tests.builders import trained_run

RL = {"kind": "rl", "steps": 4, "prompts_per_step": 4, "samples_per_prompt": 4, "optimizer": {"lr": 1e-3}}
KL = {"kind": "loss", "estimator": "k3", "coef": 0.1, "target": 0.01, "horizon": 500}
STAGES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "adaptive KL, three updates a step, sampled ahead": (
        [{**RL, "kl": KL, "loss": "clip", "num_minibatches": 3, "zero_variance": "keep", "checkpoints": [1, 3]}],
        {"rollout": {"ahead": 1}},
    ),
    "phases with other references and optimizers": (
        [
            {
                **{key: value for key, value in RL.items() if key != "steps"},
                "kl": {"kind": "reward", "coef": 0.1},
                "phases": [
                    {"steps": 2},
                    {"steps": 1, "samples_per_prompt": 6, "temperature": 1.3, "keep_reference": True},
                    {"steps": 2, "keep_optimizer": False, "keep_reference": False, "advantages": "gae"},
                ],
            },
        ],
        {},
    ),
    "a stage after another, refills, a curriculum, votes": (
        [
            {**RL, "name": "first", "zero_variance": "refill", "max_refills": 2, "curriculum": "success_rate"},
            {**RL, "name": "second", "reward": "majority", "entropy": {"coef": 0.01, "target": 0.5}},
        ],
        {},
    ),
    "selected completions with early stopping, a teacher": (
        [
            {"kind": "reject", "steps": 12, "batch_size": 4, "num_prompts": 24, "samples_per_prompt": 2,
             "optimizer": {"lr": 5e-1}, "validation_share": 0.3, "validate_every": 2,
             "early_stopping": {"patience": 1}},
            {"kind": "distill", "steps": 2, "prompts_per_step": 2, "teacher": "reject", "optimizer": {"lr": 1e-3}},
        ],
        {},
    ),
    "an adapter": (
        [{"kind": "dpo", "steps": 1, "batch_size": 4, "max_prompts": 64, "optimizer": {"lr": 1e-3}}, RL],
        {"lora": {"rank": 4, "alpha": 8}},
    ),
}  # fmt: skip


@pytest.fixture
def run_of(small_run: RunDirectory, tmp_path: Path) -> Callable[..., RunDirectory]:
    """Return a function that trains stages from the supervised model of the small run."""

    def recipe(stages: list[dict[str, Any]], keys: dict[str, Any]) -> Path:
        rest = dict(keys)
        model = {"kind": "pretrained", "path": str(small_run.checkpoint_path(220)), "lora": rest.pop("lora", None)}
        document = {
            "name": "replayed",
            "seed": 5,
            "task": {"kind": "addition", "digits": 2, "num_train": 400, "num_heldout": 24, "mistake_rate": 0.5},
            "model": model,
            "max_new_tokens": 36,
            "stages": stages,
            "runtime": {"device": "cpu", "threads": 1, "max_rows": 64, **rest.pop("runtime", {})},
            **rest,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def trained(stages: list[dict[str, Any]], keys: dict[str, Any], *, on: Any = None) -> RunDirectory:
        path = recipe(stages, keys)
        if on is None:
            return trained_run(load_config(path), tmp_path / "run")
        on("-m", "swerve", "train", path, "--out", tmp_path / "run")
        return RunDirectory(tmp_path / "run")

    return trained


@pytest.fixture
def copied(small_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(small_run.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def changed(run: RunDirectory, step: int, change: Callable[[list[dict[str, Any]]], None]) -> None:
    path = run.rollouts_path(step)
    rows = read_table(path, ROLLOUTS_SCHEMA).to_pylist()
    change(rows)
    write_table(path, rows, ROLLOUTS_SCHEMA)


def files_of(run: RunDirectory) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_the_last_stage_comes_out_of_its_rollouts_and_nothing_is_written(small_run: RunDirectory) -> None:
    before = files_of(small_run)
    certificate = swerve.replay(small_run, start="dpo")
    assert [(one.label, one.is_equal, one.max_difference) for one in certificate.checkpoints] == [
        ("rl-2", True, 0.0),
        ("rl-4", True, 0.0),
    ]
    assert (certificate.num_steps, certificate.num_rollouts, certificate.start) == (4, 4 * 6 * 4, "dpo-2")
    assert str(certificate).startswith(
        "2 of 2 checkpoints equal, bit for bit, without an engine (4 steps from dpo-2, 96"
    )
    assert files_of(small_run) == before


@pytest.mark.slow
def test_all_stages_come_out_from_the_beginning(small_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["replay", str(small_run.path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    labels = [checkpoint["label"] for checkpoint in said["checkpoints"]]
    assert labels == ["sft-100", "sft-220", "dpo-2", "rl-2", "rl-4"]
    assert (said["num_steps"], said["start"], said["first_difference"]) == (226, "base", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_every_kind_of_stage_comes_out(run_of: Callable[..., RunDirectory], name: str) -> None:
    if name == "an adapter":
        pytest.importorskip("peft")
    run = run_of(*STAGES[name])
    certificate = swerve.replay(run)
    assert str(certificate).startswith(f"{len(run.checkpoints)} of {len(run.checkpoints)} checkpoints equal"), (
        certificate
    )
    if "adaptive" in name:  # the coefficient did move, and the rollouts are one step old
        lines = read_metrics(run.metrics_path)
        assert len({line["kl_coef"] for line in lines}) == 4
        assert lines[-1]["staleness"] == 1.0
        # From within the stage, with its optimizer and what adapted.
        assert len(swerve.replay(run, start=1).checkpoints) == len(run.checkpoints) - 1
    if "early" in name:
        assert read_metrics(run.metrics_path)[-3]["stage_step"] < 12


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_and_a_divided_model(run_of: Callable[..., RunDirectory], on_two_processes: Any) -> None:
    stages = [{**RL, "kl": KL, "loss": "clip", "num_minibatches": 2, "checkpoints": [2]}]
    run = run_of(stages, {"runtime": {"sharding": {"kind": "fsdp"}}}, on=on_two_processes)
    said = on_two_processes("-m", "swerve", "replay", run.path).stdout
    assert said.startswith("2 of 2 checkpoints equal, bit for bit")
    # One process adds in another order, and says so.
    alone = swerve.replay(run)
    if (different := alone.first_difference) is not None:
        assert 0 < different.max_difference < 1e-4
        assert "num processes: the run has [2], this replay [1]" in alone.causes


def _verdict(row: dict[str, Any], rng: random.Random) -> None:
    row.update(reward=float(not row["correct"]), correct=not row["correct"], status="graded", answered=True)


def _token(row: dict[str, Any], rng: random.Random) -> None:
    place = rng.randrange(len(row["completion_ids"]))
    row["completion_ids"][place] = rng.choice(
        [token for token in range(2, 12) if token != row["completion_ids"][place]]
    )


def _logprob(row: dict[str, Any], rng: random.Random) -> None:
    row["logprobs"][rng.randrange(len(row["logprobs"]))] += rng.choice([-1, 1]) * 1e-4


CHANGES = {"verdict": _verdict, "token": _token, "logprob": _logprob}


@pytest.mark.slow
def test_thirty_random_changes_are_each_named_at_the_next_checkpoint(copied: RunDirectory) -> None:
    rng, labels = random.Random(0), {1: "rl-2", 2: "rl-2", 3: "rl-4", 4: "rl-4"}
    for number in range(30):
        step, change = rng.randint(1, 4), list(CHANGES.values())[number % 3]
        path = copied.rollouts_path(222 + step)
        whole = path.read_bytes()
        changed(copied, 222 + step, lambda rows, change=change: change(rng.choice(rows), rng))
        different = swerve.replay(copied, start="dpo").first_difference
        assert different is not None, number
        assert different.label == labels[step]
        assert f"step {222 + step} (rl-{step})" in different.findings[0]
        path.write_bytes(whole)


def test_a_changed_verdict_is_named_with_an_exit_status(
    copied: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(copied, 225, lambda rows: _verdict(rows[5], random.Random(0)))
    with pytest.raises(MismatchError, match="copy: rl-4 is not what its rollouts give"):
        run_command(["replay", str(copied.path), "--from", "rl-2"])
    said = capsys.readouterr().out
    assert said.startswith("0 of 1 checkpoints equal")
    assert "rl-4 differs:" in said
    assert "step 225 (rl-3): reward is" in said
    assert "  the rollouts, the metrics or the checkpoint that are named above were changed" in said


@pytest.mark.parametrize(
    ("difference", "first"),
    [(3e-9, "torch version: the run has 1.0"), (3e-5, "the rollouts, the"), (0.0, "the rollouts")],
)
def test_of_a_difference_like_rounding_another_version_is_named_before_a_change(
    copied: RunDirectory, monkeypatch: pytest.MonkeyPatch, difference: float, first: str
) -> None:
    monkeypatch.setattr(RunDirectory, "read_provenance", lambda run: {"torch_version": "1.0"})
    found = ReplayedCheckpoint(
        label="rl-4", step=226, max_difference=difference, num_different=1, findings=("step 225: grad_norm is 1",)
    )
    causes = list(_causes(found, load_config(copied), copied, World()))
    assert causes[0].startswith(first)
    # Rounding is also what another processor makes.
    assert len(causes) == (3 if difference == 3e-9 else 2)
    assert any("another processor" in cause for cause in causes) == (difference == 3e-9)
    assert causes[-1].startswith("the rollouts") == (difference == 3e-9)


def test_a_changed_checkpoint_and_a_changed_log_are_named(copied: RunDirectory) -> None:
    weights = copied.checkpoint_path(226) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    lines = copied.metrics_path.read_text().splitlines()
    lines[-1] = lines[-1].replace('"reward": ', '"reward": 1')
    copied.metrics_path.write_text("\n".join(lines) + "\n")
    different = swerve.replay(copied, start="rl-2").first_difference
    assert different is not None
    metric, log, file = different.findings
    assert metric.startswith("step 226 (rl-4): reward is 1")
    assert f"{copied.metrics_path} was " in log
    assert f"{weights} is damaged" in file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(3), "does not have 4 rows, sample 0 to 3, of each group"),
        (lambda rows: [row.update(group=row["group"] + 90) for row in rows], "does not have 4 rows"),
        (lambda rows: rows[0].update(completion_ids=[2, 10**6]), "tokens and"),
        (lambda rows: rows[0]["completion_ids"].__setitem__(0, 10**6), "a token id is not one of the model's, 0 to"),
        (lambda rows: rows[0].update(reward=None), "its verdict cannot be: a reward has a value exactly when"),
        (lambda rows: rows[0].update(logprobs=None), "tokens and 0 log-probabilities"),
        (lambda rows: rows[0].update(reward=math.nan), "its reward is nan, not a finite number"),
        (lambda rows: [row["prompt_ids"].reverse() for row in rows[:4]], "`prompt_ids` are not those of its problem"),
    ],
)
def test_rows_that_cannot_be(copied: RunDirectory, change: Callable[..., None], message: str) -> None:
    changed(copied, 223, change)
    with pytest.raises(ArtifactError, match=message) as caught:
        swerve.replay(copied, start="dpo")
    assert "step_000223.parquet" in str(caught.value)


def test_what_cannot_be_replayed(copied: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a replay keeps 'seed'.*train another run with it"):
        swerve.replay(copied, "seed=7", start="dpo")
    with pytest.raises(CheckpointError, match="has no checkpoint 'rl-3'; it has sft-100, sft-220"):
        swerve.replay(copied, start=3)
    with pytest.raises(ArtifactError, match="has no checkpoint after rl-4: there is nothing to compare"):
        swerve.replay(copied, start="rl")
    shutil.rmtree(copied.checkpoint_path(224) / "trainer_state")
    with pytest.raises(CheckpointError, match=r"rl-2 .* has no optimizer state .*: sft-100, sft-220, dpo-2, rl-4"):
        swerve.replay(copied, start="rl-2")
    copied.rollouts_path(224).unlink()
    with pytest.raises(
        ArtifactError, match=r"step_000224.parquet is missing; restore it from a copy of the run, or begin"
    ):
        swerve.replay(copied, start="dpo")
    copied.rollouts_path(224).write_bytes(b"PAR1 no more")
    with pytest.raises(ArtifactError, match=r"step_000224.parquet is damaged: .*; restore it from a copy of the run"):
        swerve.replay(copied, start="dpo")
    with (
        copied.lock(),
        pytest.raises(ArtifactError, match=r"copy is in use by process \d+ on .*; wait for it or stop it$"),
    ):
        swerve.replay(copied, start="dpo")
    with pytest.raises(ArtifactError, match=f"run directory {tmp_path / 'none'} does not exist"):
        swerve.replay(tmp_path / "none")


@pytest.mark.slow
def test_a_run_that_kept_no_rollouts(run_of: Callable[..., RunDirectory]) -> None:
    run = run_of([{**RL, "steps": 1, "keep_rollouts": False}], {})
    with pytest.raises(ConfigError, match=r"has no rollouts of stage 'rl' \(stages.rl.keep_rollouts=false\)"):
        swerve.replay(run)
