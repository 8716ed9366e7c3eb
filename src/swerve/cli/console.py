"""What people see: results on stdout, progress on stderr (a live bar on a terminal, plain lines elsewhere).

Nothing that comes from data is read as terminal markup, and control characters in it are not passed on.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swerve.artifacts.files import record_fields
from swerve.errors import ConfigError, printable, redacted


def print_text(text: str) -> None:
    """Write lines to stdout, ended by exactly one line break."""
    sys.stdout.write(printable(text.rstrip("\n")) + "\n")
    sys.stdout.flush()


def print_message(text: str) -> None:
    """Write lines to stderr, without keys."""
    sys.stderr.write(printable(redacted(text.rstrip("\n"))) + "\n")


class MessageFormatter(logging.Formatter):
    """What is logged, as messages are written."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return printable(redacted(super().format(record)))


def print_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    print_text(json.dumps(value, indent=2, allow_nan=False, default=record_fields))


def check_output(option: str, path: Path, *, ending: str, read: Iterable[Path | None] = ()) -> None:
    """Check that a command can write its output file there; an existing file is replaced.

    Args:
        option: what the command line calls the file, for messages.
        path: the file.
        ending: how its name must end, such as `.jsonl`.
        read: the files that the command reads.

    Raises:
        ConfigError: the name ends otherwise, or is that of a directory, a device or a file that is read.
    """
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a directory; give the name of a file")
    if path.exists() and any(given is not None and given.exists() and path.samefile(given) for given in read):
        raise ConfigError(f"{option} {path} is a file that is read; give another name")
    if path.exists() and not path.is_file():  # a device would be replaced by a file of its name
        raise ConfigError(f"{option} {path} is not an ordinary file; give the name of one")
    if not path.name.endswith(ending):
        raise ConfigError(f"{option} {path} must end in {ending}")
