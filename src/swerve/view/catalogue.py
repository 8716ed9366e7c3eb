"""What there is to look at below a folder: runs, probes, studies, files of samples, and what is known of each."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from swerve.artifacts.run import PROBED, RunDirectory
from swerve.artifacts.samples import is_samples_file, read_samples_info
from swerve.artifacts.study import find_study, read_study
from swerve.progress import one_line
from swerve.run import describe_run

NOT_FINISHED = "not finished"
"""Status of a study that has runs to do."""
Kind = Literal["run", "study", "samples", "folder"]
Entry = dict[str, Any]
"""`key`, `kind` and `name`; `date` and `seconds`; `status`, `stages`, `last_step`, `num_steps`; `accuracy` and `reward`
with their places; `error`. What is not known is None."""

_MARKS: Mapping[str, Kind] = {
    "run.json": "run", "metrics.jsonl": "run", "study.json": "study", "study.yaml": "study",
}  # fmt: skip
"""Files by which a folder is told."""


class Item(NamedTuple):
    """Something below the folder that has a line in the list."""

    name: str
    """Its path below the folder."""
    path: Path
    kind: Kind
    error: str = ""
    """Why a folder of an unknown kind is in the list."""

    @property
    def key(self) -> str:
        """Names it in addresses: no text of an address is ever used as a path."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]

    @property
    def stamp(self) -> tuple[object, ...]:
        """What changes when one of its files is written or its training ends; of folders in it the time of change."""
        with suppress(OSError):  # removed a moment ago
            states = [(path, path.lstat()) for path in (self.path, *sorted(self.path.glob("*")))]
            files = [(path, state.st_mtime_ns, state.st_size) for path, state in states]
            return RunDirectory(self.path).is_held(), *files
        return ()


def find_items(folder: Path) -> Iterator[Item]:
    """Yield what lies below a folder, without reading a file.

    Nothing outside of it: links that lead out of it are named and not followed.
    """
    root = folder.resolve()
    unreadable: list[OSError] = []

    def item(path: Path, kind: Kind, error: str = "") -> Item:
        return Item(root.name if path == folder else os.path.relpath(path, folder), path, kind, error)

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
        for file in (path / name for name in sorted(files) if name.endswith(".parquet")):
            if not file.is_symlink():
                yield item(file, "samples")
        # Links are not followed; those to elsewhere are named.
        for link in (path / name for name in folders):
            if link.is_symlink() and not (target := link.resolve()).is_relative_to(root):
                yield item(link, "folder", f"a link out of this folder: swerve view {target} shows it")
    for error in unreadable:
        yield item(Path(error.filename), "folder", error.strerror or "cannot be read")


class Catalogue:
    """The items below a folder and what is known of each, read again where its files changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items: dict[str, Item] = {}
        """By their keys."""
        self._known: dict[str, tuple[object, Entry | None]] = {}
        self._lock = threading.Lock()

    def find(self, key: str) -> Item | None:
        """Return the item that an address names, or None."""
        if key not in self.items:
            self._look()
        return self.items.get(key)

    def list(self, *, seconds: float) -> tuple[list[Entry], int]:
        """Return a line about each item, and how many of them are not read yet.

        Args:
            seconds: of reading, after which the others are left for the next call.
        """
        with self._lock:
            self._look()
            known = {}
            for key, item in self.items.items():
                stamp = item.stamp
                # To look at those that are known takes its own time: each call reads on, however many there are.
                if self._known.get(key, (None, None))[0] != stamp and seconds > 0:
                    start = time.monotonic()
                    self._known[key] = stamp, describe(item)
                    seconds -= time.monotonic() - start
                if key in self._known:
                    known[key] = self._known[key][1]
            return list(filter(None, known.values())), len(self.items) - len(known)

    def _look(self) -> None:
        self.items = {item.key: item for item in find_items(self.folder)}


def is_begun(item: Item) -> bool:
    """Return whether an item is a study whose runs nobody has compared yet."""
    return item.kind == "study" and not (item.path / "study.json").is_file()


def describe(item: Item) -> Entry | None:
    """Return what is known of an item; None: a file that is no file of samples. Whatever is wrong with it is told."""
    entry: Entry = dict.fromkeys(
        ("date", "seconds", "status", "stages", "last_step", "num_steps", "accuracy", "reward", "error")
    )
    entry |= {"key": item.key, "kind": item.kind, "error": item.error or None}
    try:
        if item.kind == "samples" and not is_samples_file(item.path):
            return None
        entry |= _DESCRIBE[item.kind](item.path)
    except Exception as error:  # of any folder, also one that another program wrote
        entry["error"] = str(error) or type(error).__name__
    if entry["error"]:
        entry["error"] = one_line(entry["error"].replace(f"{item.path}/", "").removeprefix(f"{item.path} "))

    # What has no date of its own was last written at the file system's.
    with suppress(OSError):
        written = datetime.fromtimestamp(item.path.lstat().st_mtime, UTC)
        entry["date"] = entry["date"] or written.strftime("%Y-%m-%d %H:%M")
    return {**entry, "name": one_line(item.name)}


def _run(path: Path) -> Entry:
    entry = describe_run(path)
    return {**entry, "kind": "probe"} if entry["status"] == PROBED else entry


def _study(path: Path) -> Entry:
    """Return how many of a study's runs are done, and its best variant; of one without its record that it is begun."""
    if not (path / "study.json").is_file():
        return {"status": NOT_FINISHED}
    study = read_study(find_study(path) or path)
    means = [{"value": mean.mean, "at": mean.variant} for mean in study.means if mean.measure == "accuracy"]
    done = sum(run.measured for run in study.runs)
    best = max(means, key=itemgetter("value"), default=None)
    begun = f"{NOT_FINISHED}, " if any(run.state == "missing" for run in study.runs) else ""
    return {"status": f"{begun}{done} of {len(study.runs)} runs", "accuracy": best}


def _samples(path: Path) -> Entry:
    """Return what a file of samples is of, and how many of them are right."""
    info, correct = read_samples_info(path), pq.read_table(path, columns=["correct"])["correct"]
    value = pc.mean(correct).as_py()  # of those with a verdict; None: there are none
    best = None if value is None else {"value": value, "at": info.model.label}
    return {"status": f"{info.num_problems} problems x {info.num_samples}", "accuracy": best}


_DESCRIBE: Mapping[Kind, Callable[[Path], Entry]] = {
    "run": _run, "study": _study, "samples": _samples, "folder": lambda path: {},
}  # fmt: skip
