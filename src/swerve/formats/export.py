"""Export Parquet tables to JSONL, CSV or a Hugging Face data set folder, a batch of rows at a time.

The folder holds every value as it is. In JSONL and CSV a number that is not finite is null. In CSV a null and an empty
text are both an empty cell, lists and objects are JSON text, and a text that a spreadsheet would run as a formula has
an apostrophe before it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from swerve.artifacts.files import MANIFEST_NAME, atomic_directory, atomic_path, verify_manifest
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.parquet_check import check_parquet
from swerve.formats.records import MAX_BYTES, is_plain, plain
from swerve.version import __version__

ExportFormat = Literal["jsonl", "csv", "hf"]

_ROWS_AT_ONCE = 4096
_EXPANSION = 100
"""How many times its size a table may hold, where that is more than what any file may."""
_ENDINGS: dict[str, ExportFormat] = {".jsonl": "jsonl", ".csv": "csv", "": "hf"}
_IGNORED_BEFORE = r"[\s\x00-\x20\x7f-\xa0\"'\u200b-\u200f\u2060\ufeff]*"
# The full-width forms are formulas too in spreadsheets of some languages.
_FORMULA = re.compile(rf"{_IGNORED_BEFORE}[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """What was written."""

    num_rows: int
    columns: tuple[str, ...]
    format: ExportFormat
    num_defused: int = 0
    """Cells of a CSV file that got an apostrophe."""


def format_of(target: Path) -> ExportFormat:
    """Return the format that a target's ending says; no ending is a folder.

    Raises:
        ConfigError: the ending says none.

    >>> format_of(Path("tokens.csv"))
    'csv'
    """
    found = _ENDINGS.get(target.suffix)
    if found is None:
        raise ConfigError(f"the ending of {target} does not say the format; name it with --format jsonl, csv or hf")
    return found


def export_table(
    source: Path, target: Path, *, format: ExportFormat, overwrite: bool = False, split: str = "train"
) -> ExportSummary:
    """Write a table, or all tables of a folder with the same columns, in another format, atomically.

    Args:
        source: a Parquet file, or a folder of them: those named `step_*` where there are any, else all, in the order of
            their names. Of a folder's tables every row says its file in a first column `file`.
        target: the file (jsonl, csv) or the folder (hf) that is made.
        format: what to write.
        overwrite: replace what is there; a folder only if an export made it.
        split: name of the data set's split (hf).

    Raises:
        ArtifactError: the source is missing, damaged or has tables with different columns.
        ConfigError: the target is there already, or cannot be replaced.
        DiskFullError: no room; nothing is left behind.
    """
    # What is there is checked before anything is written.
    table = _Source.open(source)
    _check_target(table, target, format, overwrite=overwrite)
    if format == "hf":
        return _write_folder(table, target, split)
    # Rows go to the file a batch at a time.
    with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        write = _write_csv if format == "csv" else _write_jsonl
        num_rows, num_defused = write(table, stream)
    return ExportSummary(num_rows=num_rows, columns=table.columns, format=format, num_defused=num_defused)


@dataclass(frozen=True, slots=True)
class _Source:
    """The tables that are exported, as one."""

    path: Path
    files: tuple[Path, ...]
    schema: pa.Schema
    """Without dictionaries; with the column `file` where the source is a folder."""
    num_rows: int

    @classmethod
    def open(cls, path: Path) -> _Source:
        files = _files(path)
        schemas: list[pa.Schema] = []
        num_rows = 0
        for file in files:
            schema, rows = _schema(file)
            if schemas and schema != schemas[0]:
                raise ArtifactError(
                    f"{file} has other columns than {files[0]}; export one of them, or a folder of one kind of table"
                )
            schemas.append(schema)
            num_rows += rows
        first = schemas[0]
        if path.is_dir():
            if "file" in first.names:
                raise ArtifactError(
                    f"{files[0]} has a column 'file' of its own; export the tables of {path} one by one"
                )
            first = pa.schema([pa.field("file", pa.string()), *first])
        return cls(path, tuple(files), first, num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, some thousand at a time, page checksums verified."""
        for file in self.files:
            try:
                with pq.ParquetFile(file, page_checksum_verification=True) as table:
                    for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                        batch.validate(full=True)
                        arrays = list(batch.columns)
                        if self.path.is_dir():
                            arrays = [pa.array([file.stem] * batch.num_rows, pa.string()), *arrays]
                        cast = [array.cast(field.type) for array, field in zip(arrays, self.schema, strict=True)]
                        yield pa.RecordBatch.from_arrays(cast, schema=self.schema)
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                raise ArtifactError(f"{file} is damaged: {str(error).splitlines()[0]}") from None


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob("step_*.parquet")) or sorted(path.glob("*.parquet"))
        if not files:
            raise ArtifactError(f"{path} holds no Parquet tables; give a table, or a folder such as RUN/rollouts")
        return files
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; give a Parquet table, or a folder of them")
    return [path]


def _schema(file: Path) -> tuple[pa.Schema, int]:
    check_parquet(file, limit=max(MAX_BYTES, _EXPANSION * file.stat().st_size))
    with pq.ParquetFile(file) as table:
        return plain_schema(table.schema_arrow), table.metadata.num_rows


