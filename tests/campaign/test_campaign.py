"""The campaign itself: every command is in it, and it sees what a kill or a power cut must not leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from studies.campaign import tables
from swerve.artifacts.files import atomic_path, write_json, write_sealed
from swerve.cli.app import app
from tests.campaign import kills
from tests.campaign.kills import Events, forked
from tests.campaign.lost_writes import Disk
from tests.campaign.planted import FAULTS
from tests.campaign.shards import ROUNDS
from tests.campaign.states import Recorder, Undisturbed
from tests.campaign.worlds import COMMANDS, WRITES_NOTHING


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, (*words, name))
    if not hasattr(group, "commands"):
        yield words


def test_every_command_is_killed_or_writes_nothing() -> None:
    registered = set(_commands(typer.main.get_command(app)))
    assert ("data", "select") in registered
    killed = {words for words in registered for argv in COMMANDS.values() if tuple(argv[: len(words)]) == words}
    silent = {tuple(name.split()) for name in WRITES_NOTHING}
    assert killed | silent | {("view",)} == registered  # `view` is training that somebody looks at
    assert not killed & silent


def test_every_command_that_can_be_divided_is_killed_in_shards() -> None:
    found = set()
    for words in _commands(built := typer.main.get_command(app)):
        command: Any = built
        for word in words:
            command = command.commands[word]
        is_divided = words[0] != "plan" and any("--shard" in one.opts for one in command.params)
        found |= {words} if is_divided else set()
    assert found == {tuple(COMMANDS[name][:1]) for name in ROUNDS}
    assert {fault.command for fault in FAULTS.values()} <= set(COMMANDS)


@pytest.fixture
def record(tmp_path: Path) -> Callable[[Callable[[Path], None]], Undisturbed]:
    """Run a command in a directory with a file, and write down what it does."""

    def run(command: Callable[[Path], None]) -> Undisturbed:
        before, after, log = tmp_path / "before", tmp_path / "after", tmp_path / "log"
        for world in (before, after):
            world.mkdir()
            (world / "given.txt").write_text("given")

        def recorded() -> None:
            Recorder(after, log)
            command(after)

        ended = forked(recorded, log=tmp_path / "printed")
        assert ended.status == 0, ended.err
        return Undisturbed(name="one", before=before, after=after, events=[], seconds=0.0, recorded=log)

    return run


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)


def _work(world: Path) -> None:
    """Write a file twice, a log line by line, and a record of the file."""
    _write(world / "out.txt", "begun\n")
    with (world / "metrics.jsonl").open("w") as stream:
        stream.write('{"step": 1, "seconds": 3}\n{"step": 2, "seconds": 4}\n')
    _write(world / "out.txt", "done\n")
    digest = "d117fa006ba9208500b2930ce69cbde436c647afa917cb7396a9bc9111a46dd2"
    write_json(world / "summary.json", {"tables": {"out.txt": digest}})


def _left(known: Undisturbed, world: Path, files: dict[str, str]) -> list[str]:
    world.mkdir()
    for name, text in files.items():
        (world / name).write_text(text)
    return [line.removeprefix("before it was run again: ") for line in known.wrong(world)]


LEFT = {
    "nothing yet": ({}, []),
    "an earlier content": ({"out.txt": "begun\n"}, []),
    "half of a content": ({"out.txt": "beg"}, ["out.txt has a content it never has"]),
    "zeros": ({"out.txt": "\0\0\0\0\0\0"}, ["out.txt has a content it never has"]),
    "a changed file that was given": ({"given.txt": "give"}, ["given.txt has a content it never has"]),
    "a file of its own": ({"other.txt": "x"}, ["other.txt is never written"]),
    "half of a temporary file": ({".swerve-tmp-0-1-2-out.txt": "be"}, []),
    "a log at other times": ({"metrics.jsonl": '{"step": 1, "seconds": 9}\n'}, []),
    "a log with half a line": ({"metrics.jsonl": '{"step": 1, "seconds": 9}\n{"st'}, []),
    "a log with zeros": ({"metrics.jsonl": '{"step": 1, "seconds": 9}\n\0\0\0'}, []),
    "a log with another step": ({"metrics.jsonl": '{"step": 2, "seconds": 9}\n'},
                                ["metrics.jsonl has a content it never has"]),
    "a log that goes on after zeros": ({"metrics.jsonl": '\0\0\n{"step": 1, "seconds": 9}\n'},
                                       ["metrics.jsonl has a content it never has"]),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_may_lie_under_a_final_name(record: Callable[..., Undisturbed], tmp_path: Path) -> None:
    known = record(_work)
    found = {name: _left(known, tmp_path / name, files) for name, (files, _) in LEFT.items()}
    assert found == {name: expected for name, (_, expected) in LEFT.items()}


def test_a_record_is_there_only_with_what_it_vouches_for(record: Callable[..., Undisturbed], tmp_path: Path) -> None:
    def work(world: Path) -> None:
        _write(world / "table.txt", "rows\n")
        write_json(world / "summary.json", {"tables": {"table.txt": ROWS}})
        (world / "parts").mkdir()
        write_sealed(world / "parts" / "parts.json", {"inputs": 1})
        _write(world / "parts" / "a-1.part", "piece")

    known, world = record(work), tmp_path / "left"
    summary = (known.after / "summary.json").read_text()
    assert _left(known, world, {"summary.json": summary}) == ["summary.json is there without table.txt"]
    (world / "table.txt").write_text("rows\n")
    (world / "parts").mkdir()
    (world / "parts" / "a-1.part").write_text("piece")
    lines = known.wrong(world)
    assert lines == ["before it was run again: parts/a-1.part is there without the record of its folder"]
    (world / "parts" / "parts.json").write_text((known.after / "parts" / "parts.json").read_text())
    assert known.wrong(world) == []


ROWS = "9b71c268cf258d56d93a8182fce8a2ed6a7d18768a88959e17537d913702d63f"


def _cuts(tmp_path: Path, command: Callable[[Path], None]) -> list[str]:
    """Return what is lost in any of the cuts of a command, of what it reported as written."""
    world, cuts = tmp_path / "world", tmp_path / "cuts"
    world.mkdir()
    cuts.mkdir()

    def watched() -> None:
        disk = Disk(world, cuts)
        command(world)
        disk.finish()

    ended = forked(watched, log=tmp_path / "printed")
    assert ended.status == 0, ended.err
    return sorted({line for cut in cuts.iterdir() for line in json.loads((cut / "cut.json").read_text())["lost"]})


def _renamed_without_a_flush(world: Path) -> None:
    (world / ".swerve-tmp-0-1-2-a").write_text("a")
    (world / ".swerve-tmp-0-1-2-a").rename(world / "a")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("command", "lost"),
    [
        (lambda world: _write(world / "a", "a"), []),
        (_renamed_without_a_flush, ["lost: a, which was reported as written"]),
    ],
)
def test_a_name_that_is_not_flushed_is_lost(tmp_path: Path, command: Callable[[Path], None], lost: list[str]) -> None:
    assert _cuts(tmp_path, command) == lost


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_children_that_outlive_a_killed_command_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "_ORPHAN_SECONDS", 0.3)

    def command(seconds: str) -> None:
        Events(tmp_path, last=1)
        subprocess.Popen(["sleep", seconds])
        (tmp_path / "killed-here").mkdir()

    assert forked(partial(command, "0.05"), log=tmp_path / "log").orphans == ()
    ended = forked(partial(command, "77"), log=tmp_path / "log")
    assert (ended.killed, ended.orphans) == (True, ("sleep 77",))


def test_parts_of_the_newest_commit_are_added() -> None:
    part = {"kind": "campaign", "date": "2026-11-29", "seed": 1, "cases": {"kills": 2, "lost": 5}, "orphans": 0,
            "seconds": {"train": 20.0, "eval": 10.0}, "mismatches": 1, "extra files": 2}  # fmt: skip
    found = tables([
        {**part, "name": "old", "kills": {"train": 100, "eval": 1}},
        {**part, "name": "new", "kills": {"train": 4, "eval": 3}},
        {**part, "name": "new", "seed": 2, "date": "2026-11-30", "kills": {"train": 3, "eval": 5}},
    ])  # fmt: skip
    assert found["campaign"].splitlines()[2:] == [
        "| commit | `new` |",
        "| date | 2026-11-29 to 2026-11-30 |",
        "| kills | 15, of each command at least 7 |",
        "| seconds a kill | 4.0 |",
        "| mismatches | 2 |",
        "| extra files | 4 |",
        "| orphans | 0 |",
        "| cases of `lost` | 10 |",
    ]
    assert found["campaign kills"].splitlines()[2:] == ["| `eval` | 8 | 2.5 |", "| `train` | 7 | 5.7 |"]
