"""Faults that are planted in what writes files: the campaign must see each, or it would not see one that is real."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from swerve.artifacts import files
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.parts import Parts
from swerve.artifacts.run import RunDirectory
from tests.campaign.kills import Events
from tests.campaign.lost_writes import power_cuts, wrong_after_cut
from tests.campaign.states import parts_of_shards, without_writers
from tests.campaign.worlds import Case, Worlds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What is planted, in a copy of this process, and the command that has it then."""

    plant: Callable[[], None]
    command: str
    is_of_power: bool = False
    """Whether only a power cut shows it."""
    before: Sequence[str] = ()
    """Arguments with which the command is run first, without the fault."""


def _without_fsync(*, of_folders: bool) -> None:
    fsync = files.fsync

    def fsync_some(path: Path) -> None:
        if sys._getframe(1).f_code.co_name != "atomic_path" or path.is_dir() != of_folders:
            fsync(path)

    files.fsync = fsync_some


def _no_fsync_of_the_file() -> None:
    _without_fsync(of_folders=False)


def _no_fsync_of_the_folder() -> None:
    _without_fsync(of_folders=True)


def _manifest_before_its_files() -> None:
    rename = os.rename

    def manifest_first(source: Path, target: Path) -> None:
        if not (Path(source) / files.MANIFEST_NAME).is_file():
            return rename(source, target)
        os.mkdir(target)
        for name in sorted(os.listdir(source), key=lambda one: one != files.MANIFEST_NAME):
            rename(Path(source) / name, Path(target) / name)
        return os.rmdir(source)

    os.rename = manifest_first


def _summary_before_its_table() -> None:
    write = Evaluation.write

    def summary_first(self: Evaluation, path: Path) -> None:
        tables = {path.parent / name: (path.parent / name).read_bytes() for name in self.tables}
        for table in tables:
            table.unlink()
        write(self, path)
        for table, content in tables.items():
            with files.atomic_path(table) as temporary:
                temporary.write_bytes(content)

    Evaluation.write = summary_first  # type: ignore[method-assign]


def _status_before_its_checkpoint() -> None:
    set_status = RunDirectory.set_status

    def early(self: RunDirectory, status: str, **seconds: float) -> None:
        set_status(self, {"training": "trained"}.get(status, status), **seconds)

    RunDirectory.set_status = early  # type: ignore[method-assign]


def _record_of_parts_removed_first() -> None:
    finish = Parts.finish

    def record_first(self: Parts) -> None:
        assert self.folder is not None
        files.remove(self.folder / "parts.json")
        finish(self)

    Parts.finish = record_first  # type: ignore[method-assign]


def _parts_of_shards_removed_first() -> None:
    begin = Parts.begin

    def parts_first(self: Parts) -> None:
        assert self.folder is not None
        for part in self.folder.glob("*.part"):
            files.remove(part)
        begin(self)

    Parts.begin = parts_first  # type: ignore[method-assign]


def _changed_parts(change: Callable[[Any], Any]) -> None:
    put = Parts.put

    def put_changed(self: Parts, name: str, depends: Any, value: Any) -> None:
        put(self, name, depends, change(value))

    Parts.put = put_changed  # type: ignore[method-assign]


def _last_row_of_a_part_lost() -> None:
    _changed_parts(lambda value: value[:-1] if isinstance(value, list) else value.slice(0, value.num_rows - 1))


def _verdict_flipped_in_a_part() -> None:
    _changed_parts(lambda verdicts: [{**verdicts[0], "value": 1.0 - verdicts[0]["value"]}, *verdicts[1:]])


FAULTS: Mapping[str, _Fault] = {
    "no-fsync-of-the-file": _Fault(plant=_no_fsync_of_the_file, command="grade", is_of_power=True),
    "no-fsync-of-the-folder": _Fault(plant=_no_fsync_of_the_folder, command="grade", is_of_power=True),
    "manifest-before-its-files": _Fault(plant=_manifest_before_its_files, command="train"),
    "status-before-its-checkpoint": _Fault(plant=_status_before_its_checkpoint, command="train"),
    "summary-before-its-table": _Fault(plant=_summary_before_its_table, command="eval"),
    "record-of-parts-removed-first": _Fault(plant=_record_of_parts_removed_first, command="grade"),
    "parts-of-shards-removed-first": _Fault(
        plant=_parts_of_shards_removed_first, command="grade", before=("--shard=1/2", "--shard=2/2")
    ),
    "last-row-of-a-part-lost": _Fault(plant=_last_row_of_a_part_lost, command="import"),
    "verdict-flipped-in-a-part": _Fault(plant=_verdict_flipped_in_a_part, command="grade"),
}


def planted_cases(worlds: Worlds, names: Sequence[str]) -> Iterator[Case]:
    """Yield each fault of a command; the case fails where nothing sees it."""
    for name, fault in FAULTS.items():
        if fault.command in names:
            case = f"planted/{fault.command}/{name}"
            check = partial(_check_power if fault.is_of_power else _check_kills, worlds, fault)
            yield Case(name=case, check=check)


def _check_power(worlds: Worlds, fault: _Fault) -> tuple[list[str], int]:
    cuts = power_cuts(worlds, fault.command, fault.plant)
    is_found = any(wrong_after_cut(worlds, fault.command, cut) for cut in cuts)
    return [] if is_found else [f"none of {len(cuts)} power cuts shows it"], 0


def _check_kills(worlds: Worlds, fault: _Fault) -> tuple[list[str], int]:
    """Kill the faulty command after renames and removals, from where it does other things on, until one shows it."""
    known, log = worlds.undisturbed(fault.command), worlds.path / "events"

    def kill(last: int | None) -> list[str]:
        world = worlds.copy(known.before)
        for words in fault.before:
            assert worlds.run(fault.command, world, words).status == 0
        parts = parts_of_shards(world)

        def watch() -> None:
            fault.plant()
            Events(world, last=last, log=log)

        worlds.run(fault.command, world, before=watch)
        return [*known.wrong(world), *known.lost(world, parts)]

    kill(None)
    events, usual = ([without_writers(one) for one in lines] for lines in (log.read_text().splitlines(), known.events))
    other = next((place for place, pair in enumerate(zip(events, usual, strict=False)) if pair[0] != pair[1]), 0)
    places = [number for number, event in enumerate(events, start=1) if event.startswith(("rename", "remove"))]
    places = [*(one for one in places if one > other), *(one for one in places if one <= other)]
    for number, place in enumerate(places, start=1):
        if kill(place + 1):
            return [], number
    return [f"none of {len(places)} kills shows it"], len(places)
