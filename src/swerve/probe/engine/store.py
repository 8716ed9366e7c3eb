"""Storage of intermediate results: tensors of the engine and JSON of the causal tests; files survive an interruption.

The engine stores *units*: the tensors that one forward batch gave, under a key that is a digest of everything the
tensors depend on. The causal tests store *parts*, each under a digest of what it depends on. Nothing is read under
another key, so results of other weights, other sequences or other settings cannot mix in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

from swerve.artifacts.files import atomic_path, fsync, read_sealed, remove, write_sealed
from swerve.errors import ArtifactError
from swerve.version import __version__
from swerve.world import World

STATES_VERSION = 1

_PREFIX = "unit-"

_FOLDER_PREFIX = "key-"

_RECORD_NAME = "record.json"


class StateStore(Protocol):
    """Units of tensors and one JSON record under each key."""

    def load(self, key: str, unit: int) -> dict[str, Tensor] | None:
        """Return a unit's tensors; None where there are none, or damaged ones."""

    def save(self, key: str, unit: int, tensors: Mapping[str, Tensor]) -> None:
        """Store a unit's tensors, whole or not at all."""

    def drop(self, key: str, unit: int) -> None:
        """Forget a unit; no error if there is no such unit."""

    def flush(self, key: str) -> None:
        """Wait until a power cut would not bring dropped units back."""

    def load_record(self, key: str) -> dict[str, Any] | None:
        """Return what was stored about the key; None where there is nothing, or something damaged."""

    def save_record(self, key: str, record: Mapping[str, Any]) -> None:
        """Store a JSON object about the key."""


