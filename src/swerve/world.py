"""The processes that work together: one by default, as many as torchrun starts otherwise."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from swerve.errors import ConfigError, InterruptedRunError, StalledProcessError, SwerveError, ToldElsewhereError
from swerve.interruption import checked_sigterm, request_stop

T = TypeVar("T")
_BEAT_SECONDS = 0.5
_SILENT_BEATS = 4
"""So many missing ones are no sign of life."""
_NAMING_SECONDS = 4.0
"""What it may take to find out who did not come; part of the timeout."""
_REQUEST_SECONDS = 1.0
"""Between the requests to leave after another process's fault."""
_NUM_REQUESTS, _NUM_REQUESTS_MAIN = 2, 15
"""After so many the process ends at once; the first one keeps the run's status and has longer."""
_FAULT = "fault"
_KEY = "runtime.collective_timeout"
_REMEDY = "the same command continues the work, training with --resume"
_NO_STORE = f"the first process, or the machine it is on, does not answer; {_REMEDY}"
_OF_CONNECTIONS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out waiting", "Broken pipe")
_MAX_SUMMARY = 500
_ANSWER_SECONDS = 0.05


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

    def doing(self, what: str, place: str | None = None) -> None:
        """Note what this process does, for the others to name where it fails.

        Args:
            what: such as `sampling`.
            place: where, such as `step 3 of rl`; None: as before.
        """
        if self.attendance is not None:
            self.attendance.doing(what, place)

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def dealt_back(self, own: Sequence[Any]) -> list[Any]:
        """Return what all processes made of their shares, as JSON values in the order of the items that were shared.

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

    def max(self, value: float) -> float:
        """Return the largest of the processes' values."""
        largest = torch.tensor(value, dtype=torch.float64, device=self.device)
        if self.size > 1:
            with self._collective():
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
        with self._collective():
            dist.all_to_all_single(received, given, expected, lengths)  # on the CPU, by gloo
        return received

    def barrier(self) -> None:
        """Wait for every process."""
        if self.size > 1:
            with self._collective():
                dist.barrier()

    def _collective(self) -> AbstractContextManager[None]:
        return nullcontext() if self.attendance is None else self.attendance.collective()


ALONE = World()
"""One process."""


