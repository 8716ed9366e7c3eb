"""The processes that work together: one by default, as many as torchrun starts otherwise."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from swerve.errors import ConfigError, InterruptedRunError, QuietExit, StalledProcessError, SwerveError

T = TypeVar("T")
_FAULT, _TELLER = "fault", "teller"
"""Keys in the store where the processes met."""
_KEY = "runtime.collective_timeout"
_REMEDY = "the same command continues the work, training with --resume"
_OF_CONNECTIONS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out waiting", "Broken pipe")
_MAX_SUMMARY = 500
_ANSWER_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Rank and number of the processes; every method is a plain local operation when there is one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    failures: Failures | None = None
    """Where the first failure is told; None where there is one process."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes the artifacts."""
        return self.rank == 0

    def doing(self, what: str, place: str | None = None) -> None:
        """Note what this process does, for the line that says where it failed.

        Args:
            what: such as `sampling`.
            place: where, such as `step 3 of rl`; None: as before.
        """
        if self.failures is not None:
            self.failures.doing(what, place)

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def dealt_back(self, own: Sequence[Any]) -> list[Any]:
        """Return what all processes made of their shares, JSON values, in the order of the items before `shard`.

        >>> World().dealt_back(World().shard([1, 2, 3]))
        [1, 2, 3]
        """
        parts = self.gather(list(own))
        return [parts[number % self.size][number // self.size] for number in range(sum(map(len, parts)))]

    def mesh(self, replicas: int = 1) -> Any:
        """Return torch's mesh of the processes: `[size]`, or `[replicas, size / replicas]`.

        Raises:
            ConfigError: they cannot be divided into so many groups.
        """
        from torch.distributed.device_mesh import init_device_mesh

        if self.size % replicas:
            raise ConfigError(
                f"runtime.sharding.replicas={replicas} does not divide the {self.size} processes; choose a divisor"
            )
        kind, number = self.device.partition(":")[0], self.size // replicas
        if replicas == 1:
            return init_device_mesh(kind, (number,), mesh_dim_names=("shard",))
        return init_device_mesh(kind, (replicas, number), mesh_dim_names=("replicate", "shard"))

    def sum_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over the processes."""
        if self.size > 1:
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

    def max(self, value: float) -> float:
        """Return the largest of the processes' values."""
        largest = torch.tensor(value, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        return float(largest)

    def gather(self, value: Any) -> list[Any]:
        """Return every process's JSON value, by rank. Sent as text: nothing is pickled."""
        if self.size == 1:
            return [value]
        return [json.loads(part) for part in self.exchange([json.dumps(value).encode()] * self.size)]

    def exchange(self, parts: Sequence[bytes]) -> list[bytes]:
        """Give each process its part, by rank; return what each gave to this one."""
        if self.size == 1:
            return list(parts)
        lengths = [len(part) for part in parts]
        expected = self._exchanged(torch.tensor(lengths), [1] * self.size, [1] * self.size).tolist()
        given = torch.from_numpy(np.frombuffer(bytearray(b"".join(parts)), dtype=np.uint8))
        received = self._exchanged(given, lengths, expected).split(expected)
        return [part.numpy().tobytes() for part in received]

    def _exchanged(self, given: Tensor, lengths: list[int], expected: list[int]) -> Tensor:
        """Give each process so many of the elements; return so many as are expected of each."""
        received = given.new_empty(sum(expected))
        dist.all_to_all_single(received, given, expected, lengths)  # on the CPU, by gloo
        return received

    def barrier(self) -> None:
        """Wait for every process."""
        if self.size > 1:
            dist.barrier()


ALONE = World()
"""One process."""


class Failures:
    """What this process does, and the first failure of any process, in the store where all have met."""

    def __init__(self, store: Any, *, rank: int, timeout: float) -> None:
        """Begin with nothing done and nothing failed.

        Args:
            store: of `torch.distributed`.
            rank: of this process.
            timeout: seconds after which a collective operation is given up.
        """
        self._store, self._rank, self._timeout = store, rank, timeout
        self._doing, self._place = "starting", ""

    def doing(self, what: str, place: str | None) -> None:
        """See `World.doing`."""
        self._place = self._place if place is None else place
        self._doing = f"{what} {self._place}".strip()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Do everything that the processes do together in here.

        Raises:
            StalledProcessError: another process failed or did not come in time, and this one is to say so.
            QuietExit: likewise, and another process says so.
        """
        try:
            yield
        except (StalledProcessError, InterruptedRunError, QuietExit):
            raise
        except Exception as error:
            is_of_torch = isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError)
            is_of_connections = isinstance(error, dist.DistError) or any(word in str(error) for word in _OF_CONNECTIONS)
            if not (is_of_torch and is_of_connections):
                self._tell(error)
                raise
            # Another process is lost: the first of the others to note it says so, for all.
            is_teller = True
            text = (
                f"rank {self._rank} failed while {self._doing}: another process was killed, stopped or cut off, or did "
                f"not come within {self._timeout:g} s ({_KEY}): {_summary(error)}"
            )
            with suppress(RuntimeError):  # the store ended with the first process
                text = self._store.get(_FAULT).decode() if self._store.check([_FAULT]) else text
                is_teller = self._store.compare_set(_TELLER, "", str(self._rank)) == str(self._rank).encode()
            raise (StalledProcessError if is_teller else QuietExit)(f"{text}; {_REMEDY}") from error

    def _tell(self, error: Exception) -> None:
        """Say in the store that this process failed, before its connections close and the others find out."""
        name = f"rank {self._rank} (process {os.getpid()} on {socket.gethostname()})"
        with suppress(RuntimeError):  # the store ended with the first process
            self._store.compare_set(_FAULT, "", f"{name} failed while {self._doing}: {_summary(error)}")
            if self._rank == 0:  # it tells the user itself
                self._store.compare_set(_TELLER, "", "0")


def _summary(error: Exception) -> str:
    """Return an error as a line of no more than some hundred characters."""
    is_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "not enough memory" in str(error)
    name = "" if isinstance(error, SwerveError) else "out of memory: " if is_memory else f"{type(error).__name__}: "
    return f"{name}{' '.join(str(error).split())}"[:_MAX_SUMMARY]


@contextmanager
def joined_world(device: str, *, timeout: float = 1800.0, also_alone: bool = False) -> Iterator[World]:
    """Join the processes that torchrun started (it sets RANK, WORLD_SIZE and LOCAL_RANK), or be alone.

    Args:
        device: `cpu`, `cuda` (this process's own) or `cuda:N`.
        timeout: seconds within which all processes must come to a collective operation, or one is named.
        also_alone: whether a single process is a group of torch's, too, which a divided model needs.

    Raises:
        StalledProcessError: a process did not come, or failed; in one of the others QuietExit.
    """
    size, untyped = int(os.environ.get("WORLD_SIZE", "1")), cast(Any, dist)
    # What moves tensors of the device, and those on the CPU, between processes.
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    if size == 1:
        if also_alone:
            dist.init_process_group(backend, store=untyped.HashStore(), rank=0, world_size=1)
        try:
            yield World(device=device)
        finally:
            if also_alone:
                dist.destroy_process_group()
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    rank, waiting = int(os.environ["RANK"]), timedelta(seconds=timeout)
    store = _meet(rank, size, timeout=timeout)
    failures = Failures(store, rank=rank, timeout=timeout)
    try:
        with failures.named():  # also where processes look for each other
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=waiting)
            yield World(rank=rank, size=size, device=device, failures=failures)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _meet(rank: int, size: int, *, timeout: float) -> Any:
    """Return the store of this meeting, once all processes have come to it.

    In the store is also what processes wrote before torchrun started them again, and the machines of a job may count
    its restarts differently. So the first process names the meeting, and answers each name that is new in a process.

    Raises:
        StalledProcessError: one has not come; the message says which. In all but one process QuietExit.
    """
    until, waiting, untyped = time.monotonic() + timeout, timedelta(seconds=timeout), cast(Any, dist)
    names, store = [f"came/{number}" for number in range(size)], None

    def left() -> timedelta:
        return timedelta(seconds=max(0.1, until - time.monotonic()))

    try:
        # The store that torchrun keeps, or else the first process.
        is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        shared = untyped.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=is_master,
            wait_for_workers=False,
            timeout=waiting if is_master else waiting / 2,  # torch tries twice
        )
        # A name of its own for this process, and from the first one the name of the meeting.
        meeting = own = secrets.token_hex(8)
        shared.set(f"swerve/came/{rank}", own)
        if rank != 0:
            shared.wait([f"swerve/answer/{own}"], left())
            meeting = str(shared.get(f"swerve/answer/{own}").decode())
        store = untyped.PrefixStore(meeting, shared)  # at the addresses of an earlier meeting nobody listens
        store.set(names[rank], "")
        while rank == 0 and time.monotonic() < until and not store.check(names):
            for number in range(size):
                if not store.check([names[number]]) and shared.check([f"swerve/came/{number}"]):
                    shared.set(f"swerve/answer/{shared.get(f'swerve/came/{number}').decode()}", meeting)
            time.sleep(_ANSWER_SECONDS)
        store.wait(names, left())
    except RuntimeError as error:
        missing = [0]  # who makes the store, and answers
        with suppress(RuntimeError):  # the store has gone
            missing = (
                missing if store is None else [number for number in range(size) if not store.check([names[number]])]
            )
        is_teller = rank == min(set(range(size)) - set(missing), default=rank)
        raise (StalledProcessError if is_teller else QuietExit)(
            f"the {size} processes did not all meet within {timeout:g} s ({_KEY}): "
            f"rank {', '.join(map(str, missing))} did not come; look for why it started late or not at all"
        ) from error
    return store
