"""Studies by name, and the progress of a command. Free of torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from swerve.artifacts.run import RUNS, is_main_process
from swerve.errors import ArtifactError
from swerve.progress import Progress, SilentProgress, console_progress


def main_progress() -> Progress:
    """Return the progress on stderr; under torchrun that of the first process, the others show nothing."""
    return console_progress(sys.stderr) if is_main_process() else SilentProgress()


def find_study(name: str) -> Path | None:
    """Return the directory of a study, named by its path or by its name under `runs/studies/`; None: not a study.

    Raises:
        ArtifactError: the study was not compared yet.
    """
    marks = ("run.json", "study.json", "study.yaml")
    places = (Path(name), RUNS / name, RUNS / "studies" / name)
    folder = next((place for place in places if any((place / mark).is_file() for mark in marks)), None)
    if folder is None or (folder / "run.json").is_file():
        return None
    if not (folder / "study.json").is_file():
        raise ArtifactError(
            f"the study {folder} was not compared yet; do it with: swerve study {shlex.quote(str(folder))} --gather"
        )
    return folder
