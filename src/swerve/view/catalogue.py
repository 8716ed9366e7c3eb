"""What there is to look at below a folder: runs, probes, studies, files of samples, and what is known of each."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc
import pyarrow.parquet as pq

from swerve.artifacts.run import PROBED, RunDirectory
from swerve.artifacts.samples import is_samples_file, read_samples_info
from swerve.artifacts.study import find_study, read_study
from swerve.progress import one_line
from swerve.run import describe_run

Kind = Literal["run", "study", "samples", "folder"]
Entry = dict[str, Any]
"""`key`, `kind` and `name`; `date` and `seconds`; `status`, `stages`, `last_step`, `num_steps`; `accuracy` and `reward`
with their places; `error`. What is not known is None."""

_MARKS: Mapping[str, Kind] = {
    "run.json": "run", "metrics.jsonl": "run", "study.json": "study", "study.yaml": "study",
}  # fmt: skip
"""Files by which a folder is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something below the folder that has a line in the list."""

    key: str
    """Names it in addresses: no text of an address is ever used as a path."""
    name: str
    """Its path below the folder."""
    path: Path
    kind: Kind
    error: str = ""
    """Why a folder of an unknown kind is in the list."""

    @property
    def stamp(self) -> tuple[object, ...]:
        """What changes when one of its files is written or its training ends."""
        files = [self.path, *self.path.glob("*" if self.kind == "run" else "study.*")]
        with suppress(OSError):
            if self.kind == "run" and RunDirectory(self.path).is_held():
                return (True, *map(_stamp, sorted(files)))
        return tuple(map(_stamp, sorted(files)))


def _stamp(file: Path) -> tuple[str, int, int]:
    """Return a file's name, time and size; of a folder the time at which a file in it was made, replaced or removed."""
    try:
        state = file.stat()
    except OSError:  # removed a moment ago
        return file.name, 0, 0
    return file.name, state.st_mtime_ns, state.st_size


def find_items(folder: Path) -> Iterator[Item]:
    """Yield what lies below a folder, without reading a file.

    Nothing outside of it: links that lead out of it are named and not followed.
    """
    root = folder.resolve()
    unreadable: list[OSError] = []

    def item(path: Path, kind: Kind, error: str = "") -> Item:
        name = str(path.relative_to(folder))
        key = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        return Item(key=key, name=root.name if name == "." else name, path=path, kind=kind, error=error)

    for place, folders, files in os.walk(folder, onerror=unreadable.append):
        # A run is one item; a study, and a folder of samples, may hold more.
        path = Path(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        kind = next((kind for mark, kind in _MARKS.items() if mark in files), None)
        if kind is not None:
            yield item(path, kind)
        if kind == "run":
            folders.clear()
            continue
        for name in sorted(files):
            if name.endswith(".parquet") and not (path / name).is_symlink():
                yield item(path / name, "samples")
        # Links are not followed; those to elsewhere are named.
        for name in folders:
            target = (path / name).resolve()
            if (path / name).is_symlink() and not target.is_relative_to(root):
                yield item(path / name, "folder", f"a link out of this folder: swerve view {target} shows it")
    for error in unreadable:
        yield item(Path(error.filename), "folder", error.strerror or "cannot be read")


class Catalogue:
    """The items below a folder and what is known of each, read again where its files changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[object, Entry | None]] = {}
        self._items: dict[str, Item] = {}
        self._lock = threading.Lock()

    def find(self, key: str) -> Item | None:
        """Return the item that an address names; None: there is none."""
        if key not in self._items:
            self._items = {item.key: item for item in find_items(self.folder)}
        return self._items.get(key)

    @property
    def keys(self) -> dict[Path, str]:
        """The keys of all items by their paths."""
        return {item.path: item.key for item in self._items.values()}

    def list(self, *, seconds: float) -> tuple[list[Entry], int]:
        """Return a line about each item, and how many of them are not read yet.

        Args:
            seconds: after so long those that are not known are left for the next call.
        """
        with self._lock:
            self._items = {item.key: item for item in find_items(self.folder)}
            entries, num_left, end = [], 0, time.monotonic() + seconds
            for item in self._items.values():
                stamp, known = item.stamp, self._known.get(item.key)
                if (known is None or known[0] != stamp) and time.monotonic() < end:
                    known = self._known[item.key] = stamp, describe(item)
                if known is None:
                    num_left += 1
                elif known[1] is not None:
                    entries.append(known[1])
            return entries, num_left


def describe(item: Item) -> Entry | None:
    """Return what is known of an item; None: a file that is no file of samples. Whatever is wrong with it is told."""
    entry: Entry = dict.fromkeys(
        ("date", "seconds", "status", "stages", "last_step", "num_steps", "accuracy", "reward", "error")
    )
    entry |= {"key": item.key, "kind": item.kind, "error": item.error or None}
    try:
        more = _DESCRIBE[item.kind](item.path)
    except Exception as error:  # of any folder, also one that another program wrote
        more = {"error": str(error) or type(error).__name__}
    if more is None:
        return None
    entry |= {**more, "name": one_line(item.name)}
    if entry["error"]:
        entry["error"] = one_line(entry["error"].replace(f"{item.path}/", "").removeprefix(f"{item.path} "))
    entry["date"] = entry["date"] or _date(item)
    return entry


def _date(item: Item) -> str | None:
    """Return when an item was last written, as the date of a run is told."""
    _, nanoseconds, _ = _stamp(item.path)
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M") if nanoseconds else None


def _run(path: Path) -> Entry:
    entry = describe_run(path)
    return {**entry, "kind": "probe"} if entry["status"] == PROBED else entry


def _study(path: Path) -> Entry:
    """Return how many of a study's runs are done, and its best variant."""
    study = read_study(find_study(path) or path)
    means = {mean.variant: mean.mean for mean in study.means if mean.measure == "accuracy"}
    best = max(means, key=means.__getitem__, default=None)
    return {
        "status": f"{sum(run.measured for run in study.runs)} of {len(study.runs)} runs",
        "accuracy": None if best is None else {"value": means[best], "at": best},
    }


def _samples(path: Path) -> Entry | None:
    """Return what a file of samples is of, and how many of them are right."""
    if not is_samples_file(path):
        return None
    info, rows = read_samples_info(path), pq.read_table(path, columns=["correct", "reward"])
    right, reward = (pc.mean(column).as_py() for column in (rows["correct"].fill_null(False), rows["reward"]))
    label = info.model.label
    return {
        "status": f"{info.num_problems} problems x {info.num_samples}",
        "accuracy": None if right is None else {"value": right, "at": label},
        "reward": None if reward is None else {"value": reward, "at": label},
    }


_DESCRIBE: Mapping[Kind, Callable[[Path], Entry | None]] = {
    "run": _run, "study": _study, "samples": _samples, "folder": lambda path: {},
}  # fmt: skip
