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
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table
from swerve.errors import StalledProcessError, ToldElsewhereError
from swerve.interruption import deferred_signals
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
    monkeypatch.setattr(world, "_REQUEST_SECONDS", 600.0)  # else the threads would end this process
    store = dist.HashStore()
    for rank in range(3):
        world.introduce(store, rank)
    found = [world.Attendance(store, rank=rank, size=3, timeout=20.0) for rank in range(3)]
    yield found
    for one in found:
        one.end()


def _fail(attendance, message="Timed out waiting 16000ms for recv operation to complete"):
    with attendance.faults_named(), attendance.collective():
        raise RuntimeError(message)


def test_a_process_without_a_sign_of_life_is_named(three):
    for one in (three[0], three[1], three[1]):
        with one.collective():
            pass
    three[2].doing("sampling in", "step 3 of rl")
    three[2].end()
    with pytest.raises(StalledProcessError) as caught:
        _fail(three[0])
    assert str(caught.value).startswith(
        f"rank 2 (process {os.getpid()} on {os.uname().nodename}) was sampling in step 3 of rl and gives no sign of "
        "life: it was stopped, killed or cut off; the others waited for up to 20 s (runtime.collective_timeout)"
    )
    with pytest.raises(ToldElsewhereError):  # the first process tells it
        _fail(three[1])


def test_what_a_process_raises_is_told_by_the_first_process(three):
    three[1].doing("updating in", "step 3 of rl")
    with pytest.raises(ZeroDivisionError), three[1].faults_named():
        raise ZeroDivisionError("of 7")
    with pytest.raises(StalledProcessError, match=r"^rank 1 .* failed while updating in step 3 of rl: ZeroDiv.*: of 7"):
        _fail(three[0])
    with pytest.raises(ToldElsewhereError):
        _fail(three[2])


@pytest.mark.parametrize("error", [MemoryError("no room"), torch.OutOfMemoryError("no room")])
def test_memory_that_runs_out_is_named_so(three, error):
    """Torch's error is a RuntimeError, which is not taken for one of connections."""
    with pytest.raises(type(error), match="no room"), three[0].faults_named():
        raise error
    with pytest.raises(ToldElsewhereError, match="failed: out of memory: no room"):  # the first tells that itself
        _fail(three[1])


def test_the_next_process_tells_where_the_first_was_killed(three):
    three[0].end()
    with pytest.raises(StalledProcessError, match=r"^rank 0 .* gives no sign of life"):
        _fail(three[1])
    with pytest.raises(ToldElsewhereError):
        _fail(three[2])


def test_a_failure_in_the_middle_of_a_pass_is_named_by_what_torch_says(three):
    """Collective operations of a sharded model are not done by `World`."""
    three[2].end()
    with pytest.raises(StalledProcessError, match="^rank 2"), three[0].faults_named():
        raise RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:39")


def test_an_error_of_its_own_is_not_laid_to_others(three):
    three[2].end()  # nobody has noticed yet
    with pytest.raises(RuntimeError, match="shapes do not fit"), three[0].faults_named():
        raise RuntimeError("shapes do not fit")


def test_sigterm_for_the_failure_of_another_process_is_no_interruption(three):
    three[2].end()
    with pytest.raises(StalledProcessError, match="^rank 2"), three[0].faults_named(), deferred_signals():
        os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_while_all_are_alive_is_an_interruption(three):
    with three[0].faults_named(), deferred_signals() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.signal_number == signal.SIGTERM


def test_a_process_that_is_alive_but_does_not_come_is_named(three):
    for one in (three[0], three[1], three[0], three[2]):
        with one.collective():
            pass
    with pytest.raises(StalledProcessError, match=r"^rank 1 .* has not come .*; rank 2 .* but is alive; the others"):
        _fail(three[0])
    with pytest.raises(ToldElsewhereError):  # one that is late finds that all others have gone
        _fail(three[1])


def test_an_error_that_nobody_is_missing_for_is_itself(three):
    for one in three[1:]:
        with one.collective():
            pass
    with pytest.raises(RuntimeError, match="sizes differ"):
        _fail(three[0], "sizes differ")


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_evaluate_as_one_does(on_two_processes, small_run, tmp_path):
    together = RunDirectory(shutil.copytree(small_run.path, tmp_path / "run"))
    shutil.rmtree(together.path / "eval")
    done = on_two_processes("-m", "swerve", "eval", together.path)
    assert done.stdout.count("by sampling") <= 1  # only one process reports
    paths = [path.relative_to(small_run.path) for path in (small_run.path / "eval").rglob("*.*")]
    assert len(paths) == 3 * len(small_run.checkpoints())
    differ = [path for path in paths if (together.path / path).read_bytes() != (small_run.path / path).read_bytes()]
    assert differ == []


@pytest.mark.slow
@pytest.mark.dist
def test_a_stopped_process_is_named_within_the_timeout_and_the_run_goes_on_from_its_checkpoint(
    small_recipe, small_run, tmp_path
):
    run = RunDirectory(tmp_path / "run")
    errors = tmp_path / "errors.txt"
    agent = torchrun_train(small_recipe, "--out", run.path, errors=errors)
    try:
        second = _rank_1_at_work(agent, run, errors)
        os.kill(second, signal.SIGSTOP)
        seconds_until(f"rank 1 (process {second}", errors, limit=25)
        assert agent.wait(30) != 0  # the other one woke it, so that torchrun does not wait to kill it
    finally:
        agent.kill()
    assert run.read_provenance()["status"] == "failed"
    line = next(line for line in errors.read_text().splitlines() if f"rank 1 (process {second}" in line)
    assert line.startswith("swerve: error: rank 1")
    config = load_config(run.config_path)
    train(config, run, resume=True, progress=SilentProgress())
    assert [one.label for one in run.checkpoints()] == [one.label for one in small_run.checkpoints()]


def _rank_1_at_work(agent, run, errors):
    while not run.checkpoint_path(100).exists():
        assert agent.poll() is None, errors.read_text()
        time.sleep(0.05)
    return process_of_rank(1, agent.pid)


@pytest.mark.slow
@pytest.mark.dist
def test_a_killed_process_is_named_at_once_and_torchrun_starts_the_job_again(small_recipe, tmp_path):
    run, errors = RunDirectory(tmp_path / "run"), tmp_path / "errors.txt"
    agent = torchrun_train(small_recipe, "--out", run.path, errors=errors, restarts=1)
    try:
        second = _rank_1_at_work(agent, run, errors)
        os.kill(second, signal.SIGKILL)
        seconds_until(f"rank 1 (process {second}", errors, limit=20)
        assert agent.wait(300) == 0, errors.read_text()
    finally:
        agent.kill()
    lines = errors.read_text().splitlines()
    assert sum("gives no sign of life" in line for line in lines) == 1
    assert any("torchrun started the processes again: the run continues" in line for line in lines)
    assert run.read_provenance()["status"] == "trained"
    assert run.checkpoints()[-1].final


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
