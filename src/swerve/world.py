"""The processes that work together: one by default, as many as torchrun starts otherwise."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from swerve.errors import StalledProcessError

T = TypeVar("T")
_BEAT_SECONDS = 0.5
_NAMING_SECONDS = 4.0
"""What it may take to find out who did not come; part of the timeout."""
_JOINS = count()
"""How often this process has joined others; they all have as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Rank and number of the processes; every method is a plain local operation when there is one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    attendance: Attendance | None = None
    """Who has come to where; None where there is one process."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes the artifacts."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def sum_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over the processes."""
        if self.size > 1:
            with self._collective():
                dist.all_reduce(tensor)

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return each value's sum over the processes, which must all give the same names."""
        names = sorted(values)
        totals = torch.tensor([values[name] for name in names], dtype=torch.float64, device=self.device)
        self.sum_(totals)
        return dict(zip(names, totals.tolist(), strict=True))

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return self.sums({"flag": float(flag)})["flag"] > 0

    def gather(self, value: Any) -> list[Any]:
        """Return every process's JSON value, by rank. Sent as text: nothing is pickled."""
        if self.size == 1:
            return [value]
        payload = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self.device)
        lengths = torch.zeros(self.size, dtype=torch.long, device=self.device)
        lengths[self.rank] = len(payload)
        self.sum_(lengths)
        padded = torch.zeros(int(lengths.max()), dtype=torch.uint8, device=self.device)
        padded[: len(payload)] = payload
        received = [torch.empty_like(padded) for _ in range(self.size)]
        with self._collective():
            dist.all_gather(received, padded)
        return [
            json.loads(part[:length].cpu().numpy().tobytes())
            for part, length in zip(received, lengths.tolist(), strict=True)
        ]

    def barrier(self) -> None:
        """Wait for every process."""
        if self.size > 1:
            with self._collective():
                dist.barrier()

    def _collective(self) -> AbstractContextManager[None]:
        return nullcontext() if self.attendance is None else self.attendance.collective()


class Attendance:
    """Signs of life of all processes, from a thread in each, so that those that wait can say who does not come.

    Each process writes a beat that counts up, and how many collective operations it has begun, into the store where
    the processes met.
    """

    def __init__(self, store: Any, *, rank: int, size: int, timeout: float) -> None:
        """Begin to give signs of life.

        Args:
            store: of `torch.distributed`, with a connection of its own, for the thread waits on it.
            rank: of this process.
            size: number of processes.
            timeout: seconds after which a collective operation was given up.
        """
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._num_begun = 0
        self._ended = threading.Event()
        self._set("who", f"process {os.getpid()} on {socket.gethostname()}")
        self._beat(0)
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._thread.start()

    def _set(self, what: str, value: str) -> None:
        self._store.set(f"swerve/{what}/{self._rank}", value)

    def _get(self, what: str, rank: int) -> str:
        return str(self._store.get(f"swerve/{what}/{rank}").decode())

    def _beat(self, number: int) -> None:
        self._set("beat", f"{number} {self._num_begun}")

    def _beat_on(self) -> None:
        number = 0
        while not self._ended.wait(_BEAT_SECONDS):
            number += 1
            try:
                self._beat(number)
            except RuntimeError:  # the store has gone: the processes end
                return

    def end(self) -> None:
        """Give no more signs of life."""
        self._ended.set()
        self._thread.join(_BEAT_SECONDS)

    @contextmanager
    def collective(self) -> Iterator[None]:
        """Do a collective operation in here.

        Raises:
            StalledProcessError: it failed, and a process is behind the others or gives no sign of life.
        """
        self._num_begun += 1
        try:
            yield
        except RuntimeError as error:
            missing = self._missing()
            if not missing:
                raise
            raise StalledProcessError(
                f"{'; '.join(missing)}; the others waited for up to {self._timeout:g} s (runtime.collective_timeout); "
                "training continues from its last checkpoint with --resume"
            ) from error

    def _missing(self) -> list[str]:
        """Return what is wrong with each process that others wait for."""
        try:
            before = [self._get("beat", rank) for rank in range(self._size)]
            time.sleep(3 * _BEAT_SECONDS)
            after = [self._get("beat", rank) for rank in range(self._size)]
            who = [f"rank {rank} ({self._get('who', rank)})" for rank in range(self._size)]
        except RuntimeError:
            return ["the first process, or the machine it is on, does not answer"]
        silent = [rank for rank in range(self._size) if before[rank] == after[rank] and rank != self._rank]
        behind = [rank for rank in range(self._size) if int(after[rank].split()[1]) < self._num_begun]
        # Those that had come may be silent because they have named the missing one and ended.
        gone = [rank for rank in silent if rank in behind] or silent
        return [f"{who[rank]} gives no sign of life: it was stopped, killed or cut off" for rank in gone] or [
            f"{who[rank]} has not come to where the others wait, but is alive" for rank in behind
        ]


@contextmanager
def joined_world(device: str, *, timeout: float = 1800.0) -> Iterator[World]:
    """Join the processes that torchrun started (it sets RANK, WORLD_SIZE and LOCAL_RANK), or be alone.

    Args:
        device: `cpu`, `cuda` (this process's own) or `cuda:N`.
        timeout: seconds within which all processes must come to a collective operation, or one is named.

    Raises:
        StalledProcessError: a process did not come.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device=device)
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    waiting = timedelta(seconds=max(timeout - _NAMING_SECONDS, timeout / 2))
    rank = int(os.environ["RANK"])
    join = next(_JOINS)
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo",
        store=_meet(rank, size, join, waiting=waiting, timeout=timeout),
        rank=rank,
        world_size=size,
        timeout=waiting,
    )
    store = _connect(timeout=timedelta(seconds=_NAMING_SECONDS))
    attendance = Attendance(store, rank=rank, size=size, timeout=timeout)
    try:
        yield World(rank=rank, size=size, device=device, attendance=attendance)
    finally:
        attendance.end()
        dist.destroy_process_group()


def _connect(*, timeout: timedelta, is_master: bool = False) -> Any:
    """Return a connection of its own to the store where the processes meet."""
    untyped: Any = dist
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return untyped.TCPStore(address, port, is_master=is_master, wait_for_workers=False, timeout=timeout)


def _meet(rank: int, size: int, join: int, *, waiting: timedelta, timeout: float) -> Any:
    """Return the store once all processes have come to it.

    Raises:
        StalledProcessError: one has not; the message says which.
    """
    untyped: Any = dist
    names = [f"swerve/came/{one}" for one in range(size)]
    missing = [0]  # who makes the store
    try:
        is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun has made it
        started = time.monotonic()
        shared = _connect(timeout=waiting if is_master else waiting / 2, is_master=is_master)  # torch tries twice
        # A name of its own for every time: at the addresses of an earlier one nobody listens any more.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = untyped.PrefixStore(f"attempt {attempt}, join {join}", shared)
        store.set(names[rank], "")
        missing = list(range(size))
        store.wait(names, max(waiting - timedelta(seconds=time.monotonic() - started), waiting / 16))
    except RuntimeError as error:
        with suppress(RuntimeError):  # the store has gone
            missing = [one for one in missing if len(missing) == 1 or not store.check([names[one]])]
        raise StalledProcessError(
            f"the {size} processes did not all meet within {timeout:g} s (runtime.collective_timeout): "
            f"rank {', '.join(map(str, missing))} did not come; look for why it started late or not at all"
        ) from error
    return store
