from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from swerve.artifacts.response_columns import RESPONSES_SCHEMA, ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response, read_provenance, response_row, write_responses
from swerve.artifacts.tables import write_table
from swerve.errors import ArtifactError
from swerve.formats.export import export_table
from swerve.formats.imported_responses import read_responses
from swerve.formats.problem_joins import numbered
from swerve.types import Problem
from tests.json_lines import write_json_lines


def _problem(**known: Any) -> Problem:
    return Problem(**{"family": "imported", "question": "", "answer": "", **known})


FULL = Response(
    place="r.jsonl, line 1",
    problem=Problem(
        id="p1",
        messages=(("system", "s"), ("user", "u\u2028\x00é")),
        prefix="<think>",
        question="1 + 1?",
        answer="2",
        alternatives=("two",),
        solution="1 + 1 = 2",
        kind="level 1",
        family="math",
        grader="math",
        grading={"extraction": ["boxed"]},
        difficulty=2.0,
        metadata={"subject": "Algebra"},
    ),
    prompt="Q: 1 + 1?",
    prompt_ids=(1, 2),
    text="=2\n\x00é",
    completion_ids=(3, 4),
    spans=((0, 1), (1, 5)),
    boundary="split",
    correct=True,
    reward=-0.25,
    parts={"correct": 1.0},
    status="graded",
    answered=True,
    extracted="2",
    population="dev",
    label="rl-20",
    step=20,
    sample=3,
    finish_reason="stop",
    temperature=0.5,
    dialect="swerve",
    extra={"logprob": [0.5, None], "n": {"a": 1}},
)
BARE = Response(place="r.jsonl, line 2", problem=_problem(id="p2", question="q"), text="", sample=0, dialect="swerve")


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    table = tmp_path / "t.parquet"
    write_responses(table, [FULL, BARE], RESPONSES_SCHEMA, table="responses")
    if name == "t.jsonl":
        export_table(table, tmp_path / name, format="jsonl")
    found = read_responses(tmp_path / name)
    assert [replace(one, place="") for one in found] == [replace(one, place="") for one in (FULL, BARE)]
    assert [one.place.rsplit(" ", 1)[1] for one in found] == ["1", "2"]


def test_the_same_input_gives_the_same_bytes_and_says_where_it_is_from(tmp_path: Path) -> None:
    provenance = {"source": {"name": "r.jsonl", "sha256": "0" * 64}, "format": "plain"}
    for name in ("a", "b"):
        path = tmp_path / f"{name}.parquet"
        write_responses(path, [FULL, BARE], RESPONSES_SCHEMA, table="responses", provenance=provenance)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert read_provenance(tmp_path / "a.parquet") == provenance
    assert pq.read_schema(tmp_path / "a.parquet").metadata[b"swerve_table"] == b"responses"
    (tmp_path / "c.parquet").write_text("no table")
    assert [read_provenance(tmp_path / name) for name in ("c.parquet", "none.parquet", "r.jsonl")] == [{}, {}, {}]


def test_what_the_template_began_is_kept_also_where_it_is_nothing(tmp_path: Path) -> None:
    known: list[str | None] = [None, "", "<think>\n"]
    records = [
        Response(place="1", problem=_problem(id=str(begun), question="?", begun=begun), text="4") for begun in known
    ]
    write_responses(tmp_path / "r.parquet", records, RESPONSES_SCHEMA)
    assert [one.problem.begun for one in read_responses(tmp_path / "r.parquet")] == known
    # A prompt that is known to the letter says it, too.
    rows = [{"prompt": f"4?{end}", "response": "4"} for end in ("", "<think>\n")]
    write_json_lines(tmp_path / "r.jsonl", rows)
    assert [one.problem.begun for one in read_responses(tmp_path / "r.jsonl")] == [None, "<think>"]


