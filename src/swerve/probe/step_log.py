"""Which steps of a probe are done, each with a digest of all that its result depends on. Free of torch."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from swerve.artifacts.files import read_sealed, sha256_file, write_sealed
from swerve.config import ReportConfig
from swerve.errors import ArtifactError, ConfigError
from swerve.probe.recipe import StepName
from swerve.progress import Progress
from swerve.version import __version__

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class StepLog:
    """Which steps are done, each with a digest of all that its result depends on."""

    path: Path
    progress: Progress
    writes: bool = True
    """False for the other processes of several, which share the work and say nothing."""

    def is_done(self, step: StepName, key: str) -> bool:
        """Whether a step was done with the same digest."""
        return self._read().get(step) == key

    def do(self, step: StepName, key: str, work: Callable[[], _Result]) -> _Result:
        """Do a step, note how long it took, and remember it."""
        if not self.writes:
            return work()
        started = time.monotonic()
        result = work()
        write_sealed(self.path, {**self._read(), step: key})
        self.progress.note(f"{step}: done in {time.monotonic() - started:.1f} s")
        return result

    def skip(self, step: StepName) -> None:
        """Note that a step is done already."""
        if self.writes:
            self.progress.note(f"{step}: skipped, it is done")

    def _read(self) -> dict[str, Any]:
        try:
            return read_sealed(self.path)
        except ArtifactError:
            return {}


def step_log(probe_path: Path, progress: Progress, *, writes: bool = True) -> StepLog:
    """Return the log of a probe's directory."""
    return StepLog(probe_path / "steps.json", progress, writes)


def report_key(probe_path: Path, options: ReportConfig) -> str:
    """Return a digest of all that page and figures depend on.

    Raises:
        ConfigError: there is no summary to report.
    """
    summary = probe_path / "summary.json"
    if not summary.is_file():
        raise ConfigError(f"{summary} does not exist: figures and report need the step analysis; add it to --steps")
    parts = [__version__, sha256_file(summary), options.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