class Attendance:
    """Signs of life of all processes, from a thread in each, so that those that wait can say who does not come.

    Each process writes a beat that counts up, how many collective operations it has begun and what it does into the
    store where the processes met. The first that fails, or finds that another one has, says so there. All others leave
    their work then, wherever they are.
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
        self._num_begun, self._place = 0, ""
        self._process = os.getpid()
        self._refused: BaseException | None = None
        """What a collective operation raised."""
        self._ended = threading.Event()
        self._beat(0)
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._thread.start()

    def _set(self, what: str, value: str) -> None:
        self._store.set(f"{what}/{self._rank}", value)

    def _get(self, what: str, rank: int) -> str:
        key = f"{what}/{rank}"
        return str(self._store.get(key).decode()) if self._store.check([key]) else ""

    def _beat(self, number: int) -> None:
        self._set("beat", f"{number} {self._num_begun}")

    def _beat_on(self) -> None:
        number = 0
        while not self._ended.wait(_BEAT_SECONDS):
            number += 1
            try:
                self._beat(number)
                fault = self._known_fault()
            except RuntimeError:  # the store has gone: the processes end
                return
            if fault is not None:
                self._leave(fault)
                return

    def _leave(self, fault: _Fault) -> None:
        """See to it that this process ends, whose main thread may wait where no exception reaches it."""
        for _ in range(_NUM_REQUESTS_MAIN if self._rank == 0 else _NUM_REQUESTS):
            if self._ended.wait(_REQUEST_SECONDS):
                return
            request_stop()
        if self._rank == fault.teller(self._size):
            sys.stderr.write(f"swerve: error: {fault.text}\n")
            sys.stderr.flush()
        os._exit(1)

    def end(self) -> None:
        """Give no more signs of life."""
        self._ended.set()
        self._thread.join(_BEAT_SECONDS)

    def doing(self, what: str, place: str | None) -> None:
        """See `World.doing`."""
        self._place = self._place if place is None else place
        with suppress(RuntimeError):  # the store has gone: what follows says so
            self._set("doing", f"{what} {self._place}".strip())

    @contextmanager
    def collective(self) -> Iterator[None]:
        """Do a collective operation in here."""
        self._num_begun += 1
        try:
            yield
        except RuntimeError as error:
            self._refused = error
            raise

    @contextmanager
    def faults_named(self) -> Iterator[None]:
        """Do everything that the processes do together in here.

        Raises:
            StalledProcessError: another process failed, is behind the others or gives no sign of life, and this one is
                to say so.
            ToldElsewhereError: likewise, and another process says so.
        """
        with checked_sigterm(self._check_signal):
            try:
                yield
            except (StalledProcessError, InterruptedRunError, ToldElsewhereError):
                raise
            except Exception as error:
                fault = self._behind(error)
                if fault is not None:
                    raise self._error(fault) from error
                with suppress(RuntimeError):  # the store has gone
                    doing = self._get("doing", self._rank)
                    failed = f"{self._who(self._rank)} failed{doing and f' while {doing}'}"
                    self._declare([self._rank], f"{failed}: {_summary(error)}", has_told=True)
                raise

    def _check_signal(self) -> bool:
        """Leave if another process failed, for which torchrun sends SIGTERM to all; return whether that was it.

        Raises:
            StalledProcessError: it was, and this process is not on its way out yet; ToldElsewhereError likewise.
        """
        if os.getpid() != self._process or self._ended.is_set():
            return False
        try:
            fault = self._known_fault() or self._silent_fault()
        except RuntimeError:
            fault = _Fault(ranks=(0,), text=_NO_STORE)
        if fault is not None and sys.exception() is None:
            raise self._error(fault)
        return fault is not None

    def _error(self, fault: _Fault) -> SwerveError:
        is_told_here = self._rank == fault.teller(self._size)
        return StalledProcessError(fault.text) if is_told_here else ToldElsewhereError(fault.text)

    def _behind(self, error: Exception) -> _Fault | None:
        """Return the other process's fault that an error of this one follows from; None: it is this one's own."""
        if not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError):
            return None
        try:
            fault = self._known_fault()
            if fault is None and (error is self._refused or _is_of_connections(error)):
                fault = self._silent_fault() or self._late_fault()
        except RuntimeError:
            return _Fault(ranks=(0,), text=_NO_STORE)
        return fault

    def _known_fault(self) -> _Fault | None:
        return _Fault.read(self._store.get(_FAULT)) if self._store.check([_FAULT]) else None

    def _declare(self, ranks: Sequence[int], text: str, *, has_told: bool = False) -> _Fault | None:
        """Say in the store what is wrong, unless that has been said; return what stands there."""
        fault = _Fault(ranks=tuple(ranks), text=f"{text}; {_REMEDY}", has_told=has_told)
        with suppress(RuntimeError):
            return _Fault.read(self._store.compare_set(_FAULT, "", json.dumps(asdict(fault))))
        return fault

    def _who(self, rank: int) -> str:
        who = self._get("who", rank)
        return f"rank {rank} ({who})" if who else f"rank {rank}"

    def _waited_for(self, ranks: Sequence[int], why: str) -> _Fault | None:
        """Declare what is wrong with processes that the others wait for."""
        doing = {rank: self._get("doing", rank) for rank in ranks}
        text = "; ".join(f"{self._who(rank)}{f' was {doing[rank]} and' if doing[rank] else ''} {why}" for rank in ranks)
        return self._declare(ranks, f"{text}; the others waited for up to {self._timeout:g} s ({_KEY})")

    def _silent_fault(self) -> _Fault | None:
        """Return the fault of the processes without a sign of life; None where all give one."""
        others = [rank for rank in range(self._size) if rank != self._rank]
        before = {rank: self._get("beat", rank) for rank in others}
        until = time.monotonic() + _SILENT_BEATS * _BEAT_SECONDS
        silent = others
        while silent and time.monotonic() < until:
            time.sleep(_BEAT_SECONDS / 4)
            silent = [rank for rank in silent if self._get("beat", rank) == before[rank]]
        if not silent:
            return None
        _wake(self._get("who", rank) for rank in silent)
        return self._waited_for(silent, "gives no sign of life: it was stopped, killed or cut off")

    def _late_fault(self) -> _Fault | None:
        """Return the fault of the processes that are alive, but have not come to where this one waited in vain."""
        beats = {rank: self._get("beat", rank).split() for rank in range(self._size)}
        behind = [
            rank for rank, beat in beats.items() if rank != self._rank and beat and int(beat[1]) < self._num_begun
        ]
        return self._waited_for(behind, "has not come to where the others wait, but is alive") if behind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What went wrong in some processes, for all others to know."""

    ranks: tuple[int, ...]
    text: str
    has_told: bool = False
    """Whether these processes tell the user themselves."""

    @classmethod
    def read(cls, content: bytes) -> _Fault:
        found = json.loads(content)
        return cls(ranks=tuple(found["ranks"]), text=found["text"], has_told=found["has_told"])

    def teller(self, size: int) -> int | None:
        """Return which of the other processes tells the user: the first, or the next one where that has failed."""
        others = [rank for rank in range(size) if rank not in self.ranks]
        return None if not others or (0 in self.ranks and self.has_told) else others[0]


def _summary(error: Exception) -> str:
    """Return an error as a line of no more than some hundred characters."""
    is_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "not enough memory" in str(error)
    name = "" if isinstance(error, SwerveError) else "out of memory: " if is_memory else f"{type(error).__name__}: "
    return f"{name}{' '.join(str(error).split())}"[:_MAX_SUMMARY]


def _is_of_connections(error: RuntimeError) -> bool:
    """Whether an error says that other processes did not answer, as those of FSDP2 in the middle of a pass do."""
    return isinstance(error, dist.DistError) or any(word in str(error) for word in _OF_CONNECTIONS)


def introduce(store: Any, rank: int) -> None:
    """Say in the store which process has a rank, before any other one can miss it."""
    store.set(f"who/{rank}", f"process {os.getpid()} on {socket.gethostname()}")


