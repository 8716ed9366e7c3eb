"""Folders with a policy's weights, which servers on the same file system read: a new one for every version."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from torch import Tensor
from transformers import PreTrainedModel

from swerve.artifacts.files import TEMPORARY_PREFIX, regular_file, remove
from swerve.artifacts.locks import try_lock
from swerve.errors import ConfigError, DiskFullError, EngineError
from swerve.models.weight_shards import write_shards

_NAME = "swerve-weights"
_MARKER = ".swerve-weights"
"""In each version's folder: says that swerve made it; who needs the version holds a shared lock on it."""
_VERSION = re.compile(rf"({re.escape(TEMPORARY_PREFIX)})?v\d{{6,}}-[0-9a-f]{{12}}-[0-9a-f]{{8}}")
_OTHERS = re.compile(rf"\.[a-z0-9-]+\.lock|({re.escape(TEMPORARY_PREFIX)}.+-)?initial-[0-9a-f]{{12}}")
"""What is in the folder besides: the files of locks, and the models that `swerve serve` starts with."""
_PAUSE = 0.1
"""Seconds between two attempts to lock."""


def weights_path(folder: str | None) -> Path:
    """Return the folder for weights, made where it is missing: `swerve-weights` in the folder that a recipe names.

    None: one of this user's in the temporary folder, for servers on this machine.

    Raises:
        ConfigError: what has this name there is not a folder of swerve's own.
        EngineError: it cannot be made.
    """
    if folder is None:
        path = Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"
    else:
        path = Path(folder).expanduser().absolute() / _NAME
    # What stands there already must be swerve's own: what it holds is deleted by its name.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        reason = _foreign(path)
    except OSError as error:
        raise _refused(path, error) from None
    if reason:
        raise ConfigError(
            f"{path} {reason}: swerve keeps and deletes weights only in a folder that it made itself; move it away, or "
            "give another one with rollout.engine.folder"
        )
    return path


def _foreign(path: Path) -> str | None:
    """Return why a folder is not one that swerve made for weights; None where it is."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "is a link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    if status.st_uid != os.getuid():
        return "belongs to another user"
    if status.st_mode & 0o077:
        return f"is open to other users (mode {stat.S_IMODE(status.st_mode):o})"
    for name in sorted(file.name for file in path.iterdir()):
        if not (_VERSION.fullmatch(name) or _OTHERS.fullmatch(name)):
            return f"holds {name}"
    return None


class WeightsFolder:
    """The weights that one engine needs, in folders that it shares with other processes.

    Each process holds a shared lock on those it needs, so that the last one removes them, and what a process that was
    killed has left is known: the next engine removes it. Nothing else is removed: a version's folder has swerve's own
    form of name and its marker, or a temporary name and nothing in it.
    """

    def __init__(self, path: Path) -> None:
        """Remove folders left behind by dead processes.

        Args:
            path: what `weights_path` returns.

        Raises:
            EngineError: it cannot be written.
        """
        self.path = path
        self._held: dict[Path, IO[bytes]] = {}
        try:
            with self._writing():  # nobody is between making a folder and its marker
                for version in self._versions():
                    with regular_file(version / _MARKER).open("rb") as stream:
                        if try_lock(stream, fcntl.LOCK_EX):
                            _remove_version(version)
                # A kill may come before the marker is made, and after it is gone.
                for folder in self.path.glob(f"{TEMPORARY_PREFIX}*"):
                    is_folder = folder.is_dir() and not folder.is_symlink()
                    if is_folder and _VERSION.fullmatch(folder.name) and not any(folder.iterdir()):
                        folder.rmdir()
        except OSError as error:
            raise _refused(path, error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock of all processes that make, hold or remove folders here."""
        with (self.path / ".writing.lock").open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    @asynccontextmanager
    async def reserved(self, url: str) -> AsyncIterator[None]:
        """Hold a server, among all processes that use this folder, to give it weights."""
        with (self.path / f".{re.sub(r'[^a-z0-9]+', '-', url.lower())}.lock").open("ab") as stream:
            while not try_lock(stream, fcntl.LOCK_EX):
                await asyncio.sleep(_PAUSE)
            yield

    def _versions(self) -> list[Path]:
        """Return the folders of versions, whole or begun."""
        versions = []
        for folder in self.path.iterdir():
            marker = folder / _MARKER
            is_link = folder.is_symlink() or marker.is_symlink()
            if _VERSION.fullmatch(folder.name) and marker.is_file() and not is_link:
                versions.append(folder)
        return versions

    def find(self, label: str) -> Path | None:
        """Return a folder with the weights of this label, whoever wrote it."""
        return next((folder for folder in self._versions() if folder.name.startswith(f"{label}-")), None)

    def hold(self, label: str) -> None:
        """Need the weights of this label from now on, if there are any."""
        with self._writing():
            self._hold_found(label)

    def _hold_found(self, label: str) -> bool:
        folder = self.find(label)
        if folder is not None and folder not in self._held:
            self._held[folder] = _hold(folder)
        return folder is not None

    def write_missing(self, label: str, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> None:
        """Write a new folder in the Hugging Face layout, with the model's configuration and these weights.

        Of several processes with the same weights one does.

        Raises:
            DiskFullError: no room.
            EngineError: the operating system refuses.
        """
        name = f"{label}-{uuid4().hex[:8]}"
        temporary, final = self.path / f"{TEMPORARY_PREFIX}{name}", self.path / name
        with self._writing():
            if self._hold_found(label):
                return

            # Under a temporary name until it is whole.
            try:
                temporary.mkdir()
                (temporary / _MARKER).touch()
                self._held[final] = _hold(temporary)
                model.config.save_pretrained(temporary)
                write_shards(temporary, "model", tensors)
                os.rename(temporary, final)
            except OSError as error:
                remove(temporary)
                self._held.pop(final, None)
                if DiskFullError.matches(error):
                    raise DiskFullError(final, error) from error
                raise _refused(self.path, error) from None

    def keep_only(self, label: str | None) -> None:
        """Need no weights of other labels any more (None: none at all), and remove those that nobody else needs."""
        dropped = [folder for folder in self._held if label is None or not folder.name.startswith(f"{label}-")]
        with self._writing():
            for folder in dropped:
                with self._held.pop(folder) as stream:
                    if try_lock(stream, fcntl.LOCK_EX):
                        _remove_version(folder)


def _remove_version(folder: Path) -> None:
    """Delete a version's folder, which this process has locked; its marker last, so that a kill leaves it known."""
    hidden = folder.with_name(f"{TEMPORARY_PREFIX}{folder.name.removeprefix(TEMPORARY_PREFIX)}")
    folder.rename(hidden)  # at once: no server is given half of it
    for file in hidden.iterdir():
        if file.name != _MARKER:
            remove(file)
    remove(hidden)


def _hold(folder: Path) -> IO[bytes]:
    stream = regular_file(folder / _MARKER).open("rb")
    try_lock(stream, fcntl.LOCK_SH)
    return stream


def _refused(path: Path, error: OSError) -> EngineError:
    return EngineError(
        f"cannot write the weights for the servers to {path}: {error.strerror or error}; give a folder that this "
        "process can write and the servers can read with rollout.engine.folder"
    )
