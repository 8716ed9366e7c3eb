"""What may lie under its final name after a kill or a power cut: looked at before anything is run again and mends it.

A file has the content that an undisturbed command gives it at some time; one that grows in place begins as that does.
What vouches for other files is there only with them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from swerve.artifacts.files import TEMPORARY_PREFIX, read_sealed, sha256_file
from tests.campaign.kills import watch_disk

_TIMES = {"seconds": None, "sync_seconds": None}
_TIMES_OF_A_PAGE = rb"\d{4}-\d\d-\d\d( \d\d:\d\d|, (\d+ (h|min) )?[\d.]+ (s|min))|seconds(,|(</?t[dh][^>]*>\s*)+)[\d.]+"
_OPENED = rb'"opened":"([^"]+)"'
"""What a page opens behind its sentences, packed: times are in there too."""
_UNHELD = (".lock", ".log")
"""Endings of files that say which process works, and what one printed."""
_UNSEEN = "study/runs/"
"""What a study's children write, whose disk calls are not watched."""


def contents(world: Path) -> dict[str, object]:
    """Return the mode and content of every file and folder by name, apart from times and what was made of them."""
    return {
        str(path.relative_to(world)): (oct(path.stat().st_mode), timeless(path) if path.is_file() else None)
        for path in world.rglob("*")
    }


def timeless(path: Path, name: str = "") -> object:
    """Return a file's bytes; of logs and manifests what they say apart from times and what follows from them."""
    name = name or path.name
    try:
        if name == "metrics.jsonl":
            return [{**json.loads(line), **_TIMES} for line in path.read_bytes().splitlines()]
        if name == "run.json":
            timed = ("date", "seconds", "command", "folder", "fields_sha256")
            return {**json.loads(path.read_bytes()), **dict.fromkeys(timed)}
        if name == "claim.json":  # how it was made names where parts were copied from
            return {**json.loads(path.read_bytes()), "made": None, "fields_sha256": None}
        if name == "index.html":  # a page shows when its run was begun, and how long it took
            page = re.sub(_OPENED, lambda found: gzip.decompress(base64.b64decode(found[1])), path.read_bytes())
            return re.sub(_TIMES_OF_A_PAGE, b"", page)
        if name == "MANIFEST.json":
            entry = json.loads(path.read_bytes())
            return {**entry, "run_files": sorted(entry["run_files"]), "fields_sha256": None}
        if name.endswith(".log"):
            return None
    except (ValueError, TypeError, KeyError, RecursionError):  # damaged
        pass
    return path.read_bytes()


def differences(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """Return what differs between two directories' contents, a line per file."""
    return [
        *(f"extra: {name}" for name in sorted(found.keys() - expected.keys())),
        *(f"missing: {name}" for name in sorted(expected.keys() - found.keys())),
        *(f"other: {name}" for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]),
    ]


class Recorder:
    """Writes down every content that this process gives a final name, and every file that it writes in place."""

    def __init__(self, root: Path, log: Path) -> None:
        self._root, self._log = root.resolve(), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        watch_disk(root, self._on_event)

    def _on_event(self, name: str, path: Path, target: Path | None) -> None:
        if target is not None and not is_temporary(target):
            for file in _files(path) if path.is_dir() else [path]:
                final = target / file.relative_to(path)
                self._write(final, _digest(file, final.name))
        elif name == "open" and not is_temporary(path):
            self._write(path, None)

    def _write(self, path: Path, digest: str | None) -> None:
        os.write(self._log, f"{json.dumps([str(path.relative_to(self._root)), digest])}\n".encode())


