from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.run import RunDirectory
from swerve.cli.data_export import run_export
from swerve.errors import ConfigError
from swerve.formats.responses import read_responses


def test_what_was_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"gold": ["=1", "2"], "n": [1, 2]}), table)
    run_export(table, out=tmp_path / "t.csv", format=None, overwrite=False, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        f"2 rows of 2 columns as csv: {tmp_path / 't.csv'}",
        "cells with an apostrophe before them, so that no spreadsheet runs them: 1",
    ]
    run_export(table, out=tmp_path / "set.d", format="hf", overwrite=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "out": str(tmp_path / "set.d"),
        "num_rows": 2,
        "columns": ["gold", "n"],
        "format": "hf",
        "num_defused": 0,
    }
    with pytest.raises(ConfigError, match="--format 'json' is not known; did you mean 'jsonl'"):
        run_export(table, out=tmp_path / "t.json", format="json", overwrite=False, as_json=False)


def test_rollouts_and_evaluations_of_a_run(small_run: RunDirectory, tmp_path: Path) -> None:
    for folder in ("rollouts", "eval", "eval/samples"):
        out = tmp_path / f"{folder.replace('/', '-')}.jsonl"
        run_export(small_run.path / folder, out=out, format=None, overwrite=False, as_json=True)
        tables = sorted((small_run.path / folder).glob("step_*.parquet"))
        expected = [(path.stem, row) for path in tables for row in pq.read_table(path).to_pylist()]
        found = [json.loads(line) for line in out.read_text().splitlines()]
        assert [(row.pop("file"), row) for row in found] == expected


def test_rollouts_are_the_same_responses_after_an_export(small_run: RunDirectory, tmp_path: Path) -> None:
    table = sorted((small_run.path / "rollouts").glob("step_*.parquet"))[0]
    run_export(table, out=tmp_path / "r.jsonl", format=None, overwrite=False, as_json=True)
    before, after = read_responses(table), read_responses(tmp_path / "r.jsonl")
    assert len(before) == 24
    assert [(one.problem, one.response, one.completion_ids, one.reward, one.step, one.extra) for one in after] == [
        (one.problem, one.response, one.completion_ids, one.reward, one.step, one.extra) for one in before
    ]