def _wake(processes: Iterable[str]) -> None:
    """Let stopped processes of this machine run again, so that they see that they are to end."""
    for who in processes:
        _, number, _, host = who.split() if who else ("", "", "", "")
        if host == socket.gethostname():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(number), signal.SIGCONT)


@contextmanager
def joined_world(device: str, *, timeout: float = 1800.0, also_alone: bool = False) -> Iterator[World]:
    """Join the processes that torchrun started (it sets RANK, WORLD_SIZE and LOCAL_RANK), or be alone.

    Args:
        device: `cpu`, `cuda` (this process's own) or `cuda:N`.
        timeout: seconds within which all processes must come to a collective operation, or one is named.
        also_alone: whether a single process is a group of torch's, too, which a divided model needs.

    Raises:
        StalledProcessError: a process did not come, or failed; in one of the others ToldElsewhereError.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        if also_alone:
            untyped: Any = dist
            dist.init_process_group(_backend(device), store=untyped.HashStore(), rank=0, world_size=1)
        try:
            yield World(device=device)
        finally:
            if also_alone:
                dist.destroy_process_group()
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    waiting = timedelta(seconds=max(timeout - _NAMING_SECONDS, timeout / 2))
    rank = int(os.environ["RANK"])
    meeting, shared = _meet(rank, size, waiting=waiting, timeout=timeout)
    try:
        store = _part(_connect(timeout=timedelta(seconds=_NAMING_SECONDS)), meeting)
        attendance = Attendance(store, rank=rank, size=size, timeout=timeout)
    except RuntimeError as error:
        raise StalledProcessError(_NO_STORE) from error
    try:
        with attendance.faults_named():  # also where processes look for each other
            dist.init_process_group(_backend(device), store=shared, rank=rank, world_size=size, timeout=waiting)
            try:
                yield World(rank=rank, size=size, device=device, attendance=attendance)
            finally:
                dist.destroy_process_group()
    finally:
        attendance.end()


def _backend(device: str) -> str:
    """Return what moves tensors of a device, and those on the CPU, between processes."""
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


def _connect(*, timeout: timedelta, is_master: bool = False) -> Any:
    """Return a connection of its own to the store where the processes meet."""
    untyped: Any = dist
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return untyped.TCPStore(address, port, is_master=is_master, wait_for_workers=False, timeout=timeout)


def _part(store: Any, meeting: str) -> Any:
    """Return the part of the store that belongs to one meeting: at the addresses of an earlier one nobody listens."""
    untyped: Any = dist
    return untyped.PrefixStore(meeting, store)


def _meet(rank: int, size: int, *, waiting: timedelta, timeout: float) -> tuple[str, Any]:
    """Return the name of this meeting and its store, once all processes have come to it.

    Raises:
        StalledProcessError: one has not; the message says which. In all but one process ToldElsewhereError.
    """
    until = time.monotonic() + waiting.total_seconds()
    names, store = [f"came/{one}" for one in range(size)], None
    try:
        is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun has made it
        shared = _connect(timeout=waiting if is_master else waiting / 2, is_master=is_master)  # torch tries twice
        own = secrets.token_hex(8)
        shared.set(f"swerve/came/{rank}", own)
        meeting = own if rank == 0 else _answer(shared, own, until)
        store = _part(shared, meeting)
        introduce(store, rank)
        store.set(names[rank], "")
        if rank == 0:
            _answer_all(shared, store, names, meeting, until)
        store.wait(names, _left(until))
    except RuntimeError as error:
        missing = [0]  # who makes the store, and answers
        with suppress(RuntimeError):  # the store has gone
            missing = missing if store is None else [one for one in range(size) if not store.check([names[one]])]
        is_teller = rank == min(set(range(size)) - set(missing), default=rank)
        raise (StalledProcessError if is_teller else ToldElsewhereError)(
            f"the {size} processes did not all meet within {timeout:g} s ({_KEY}): "
            f"rank {', '.join(map(str, missing))} did not come; look for why it started late or not at all"
        ) from error
    return meeting, store


def _answer(store: Any, own: str, until: float) -> str:
    """Return the name of the meeting, from the first process."""
    store.wait([f"swerve/answer/{own}"], _left(until))
    return str(store.get(f"swerve/answer/{own}").decode())


def _answer_all(shared: Any, store: Any, names: Sequence[str], meeting: str, until: float) -> None:
    """Tell every process the name of the meeting, by the name that it gave itself.

    In the store is also what processes wrote before torchrun started them again, and the machines of a job may count
    its restarts differently: only a name that is new in each process tells those that are there.
    """
    while time.monotonic() < until:
        missing = [number for number, name in enumerate(names) if not store.check([name])]
        if not missing:
            return
        for number in missing:
            if shared.check([f"swerve/came/{number}"]):
                shared.set(f"swerve/answer/{shared.get(f'swerve/came/{number}').decode()}", meeting)
        time.sleep(_ANSWER_SECONDS)


def _left(until: float) -> timedelta:
    return timedelta(seconds=max(0.1, until - time.monotonic()))
