"""Which names a file or a folder of results can have. Free of torch."""

from __future__ import annotations

import os
import re
from pathlib import Path

from swerve.errors import ConfigError

_ENDING = re.compile(r"\.[A-Za-z]{2,}\Z")


def check_output(path: Path, *endings: str, folder: bool = False, of_run: bool = False, option: str = "--out ") -> None:
    """Check that a name that is given is that of what is written there; an existing file is replaced.

    What ends as a file that is written is a file; what has no ending is a folder. An ending is letters after a dot, so
    that `Qwen2.5-0.5B` has none, and a folder that is there may have any name.

    Args:
        path: what is given.
        endings: of files that are written.
        folder: whether folders are written.
        of_run: whether it may be the folder of a run; else nothing is written among the files of one.
        option: what stands before the name in a message.

    Raises:
        ConfigError: the name has another ending, or is that of something else that is there.

    >>> check_output(Path("rows.csv"), ".jsonl", ".parquet")
    Traceback (most recent call last):
    swerve.errors.ConfigError: --out rows.csv must end in .jsonl or .parquet
    """
    _check_place(path, option)
    files = " or ".join(filter(None, [", ".join(endings[:-1]), *endings[-1:]]))
    if path.is_dir():
        if not folder:
            raise ConfigError(f"{option}{path} is a directory; give the name of a file that ends in {files}")
        if not of_run and (path / "run.json").is_file():
            raise ConfigError(f"{option}{path} is the folder of a run, which keeps its own files; give another folder")
    elif path.name.endswith(endings):
        if path.exists() and not path.is_file():  # a device would be replaced by a file of its name
            raise ConfigError(f"{option}{path} is not an ordinary file; give the name of one")
    elif not folder:
        raise ConfigError(f"{option}{path} must end in {files}")
    elif ending := _ENDING.search(path.name):
        must = f"end in {files}, or be" if files else "be"
        bare = path.with_name(path.name[: ending.start()])
        raise ConfigError(
            f"{option}{path} must {must} the name of a folder, which has no ending such as {ending[0]}: {option}{bare}"
        )
    elif path.exists():
        raise ConfigError(f"{option}{path} is a file; give a folder, which need not be there yet")


def _check_place(path: Path, option: str) -> None:
    """Check that there can be something of a name: what is there of the folders above it can be written to."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if there != path.absolute() and not there.is_dir():
        raise ConfigError(f"{option}{path} cannot be made: {there} is a file and no folder")
    if there.is_dir() and not os.access(there, os.W_OK):
        raise ConfigError(f"{option}{path} cannot be written: {there} is not writable; choose another place")
