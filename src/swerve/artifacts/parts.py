"""How a long task continues after a kill: the results of its pieces, kept in a folder until the whole is written.

The result of a piece is a *part*: a file of its own, written atomically. Its name has a digest of what it depends on:
`inputs`, the same for every part of a task, and what this part depends on beyond them. Its first line is the digest of
its content. So a part that was cut off or changed, or that belongs to other inputs, is not found and is made again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from swerve.artifacts.files import TEMPORARY_PREFIX, atomic_path, fsync, read_sealed, remove, write_sealed
from swerve.errors import ArtifactError, ConfigError

_INPUTS = "parts.json"
"""What the parts of a folder depend on: whose it is."""
_ENDING = ".part"
SHARD_FILES = "shard-*-of-*"
"""Names of what shards of the work keep beside the parts; see `swerve.artifacts.shards`."""
_NUM_DIGITS = 32
"""Hexadecimal digits of the digest in a part's name."""


class Form(NamedTuple):
    """How the value of a part is written as bytes and read again."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _table_bytes(table: pa.Table) -> bytes:
    # In this thread, as for reading: a forked copy of a process may wait for Arrow's threads for ever.
    buffer, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(buffer, table.schema, options=options) as stream:
        stream.write_table(table)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def _read_table(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()


# JSON in ASCII: a text of a model may hold half of a surrogate pair, which UTF-8 cannot.
JSON = Form(write=lambda value: json.dumps(value, allow_nan=False).encode(), read=json.loads)
TABLE = Form(write=_table_bytes, read=_read_table)


def digest_of(*values: Any) -> str:
    """Return the SHA-256 of JSON values: equal exactly where all of them are.

    >>> digest_of("a", 1)[:12]
    '2657442bb4a4'
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


def take_parts(source: Path, target: Path) -> None:
    """Copy the parts of a folder to another one that lacks them; damaged ones are none.

    Raises:
        ArtifactError: a part is in both folders with different content.
    """
    for path in sorted(source.glob(f"*{_ENDING}")):
        present = target / path.name
        content, known = _content(path), _content(present)
        if content is not None and known is None:
            copy_file(path, present)
        elif content not in (None, known):
            raise ArtifactError(
                f"{path} and {present} are the same piece of the work with different results: the machines compute "
                "differently; delete one of the two folders and run its shards again"
            )


def _content(path: Path) -> bytes | None:
    """Return what a part's file holds; None where it is missing or damaged."""
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest().encode() == digest else None


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


class Parts:
    """The parts of one task, by name and by what each depends on.

    >>> parts = Parts(None, {"seed": 0})
    >>> parts.get("squares", [1, 2])
    >>> parts.put("squares", [1, 2], [1, 4])
    >>> parts.get("squares", [1, 2])
    [1, 4]
    """

    def __init__(self, folder: Path | None, inputs: Any, *, form: Form = JSON) -> None:
        """Look at a folder, which is made with the first part.

        Args:
            folder: of the task's own; None: the parts last as long as this object.
            inputs: what every part depends on, as a JSON value.
            form: of the parts.
        """
        self.folder = folder
        self.inputs = json.loads(json.dumps(inputs))
        self._form = form
        self._in_memory: dict[str, Any] = {}

    def begun(self) -> Any | None:
        """Return the inputs that the folder was begun with; None where it was not, or where what says so is damaged.

        Raises:
            ConfigError: the folder is somebody else's.
        """
        if self.folder is None or not self.folder.exists() or is_empty(self.folder):
            return None
        if not (self.folder / _INPUTS).is_file() and not any(self.folder.glob(f"*{_ENDING}")):
            raise ConfigError(
                f"{self.folder} exists and is no interrupted work of swerve; move it away, or give another name with "
                "--out"
            )
        try:
            return read_sealed(self.folder / _INPUTS).get("inputs")
        except ArtifactError:
            return None

    def begin(self) -> None:
        """Write down the inputs, so that a folder without a room for them is noticed before any work."""
        if self.folder is not None and self.begun() != self.inputs:
            write_sealed(self.folder / _INPUTS, {"inputs": self.inputs})

    def get(self, name: str, depends: Any = None) -> Any | None:
        """Return the value of a part; None where it is missing or damaged.

        Args:
            name: of the kind of part, which its file's name begins with.
            depends: what this part depends on beside the inputs, as a JSON value.
        """
        file_name = self._file_name(name, depends)
        if self.folder is None:
            return self._in_memory.get(file_name)
        content = _content(self.folder / file_name)
        return None if content is None else self._form.read(content)

    def put(self, name: str, depends: Any, value: Any) -> None:
        """Keep the value of a part, whole or not at all.

        Raises:
            DiskFullError: the file system has no room.
            WriteError: any other refusal of the operating system.
        """
        file_name = self._file_name(name, depends)
        if self.folder is None:
            self._in_memory[file_name] = value
            return
        content = self._form.write(value)
        with atomic_path(self.folder / file_name) as temporary, temporary.open("wb") as stream:
            stream.write(f"{hashlib.sha256(content).hexdigest()}\n".encode())
            stream.write(content)

    def drop(self, name: str, depends: Any = None) -> None:
        """Forget a part, also after a power cut; no error if it does not exist."""
        file_name = self._file_name(name, depends)
        self._in_memory.pop(file_name, None)
        if self.folder is not None and (self.folder / file_name).exists():
            remove(self.folder / file_name)
            fsync(self.folder)

    def finish(self) -> None:
        """Delete all parts, also those of other inputs, and the folder if nothing else is in it."""
        if self.folder is None or not self.folder.is_dir():
            return
        # What says that the folder is one of parts goes last: a kill in between leaves a folder that is known as one.
        for pattern in (f"*{_ENDING}", f"{TEMPORARY_PREFIX}*", SHARD_FILES):
            for path in self.folder.glob(pattern):
                remove(path)
        remove(self.folder / ".lock")
        remove(self.folder / _INPUTS)
        with suppress(OSError):  # somebody else's files are in it, or another process has removed it
            self.folder.rmdir()

    def _file_name(self, name: str, depends: Any) -> str:
        return f"{name}-{digest_of(self.inputs, name, depends)[:_NUM_DIGITS]}{_ENDING}"


def is_empty(folder: Path) -> bool:
    """Whether there is nothing but what a kill left of the first file."""
    return folder.is_dir() and all(path.name.startswith(TEMPORARY_PREFIX) for path in folder.iterdir())
