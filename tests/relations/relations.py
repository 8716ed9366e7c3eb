"""What every user takes for granted, as functions of a bench and a command that raise AssertionError where it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.relations.commands import COMMANDS, Bench, Outcome, at, called, difference
from tests.relations.tables import CHANGES, FORMS, KNOWN, made_problems, some_messages

IMPORT = "data import {source} --out {out}"
Relation = Callable[[Bench, str], None]
_NUM_NULLED = 7
"""Right rows that lose a column: as wrong ones, as unknown ones and as right ones they give three results."""


def agree(plain: Outcome, other: Outcome, *, command: str | None = None) -> None:
    """Raise unless both are results and the same; of a command only its figures."""
    assert not plain.error + other.error, plain.error + other.error
    for place in COMMANDS[command].figures if command else ("",):
        pair = [at(each.value, place) if place else each.value for each in (plain, other)]
        assert not (found := difference(*pair, place)), found


def _unchanged_by(change: str) -> Relation:
    """What is changed in all files alike changes nothing."""

    def check(bench: Bench, command: str) -> None:
        (a, b), asked = bench.pair(command), made_problems(COMMANDS[command].size[0])
        alter = CHANGES[change]
        renamed = alter(asked) if change == "other ids" else None
        agree(bench.outcome(command, a, b), bench.outcome(command, alter(a), alter(b), problems=renamed))

    return check


def _messages_in_some(bench: Bench, command: str) -> None:
    """A column that marks a layout has values in some rows, the first among them or not."""
    pair = bench.pair(command)
    first, second = (bench.outcome(command, *(some_messages(rows, place) for rows in pair)) for place in (0, 1))
    assert bool(first.error) == bool(second.error), first.error + second.error
    if not first.error:
        agree(first, second)


_OF_WORDS = ("labels.0.length.words.mean", "labels.0.reflection.all.per_response.mean", "labels.0.thinking.words.mean")


def _thoughts_apart(bench: Bench, command: str) -> None:
    """What was thought counts, and is learned, whether it is within the response or in a field of its own."""
    thought = "Wait, let me check: one and one"
    before, between = "<think>\n", "\n</think>\n\n"
    inline, apart = (
        bench.outcome(command, *([row | change(row) for row in rows] for rows in bench.pair(command)))
        for change in (
            lambda row: {"response": f"{before}{thought}{between}{row['response']}"},
            lambda row: {"reasoning_content": thought},
        )
    )
    agree(inline, apart, command=command)
    for place in _OF_WORDS * (command == "data behaviours"):
        assert not (found := difference(at(inline.value, place), at(apart.value, place), place)), found
        assert at(apart.value, place)


def _in_form(form: str) -> Relation:
    def check(bench: Bench, command: str) -> None:
        agree(bench.outcome(command, *bench.pair(command)), bench.outcome(command, *bench.pair(command), form))

    return check


def passed_on(source: Path, name: str, form: str, *steps: str) -> Path:
    """Return what other commands of swerve write of a file, from `{source}` to `{out}`; the last one writes `form`."""
    for number, step in enumerate(steps):
        folder = source.parent / re.sub(r"\W+", "_", f"{source.name} {step}")
        folder.mkdir(exist_ok=True)
        out = folder / f"{name}.{form if number == len(steps) - 1 else 'parquet'}".rstrip(".")
        if not out.exists():
            words = [word.format(source=source, out=out) for word in step.split()]
            status, _, stderr, _ = called(words)
            assert status == 0, stderr
        source = out
    return source


def _passed(form: str, *steps: str, without: str = "", inside: str = "", in_all: bool = False) -> Relation:
    """What other commands write of the rows says the same; see `passed_on`.

    Args:
        form: ending of what the last step writes.
        steps: the commands.
        without: column that the first of them does not get.
        inside: file in a folder that is written.
        in_all: whether all of the result is the same, and not the figures alone.
    """

    def check(bench: Bench, command: str) -> None:
        rows = bench.pair(command)
        files = [
            bench.file("source", [{key: row[key] for key in row if key != without} for row in own]) for own in rows
        ]
        a, b = (passed_on(path, name, form, *steps) for path, name in zip(files, ("base", "rl"), strict=True))
        found = bench.of_files(command, a / inside, b / inside)
        agree(bench.outcome(command, *rows), found, command=None if in_all else command)

    return check


def _exported(form: str, ending: str, inside: str = "") -> Relation:
    return _passed(ending, IMPORT, f"data export {{source}} --format {form} --out {{out}}", inside=inside)


def _nulled(column: str) -> Relation:
    """A column that is null in some rows: they count, or they are left out and it is said, or one line refuses them."""

    def check(bench: Bench, command: str) -> None:
        a, b = bench.pair(command)
        rights = [number for number, row in enumerate(a) if row["correct"]]
        places = rights[:: max(1, len(rights) // _NUM_NULLED)][:_NUM_NULLED]
        some = [row | {column: None} if number in places else row for number, row in enumerate(a)]
        rest = [row for number, row in enumerate(a) if number not in places]
        found = bench.outcome(command, some, b)
        if found.error:
            return
        whole, without = bench.outcome(command, a, b), bench.outcome(command, rest, b)
        for place in COMMANDS[command].figures:
            value, all_of, rest_of = (at(one.value, place) for one in (found, whole, without))
            if difference(value, all_of):
                assert not difference(value, rest_of), f"{place}: {value}; of all {all_of}, of the others {rest_of}"
                assert re.search(rf"(?<![\d.])({len(places)}|{len(rest)})(?![\d.])", found.said), "nothing is said"

    return check


def _nulled_whole(column: str) -> Relation:
    """A column that is null in a whole file: one line, or as if it were not there, and no figure but the true one."""

    def check(bench: Bench, command: str) -> None:
        a, b = bench.pair(command)
        found = bench.outcome(command, *([row | {column: None} for row in rows] for rows in (a, b)))
        lacking = [[{name: row[name] for name in row if name != column} for row in rows] for rows in (a, b)]
        other, whole = bench.outcome(command, *lacking), bench.outcome(command, a, b)
        if found.error:
            return
        if not other.error:
            agree(other, found)
        for place in COMMANDS[command].figures:
            value, true = at(found.value, place), at(whole.value, place)
            assert value is None or not difference(value, true), f"{place}: {value} for {true}"

    return check


def differences(value: Any, *, is_in: bool = False) -> Iterator[float]:
    """Yield the means of all differences in a result."""
    if isinstance(value, dict) and is_in and isinstance(value.get("mean"), int | float):
        yield value["mean"]
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from differences(one, is_in=is_in or name in ("difference", "differences"))
    elif isinstance(value, list):
        for one in value:
            yield from differences(one, is_in=is_in)


def _against_itself(bench: Bench, command: str) -> None:
    """A file against itself shows nothing."""
    a, _ = bench.pair(command)
    found = bench.outcome(command, a, a)
    means = list(differences(found.value))
    assert means, found.error
    assert not any(means), means
    assert '"shown": true' not in found.said


def _swapped(bench: Bench, command: str) -> None:
    """Swapping the sides flips the sign."""
    a, b = bench.pair(command)
    there, back = (list(differences(bench.outcome(command, *both).value)) for both in ((a, b), (b, a)))
    assert any(there)
    assert not (found := difference(there, [-mean for mean in back])), found


def _doubled(bench: Bench, command: str) -> None:
    """A row that is there twice is said, refused, or taken once."""
    a, b = bench.pair(command)
    found = bench.outcome(command, [*a, *[row for row in a if row["correct"]][:3]], b)
    if not found.error and not re.search(r"(?i)twice|repeated|duplicate|same text", found.said):
        agree(bench.outcome(command, a, b), found, command=command)


def _missing(bench: Bench, command: str) -> None:
    """Problems that one side lacks are said, or refused."""
    a, b = bench.pair(command)
    found = bench.outcome(command, a, [row for row in b if row["id"] > "p02"])
    assert found.error or re.search(r"(?<![\d.])(3 (of|problems?)|9 of( \w+)? 12)\b", found.said), "nothing is said"


RELATIONS: dict[str, Relation] = {
    **{change: _unchanged_by(change) for change in CHANGES},
    "messages in some rows": _messages_in_some,
    "thoughts apart": _thoughts_apart,
    **{f"as {form}": _in_form(form) for form in FORMS[1:]},
    "imported first": _passed("parquet", IMPORT, in_all=True),
    "graded first": _passed("jsonl", "grade {source} --task math --out {out}", without="correct"),
    "exported to jsonl and back": _exported("jsonl", "jsonl"),
    "exported to csv and back": _exported("csv", "csv"),
    "exported to messages and back": _exported("messages", "parquet"),
    "exported to inspect and back": _exported("inspect", "json"),
    "exported to verifiers and back": _exported("verifiers", "", "results.jsonl"),
    **{f"{column} null in some rows": _nulled(column) for column in KNOWN},
    **{f"{column} null in the whole file": _nulled_whole(column) for column in KNOWN},
}
"""Relations of every command; another is a line here."""
OF_TWO: dict[str, Relation] = {
    "a file against itself": _against_itself,
    "sides swapped": _swapped,
    "a row twice": _doubled,
    "problems missing on one side": _missing,
}
"""Relations of commands that set one file against another."""
