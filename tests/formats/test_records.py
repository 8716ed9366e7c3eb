from __future__ import annotations

import datetime
import gzip
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ArtifactError
from swerve.formats import records
from swerve.formats.records import iter_records, read_records
from tests.json_lines import write_json_lines

ROWS = [{"id": "a", "text": 'one\ntwo, "three"\u2028é', "ids": [1, 2]}, {"id": "b", "text": "", "ids": []}]


def put(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r.jsonl", "r.jsonl.gz", "r.parquet"])
def test_every_ending_gives_the_same_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if ".parquet" in name:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif ".jsonl" in name:
        put(path, "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n")
    else:
        put(path, json.dumps(ROWS))
    assert [dict(one.values) for one in read_records(path)] == ROWS


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz"])
def test_cells_of_csv_are_text_and_lines_are_counted_over_line_breaks(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, 'id, text\r\na,"1\r\n2 ""x"""\r\n\r\nb,\r\n')
    assert [(one.place, dict(one.values)) for one in read_records(path)] == [
        (f"{path}, line 2", {"id": "a", "text": '1\r\n2 "x"'}),
        (f"{path}, line 5", {"id": "b", "text": None}),
    ]


def test_a_long_cell_is_read_and_the_limit_of_others_is_kept(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit()
    (record,) = read_records(put(tmp_path / "r.csv", f"a\n{'x' * 200_000}\n"))
    assert len(record.values["a"]) == 200_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("name", ["r.json", "r.jsonl", "r.csv"])
def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path: Path, name: str) -> None:
    text = {"r.json": '[{"a": "1"}]', "r.jsonl": '{"a": "1"}\n', "r.csv": "a\n1\n"}[name]
    assert dict(read_records(put(tmp_path / name, f"\ufeff{text}"))[0].values) == {"a": "1"}


def test_objects_by_id_with_one_record_or_several(tmp_path: Path) -> None:
    path = put(tmp_path / "r.json", '{"p": {"x": 1, "id": "other"}, "q": [{"x": 2}, {"x": 3}]}')
    assert [(one.place.split(", ", 1)[1], dict(one.values)) for one in read_records(path)] == [
        ("entry 'p'", {"x": 1, "id": "p"}),
        ("entry 'q', record 1", {"x": 2, "id": "q"}),
        ("entry 'q', record 2", {"x": 3, "id": "q"}),
    ]


def test_what_strict_json_cannot_hold_is_null_or_replaced(tmp_path: Path) -> None:
    path = put(
        tmp_path / "r.jsonl", '{"a": NaN, "b": [-Infinity, 1e999, 1.5], "c": "x\\ud800y\\ud83d\\ude00", "\\uDC00": 1}'
    )
    values = dict(read_records(path)[0].values)
    assert values == {"a": None, "b": [None, None, 1.5], "c": "x\ufffdy\U0001f600", "\ufffd": 1}
    table = pa.table(
        {
            "f": pa.array([float("nan")], pa.float32()),
            "l": pa.array([[1.0, float("inf")]]),
            "s": pa.array([{"x": float("inf"), "b": b"raw"}]),
            "m": pa.array([[("k", 1.0)]], pa.map_(pa.string(), pa.float64())),
            "d": pa.array([Decimal("1.50")]),
            "t": pa.array([datetime.date(2024, 1, 2)]),
            "g": pa.array(["x"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    assert dict(read_records(tmp_path / "r.parquet")[0].values) == {
        "f": None,
        "l": [1.0, None],
        "s": {"x": None, "b": None},
        "m": [["k", 1.0]],
        "d": "1.50",
        "t": "2024-01-02",
        "g": "x",
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.jsonl", b'{"a": 1}\n{"a": }\n', "r.jsonl, line 2 is not JSON: Expecting value"),
        ("r.jsonl", b'{"a": 1}\n[1]\n', "r.jsonl, line 2 is not an object with named fields"),
        ("r.jsonl", b'{"a": 1}\n\n{"a": "caf\xe9"}', "r.jsonl, line 3 is not UTF-8 (byte 20)"),
        ("r.jsonl", b'{"a": 1, "a": 2}', "line 1 is not JSON that can be read: the name 'a' occurs twice"),
        ("r.jsonl", b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "r.jsonl, line 1 is nested deeper than 64 levels"),
        ("r.jsonl", b"[" * 100_000, "r.jsonl, line 1 is nested deeper than 64 levels"),
        ("r.jsonl", b'{"a": ' + b"9" * 5000 + b"}", "line 1 is not JSON that can be read: Exceeds the limit"),
        ("r.jsonl", b"\n \n", "r.jsonl has no records"),
        ("r.json", b'{"a": true, "b": false}', "is neither a list of records nor an object {id: {field: value, ...}}"),
        ("r.json", b'[{"a": 1}, 2]', "r.json, record 2 is not an object"),
        ("r.csv", b"a,b\n1,2\n1,2,3\n", "r.csv, line 3 has 3 cells, the header has 2"),
        ("r.csv", b"a,a\n1,2\n", "r.csv, line 1: the header names 'a' twice"),
        ("r.csv", b"a,\n1,2\n", "r.csv, line 1: the header has an empty name"),
        ("r.csv", b"a;b\n1;2\n", "r.csv, line 1: the header has no comma but ';'"),
        ("r.csv", b"a\tb\n1\t2\n", "r.csv, line 1: the header has no comma but '\\t'"),
        ("r.csv", b'a\n1\n"2', "r.csv, line 3 is not CSV: unexpected end of data"),
        ("r.json.gz", b"[]", "r.json.gz cannot be read: Not a gzipped file"),
        (
            "r.jsonl.gz",
            gzip.compress(b'{"a": 1}' * 99, mtime=0)[:-9],
            "r.jsonl.gz cannot be read: Compressed file ended",
        ),
        ("r.parquet", b"PAR1 and no more", "r.parquet is damaged"),
        ("r.parquet.gz", b"", "unknown file ending; give a file that ends in .json, .jsonl, .csv"),
        ("r.txt", b"", "unknown file ending"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        read_records(tmp_path / name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(ArtifactError, match=f"{name} does not exist"):
            read_records(tmp_path / name)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ArtifactError, match="is a folder and has no file; give a file"):
        read_records(tmp_path / "folder.json")


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r.jsonl.gz", "r.csv.gz", "r.parquet"])
def test_large_files_are_refused_by_their_content(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_BYTES", 1000)
    path = tmp_path / name
    rows = [{"a": "x" * 900}] * 1000
    if name == "r.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    elif "json." in name or name == "r.json":
        put(path, json.dumps(rows))
    else:
        put(path, "a\n" + f"{'x' * 900}\n" * 1000 if "csv" in name else f"{json.dumps(rows[0])}\n" * 1000)
    if name != "r.json":
        assert path.stat().st_size < 9000
    with pytest.raises(ArtifactError, match="GiB, the most that is read at once; give it in parts"):
        read_records(path)


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv"])
def test_what_is_read_line_by_line_may_be_of_any_size_but_no_line(tmp_path, name, monkeypatch):
    monkeypatch.setattr(records, "MAX_BYTES", 1000)
    monkeypatch.setattr(records, "MAX_LINE", 100)
    line = '{"a": "xx"}' if name == "r.jsonl" else "1"
    head = "" if name == "r.jsonl" else "a\n"
    path = put(tmp_path / name, head + f"{line}\n" * 500)
    assert len(read_records(path)) == 500
    with pytest.raises(ArtifactError, match=r"line 2 is longer than 9.54e-05 MiB; a line holds one record"):
        read_records(put(path, f"{line}\n{' ' * 101}{line}"))


def test_an_open_quote_of_csv_does_not_read_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_LINE", 1000)
    path = put(tmp_path / "r.csv", 'a,b\n"1,2\n' + "3,4\n" * 1000)
    with pytest.raises(ArtifactError, match=r"line 2 is not CSV: field larger than field limit \(1000\)"):
        read_records(path)
    assert [dict(one.values) for one in read_records(put(path, "a,b\r1,2\r3,4\r"))] == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé\x00", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text("ab\n", min_size=1), _JSON, min_size=1, max_size=3), min_size=1, max_size=3))
def test_strict_json_is_read_as_it_is(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]) -> None:
    path = tmp_path_factory.getbasetemp() / "property.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert [one.values for one in read_records(path)] == rows


def test_narrow_floats_of_parquet_keep_their_shortest_decimals(tmp_path):
    rows = [{"x": 0.1, "l": [0.3, None], "s": {"y": 1e-8}}, {"x": None, "l": None, "s": {"y": float("nan")}}]
    kind = pa.schema([("x", pa.float32()), ("l", pa.list_(pa.float32())), ("s", pa.struct([("y", pa.float32())]))])
    pq.write_table(pa.Table.from_pylist(rows, schema=kind), tmp_path / "r.parquet")
    assert [dict(record.values) for record in read_records(tmp_path / "r.parquet")] == [
        rows[0],
        {"x": None, "l": None, "s": {"y": None}},
    ]


@pytest.mark.slow
def test_a_small_parquet_file_of_many_rows_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.formats.records.MAX_BYTES", 64 << 20)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": pa.repeat(True, 1_500_000)}), path, row_group_size=1_500_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(
        ArtifactError, match=r"rows.parquet: its first \d+,\d+ records take more than 0.0625 GiB of memory"
    ):
        read_records(path)
    assert sum(1 for _ in iter_records(path)) == 1_500_000  # none is held


def test_long_texts_of_a_small_parquet_file_are_held_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.formats.records._BYTES_AT_ONCE", 4 << 20)
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"a": ["x" * 1_000_000] * 40}), path)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    assert sum(len(record.values["a"]) for record in iter_records(path)) == 40_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_lines_are_held_one_at_a_time(tmp_path, name):
    path = tmp_path / name
    with gzip.open(path, "wt") if name.endswith("gz") else path.open("w") as file:
        file.writelines(json.dumps({"n": number, "text": "x" * 1_000_000}) + "\n" for number in range(20))
    tracemalloc.start()
    assert [record.values["n"] for record in iter_records(path)] == list(range(20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_the_numbers_of_rows_that_pandas_writes_are_no_column(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(",id,text\n0,a,b\n1,c,d\n")
    assert [record.values for record in read_records(tmp_path / "r.csv")] == [
        {"id": "a", "text": "b"},
        {"id": "c", "text": "d"},
    ]


def test_a_folder_is_read_in_the_order_of_its_numbers_beside_a_card(tmp_path: Path) -> None:
    (tmp_path / "completions").mkdir()
    for number in (10, 2, 1):
        write_json_lines(tmp_path / "completions" / f"completions_{number}.jsonl", [{"step": number}])
    (tmp_path / "completions" / "README.md").write_text("# What it is")
    read = [record.values["step"] for record in iter_records(tmp_path / "completions")]
    assert read == [1, 2, 10]
    with pytest.raises(
        ArtifactError, match=f"has completions, which is no part .*; did you mean {tmp_path}/completions"
    ):
        list(iter_records(tmp_path))
