"""What a command takes, as one record: memory by place, disk by kind, tokens by purpose, hours, and what waits.

Figures are upper bounds where samples may end early: completions are taken to be as long as allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swerve.errors import ConfigError
from swerve.plan.memory import StageMemory
from swerve.plan.rates import UNKNOWN, Rates
from swerve.text import gigabytes
from swerve.train.disk import check_disk, disk_said, standing_folder

_LEAST_SHARE = 0.1
"""Of a device's memory, below which no server fits beside the trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What servers of the model hold; on another device than the trainer's it takes nothing of the latter's."""

    weights: int
    """Bytes, in the type that the model computes in."""
    completion: int
    """Bytes of the keys and values of one completion that is as long as allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of a study."""

    name: str
    after: tuple[str, ...]
    """Names of the runs that it waits for."""
    processes: int
    hours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a command takes."""

    command: str
    memory: StageMemory | None = None
    """None where no model is named, or where nothing of it is on this device."""
    available: int = 0
    """Bytes of the device."""
    processes: int = 1
    server: Server | None = None
    lower: str = ""
    """What to change where the memory is too small."""
    disk: Mapping[str, int] = field(default_factory=dict)
    """Bytes by kind of file."""
    place: Path = Path()
    """Where the files go; its disk counts."""
    free: int | None = None
    """Bytes that are free there; None: another machine is meant."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """That are sampled or learned, by purpose."""
    work: Mapping[str, int] = field(default_factory=dict)
    """Tokens that the model samples (`sampling`), learns (`update`) or only reads (`reading`), weights that its
    `optimizer` moves, and bytes of checkpoints (`writing`)."""
    rates: Rates = UNKNOWN
    runs: tuple[PlannedRun, ...] = ()
    """Of a study; the figures are sums over them, the memory that of the one with the highest peak."""
    notes: tuple[str, ...] = ()
    """What the figures leave out, or rest on."""

    @property
    def hours(self) -> dict[str, float | None]:
        """Hours by kind of work; None where it has no rate."""
        rates, found = self.rates.of, dict[str, float | None]()
        for kind, number in self.work.items():
            rate = rates.get(kind)
            found[kind] = number / rate / 3600 / self.processes if rate else None
        return found

    @property
    def total_hours(self) -> float | None:
        """Hours of all the work; None where a part has no rate."""
        hours = [*self.hours.values()]
        known = [number for number in hours if number is not None]
        return sum(known) if known and len(known) == len(hours) else None

    @property
    def _noun(self) -> str:
        """What the memory is said of."""
        return "stage" if self.command in ("train", "study") else "model"

    def check(self) -> None:
        """Refuse what cannot fit.

        Raises:
            ConfigError: it needs more memory than there is; the message names the parts and what to change.
            ProblemsError: the disk is too small.
        """
        if self.memory is not None and self.memory.peak > self.available:
            memory = self.memory
            raise ConfigError(
                f"{self._noun} '{memory.stage}' needs about {gigabytes(memory.peak)} of {gigabytes(self.available)} GB"
                f" ({memory.shown()}); {self.lower}"
            )
        if self.free is not None:
            check_disk(self.disk, self.place)

    def record(self) -> dict[str, Any]:
        """Return it for JSON, with the sums."""
        memory = self.memory
        return {
            "command": self.command,
            "memory": None
            if memory is None
            else {"stage": memory.stage, **memory.parts, "peak": memory.peak, "available": self.available},
            "processes": self.processes,
            "server": self.server,
            "disk": {**self.disk, "total": sum(self.disk.values()), "free": self.free, "place": str(self.place)},
            "tokens": dict(self.tokens),
            "hours": {**self.hours, "total": self.total_hours, "rates": self.rates},
            "runs": self.runs,
            "notes": self.notes,
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield what it takes, how much of it, and of what that consists."""
        yield from self._memory_rows()
        if any(self.disk.values()):
            free = "" if self.free is None else f"; {gigabytes(self.free)} GB are free in {standing_folder(self.place)}"
            yield "disk", f"{gigabytes(sum(self.disk.values()))} GB", f"{disk_said(self.disk)}{free}"
        for purpose, number in self.tokens.items():
            yield f"tokens, {purpose}", f"{number:,}", "at most"
        if self.work:
            said = ", ".join(f"{kind} {_hours(hours)}" for kind, hours in self.hours.items())
            yield "hours", _hours(self.total_hours), f"{said}; {self.rates.source}"
        for run in self.runs:
            after = f"after {', '.join(run.after)}" if run.after else "at once"
            processes = f", {run.processes} processes" if run.processes > 1 else ""
            yield run.name, f"{_hours(run.hours)} h", f"{after}{processes}"

    def _memory_rows(self) -> Iterator[tuple[str, str, str]]:
        if self.memory is None:
            return
        memory = self.memory
        each = "" if self.processes == 1 else f", each of {self.processes} processes"
        yield "memory", memory_said(memory.peak, self.available), f"{self._noun} {memory.stage}{each}: {memory.shown()}"
        if self.server is not None:
            # A server beside it gets what is left of the device.
            share = (self.available - memory.peak) / self.available
            weights, completion = self.server.weights, self.server.completion
            held = weights + completion
            own = f"weights {gigabytes(weights)}, keys and values {gigabytes(completion)} for each completion"
            some = f"--gpu-memory-utilization {share:.2f} at most"
            fits = share >= _LEAST_SHARE and share * self.available > held
            here = some if fits else "no room: give it another device"
            yield "server, same device", f"{gigabytes(held)} GB or more", f"{own}; {here}"
            yield "server, elsewhere", "0 GB", "it holds its own"


def memory_said(size: int, available: int) -> str:
    """Return how much of a device something takes."""
    return f"{gigabytes(size)} of {gigabytes(available)} GB"


def _hours(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"
