"""What people see: results on stdout, progress on stderr (a live bar on a terminal, plain lines elsewhere).

Nothing that comes from data is read as terminal markup, and control characters in it are not passed on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swerve.artifacts.files import record_fields
from swerve.errors import ConfigError, printable, redacted
from swerve.progress import Progress, SilentProgress, console_progress


def print_text(text: str) -> None:
    """Write lines to stdout, ended by exactly one line break."""
    sys.stdout.write(printable(text.rstrip("\n")) + "\n")
    sys.stdout.flush()


_quiet = [False]


def set_quiet(quiet: bool) -> None:
    """Have a command show no progress and no notes, or show them again."""
    _quiet[0] = quiet
    if quiet:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def main_progress() -> Progress:
    """Return the progress on stderr; under torchrun that of the first process, the others show nothing."""
    from swerve.artifacts.torchrun import is_main_process

    return SilentProgress() if _quiet[0] or not is_main_process() else console_progress(sys.stderr)


def print_message(text: str, *, is_warning: bool = False) -> None:
    """Write lines to stderr, without keys: notes, or a warning, which `--quiet` leaves."""
    if is_warning or not _quiet[0]:
        sys.stderr.write(printable(redacted(text.rstrip("\n"))) + "\n")


class MessageFormatter(logging.Formatter):
    """What is logged, as messages are written."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return printable(redacted(super().format(record)))


def print_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    print_text(json.dumps(value, indent=2, allow_nan=False, default=record_fields))


def check_not_read(path: Path, read: Iterable[Path | None]) -> None:
    """Check that a command does not write over a file that it reads.

    Raises:
        ConfigError: it would.
    """
    if path.exists() and any(given is not None and given.exists() and path.samefile(given) for given in read):
        raise ConfigError(f"--out {path} is a file that is read; give another name")
