"""Results on stdout, as text or JSON; everything else goes to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swerve.artifacts.files import record_fields
from swerve.errors import ConfigError

__all__ = ["print_json", "print_text", "refuse_output"]


def print_text(text: str) -> None:
    """Write lines to stdout, ended by exactly one line break."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    print_text(json.dumps(value, indent=2, allow_nan=False, default=record_fields))


def refuse_output(option: str, path: Path, *, ending: str, read: Iterable[Path | None] = ()) -> None:
    """Do nothing if a command can write its output file there; an existing file is replaced.

    Args:
        option: what the command line calls the file, for messages.
        path: the file.
        ending: how its name must end, such as `.jsonl`.
        read: the files that the command reads.

    Raises:
        ConfigError: the name ends otherwise, or there is a directory, a device or a file that is read.
    """
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a directory; give the name of a file")
    if path.exists() and any(one is not None and one.exists() and path.samefile(one) for one in read):
        raise ConfigError(f"{option} {path} is a file that is read; give another name")
    if path.exists() and not path.is_file():  # a device would be replaced by a file of its name
        raise ConfigError(f"{option} {path} is not an ordinary file; give the name of one")
    if not path.name.endswith(ending):
        raise ConfigError(f"{option} {path} must end in {ending}")
