"""Training on two processes of which one is stopped, killed or late: the job ends, and the run continues to the same.

Kills at random times are of copies of this process, which begin in an instant; the process that waits for them sends
SIGTERM to the other one, as torchrun does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from random import Random

import torch.distributed as dist

from swerve.cli import main
from tests.campaign.kills import Ended, ended, started
from tests.campaign.states import contents, differences
from tests.campaign.worlds import COMMANDS, Case, Worlds

TIMEOUT = 20
_TRAIN = ("-m", "swerve", "train")
_FAULTS = ("stopped", "killed", "late", "late-first")
_SHORT_TIMEOUT = 20
"""Of the copies; a process that is stopped costs so much."""
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_NUM_RANKS = 2
_WAYS: Mapping[str, Sequence[str]] = {
    "whole": (),
    "divided": ("runtime.sharding.kind=fsdp",),
    "ahead": ("rollout.ahead=1",),
}
"""How the processes work together, by settings."""
_KILL_SECONDS = 60


def torchrun_train(*arguments: object, errors: Path, restarts: int = 0) -> subprocess.Popen[bytes]:
    """Start training on two processes under torchrun, with the timeout; what they say goes into a file."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}")
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


def rank_cases(worlds: Worlds, seed: int) -> Iterator[Case]:
    """Yield faults of ranks without end: one to three in a row at random times, and now and then one under torchrun.

    `ranks/train/ahead/kill1-340ms+stop0-90ms` is, where rollouts are sampled one step ahead, rank 1 killed after
    340 ms, and rank 0 stopped when it is run again.
    """
    rng, faults, ways = Random(seed), cycle(_FAULTS), cycle(_WAYS)
    for number in range(10**9):
        way = next(ways)
        milliseconds = round(1000 * _undisturbed(worlds, way)[1])
        points = [
            f"{rng.choice((*['kill'] * 7, 'stop'))}{rng.randrange(_NUM_RANKS)}-{rng.randrange(milliseconds)}ms"
            for _ in range(rng.randint(1, 3))
        ]
        yield rank_case(worlds, f"ranks/train/{way}/{'+'.join(points)}")
        if number % 10 == 9:
            yield rank_case(worlds, f"ranks/train/torchrun/{next(faults)}")


def rank_case(worlds: Worlds, case: str) -> Case:
    """Return a case by its name."""
    way, point = case.split("/")[2:]
    check = partial(_check_kills, worlds, way, point.split("+")) if way in _WAYS else partial(_check, worlds, point)
    return Case(name=case, check=check)


def _check_kills(worlds: Worlds, way: str, points: Sequence[str]) -> tuple[list[str], int]:
    """Return what is wrong after the faults, and how many of them there were."""
    world, num_kills = worlds.copy(worlds.undisturbed("train").before), 0
    for point in points:
        fault, _, milliseconds = point.removesuffix("ms").partition("-")
        rank = int(fault[-1])
        with _Job(worlds, world, way) as job:
            time.sleep(int(milliseconds) / 1000)
            if job.signal(rank, _SIGNALS[fault[:-1]]):
                num_kills += 1
                wrong = job.wrong_after(rank, is_stopped=fault.startswith("stop"))
                if wrong:
                    return [f"after {point}: {one}" for one in wrong], num_kills
    with _Job(worlds, world, way) as job:
        statuses = [one.status for one in job.wait(600)]
    if any(statuses):
        return [f"statuses {statuses} when run again", *job.said()], num_kills
    return differences(contents(world), _undisturbed(worlds, way)[0]), num_kills


@cache
def _undisturbed(worlds: Worlds, way: str) -> tuple[Mapping[str, object], float]:
    """Return what two processes write that nothing happens to, and how many seconds they take."""
    world, begun = worlds.copy(worlds.undisturbed("train").before), time.monotonic()
    with _Job(worlds, world, way) as job:
        assert not any(one.status for one in job.wait(600)), job.said()
    return contents(world), time.monotonic() - begun