class MemoryStore:
    """A store that lasts as long as the object."""

    def __init__(self) -> None:
        self._units: dict[tuple[str, int], dict[str, Tensor]] = {}
        self._records: dict[str, dict[str, Any]] = {}

    def load(self, key: str, unit: int) -> dict[str, Tensor] | None:
        """Return a unit's tensors; None where there are none."""
        return self._units.get((key, unit))

    def save(self, key: str, unit: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep a unit's tensors, which are not copied."""
        self._units[key, unit] = dict(tensors)

    def drop(self, key: str, unit: int) -> None:
        """Forget a unit; no error if there is no such unit."""
        self._units.pop((key, unit), None)

    def flush(self, key: str) -> None:
        """Do nothing: no unit outlives the object."""

    def load_record(self, key: str) -> dict[str, Any] | None:
        """Return what was stored about the key; None where there is nothing."""
        return self._records.get(key)

    def save_record(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a JSON object about the key."""
        self._records[key] = dict(record)


class DiskStore:
    """A store of safetensors files, `FOLDER/key-KEY/unit-NUMBER.safetensors`, each written atomically.

    A file carries the CRC-32 of its tensors and is deleted when it does not match, so that a file that was cut off or
    changed is computed again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str, unit: int) -> dict[str, Tensor] | None:
        """Return a unit's tensors; None where there are none, or damaged ones."""
        path = self._path(key, unit)
        if not path.is_file():
            return None
        tensors = _read(path)
        if tensors is None:
            remove(path)
        return tensors

    def save(self, key: str, unit: int, tensors: Mapping[str, Tensor]) -> None:
        """Write a unit's tensors.

        Raises:
            DiskFullError: the file system has no room.
            ArtifactError: any other refusal of the operating system.
        """
        owned = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with atomic_path(self._path(key, unit)) as temporary:
            save_file(owned, temporary, metadata={"crc32": _checksum(owned)})

    def drop(self, key: str, unit: int) -> None:
        """Delete a unit; no error if there is no such unit."""
        remove(self._path(key, unit))

    def flush(self, key: str) -> None:
        """Wait until a power cut would not bring dropped units back."""
        folder = self._path(key, 0).parent
        if folder.is_dir():
            fsync(folder)

    def load_record(self, key: str) -> dict[str, Any] | None:
        """Return what was stored about the key; None where there is nothing, or something damaged."""
        try:
            return read_sealed(self._folder / f"{_FOLDER_PREFIX}{key}" / _RECORD_NAME)
        except ArtifactError:
            return None

    def save_record(self, key: str, record: Mapping[str, Any]) -> None:
        """Write a JSON object about the key."""
        write_sealed(self._folder / f"{_FOLDER_PREFIX}{key}" / _RECORD_NAME, record)

    def _path(self, key: str, unit: int) -> Path:
        return self._folder / f"{_FOLDER_PREFIX}{key}" / f"{_PREFIX}{unit:06d}.safetensors"


def open_store(folder: Path | None) -> StateStore:
    """Return a store in `folder`, or in memory without one."""
    return MemoryStore() if folder is None else DiskStore(folder)


def clear_store(folder: Path) -> None:
    """Delete everything that stores put into `folder`, and the folder if nothing else is in it."""
    with suppress(FileNotFoundError):  # several processes may do this at once
        for path in folder.glob(f"{_FOLDER_PREFIX}*"):
            remove(path)
        if not any(folder.iterdir()):
            folder.rmdir()


def digest_of(*parts: Any) -> str:
    """Return 32 hexadecimal digits of the SHA-256 of JSON values and of the versions that results depend on.

    >>> digest_of("states", [1, 2]) == digest_of("states", [1, 2]) != digest_of("states", [2, 1])
    True
    """
    text = json.dumps([STATES_VERSION, __version__, torch.__version__, *parts], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pack_units(units: Mapping[int, Mapping[str, Tensor]]) -> dict[str, str]:
    """Return units as text that JSON can carry between processes."""
    return {
        str(unit): base64.b64encode(save(dict(tensors))).decode("ascii")  # the bytes of a safetensors file
        for unit, tensors in units.items()
    }


def unpack_units(packed: Mapping[str, str]) -> dict[int, dict[str, Tensor]]:
    """Return what `pack_units` packed.

    >>> packed = pack_units({3: {"js": torch.tensor([0.25])}})
    >>> unpack_units(packed)[3]["js"].tolist()
    [0.25]
    """
    return {int(unit): load(base64.b64decode(text)) for unit, text in packed.items()}


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(f"{name} {tuple(tensors[name].shape)}".encode(), value)
        value = zlib.crc32(tensors[name].view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def _read(path: Path) -> dict[str, Tensor] | None:
    """Return a file's tensors, or None if it is damaged.

    The file is mapped and copied: mapped tensors are not aligned as torch's own are, and processors round operands of
    another alignment otherwise, so that a resumed probe would differ in the last bit.
    """
    try:
        with safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get("crc32")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError):
        return None
    return tensors if _checksum(tensors) == expected else None


def fingerprint(*values: Any) -> str:
    """Return the SHA-256 of JSON values: equal exactly where all of them are.

    >>> fingerprint("a", 1)[:12]
    '2657442bb4a4'
    """
    text = json.dumps(values, sort_keys=True, allow_nan=False, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStore:
    """Results of units of work, each a JSON file named by what it depends on; a changed one is made again."""

    path: Path | None
    """Directory of the files; None: nothing is kept."""
    key: str
    """Fingerprint of everything that all units depend on."""
    world: World = field(default_factory=World)
    """The processes that compute units together; the first one keeps them."""

    def get(
        self,
        name: str,
        depends: Mapping[str, Any],
        compute: Callable[[], Any],
        *,
        on_found: Callable[[], None] | None = None,
    ) -> Any:
        """Return the unit's result (a JSON value): read where it was computed before, computed and kept otherwise.

        Args:
            name: of the kind of work, such as `swaps`.
            depends: what the unit depends on beside the store's key.
            compute: makes the result, which is not None.
            on_found: called where the result was computed before.
        """
        if self.path is None:
            return compute()
        file = self.path / f"{name}-{fingerprint(self.key, name, depends)[:32]}.json"
        kept = _kept_result(file) if self.world.is_main else None
        (result,) = self.world.gather(kept)[:1]
        if result is not None:
            if on_found is not None:
                on_found()
            return result
        computed = compute()
        if not self.world.is_main:
            return computed
        write_sealed(file, {"name": name, "result": computed})
        return read_sealed(file)["result"]


def _kept_result(file: Path) -> Any:
    """Return a unit's result; None where it is missing or damaged."""
    try:
        return read_sealed(file)["result"]
    except (ArtifactError, KeyError):
        return None
