"""The progress of a command. Free of torch."""

from __future__ import annotations

import sys

from swerve.artifacts.torchrun import is_main_process
from swerve.progress import Progress, SilentProgress, console_progress


def main_progress() -> Progress:
    """Return the progress on stderr; under torchrun that of the first process, the others show nothing."""
    return console_progress(sys.stderr) if is_main_process() else SilentProgress()
