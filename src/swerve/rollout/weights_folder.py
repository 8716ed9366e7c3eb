"""Folders with a policy's weights, which servers on the same file system read: a new one for every version."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from torch import Tensor
from transformers import PreTrainedModel

from swerve.artifacts.files import TEMPORARY_PREFIX, remove
from swerve.errors import DiskFullError, EngineError
from swerve.models.shards import write_shards

_LOCK = ".lock"
_PAUSE = 0.1
"""Seconds between two attempts to lock."""


def weights_path(folder: str | None) -> Path:
    """Return the folder for weights that a recipe names; None: one of this user that servers on this machine read.

    Raises:
        EngineError: the latter is somebody else's.
    """
    if folder is not None:
        return Path(folder).expanduser().absolute()
    path = Path(tempfile.gettempdir()) / f"swerve-weights-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise EngineError(f"{path} belongs to another user; give a folder of yours with rollout.engine.folder")
    return path


class WeightsFolder:
    """The weights that one engine needs, in folders that it shares with other processes.

    Each process holds a shared lock on those it needs, so that the last one removes them, and what a process that was
    killed has left is known: the next engine removes it.
    """

    def __init__(self, path: Path) -> None:
        """Make the folder; remove what processes that are no more have left.

        Raises:
            EngineError: it cannot be written.
        """
        self.path = path
        self._held: dict[Path, IO[bytes]] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            for left in path.glob(f"*/{_LOCK}"):
                with left.open("rb") as stream:
                    if _try_lock(stream, fcntl.LOCK_EX):
                        remove(left.parent)
        except FileNotFoundError:
            pass  # another engine removed it first
        except OSError as error:
            raise _refused(path, error) from None

    @contextmanager
    def locked(self, name: str, ended: threading.Event) -> Iterator[None]:
        """Hold a lock among all processes that use this folder; `ended` ends the wait for it."""
        with (self.path / f".{re.sub(r'[^a-z0-9]+', '-', name.lower())}").open("ab") as stream:
            while not _try_lock(stream, fcntl.LOCK_EX):
                if ended.wait(_PAUSE):
                    raise EngineError(f"gave up waiting for the lock on {name}")
            yield

    def find(self, label: str) -> Path | None:
        """Return a folder with the weights of this label, whoever wrote it."""
        return next(iter(self.path.glob(f"{label}-*")), None)

    def hold(self, label: str) -> None:
        """Need the weights of this label from now on, if there are any."""
        with self.locked("writing", threading.Event()):
            self._hold_found(label)

    def _hold_found(self, label: str) -> bool:
        found = self.find(label)
        if found is not None and found not in self._held:
            self._held[found] = _hold(found)
        return found is not None

    def write_missing(self, label: str, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> None:
        """Write a new folder in the Hugging Face layout, with the model's configuration and these weights.

        Of several processes with the same weights one does.

        Raises:
            DiskFullError: no room.
            EngineError: the operating system refuses.
        """
        with self.locked("writing", threading.Event()):
            if not self._hold_found(label):
                self._write(label, model, tensors)

    def _write(self, label: str, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> None:
        name = f"{label}-{uuid4().hex[:8]}"
        temporary, final = self.path / f"{TEMPORARY_PREFIX}{name}", self.path / name
        try:
            temporary.mkdir()
            (temporary / _LOCK).touch()
            self._held[final] = _hold(temporary)
            model.config.save_pretrained(temporary)
            write_shards(temporary, "model", tensors)
            os.rename(temporary, final)
        except OSError as error:
            remove(temporary)
            self._held.pop(final, None)
            if DiskFullError.matches(error):
                raise DiskFullError(final) from error
            raise _refused(self.path, error) from None

    def keep_only(self, label: str | None) -> None:
        """Let go of the weights of other labels (None: of all), and remove those that nobody else needs."""
        dropped = [one for one in self._held if label is None or not one.name.startswith(f"{label}-")]
        with self.locked("writing", threading.Event()):
            for folder in dropped:
                with self._held.pop(folder) as stream:
                    if _try_lock(stream, fcntl.LOCK_EX):
                        remove(folder)


def _hold(folder: Path) -> IO[bytes]:
    stream = (folder / _LOCK).open("rb")
    _try_lock(stream, fcntl.LOCK_SH)
    return stream


def _try_lock(stream: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refused(path: Path, error: OSError) -> EngineError:
    return EngineError(
        f"cannot write the weights for the servers to {path}: {error.strerror or error}; give a folder that this "
        "process can write and the servers can read with rollout.engine.folder"
    )