@dataclass(frozen=True, kw_only=True, eq=False)
class Undisturbed:
    """A command that nothing happens to: what is there before and after it, and what it does between."""

    name: str
    before: Path
    after: Path
    events: list[str]
    seconds: float
    recorded: Path
    """Log of a recorder."""

    @cached_property
    def expected(self) -> Mapping[str, object]:
        """What is there after it."""
        return contents(self.after)

    @cached_property
    def _states(self) -> Mapping[str, set[str | None]]:
        """By name, the digests of all contents that a file has there; None among them: it is written in place."""
        states = dict[str, set[str | None]]()
        for line in self.recorded.read_text().splitlines():
            name, digest = json.loads(line)
            states.setdefault(name, set()).add(digest)
        for world in (self.before, self.after):
            for file in _files(world):
                states.setdefault(str(file.relative_to(world)), set()).add(_digest(file, file.name))
        return states

    def wrong(self, world: Path) -> list[str]:
        """Return what must not be in a directory as a kill or a power cut of the command left it, a line per file."""
        held = [file for file in _files(world) if not is_temporary(file.relative_to(world))]
        names = {str(file.relative_to(world)): file for file in held if not file.name.endswith(_UNHELD)}
        found = [self._wrong_content(name, file) for name, file in names.items()]
        return [line for line in (*found, *self._vouched(world, names)) if line]

    def lost(self, world: Path, parts: Collection[str]) -> list[str]:
        """Return the parts, of those that shards had left, which are gone before their whole is there."""
        gone = [Path(name) for name in parts if not (world / name).is_file()]
        return [f"before it was run again: {name} is gone" for name in gone if not self._is_whole(world, name.parent)]

    def _is_whole(self, world: Path, parts: Path) -> bool:
        """Whether what a folder has the parts of is there: the file it is named after, or all that is new beside it."""
        named = Path(str(parts).removesuffix(".partial"))
        beside = [path.relative_to(self.after) for path in (self.after / parts.parent).iterdir() if path.is_file()]
        wholes = [named] if (self.after / named).is_file() else [one for one in beside if str(one) not in self._given]
        return all((world / one).is_file() for one in wholes)

    @cached_property
    def _given(self) -> Collection[str]:
        return contents(self.before).keys()

    def _wrong_content(self, name: str, file: Path) -> str:
        known = self._states.get(name, set())
        is_known = _digest(file, file.name) in known or (None in known and _is_beginning(file, self.after / name))
        if is_known or name.startswith(_UNSEEN) or (not known and _is_of_shards(file)):
            return ""
        return f"before it was run again: {name} {'has a content it never has' if known else 'is never written'}"

    def _vouched(self, world: Path, names: Mapping[str, Path]) -> Iterator[str]:
        """Yield what is not there, or not as a record says that vouches for it."""
        for name, file in names.items():
            is_part = file.suffix == ".part" and f"{Path(name).parent}/parts.json" in self._states
            if is_part and not (file.parent / "parts.json").is_file():
                yield f"before it was run again: {name} is there without the record of its folder"
            if file.suffix != ".json":
                continue
            try:
                record = json.loads(file.read_bytes())
            except ValueError:
                continue  # is no content that it has
            yield from (
                f"before it was run again: {name} is there without {one}" for one in self._lacking(file, record)
            )
            whole = {"run.json": "checkpoints/*/MANIFEST.json", "claim.json": "samples/*"}.get(file.name, "")
            if whole and record.get("status", "trained") == "trained":
                ends = (self.after / name).parent
                for one in ends.glob(whole):
                    if not (file.parent / one.relative_to(ends)).is_file():
                        yield f"before it was run again: {name} is there without {one.relative_to(ends)}"

    def _lacking(self, file: Path, record: Any) -> Iterator[str]:
        """Yield the files whose digests a record has and that are not as it says."""
        if not isinstance(record, dict):
            return
        for key in ("files", "tables"):
            digests = record.get(key)
            for other, digest in digests.items() if isinstance(digests, dict) else ():
                place = file.parent / other
                if re.fullmatch(r"[0-9a-f]{64}", str(digest)) and not (
                    place.is_file() and sha256_file(place) == digest
                ):
                    yield other
        for other, extent in record.get("run_files", {}).items():
            place = file.parents[2] / other
            content = place.read_bytes()[: extent["length"]] if place.is_file() else b""
            if hashlib.sha256(content).hexdigest() != extent["sha256"]:
                yield f"the whole of {other}"


def is_temporary(path: Path) -> bool:
    """Whether a path is of what is half written."""
    return any(part.startswith(TEMPORARY_PREFIX) for part in path.parts)


def without_writers(text: str) -> str:
    """Return paths without what names the process that half wrote them."""
    return re.sub(r"\.swerve-tmp-[0-9a-f]{8}-\d+-\d*-", "", text)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _digest(file: Path, name: str) -> str:
    return hashlib.sha256(repr(timeless(file, name)).encode()).hexdigest()


def _is_of_shards(file: Path) -> bool:
    """Whether a file says whose work shards do, which agrees with itself; an undivided probe has none."""
    return file.name == "parts.json" and bool(read_sealed(file))


def parts_of_shards(world: Path) -> list[str]:
    """Return the names of all parts, but for those that are dropped once others are made of them."""
    return [str(one.relative_to(world)) for one in world.rglob("*.part") if not one.name.startswith("states-")]


def _is_beginning(file: Path, whole: Path) -> bool:
    """Whether whole lines are those that a log begins with, and after them there is at most what was being written."""
    expected = whole.read_bytes().splitlines() if whole.is_file() else []
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True)):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # half a line, or zeros that a power cut left
        if number >= len(expected) or not line.endswith(b"\n"):
            return False
        if {**entry, **_TIMES} != {**json.loads(expected[number]), **_TIMES}:
            return False
    return True
