"""Training on two processes of which one is stopped, killed or late: it is named within the timeout."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tests.campaign.worlds import Case, Worlds

TIMEOUT = 20
_TRAIN = ("-m", "swerve", "train")
_FAULTS = ("stopped", "killed", "late", "late-first")


def torchrun_train(*arguments: object, errors: Path) -> subprocess.Popen[bytes]:
    """Start training on two processes under torchrun, with the timeout; what they say goes into a file."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    timeout = f"runtime.collective_timeout={TIMEOUT}"
    command = [sys.executable, *launch, *_TRAIN, *map(str, arguments), timeout]
    with errors.open("w") as stream:
        return subprocess.Popen(
            command, stderr=stream, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def process_of_rank(rank: int, agent: int) -> int:
    """Return the number of the process that torchrun, the process `agent`, gave a rank."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    (found,) = [
        int(one) for one in children if f"\0RANK={rank}\0".encode() in Path(f"/proc/{one}/environ").read_bytes()
    ]
    return found


def seconds_until(said: str, errors: Path, *, limit: float) -> float:
    """Wait until a file has a text; return how long it took.

    Raises:
        AssertionError: it has not within the limit.
    """
    started = time.monotonic()
    while said not in errors.read_text():
        assert time.monotonic() - started < limit, f"not said within {limit:g} s: {said}\n{errors.read_text()}"
        time.sleep(0.1)
    return time.monotonic() - started


def rank_cases(worlds: Worlds) -> Iterator[Case]:
    """Yield each fault of a rank."""
    for fault in _FAULTS:
        yield Case(name=f"ranks/train/{fault}", check=partial(_check, worlds, fault))


def _check(worlds: Worlds, fault: str) -> tuple[list[str], int]:
    world, errors = worlds.copy(worlds.before["train"]), worlds.path / "ranks"
    recipe = (world / "recipe.yaml").read_text().replace("steps: 2, batch_size: 4", "steps: 500, batch_size: 4")
    (world / "recipe.yaml").write_text(recipe)
    try:
        with ExitStack() as started:
            if fault.startswith("late"):
                _check_late(world, errors, 0 if fault == "late-first" else 1, started)
            else:
                _check_running(world, errors, fault, started)
    except AssertionError as error:
        return str(error).splitlines(), 0
    return [], int(fault == "killed")


def _check_running(world: Path, errors: Path, fault: str, started: ExitStack) -> None:
    agent = torchrun_train(world / "recipe.yaml", "--out", world / "run", errors=errors)
    started.callback(_end, agent)
    while not (world / "run" / "checkpoints" / "step_000003").exists():
        assert agent.poll() is None, errors.read_text()
        time.sleep(0.05)
    second = process_of_rank(1, agent.pid)
    os.kill(second, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
    started.callback(_kill, second)
    seconds_until(f"rank 1 (process {second}", errors, limit=TIMEOUT + 5)


def _check_late(world: Path, errors: Path, late: int, started: ExitStack) -> None:
    """Start one of two processes only; torchrun would start both."""
    meeting = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    arguments = ["recipe.yaml", f"runtime.collective_timeout={TIMEOUT}", "--out", "run"]
    with errors.open("w") as stream:
        first = subprocess.Popen(
            [sys.executable, *_TRAIN, *arguments],
            stderr=stream,
            cwd=world,
            env={**os.environ, **meeting, "RANK": str(1 - late)},
        )
    started.callback(_end, first)
    while not _is_connecting(first.pid):
        assert first.poll() is None, errors.read_text()
        time.sleep(0.1)
    seconds_until(f"rank {late} did not come", errors, limit=TIMEOUT + 5)


def _is_connecting(process: int) -> bool:
    """Whether a process has come to where it waits for others: it has a socket."""
    folder = Path(f"/proc/{process}/fd")
    with suppress(FileNotFoundError):  # closed just now
        return any("socket:" in os.readlink(one) for one in folder.iterdir())
    return False


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