def run_on_copies(num: int, command: Callable[[], None], *, folder: Path) -> None:
    """Run a command in copies of this process that are the ranks of a job, as `torchrun` does with new processes.

    Raises:
        AssertionError: it failed in one of them; the message is what they wrote to stderr.
    """
    logs = [folder / f"rank{rank}" for rank in range(num)]
    store, *ranks = _started_ranks(command, logs, store_log=folder / "store")
    statuses = [os.waitpid(one, 0)[1] for one in ranks]
    os.kill(store, signal.SIGKILL)
    os.waitpid(store, 0)
    assert not any(statuses), "\n".join(ended(0, log).err for log in logs)


def _started_ranks(command: Callable[[], None], logs: Sequence[Path], *, store_log: Path) -> list[int]:
    """Start a process that keeps the store, as torchrun does, and copies of this one; return their numbers."""
    reader, writer = os.pipe()
    store = started(partial(_keep_store, writer), log=store_log, time_limit=900)
    os.close(writer)
    port = os.read(reader, 20).decode()
    os.close(reader)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}

    def run(rank: int) -> None:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(logs), "LOCAL_WORLD_SIZE": len(logs)}
        os.environ.update({name: str(value) for name, value in {**places, **meeting}.items()})
        command()

    return [store, *(started(partial(run, rank), log=log, time_limit=800) for rank, log in enumerate(logs))]


class _Job:
    """Two copies of this process that train together, and a third one that keeps the store, as torchrun would."""

    def __init__(self, worlds: Worlds, world: Path, way: str) -> None:
        self._logs = [worlds.path / f"rank{rank}" for rank in range(_NUM_RANKS)]
        self._statuses: dict[int, int] = {}

        def train() -> None:
            os.chdir(world)
            main([*COMMANDS["train"], *_WAYS[way], f"runtime.collective_timeout={_SHORT_TIMEOUT}"])

        self._store, *self.processes = _started_ranks(train, self._logs, store_log=worlds.path / "store")

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self._store, *(one for one in self.processes if one not in self._statuses)]:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    def signal(self, rank: int, number: int) -> bool:
        """Send a signal to a rank; return whether it was still there."""
        self._look()
        process = self.processes[rank]
        if process not in self._statuses:
            os.kill(process, number)
        return process not in self._statuses

    def _look(self) -> None:
        for process in self.processes:
            if process not in self._statuses:
                found, status = os.waitpid(process, os.WNOHANG)
                if found:
                    self._statuses[process] = status

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until all ranks have ended; the others get SIGTERM once one has failed, and after a while SIGKILL.

        Raises:
            AssertionError: they have not, in time.
        """
        until, asked = time.monotonic() + seconds, 0.0
        while len(self._statuses) < _NUM_RANKS:
            assert time.monotonic() < until, ["still running", *self.said()]
            time.sleep(0.02)
            self._look()
            is_late = asked > 0 and time.monotonic() - asked > _KILL_SECONDS
            if is_late or (any(self._statuses.values()) and not asked):
                asked = asked or time.monotonic()
                for rank in range(_NUM_RANKS):
                    self.signal(rank, signal.SIGKILL if is_late else signal.SIGTERM)
        return [ended(self._statuses[one], log) for one, log in zip(self.processes, self._logs, strict=True)]

    def said(self) -> list[str]:
        """Return the lines that the ranks printed."""
        return [f"rank {rank}: {ended(0, log).err}" for rank, log in enumerate(self._logs)]

    def wrong_after(self, rank: int, *, is_stopped: bool) -> list[str]:
        """Return what is wrong with how the job ends after a fault of a rank."""
        try:
            other = self.wait(_SHORT_TIMEOUT + 120)[1 - rank]
        except AssertionError as error:
            return [str(error)]
        # It had finished; or SIGTERM came before the two had met, before or after it was taken for an interruption, of
        # which the first rank tells.
        sayings = ("another process was killed", f"rank {rank} did not come", "interrupted before the first step")
        is_said = any(one in other.err for one in sayings)
        if is_said or other.status in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            return []
        return [f"{rank}'s end is not said", *self.said()]


def _keep_store(writer: int) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(writer, str(store.port).encode())
    os.close(writer)
    time.sleep(900)


def _check(worlds: Worlds, fault: str) -> tuple[list[str], int]:
    world, errors = worlds.copy(worlds.undisturbed("train").before), worlds.path / "ranks"
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
    seconds_until("another process was killed", errors, limit=TIMEOUT + 120)


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
    seconds_until(f"rank {late} did not come", errors, limit=TIMEOUT + 120)


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
