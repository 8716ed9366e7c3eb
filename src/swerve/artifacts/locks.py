"""Locks of files between processes: the system lets them go when their process ends, however that is."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from swerve.artifacts.files import TEMPORARY_PREFIX, regular_file, remove
from swerve.errors import ArtifactError

_LOOK_SECONDS = 0.2
"""A process that only looks whether the lock is held holds it for less."""


def try_lock(stream: IO[Any], kind: int) -> bool:
    """Return whether a file could be locked without waiting for whoever holds it; the lock ends with the file.

    `kind` is `fcntl.LOCK_EX`, or `fcntl.LOCK_SH` beside others that share it.
    """
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(place: Path) -> bool:
    """Whether a process holds the lock of a file, which may be missing."""
    if not place.is_file():
        return False
    with place.open(encoding="utf-8") as stream:
        return not try_lock(stream, fcntl.LOCK_SH)


@contextmanager
def locked(
    place: Path, held: Path, *, shared: bool, remedy: str = "wait for it or stop it, or choose another --out"
) -> Iterator[None]:
    """Hold the lock of a file, which then says who holds it.

    Args:
        place: the file; made if it is missing.
        held: what the message says is in use.
        shared: hold it beside others that do so; of these none is named.
        remedy: what to do about another process that holds it.

    Raises:
        ArtifactError: another process holds it; the message names its pid.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if place.is_symlink():  # in a folder that somebody sent: what it leads to would be emptied
        raise ArtifactError(f"{place} is a link, and a lock is a file of its own; delete the link")
    descriptor = os.open(regular_file(place), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "a+", encoding="utf-8") as stream:
        if not try_lock(stream, kind):
            time.sleep(_LOOK_SECONDS)
            if not try_lock(stream, kind):
                stream.seek(0)
                holder = stream.read().strip()
                raise ArtifactError(
                    f"{held} is in use by {f'process {holder}' if holder else 'shards of its work'}; {remedy}"
                )
        stream.truncate(0)
        if not shared:
            stream.write(f"{os.getpid()} on {socket.gethostname()}")
            stream.flush()
        yield
        stream.truncate(0)


def remove_leftovers(run: Path, *, apart: Path) -> None:
    """Delete temporary files of processes that were killed in a run's folder: who holds its lock writes there alone.

    But for the folder `apart`, and runs inside the directory.
    """
    for folder, folders, files in os.walk(run):
        for name in [one for one in (*folders, *files) if one.startswith(TEMPORARY_PREFIX)]:
            remove(Path(folder) / name)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(TEMPORARY_PREFIX)
            and Path(folder) / name != apart
            and not (Path(folder) / name / "run.json").is_file()
        ]
