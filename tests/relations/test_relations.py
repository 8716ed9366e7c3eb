"""The matrix of commands, tables and relations; that no command is forgotten; and faults that it must find."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import swerve
from swerve.formats import imported_responses
from tests.conftest import SHARED_DATA
from tests.relations.commands import COMMANDS, OTHERS, Bench, registered
from tests.relations.relations import IMPORT, OF_TWO, RELATIONS, agree, differences, passed_on
from tests.relations.tables import CHANGES, Rows

FILES = sorted(path for path in SHARED_DATA.glob("rollout_files/*/*") if path.is_file())
"""What other programs wrote, where it is there."""
LOADING = ("probe", "train")
"""Commands that take longer, as they load models."""


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "1")  # restored, whatever a command does


def _cells() -> Iterator[Any]:
    for command, entry in COMMANDS.items():
        for name, relation in (RELATIONS | (OF_TWO if "{b}" in entry.words else {})).items():
            yield pytest.param(
                command, relation, id=f"{command}, {name}", marks=[pytest.mark.relations] * (command == "probe")
            )


@pytest.mark.parametrize(("command", "relation"), list(_cells()))
def test_a_relation_holds(bench: Bench, command: str, relation: Callable[[Bench, str], None]) -> None:
    relation(bench, command)


def problems_of(table: Path) -> Rows:
    """Return the problems that an imported table has, or those that were made where it says no gold answer."""
    found = {}
    for row in pq.read_table(table).to_pylist():
        said = [message["content"] for message in json.loads(row["messages"] or "[]") if message["role"] == "user"]
        asked = row["question"] or row["prompt"] or "".join(said[-1:])
        if asked and row["gold"]:
            found[row["problem_id"]] = {"id": row["problem_id"], "question": asked, "gold": row["gold"]}
    return list(found.values())


@pytest.mark.relations
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("path", FILES or [None], ids=lambda path: f"{path.parent.name}/{path.name}" if path else "")
def test_a_file_of_another_program(bench: Bench, command: str, path: Path | None) -> None:
    """In any order, and imported first, it says the same; without a column it is read or refused in one line."""
    if path is None:
        pytest.skip("needs the data folder 'rollout_files', which is not part of the project")
    a, b = bench.copies(path)
    asked = None
    plain = bench.of_files(command, a, b)
    if not bench.of_files("data import", a, b).error:
        imported = [passed_on(each, path.stem, "parquet", IMPORT) for each in (a, b)]
        asked = problems_of(imported[0]) or None
        plain = bench.of_files(command, a, b, asked)
        if not plain.error and command != "data import":
            agree(plain, bench.of_files(command, *imported, asked), command=command)
    if path.suffix not in (".parquet", ".jsonl"):
        return
    form = path.suffix[1:]
    rows = list(map(json.loads, path.read_text().splitlines())) if form == "jsonl" else pq.read_table(path).to_pylist()
    plain = bench.outcome(command, rows, rows, form, asked)
    for change in ("order of rows", "order of columns"):
        other = bench.outcome(command, CHANGES[change](rows), CHANGES[change](rows), form, asked)
        if not plain.error:
            agree(plain, other, command=command)
            assert "{b}" not in COMMANDS[command].words or not any(differences(plain.value)), "a file against itself"
    columns = dict.fromkeys(name for row in rows for name in row)
    for column, start in itertools.product(columns if command not in LOADING else (), (0, len(rows) // 2)):
        bench.outcome(command, [*rows[:start], *(row | {column: None} for row in rows[start:])], rows, form, asked)


def test_every_command_is_in_the_matrix_or_reads_no_responses() -> None:
    commands = {words: command for words, command in registered().items() if not words.startswith("plan ")}
    assert sorted([*COMMANDS, *OTHERS]) == sorted([*commands, "swerve.compare"])
    # A file of responses may call its fields otherwise.
    assert {words for words in OTHERS if any("--field" in one.opts for one in commands[words].params)} == set()


def test_every_reader_of_responses_is_called_by_the_matrix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    doors, readers, called = ("responses_of", "iter_responses", "read_responses"), set(), set()
    source, named = Path(swerve.__file__).parent, rf"imported_responses(\.| import \(?[\w\s,]*\b)({'|'.join(doors)})\b"
    for path in source.rglob("*.py"):
        if re.search(named, path.read_text(encoding="utf-8")):
            readers.add(".".join(("swerve", *path.relative_to(source).with_suffix("").parts)))

    def spied(real: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any, **more: Any) -> Any:
            called.add(sys._getframe(1).f_globals["__name__"])
            return real(*args, **more)

        return spy

    for module in [imported_responses, *map(importlib.import_module, sorted(readers))]:
        for door in doors:
            if hasattr(module, door):
                monkeypatch.setattr(module, door, spied(getattr(module, door)))
    bench = Bench(tmp_path)
    for command in COMMANDS:
        bench.outcome(command, *bench.pair(command))
    # `swerve.probe` of Python, what a stage reads of its own samples, graded conversations, and whether a file that is
    # named in a message has responses.
    apart = {
        "swerve.probe.rollouts.given",
        "swerve.train.stages.reject",
        "swerve.eval.answer_files",
        "swerve.cli.hints",
    }
    assert readers - called == apart


def _cut(*args: Any, **more: Any) -> Iterator[Any]:
    return itertools.islice(imported_responses.iter_responses(*args, **more), 40)


def _by_position(responses: list[Any]) -> list[Any]:
    places = (f"p{number // 4 % 12}" for number in itertools.count())
    return [replace(one, problem=replace(one.problem, id=name)) for one, name in zip(responses, places, strict=False)]


NULL_IS_FALSE = {**imported_responses._READ, "correct": lambda entry, name: bool(entry.truth(name))}
FAULTS: dict[str, tuple[str, str, str, Any]] = {
    "a cut by order": ("claim", "order of rows", "swerve.claim.work.iter_responses", _cut),
    "pairs by position": ("claim", "order of rows", "swerve.eval.pairing.joined", _by_position),
    "null is false": (
        *("data behaviours", "correct null in some rows"),
        *("swerve.formats.imported_responses._READ", NULL_IS_FALSE),
    ),
    "a cell is true": ("data behaviours", "as csv", "swerve.formats.typed_fields.as_truth", bool),
    "NaN": ("grade", "order of rows", "swerve.eval.grading.mean_interval", lambda values, bounds: math.nan),
}
"""Command, relation, what is replaced in swerve, by what."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command, relation, place, wrong = FAULTS[fault]
    RELATIONS[relation](Bench(tmp_path), command)
    monkeypatch.setattr(place, wrong)
    (tmp_path / "wrong").mkdir()
    with pytest.raises(AssertionError):
        RELATIONS[relation](Bench(tmp_path / "wrong"), command)
