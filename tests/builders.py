"""What many tests make or read in the same way: trained runs, notes of their progress, numbers of their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config import Config
from swerve.progress import Progress, SilentProgress
from swerve.train import train


class Notes(SilentProgress):
    """Shows nothing and keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        """Keep a note."""
        self.notes.append(message)


def train_run(config: Config, path: Path, *, resume: bool = False, progress: Progress | None = None) -> RunDirectory:
    """Train in a directory, or go on there; return the run."""
    run = RunDirectory(path)
    train(config, run, resume=resume, progress=progress or SilentProgress())
    return run


def figures(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the metrics of every step but for their times."""
    steps = read_metrics(run.metrics_path)
    return [{name: value for name, value in step.items() if name != "seconds"} for step in steps]