def _check_target(source: _Source, target: Path, format: ExportFormat, *, overwrite: bool) -> None:
    if not target.exists():
        return
    if any(target.samefile(one) for one in (source.path, *source.files)):
        raise ConfigError(f"--out {target} is what is exported; give another name")
    if not overwrite:
        raise ConfigError(f"{target} exists already; give another name or --overwrite")
    if (format == "hf") != target.is_dir():
        raise ConfigError(f"{target} is {'a folder' if target.is_dir() else 'a file'}; give another name")
    if format == "hf" and any(target.iterdir()) and not _is_export(target):
        raise ConfigError(f"{target} was not made by an export, so it is not replaced; give another name")


def _is_export(folder: Path) -> bool:
    try:
        manifest = verify_manifest(folder)
    except ArtifactError:
        return False
    here = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    return manifest.get("made_by") == "swerve data export" and here == {*manifest["files"], MANIFEST_NAME}


def _write_jsonl(source: _Source, stream: TextIO) -> tuple[int, int]:
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    num_rows = 0
    for row in _rows(source):
        stream.write(encode(dict(zip(source.columns, row, strict=True))) + "\n")
        num_rows += 1
    return num_rows, 0


def _write_csv(source: _Source, stream: TextIO) -> tuple[int, int]:
    writer = csv.writer(stream)
    writer.writerow([defused(name) for name in source.columns])
    num_rows = num_defused = 0
    for row in _rows(source):
        cells = [_cell(value) for value in row]
        num_defused += sum(isinstance(value, str) and value != cell for value, cell in zip(row, cells, strict=True))
        writer.writerow(cells)
        num_rows += 1
    return num_rows, num_defused


def _rows(source: _Source) -> Iterator[tuple[Any, ...]]:
    for batch in source.batches():
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(array: pa.Array) -> list[Any]:
    """Return a column's values as plain Python."""
    kind = array.type
    if pa.types.is_floating(kind):
        array = pc.if_else(pc.is_finite(array), array, None)
    if (pa.types.is_floating(kind) or pa.types.is_integer(kind)) and not array.null_count:
        numbers: list[Any] = array.to_numpy(zero_copy_only=False).tolist()  # several times faster than `to_pylist`
        return numbers
    values: list[Any] = array.to_pylist()
    return values if is_plain(kind) else [plain(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return defused(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    return value


def defused(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would read it as a formula; numbers stay numbers.

    >>> [defused(text) for text in ("=1+1", " -x", "-2.5", "1 + 1 = 2")]
    ["'=1+1", "' -x", '-2.5', '1 + 1 = 2']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _write_folder(source: _Source, target: Path, split: str) -> ExportSummary:
    with atomic_directory(target, made_by="swerve data export", source=source.path.name) as temporary:
        write_shards(temporary / "data", source.batches(), source.schema, split=split, num_rows=source.num_rows)
        card = dataset_card(source.path.name, source.schema, split=split, num_rows=source.num_rows)
        (temporary / "README.md").write_text(card, encoding="utf-8")
    return ExportSummary(num_rows=source.num_rows, columns=source.columns, format="hf")


ROWS_A_SHARD = 500_000
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16", "large_string": "large_string"}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns without dictionaries and without metadata; values stay the same."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def write_shards(
    folder: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, split: str, num_rows: int
) -> None:
    """Write `num_rows` rows as files `SPLIT-00000-of-0000N.parquet` of at most `ROWS_A_SHARD` rows each."""
    folder.mkdir(parents=True)
    count = max(1, -(-num_rows // ROWS_A_SHARD))
    pieces = _pieces(batches)
    for index in range(count):
        path = folder / f"{split}-{index:05d}-of-{count:05d}.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
            for piece, ends_shard in pieces:
                writer.write_batch(piece)
                if ends_shard:
                    break


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the rows in pieces that do not reach across a shard's end, each with whether it is the shard's last."""
    room = ROWS_A_SHARD
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, room)
            start, room = start + piece.num_rows, room - piece.num_rows
            yield piece, room == 0
            room = room or ROWS_A_SHARD


def dataset_card(name: str, schema: pa.Schema, *, split: str, num_rows: int) -> str:
    """Return the README.md of the folder: features and files as YAML, and a sentence for people.

    Raises:
        ArtifactError: a column is of a type that data sets do not have.
    """
    features = [{"name": field.name, **_feature(field.type, field.name)} for field in schema]
    head = {
        "configs": [{"config_name": "default", "data_files": [{"split": split, "path": f"data/{split}-*"}]}],
        "dataset_info": {"features": features},
    }
    columns = "\n".join(f"- `{field.name}`: {field.type}" for field in schema)
    return (
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n# {name}\n\n"
        f"{num_rows} rows, exported by swerve {__version__} from `{name}`.\n\n{columns}\n"
    )


def _feature(kind: pa.DataType, name: str) -> dict[str, Any]:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _feature(kind.value_type, name)
        return {"list": inner.get("dtype", inner)}
    if pa.types.is_struct(kind):
        return {"struct": [{"name": field.name, **_feature(field.type, name)} for field in kind]}
    simple = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    if simple or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {"dtype": _DTYPES.get(str(kind), str(kind))}
    raise ArtifactError(
        f"the column '{name}' is of type {kind}, which a data set folder does not have; export to JSONL"
    )
