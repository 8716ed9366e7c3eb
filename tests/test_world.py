from __future__ import annotations

import os
import shutil
import signal
import socket
import time

import pytest
import torch
import torch.distributed as dist

from swerve import world
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.errors import QuietExit, StalledProcessError
from swerve.models.model_folder import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
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
def three():
    """Where three processes tell that they failed."""
    store = dist.HashStore()
    return [world.Failures(store, rank=rank, timeout=20.0) for rank in range(3)]


def _wait_in_vain(failures):
    with failures.named():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:39")


def test_where_a_process_is_lost_one_of_the_others_says_so_and_the_rest_are_quiet(three):
    three[1].doing("sampling in", "step 3 of rl")
    with pytest.raises(StalledProcessError) as caught:
        _wait_in_vain(three[1])
    assert str(caught.value).startswith(
        "rank 1 failed while sampling in step 3 of rl: another process was killed, stopped or cut off, or did not come "
        "within 20 s (runtime.collective_timeout): RuntimeError: [gloo/transport/"
    )
    with pytest.raises(QuietExit):
        _wait_in_vain(three[0])


def test_what_a_process_raises_is_named_by_another_one(three):
    three[1].doing("updating in", "step 3 of rl")
    with pytest.raises(ZeroDivisionError), three[1].named():
        raise ZeroDivisionError("of 7")
    named = rf"^rank 1 \(process {os.getpid()} on .*\) failed while updating in step 3 of rl: ZeroDiv.*: of 7"
    with pytest.raises(StalledProcessError, match=named):
        _wait_in_vain(three[0])
    with pytest.raises(QuietExit):
        _wait_in_vain(three[2])


@pytest.mark.parametrize("error", [MemoryError("no room"), torch.OutOfMemoryError("no room")])
def test_memory_that_runs_out_is_named_so(three, error):
    """Torch's error is a RuntimeError, which is not taken for one of connections."""
    with pytest.raises(type(error), match="no room"), three[0].named():
        raise error
    with pytest.raises(QuietExit, match="failed while starting: out of memory: no room"):
        _wait_in_vain(three[1])  # the first tells that itself


def test_an_error_of_its_own_is_not_laid_to_others(three):
    with pytest.raises(RuntimeError, match="shapes do not fit"), three[0].named():
        raise RuntimeError("shapes do not fit")


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_evaluate_as_one_does(on_two_processes, small_run, tmp_path):
    together = RunDirectory(shutil.copytree(small_run.path, tmp_path / "run"))
    shutil.rmtree(together.path / "eval")
    done = on_two_processes("-m", "swerve", "eval", together.path)
    assert done.stdout.count("by sampling") <= 1  # only one process reports
    paths = [path.relative_to(small_run.path) for path in (small_run.path / "eval").rglob("*.*")]
    assert len(paths) == 2 * len(small_run.checkpoints)
    differ = [path for path in paths if (together.path / path).read_bytes() != (small_run.path / path).read_bytes()]
    assert differ == []


@pytest.mark.slow
@pytest.mark.dist
def test_a_stopped_process_ends_the_job_at_the_timeout_and_the_run_goes_on_from_its_checkpoint(
    small_recipe, small_run, tmp_path
):
    run = RunDirectory(tmp_path / "run")
    errors = tmp_path / "errors.txt"
    agent = torchrun_train(small_recipe, "--out", run.path, errors=errors)
    try:
        second = _rank_1_at_work(agent, run, errors)
        os.kill(second, signal.SIGSTOP)
        seconds_until("within 20 s (runtime.collective_timeout)", errors, limit=40)
        assert agent.wait(60) != 0  # torchrun kills the stopped one after 30 s
    finally:
        agent.kill()
    assert run.read_provenance()["status"] == "failed"
    assert "swerve: error: rank 0 failed while " in errors.read_text()
    config = load_config(run.config_path)
    train_run(config, run, resume=True, progress=SilentProgress())
    assert [one.label for one in run.checkpoints] == [one.label for one in small_run.checkpoints]


def _rank_1_at_work(agent, run, errors):
    while not run.checkpoint_path(100).exists():
        assert agent.poll() is None, errors.read_text()
        time.sleep(0.05)
    return process_of_rank(1, agent.pid)


@pytest.mark.slow
@pytest.mark.dist
def test_a_killed_process_ends_the_others_at_once_and_torchrun_starts_the_job_again(small_recipe, tmp_path):
    run, errors = RunDirectory(tmp_path / "run"), tmp_path / "errors.txt"
    agent = torchrun_train(small_recipe, "--out", run.path, errors=errors, restarts=1)
    try:
        second = _rank_1_at_work(agent, run, errors)
        os.kill(second, signal.SIGKILL)
        seconds_until("another process was killed", errors, limit=15)
        assert agent.wait(300) == 0, errors.read_text()
    finally:
        agent.kill()
    lines = errors.read_text().splitlines()
    assert sum("another process was killed" in line for line in lines) == 1
    assert any("torchrun started the processes again: the run continues" in line for line in lines)
    assert run.read_provenance()["status"] == "trained"
    assert run.checkpoints[-1].final


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
    assert time.monotonic() - started < 20  # a loaded machine starts slowly
