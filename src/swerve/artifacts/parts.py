"""How a long task continues after a kill: the results of its pieces, kept in a folder until the whole is written.

The result of a piece is a *part*: a file of its own, written atomically. Its name has a digest of what it depends on:
`inputs`, the same for every part of a task, and what this part depends on beyond them. Its first line is the digest of
its name and content. So a part that was cut off, changed or renamed, or that belongs to other inputs, is not found and
is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from swerve.artifacts.files import (
    TEMPORARY_PREFIX,
    atomic_path,
    fsync,
    missing_folders,
    parse_json,
    read_sealed,
    regular_file,
    remove,
    remove_empty,
    write_sealed,
)
from swerve.errors import ArtifactError, ConfigError, said_by

_LOG = logging.getLogger(__name__)
_INPUTS = "parts.json"
"""What the parts of a folder depend on: whose it is."""
_ENDING = ".part"
_SHARD_LOCKS = "shard-*-of-*.lock"
"""Files that shards of the work hold; see `swerve.artifacts.shards`."""
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
    table = pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
    table.validate(full=True)  # one from another machine may be anything
    return table


# JSON in ASCII: a text of a model may hold half of a surrogate pair, which UTF-8 cannot.
JSON = Form(write=lambda value: json.dumps(value, allow_nan=False).encode(), read=parse_json)
TABLE = Form(write=_table_bytes, read=_read_table)


def digest_of(*values: Any) -> str:
    """Return the SHA-256 of JSON values: equal exactly where all of them are.

    >>> digest_of("a", 1)[:12]
    '2657442bb4a4'
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


class CopiedParts:
    """Parts in other folders, such as copies from machines without a common file system.

    Only files with the digest that their work and their content give are taken, whatever else lies there.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """Look for parts in folders and below them.

        Raises:
            ConfigError: a folder has none, or has links for them.
            ArtifactError: what says whose they are is damaged.
        """
        self._folders = folders
        self._paths: dict[str, list[Path]] = {}
        self._fit = not folders
        for folder in folders:
            found = [
                path
                for place, _, names in os.walk(folder)  # which follows no links
                for path in (Path(place) / name for name in names)
                if path.suffix == _ENDING or path.name == _INPUTS
            ]
            for path in found:
                if path.is_symlink() or not path.is_file():
                    raise ConfigError(f"--parts-from {folder}: {path} is no ordinary file; copy the files themselves")
                self._paths.setdefault(path.name, []).append(path)
            if not found:  # where there are few pieces, a shard may have none, and has left its inputs
                raise ConfigError(
                    f"--parts-from {folder} has no parts of shards; give a copy of the folder that they left"
                )
        self._inputs = [read_sealed(path).get("inputs") for path in self._paths.pop(_INPUTS, ())]

    @property
    def is_given(self) -> bool:
        """Whether there are such folders."""
        return bool(self._folders)

    def check_fit(self, *works: Parts, is_done: bool = False) -> None:
        """Check that parts of one of these works are there; once they are, a command's further works may be new.

        Args:
            works: what parts are looked for.
            is_done: all of these works are done and need no parts; those of the command's further works may be there.

        Raises:
            ConfigError: all are of others.
        """
        self._fit = self._fit or any(parts.inputs in self._inputs for parts in works)
        if not self._fit and not is_done:
            raise ConfigError(
                f"--parts-from {', '.join(map(str, self._folders))}: the parts there are of other settings, problems, "
                "models or versions than this command's; give it the arguments of the shards"
            )

    def contents(self, name: str) -> Iterator[tuple[Path, bytes]]:
        """Yield the files of a part's name with what they hold; damaged ones are noted."""
        for path in self._paths.get(name, []):
            content = _content(path)
            if content is None:
                _LOG.warning("%s is damaged: its piece of the work is done again", path)
            else:
                yield path, content


def _content(path: Path) -> bytes | None:
    """Return what a part's file holds; None where it is missing or damaged."""
    try:
        digest, _, content = regular_file(path).read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if _seal(path, content).encode() == digest else None


def _seal(path: Path, content: bytes) -> str:
    """Return the digest of a part: of its name, which says what of the work it is, and its content."""
    return hashlib.sha256(path.name.encode() + b"\n" + content).hexdigest()


