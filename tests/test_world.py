from __future__ import annotations

import os
import signal
import socket
import time

import pytest
import torch.distributed as dist

from swerve import world
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table
from swerve.errors import StalledProcessError
from swerve.models.model_folder import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import train
from tests.campaign.ranks import process_of_rank, seconds_until, torchrun_train


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_make_the_same_updates_as_one(on_two_processes, small_recipe, small_run, tmp_path):
    """Same rollouts, losses and weights to rounding; only the order of summation differs."""
    run = RunDirectory(tmp_path / "run")
    on_two_processes("-m", "swerve", "train", small_recipe, "--out", run.path)
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


@pytest.fixture
def three(monkeypatch):
    """The attendance of three processes, with a beat so fast that naming takes an instant."""
    monkeypatch.setattr(world, "_BEAT_SECONDS", 0.02)
    store = dist.HashStore()
    found = [world.Attendance(store, rank=rank, size=3, timeout=20.0) for rank in range(3)]
    yield found
    for one in found:
        one.end()


def _fail(attendance):
    with attendance.collective():
        raise RuntimeError("Timed out waiting 16000ms for recv operation to complete")


def test_a_process_without_a_sign_of_life_is_named(three):
    for one in (three[0], three[1], three[1]):
        with one.collective():
            pass
    time.sleep(0.1)  # a few beats
    three[2].end()
    three[1].end()  # it came, named the missing one and ended
    with pytest.raises(StalledProcessError) as caught:
        _fail(three[0])
    assert str(caught.value).startswith(
        f"rank 2 (process {os.getpid()} on {os.uname().nodename}) gives no sign of life: it was stopped, killed or cut "
        "off; the others waited for up to 20 s (runtime.collective_timeout)"
    )


def test_a_process_that_is_alive_but_does_not_come_is_named(three):
    for one in (three[0], three[1], three[0], three[2]):
        with one.collective():
            pass
    with pytest.raises(StalledProcessError, match=r"^rank 1 .* has not come .*; rank 2 .* but is alive; the others"):
        _fail(three[0])


def test_an_error_that_nobody_is_missing_for_is_itself(three):
    with pytest.raises(RuntimeError, match="Timed out waiting 16000ms"):
        for one in reversed(three):
            with one.collective():
                if one is three[0]:
                    raise RuntimeError("Timed out waiting 16000ms")


@pytest.mark.slow
@pytest.mark.dist
def test_a_stopped_process_is_named_within_the_timeout_and_the_run_goes_on_from_its_checkpoint(
    small_recipe, small_run, tmp_path
):
    run = RunDirectory(tmp_path / "run")
    errors = tmp_path / "errors.txt"
    agent = torchrun_train(small_recipe, "--out", run.path, errors=errors)
    try:
        while not run.checkpoint_path(100).exists():
            assert agent.poll() is None, errors.read_text()
            time.sleep(0.05)
        second = process_of_rank(1, agent.pid)
        os.kill(second, signal.SIGSTOP)
        seconds_until(f"rank 1 (process {second}", errors, limit=25)
        os.kill(second, signal.SIGKILL)
        assert agent.wait(60) != 0
    finally:
        agent.kill()
    assert run.read_provenance()["status"] == "failed"
    line = next(line for line in errors.read_text().splitlines() if f"rank 1 (process {second}" in line)
    assert line.startswith("swerve: error: rank 1")
    config = load_config(run.config_path)
    train(config, run, resume=True, progress=SilentProgress())
    assert [one.label for one in run.checkpoints()] == [one.label for one in small_run.checkpoints()]


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("late", [0, 1])
def test_a_process_that_starts_late_is_named(late, monkeypatch):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port), ("WORLD_SIZE", 2), ("RANK", 1 - late)):
        monkeypatch.setenv(name, str(value))
    started = time.monotonic()
    said = f"did not all meet within 6 s .*: rank {late} did not come"
    with pytest.raises(StalledProcessError, match=said), world.joined_world("cpu", timeout=6):
        pass
    assert time.monotonic() - started < 6
