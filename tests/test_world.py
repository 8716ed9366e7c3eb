from __future__ import annotations

import os
import subprocess
import sys

import pytest

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table
from swerve.models.model_folder import load_model


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_make_the_same_updates_as_one(small_recipe, small_run, tmp_path):
    """Same rollouts, losses and weights to rounding; only the order of summation differs."""
    run = RunDirectory(tmp_path / "run")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "swerve", "train"]
    finished = subprocess.run(
        [sys.executable, *command, str(small_recipe), "--out", str(run.path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    alone, together = read_metrics(small_run.metrics_path), read_metrics(run.metrics_path)
    assert [record["loss"] for record in together[:20]] == pytest.approx([r["loss"] for r in alone[:20]], rel=1e-4)
    assert together[-1]["num_groups"] == alone[-1]["num_groups"] == 6
    one = load_model(small_run.checkpoint_path(100), device="cpu", dtype="float32").model.state_dict()
    two = load_model(run.checkpoint_path(100), device="cpu", dtype="float32").model.state_dict()
    worst = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert worst < 0.02  # rounding, grown over a hundred steps of AdamW
    rows = read_table(run.rollouts_path(223), ROLLOUTS_SCHEMA).to_pylist()
    expected = read_table(small_run.rollouts_path(223), ROLLOUTS_SCHEMA).to_pylist()
    assert [(row["group"], row["problem_id"]) for row in rows] == [
        (row["group"], row["problem_id"]) for row in expected
    ]