def test_samples_are_numbered_within_problem_label_and_step() -> None:
    records = [
        replace(BARE, sample=None, problem=_problem(id=name, question="q"), label=label)
        for name, label in (("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"))
    ]
    assert [one.sample for one in numbered(records)] == [0, 0, 1, 0]
    assert [one.sample for one in numbered([replace(records[0], sample=8), records[2]])] == [8, 1]


def _row(**changes: Any) -> dict[str, Any]:
    return {**response_row(FULL), **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_starts": [0]}, "must hold one integer per completion token"),
        ({"token_ends": [1, 4]}, "do not cover the response from beginning to end"),
        ({"token_starts": [0, 2]}, "do not cover the response from beginning to end"),
        ({"token_starts": [0, 6], "token_ends": [6, 5]}, "do not cover the response from beginning to end"),
        ({"problem_details": "[]"}, "line 1: problem_details is not JSON of its kind"),
        ({"extra": "{"}, "line 1: extra is not JSON of its kind; make the table again"),
    ],
)
def test_damaged_rows_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(_row(**changes)))
    with pytest.raises(ArtifactError, match=message):
        read_responses(path)


def test_rollouts_of_a_run(tmp_path: Path) -> None:
    empty = dict.fromkeys(ROLLOUTS_SCHEMA.names)
    row = {
        **empty,
        "group": 0,
        "problem_id": "p",
        "prompt_ids": [1],
        "completion_ids": [2],
        "text": "x",
        "reward": 1.0,
        "step": 3,
    }
    write_table(tmp_path / "step_000003.parquet", [{**row, "version": 2, "finish_reason": "length"}], ROLLOUTS_SCHEMA)
    (one,) = read_responses(tmp_path / "step_000003.parquet")
    assert (one.problem.id, one.prompt_ids, one.completion_ids, one.text) == ("p", (1,), (2,), "x")
    assert (one.step, one.reward, one.finish_reason, one.group, one.extra) == (3, 1.0, "length", 0, {})


def test_what_is_exported_as_csv_is_read_back(tmp_path: Path) -> None:
    table, given = tmp_path / "r.parquet", replace(BARE, text="2", correct=True, answered=False, reward=0.5)
    given = replace(given, problem=replace(BARE.problem, difficulty=2.0), prompt_ids=(1,), completion_ids=(3, 4))
    write_responses(table, [given, replace(given, sample=1, correct=None)], RESPONSES_SCHEMA, table="responses")
    export_table(table, tmp_path / "r.csv", format="csv")
    first, second = read_responses(tmp_path / "r.csv")
    assert (first.sample, first.correct, first.answered, first.reward) == (0, True, False, 0.5)
    assert (first.completion_ids, first.problem.difficulty) == ((3, 4), 2.0)
    assert (second.sample, second.correct) == (1, None)


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    write_json_lines(path, rows)
    return path


def test_what_swerve_grade_wrote_is_a_verdict(tmp_path: Path) -> None:
    row = {"id": "a", "question": "1 + 1?", "response": "2", "gold": "2"}
    graded = {
        "value": 1.0,
        "status": "graded",
        "answered": True,
        "extracted": "2",
        "parts": {"answer": 1.0},
        "detail": None,
    }
    none = {"value": None, "status": "unparsed", "answered": False, "extracted": None, "parts": {}, "detail": None}
    right, unread = read_responses(lines(tmp_path / "g.jsonl", {**row, **graded}, {**row, **none}))
    assert (right.correct, right.reward, right.answered, right.extracted) == (True, 1.0, True, "2")
    assert (unread.correct, unread.verdict, unread.answered) == (False, False, False)
    # A field `value` that stands beside nothing of a grader's is the file's own.
    (other,) = read_responses(lines(tmp_path / "o.jsonl", {**row, "value": 0.7}))
    assert (other.correct, other.reward, other.extra["value"]) == (None, None, 0.7)
    # The grader's verdict comes before one that the file recorded.
    (recorded,) = read_responses(lines(tmp_path / "r.jsonl", {**row, **graded, "correct": False}))
    assert recorded.verdict is True
