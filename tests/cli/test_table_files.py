"""Tables that are compressed, in Arrow files, or in several files of a folder."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from swerve.errors import ArtifactError
from swerve.formats import records
from swerve.formats.records import read_records
from swerve.formats.table_files import digest_of_table, is_table

Swerve = Callable[..., tuple[int, str, str]]

ROWS: list[dict[str, Any]] = [
    {"id": f"p{n % 8}", "question": f"{n % 8} + 1?", "gold": str(n % 8 + 1), "response": f"\\boxed{{{n % 8 + n % 3}}}",
     "correct": n % 3 == 1, "reward": 0.1}
    for n in range(32)
]  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS)
LINES = [json.dumps(row) + "\n" for row in ROWS]


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def as_csv() -> bytes:
    stream = io.BytesIO()
    pyarrow.csv.write_csv(TABLE, stream)
    return stream.getvalue()


def write_stream(path: Path, table: pa.Table = TABLE) -> Path:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


def write_form(folder: Path, form: str) -> Path:
    """Write the rows as a file whose name ends so, or as a folder of files."""
    path = folder / f"rows{form}"
    contents = {".jsonl": "".join(LINES).encode(), ".json": json.dumps(ROWS).encode(), ".csv": as_csv()}
    if form.endswith(".zst"):
        path.write_bytes(zstd(contents[form.removesuffix(".zst")]))
    elif form == ".jsonl":
        path.write_bytes(contents[form])
    elif form == ".arrow":
        write_stream(path)
    elif form == " file.arrow":
        with pa.ipc.new_file(str(path), TABLE.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(TABLE, max_chunksize=7)
    elif form == " lines":
        path.mkdir()
        for number in range(4):
            part = "".join(LINES[number * 8 : number * 8 + 8]).encode()
            (path / f"part-{number:05}.jsonl").write_bytes(part)
        (path / "part-00003.jsonl").rename(path / "part-00003.jsonl.old")
        (path / "part-00003.jsonl.gz").write_bytes(gzip.compress((path / "part-00003.jsonl.old").read_bytes()))
        (path / "part-00003.jsonl.old").unlink()
        (path / "_SUCCESS").touch()
        (path / ".part-00000.crc").touch()
    elif form == " parquet":
        path.mkdir()
        for number in range(4):
            pq.write_table(TABLE.slice(number * 8, 8), path / f"part-{number:05}.parquet")
    else:
        path.mkdir()
        names = [f"data-{number:05}-of-00002.arrow" for number in (1, 0)]
        write_stream(path / names[0], TABLE.slice(0, 10))
        write_stream(path / names[1], TABLE.slice(10))
        (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
        (path / "dataset_info.json").write_text("{}")
    return path


FORMS = (".jsonl.zst", ".json.zst", ".csv.zst", ".arrow", " file.arrow", " lines", " parquet", " saved")


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_in_every_form(tmp_path: Path, form: str) -> None:
    path = write_form(tmp_path, form)
    read = [dict(record.values) for record in read_records(path)]
    if form == ".csv.zst":
        assert [row["response"] for row in read] == [row["response"] for row in ROWS]
    else:
        assert read == ROWS
    assert is_table(path)


@pytest.mark.parametrize(
    "command",
    [
        ("grade", "FILE", "--task", "math", "--out", "out.jsonl"),
        ("data", "import", "FILE", "--out", "out.parquet"),
        ("data", "import", "rows.jsonl", "--problems", "FILE", "--out", "out.parquet"),
        ("data", "select", "FILE", "--correct", "--out", "out.parquet"),
        ("data", "behaviours", "FILE", "--out", "out.jsonl"),
        ("data", "export", "FILE", "--format", "messages", "--out", "out.parquet"),
        ("claim", "FILE", "rl=FILE", "--parts", "accuracy", "--out", "card"),
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_every_command_takes_every_form(swerve: Swerve, tmp_path: Path, command: tuple[str, ...]) -> None:
    said: dict[str, Any] = {}
    write_form(tmp_path, ".jsonl")
    for form in (".jsonl", ".jsonl.zst", ".arrow", " lines", " saved"):
        path = tmp_path / "rows.jsonl" if form == ".jsonl" else write_form(tmp_path, form)
        words = [word.replace("FILE", str(path)) for word in command]
        words[-1] = f"{form.strip(' .').replace('.', '-')}-{words[-1]}"
        status, out, err = swerve(*words)
        assert status == 0, (form, err)
        said[form] = out.replace(str(path), "FILE").replace(words[-1], "OUT").replace(path.name, "FILE")
    assert len(set(said.values())) == 1, said


def test_a_folder_is_read_by_name_and_its_digest_says_so(tmp_path: Path) -> None:
    for name, number in (("b.jsonl", 1), ("a.jsonl", 0), ("c.jsonl", 2)):
        (tmp_path / name).write_text(LINES[number])
    assert [dict(record.values) for record in read_records(tmp_path)] == ROWS[:3]
    assert read_records(tmp_path)[1].place == f"{tmp_path / 'b.jsonl'}, line 1"
    before = digest_of_table(tmp_path)
    (tmp_path / "b.jsonl").rename(tmp_path / "d.jsonl")
    assert digest_of_table(tmp_path) != before


def folder_with(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).write_text(LINES[0])
    return folder


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "has no file; give a file that ends in .json, "),
        (("_SUCCESS",), "has no file; "),
        (("a.jsonl", "notes.md"), "has notes.md, which is no part of a table; "),
        (("a.jsonl", "b/"), "has b, which is no part of a table; "),
        (("a.jsonl", "b.csv"), "has files of several formats, a.jsonl and b.csv; give one of them, "),
        (("dataset_dict.json", "train/", "test/"), r"holds a data set of several splits \(test, train\); give the"),
    ],
)
def test_folders_that_are_no_table(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_records(folder_with(tmp_path, *names))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", "state.json does not say which files"),
        ('{"_data_files": [{}]}', "state.json does not say which files"),
        ('{"_data_files": []}', "must name one .arrow file or more of its folder"),
        ('{"_data_files": [{"filename": "../a.arrow"}]}', "must name one .arrow file or more of its folder"),
        ('{"_data_files": [{"filename": "a.arrow"}]}', "lacks a.arrow, which its state.json names"),
    ],
)
def test_saved_data_sets_that_are_not_whole(tmp_path: Path, state: str, message: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(ArtifactError, match=message):
        read_records(tmp_path)


def test_models_and_runs_are_no_tables(tmp_path: Path) -> None:
    for name in ("config.json", "run.json", "MANIFEST.json"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("{}")
        (folder / "tokenizer.json").write_text("{}")
        assert not is_table(folder)


def test_texts_by_their_place_are_read_of_one_file(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"responses": ["1", "2"]}))
    with pytest.raises(ArtifactError, match="a text whose problem its place alone says is read of one file; give"):
        read_records(tmp_path)


@pytest.mark.parametrize("form", [".jsonl.zst", ".arrow", " file.arrow"])
def test_files_that_are_cut_or_damaged_give_one_line(tmp_path: Path, form: str) -> None:
    path = write_form(tmp_path, form)
    whole = path.read_bytes()
    stream = pa.ipc.open_stream(whole) if form == ".arrow" else None
    for content in (whole[:-9], whole[: len(whole) // 2], whole[:20], b"no table", b"", b"ARROW1\0\0ARROW1"):
        path.write_bytes(content)
        with pytest.raises(ArtifactError) as caught:
            read_records(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    # A stream that was cut between two batches has no end.
    if stream is not None:
        sink = io.BytesIO()
        writer = pa.ipc.new_stream(sink, TABLE.schema)
        writer.write_batch(stream.read_next_batch())
        path.write_bytes(sink.getvalue())
        with pytest.raises(ArtifactError, match="was cut off"):
            read_records(path)


def test_a_small_compressed_file_may_not_hold_very_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_SMALL_RECORD", 2**16)
    (tmp_path / "a.jsonl.zst").write_bytes(zstd(b'{"id": "' + b"x" * 2**20 + b'"}\n'))
    with pytest.raises(ArtifactError, match=r"line 1 is longer than 0\.0625 MiB"):
        read_records(tmp_path / "a.jsonl.zst")
    (tmp_path / "a.json.zst").write_bytes(zstd(b'[{"id": "' + b"x" * 2**20 + b'"}]'))
    with pytest.raises(ArtifactError, match="holds more than"):
        read_records(tmp_path / "a.json.zst")


def test_an_arrow_file_may_not_hold_very_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_BYTES", 2**16)
    monkeypatch.setattr(records, "UNPACKED", 1)
    table = pa.table({"id": pa.array(["x" * 1000] * 1000).dictionary_encode()})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "a.arrow"
    many = pa.table({"numbers": pa.array([[0] * 1000] * 200)})
    for rows in (many, table.cast(pa.schema([("id", pa.string())]))):
        with pa.ipc.new_stream(str(path), rows.schema, options=options) as writer:
            writer.write_table(rows)
        with pytest.raises(ArtifactError, match="holds more than"):
            read_records(path)


def test_the_folder_that_one_is_in_is_a_table(swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_form(tmp_path, " lines")
    monkeypatch.chdir(folder)
    out = str(tmp_path / "out")
    for command in (
        ("data", "import", ".", "--out", f"{out}.parquet"),
        ("data", "select", ".", "--correct", "--out", f"{out}.parquet"),
        ("grade", ".", "--task", "math", "--out", f"{out}.jsonl"),
        ("data", "behaviours", "."),
        ("claim", "base=.", "rl=.", "--parts", "accuracy", "--out", out),
    ):
        status, _, err = swerve(*command)
        assert status == 0, (command, err)