class Parts:
    """The parts of one task, by name and by what each depends on.

    >>> parts = Parts(None, {"seed": 0})
    >>> parts.get("squares", [1, 2])
    >>> parts.put("squares", [1, 2], [1, 4])
    >>> parts.get("squares", [1, 2])
    [1, 4]
    """

    def __init__(
        self, folder: Path | None, inputs: Any, *, form: Form = JSON, copied: CopiedParts | None = None
    ) -> None:
        """Look at a folder, which is made with the first part.

        Args:
            folder: of the task's own; None: the parts last as long as this object.
            inputs: what every part depends on, as a JSON value.
            form: of the parts.
            copied: parts in other folders, which stand for those that this one lacks.
        """
        self.folder = folder
        self.inputs = json.loads(json.dumps(inputs))
        self._form = form
        self._copied = copied or CopiedParts()
        self._in_memory: dict[str, Any] = {}
        self._made: list[Path] = []
        """Folders that were not there before."""

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

    def check_same(self) -> None:
        """Check that what was begun in the folder is this work.

        Raises:
            ConfigError: it is other work.
        """
        if self.begun() not in (None, self.inputs):
            raise ConfigError(
                f"{self.folder} has parts of the same command with other settings, files or another version of swerve; "
                "give the same ones, or delete it to begin anew"
            )

    def begin(self) -> None:
        """Write down the inputs, so that a folder without a room for them is noticed before any work."""
        if self.folder is not None and self.begun() != self.inputs:
            self._made = missing_folders(self.folder)
            _begun.add(self)
            write_sealed(self.folder / _INPUTS, {"inputs": self.inputs})

    def get(self, name: str, depends: Any = None) -> Any | None:
        """Return the value of a part; None where it is missing or damaged.

        Args:
            name: of the kind of part, which its file's name begins with.
            depends: what this part depends on beside the inputs, as a JSON value.

        Raises:
            ArtifactError: it is there twice with different content, or is no such part.
        """
        file_name = self._file_name(name, depends)
        if self.folder is None:
            return self._in_memory.get(file_name)
        own = self.folder / file_name
        found = {own: content} if (content := _content(own)) is not None else {}
        found |= dict(self._copied.contents(file_name))
        if len(set(found.values())) > 1:
            raise ArtifactError(
                f"{' and '.join(map(str, found))} are the same piece of the work with different results: the machines "
                "compute differently; leave out one of the folders, and its shards are done here"
            )
        for path, content in found.items():
            try:
                return self._form.read(content)
            except Exception as error:  # the formats' readers raise types of their own
                raise ArtifactError(f"{path} was not written by this command ({said_by(error)}); delete it") from error
        return None

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
        path = self.folder / file_name
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            stream.write(f"{_seal(path, content)}\n".encode())
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
        for pattern in (f"*{_ENDING}", f"{TEMPORARY_PREFIX}*"):
            for path in self.folder.glob(pattern):
                remove(path)
        remove(self.folder / ".lock")
        self.end_sharing()
        with suppress(OSError):  # somebody else's files are in it, or another process has removed it
            self.folder.rmdir()
        remove_empty(self._made)
        _begun.discard(self)

    def leave(self) -> None:
        """Remove what `begin` has made if no part has come since, nor anything of another process."""
        if self.folder is None or self.folder not in self._made:
            return
        if {path.name for path in self.folder.glob("*")} <= {_INPUTS, ".lock"}:
            remove(self.folder / _INPUTS)
            remove_empty(self._made)

    def end_sharing(self) -> None:
        """Delete what shards left beside the parts: the files that they held, and last what says whose they were."""
        assert self.folder is not None
        for path in self.folder.glob(_SHARD_LOCKS):
            remove(path)
        remove(self.folder / _INPUTS)

    def _file_name(self, name: str, depends: Any) -> str:
        return f"{name}-{digest_of(self.inputs, name, depends)[:_NUM_DIGITS]}{_ENDING}"


_begun: set[Parts] = set()


def leave_nothing() -> None:
    """Remove what was begun in this process and has nothing in it: for a command that ends with an error."""
    while _begun:
        _begun.pop().leave()


def is_empty(folder: Path) -> bool:
    """Whether there is nothing but what a kill left of the first file."""
    return folder.is_dir() and all(path.name.startswith(TEMPORARY_PREFIX) for path in folder.iterdir())
