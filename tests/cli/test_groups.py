"""`--field group=FIELD`: problems of one template, in every command that takes fields."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Swerve
from tests.json_lines import write_json_lines


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [
        {"id": f"p{n}", "problem": f"{n}?", "gold": "1", "response": r"\boxed{1}" if n < 6 else r"\boxed{2}"}
        | {"template": n // 3, "correct": n < 6}
        for n in range(12)
    ]
    write_json_lines(tmp_path / "responses.jsonl", rows)
    return "responses.jsonl"


def test_import_and_select_keep_it(swerve: Swerve, tmp_path: Path, file: str) -> None:
    status, _, err = swerve("data", "import", file, "--field", "group=template", "--out", "table.parquet")
    assert status == 0, err
    status, _, err = swerve("data", "select", "table.parquet", "--correct", "--out", "chosen.parquet")
    assert status == 0, err
    for name, num in (("table", 12), ("chosen", 6)):
        details = pq.read_table(tmp_path / f"{name}.parquet").column("problem_details").to_pylist()
        assert [json.loads(each)["group"] for each in details] == [str(n // 3) for n in range(num)]


def test_grade_is_over_groups_also_of_a_table_that_has_them(swerve: Swerve, file: str) -> None:
    def interval(*arguments: str) -> list[float]:
        status, out, err = swerve("grade", *arguments, "--task", "math", "--json")
        assert status == 0, err
        right = json.loads(out)["right"]
        return [round(right[name], 4) for name in ("mean", "low", "high")]

    # Two of four groups are right, of twelve problems six: the exact intervals of these shares.
    assert interval(file) == [0.5, 0.2109, 0.7891]
    assert interval(file, "--field", "group=template") == [0.5, 0.0676, 0.9324]
    swerve("data", "import", file, "--field", "group=template", "--out", "table.parquet")
    assert interval("table.parquet") == [0.5, 0.0676, 0.9324]


def test_behaviours_are_over_groups(swerve: Swerve, file: str) -> None:
    status, out, err = swerve("data", "behaviours", file, "--field", "group=template", "--json")
    assert status == 0, err
    accuracy = json.loads(out)["labels"][0]["accuracy"]
    assert [round(accuracy[name], 4) for name in ("low", "high")] == [0.0676, 0.9324]


def test_claim_is_over_groups(swerve: Swerve, file: str) -> None:
    status, out, err = swerve("claim", file, file, "--field", "group=template", "--json", "--out", "card")
    assert status == 0, err
    card = json.loads(out)
    assert (card["num_problems"], card["num_groups"]) == (12, 4)
