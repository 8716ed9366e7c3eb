"""A field is read as one thing, and what swerve writes is read back."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import write_responses
from swerve.eval.answer_files import table_graders
from swerve.formats.export import export_table
from swerve.formats.imported_responses import LeftOut, read_responses
from tests.json_lines import write_json_lines

ROW = {"id": "p", "question": "1 + 1?", "response": r"\boxed{2}"}


def written(folder: Path, rows: list[dict[str, object]]) -> Path:
    return write_json_lines(folder / "a.jsonl", rows)


@pytest.mark.parametrize(
    ("labels", "golds", "read"),
    [
        (["42", "5", "5"], [None] * 3, [(None, "42"), (None, "5"), (None, "5")]),  # as another trainer names golds
        (["base", "rl", "rl"], [None] * 3, [("base", ""), ("rl", ""), ("rl", "")]),
        (["3", "5", "7"], ["3", "4", "7"], [(None, "3"), (None, "4"), (None, "7")]),  # equals the gold answer
        (["A", "A", "A"], [None] * 3, [("A", "")] * 3),  # one model
    ],
)
def test_label_is_a_model_or_the_gold_answer(tmp_path, labels, golds, read):
    rows = [
        {**ROW, "id": str(n), "label": label, "gold": gold}
        for n, (label, gold) in enumerate(zip(labels, golds, strict=True))
    ]
    left_out = LeftOut()
    found = read_responses(written(tmp_path, rows), left_out=left_out)
    assert [(one.label, one.problem.answer) for one in found] == read
    assert bool(left_out.notes) == (read[0][0] is None)
    named = read_responses(written(tmp_path, rows), fields={"label": "label"})
    assert [one.label for one in named] == labels


def test_numbers_name_models_that_answer_one_problem(tmp_path):
    rows = [{**ROW, "label": step} for step in (100, 200)]
    assert [one.label for one in read_responses(written(tmp_path, rows))] == ["100", "200"]


def test_a_field_that_is_named_is_nothing_else(tmp_path):
    path = written(tmp_path, [{**ROW, "label": "base", "extra": {"truth": "2"}}])
    (one,) = read_responses(path, fields={"gold": "label"})
    assert (one.label, one.problem.answer) == (None, "base")
    (one,) = read_responses(path, fields={"gold": "extra.truth"})
    assert (one.label, one.problem.answer) == ("base", "2")
    with pytest.raises(Exception, match=r"no field 'extra\.truht'.*did you mean 'extra\.truth'"):
        read_responses(path, fields={"gold": "extra.truht"})


@pytest.mark.parametrize(
    ("value", "status", "correct", "verdict"),
    [
        (1.0, "graded", True, True),
        (0.0, "graded", False, False),
        (None, "unparsed", False, False),
        (None, "timeout", None, None),
    ],
)
def test_the_verdict_of_the_grader_is_taken(tmp_path, value, status, correct, verdict):
    graded = {"value": value, "status": status, "answered": status != "unparsed", "extracted": "2", "parts": {}}
    (one,) = read_responses(written(tmp_path, [{**ROW, "correct": True, **graded, "detail": None}]))
    assert (one.correct, one.verdict, one.reward, one.status) == (correct, verdict, value, status)
    (own,) = read_responses(
        written(tmp_path, [{**ROW, "right": True, **graded, "detail": None}]), fields={"correct": "right"}
    )
    assert own.correct is True


def test_exported_csv_is_read_back(tmp_path):
    rows = [
        {**ROW, "response": "=1+1, \"so\"\n2", "correct": True, "reward": 0.5, "step": 3, "sample": 1, "gold": "2"},
        {**ROW, "id": "q", "response": "", "correct": False, "reward": None, "step": 4, "sample": 0, "gold": "'=x"},
        {**ROW, "id": "r", "response": "-x", "correct": None, "reward": 1, "step": 4, "sample": 0, "extra": [1]},
    ]  # fmt: skip
    table, csv = tmp_path / "a.parquet", tmp_path / "a.csv"
    write_responses(table, read_responses(written(tmp_path, rows)), RESPONSES_SCHEMA, table="responses")
    export_table(table, csv, format="csv")
    again = tmp_path / "b.parquet"
    write_responses(again, read_responses(csv), RESPONSES_SCHEMA, table="responses")
    one, two = (pq.read_table(path).drop_columns("place").to_pylist() for path in (table, again))
    assert one == two
    csv.write_text(csv.read_text().replace("0.5", "half"))
    with pytest.raises(Exception, match="line 2: reward must be double, got 'half'"):
        read_responses(csv)


def test_a_table_says_its_grader(tmp_path):
    table = tmp_path / "a.parquet"
    responses = read_responses(written(tmp_path, [{**ROW, "family": "math"}, {**ROW, "id": "q", "family": "else"}]))
    write_responses(table, responses, RESPONSES_SCHEMA, table="responses")
    assert table_graders(table) == {"math"}
    assert table_graders(written(tmp_path, [{**ROW, "family": "math"}])) == set()
