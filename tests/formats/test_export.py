from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.files import verify_manifest
from swerve.artifacts.tables import SPIKES_SCHEMA, write_table
from swerve.errors import ArtifactError, ConfigError
from swerve.formats import export
from swerve.formats.export import ExportSummary, defused, export_table, format_of
from tests.cases import each

TABLE = pa.table(
    {
        "text": pa.array(['=cmd|" /C calc"!A0', "a,b\r\n\x00é\u2028", "", None]),
        "number": pa.array([-1.5, float("nan"), None, 2.0]),
        "ids": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int32())),
        "label": pa.array(["x", None, "x", "-"]).dictionary_encode(),
        "probs": pa.array([[0.5, float("inf")], None, [], [1.0]], pa.list_(pa.float32())),
        "flag": pa.array([True, False, None, True]),
        "whole": pa.array([-3, 2**40, None, 0]),
    }
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=3)
    return path


def rows(*, finite: bool) -> list[dict[str, Any]]:
    found = TABLE.to_pylist()
    if finite:
        found[1]["number"] = None
        found[0]["probs"] = [0.5, None]
    return found


@pytest.mark.parametrize("at_once", [1, 2, 4096])
def test_jsonl_has_every_value(table: Path, tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_ROWS_AT_ONCE", at_once)
    summary = export_table(table, tmp_path / "t.jsonl", format="jsonl")
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == rows(finite=True)
    assert lines[-1] == ""
    assert summary == ExportSummary(num_rows=4, columns=tuple(TABLE.column_names), format="jsonl")


def test_csv_defuses_text_and_keeps_numbers(table: Path, tmp_path: Path) -> None:
    summary = export_table(table, tmp_path / "t.csv", format="csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        found = list(csv.reader(stream))
    assert found == [
        ["text", "number", "ids", "label", "probs", "flag", "whole"],
        ['\'=cmd|" /C calc"!A0', "-1.5", "[1, 2]", "x", "[0.5, null]", "true", "-3"],
        ["a,b\r\n\x00é\u2028", "", "[]", "", "", "false", str(2**40)],
        ["", "", "", "x", "[]", "", ""],
        ["", "2.0", "[3]", "'-", "[1.0]", "true", "0"],
    ]
    assert summary.num_defused == 2


@each(
    "text",
    [
        "=1",
        "+x",
        "-x",
        "@SUM(A1)",
        "\tx",
        "\rx",
        "\nx",
        " =1",
        '"=1"',
        "'=1",
        "\x00=1",
        "\ufeff=1",
        "\xa0-y",
        "\uff1d1",
        "-",
        "+1-1",
    ],
)
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert defused(text) == f"'{text}"


@each("text", ["", "1", "-1", "+1.5e-3", "-.5", "x=1", "'quoted'", " 1", "{=", "é@"])
def test_other_text_stays(text: str) -> None:
    assert defused(text) == text


@given(st.text(max_size=6) | st.text(alphabet="=+-@ \t'\"1.e", max_size=5))
def test_no_cell_begins_like_a_formula_unless_it_is_a_number(text: str) -> None:
    cell = defused(text)
    assert cell.removeprefix("'") == text.removeprefix("'") or cell == f"'{text}"
    if cell[:1] in tuple("=+-@\t\r"):
        assert math.isfinite(float(cell)) or "e" in cell.lower()


def test_a_data_set_folder_loads(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(export, "_ROWS_AT_ONCE", 3)
    folder = tmp_path / "set"
    export_table(table, folder, format="hf")
    assert [path.name for path in (folder / "data").iterdir()] == ["train-00000-of-00001.parquet"]
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    assert repr(list(loaded["train"])) == repr(rows(finite=False))  # by repr: NaN is not equal to itself
    features = {name: str(feature) for name, feature in loaded["train"].features.items()}
    assert (features["ids"], features["label"]) == ("List(Value('int32'))", "Value('string')")
    assert verify_manifest(folder)["source"] == "t.parquet"


def test_a_table_without_rows(tmp_path: Path) -> None:
    write_table(tmp_path / "spikes.parquet", [], SPIKES_SCHEMA)
    for name, content in (("s.jsonl", ""), ("s.csv", ",".join(SPIKES_SCHEMA.names) + "\r\n")):
        assert export_table(tmp_path / "spikes.parquet", tmp_path / name, format=format_of(Path(name))).num_rows == 0
        assert (tmp_path / name).read_bytes().decode() == content
    export_table(tmp_path / "spikes.parquet", tmp_path / "s", format="hf")
    assert pq.read_table(tmp_path / "s" / "data" / "train-00000-of-00001.parquet").num_rows == 0


def test_the_tables_of_a_folder_are_one(tmp_path: Path) -> None:
    for step in (10, 2):
        pq.write_table(pa.table({"x": [step]}), tmp_path / f"step_{step:06d}.parquet")
    pq.write_table(pa.table({"y": ["pair"]}), tmp_path / "dpo_pairs.parquet")
    export_table(tmp_path, tmp_path / "all.jsonl", format="jsonl")
    found = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert found == [{"file": "step_000002", "x": 2}, {"file": "step_000010", "x": 10}]
    pq.write_table(pa.table({"x": ["text"]}), tmp_path / "step_000011.parquet")
    with pytest.raises(ArtifactError, match="step_000011.parquet has other columns than .*step_000002.parquet"):
        export_table(tmp_path, tmp_path / "more.jsonl", format="jsonl")
    assert not (tmp_path / "more.jsonl").exists()


def test_nothing_is_replaced_unasked(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    target.write_text("mine")
    with pytest.raises(ConfigError, match="t.csv exists already; give another name or --overwrite"):
        export_table(table, target, format="csv")
    assert target.read_text() == "mine"
    export_table(table, target, format="csv", overwrite=True)
    assert target.read_text() != "mine"
    with pytest.raises(ConfigError, match="is what is exported"):
        export_table(table, table, format="csv", overwrite=True)
    with pytest.raises(ConfigError, match="t.csv is a file; give another name"):
        export_table(table, target, format="hf", overwrite=True)


def test_only_a_folder_that_an_export_made_is_replaced(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    export_table(table, folder, format="hf")
    export_table(table, folder, format="hf", overwrite=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="set was not made by an export, so it is not replaced"):
        export_table(table, folder, format="hf", overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(ConfigError, match="set is a folder; give another name"):
        export_table(table, folder, format="jsonl", overwrite=True)


def test_wrong_sources_leave_nothing_behind(table: Path, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no table")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("text.parquet", "text.parquet is damaged: Parquet magic bytes not found"),
        ("none.parquet", "none.parquet does not exist"),
        ("empty", "empty holds no Parquet tables"),
    ):
        with pytest.raises(ArtifactError, match=message):
            export_table(tmp_path / name, tmp_path / "out.jsonl", format="jsonl")
    rows_ = [dict.fromkeys(SPIKES_SCHEMA.names)] * 50
    write_table(tmp_path / "s.parquet", rows_, SPIKES_SCHEMA)
    data = bytearray((tmp_path / "s.parquet").read_bytes())
    data[40] ^= 0xFF
    (tmp_path / "s.parquet").write_bytes(data)
    for name in ("out.jsonl", "out"):
        with pytest.raises(ArtifactError, match="s.parquet is damaged"):
            export_table(tmp_path / "s.parquet", tmp_path / name, format=format_of(Path(name)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty", "s.parquet", "t.parquet", "text.parquet"]


def test_formats_by_ending() -> None:
    assert [format_of(Path(name)) for name in ("a.jsonl", "b.csv", "c")] == ["jsonl", "csv", "hf"]
    with pytest.raises(ConfigError, match="the ending of a.xlsx does not say the format"):
        format_of(Path("a.xlsx"))
