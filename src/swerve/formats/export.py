"""Export Parquet tables to JSONL, CSV or a Hugging Face data set folder, a batch of rows at a time.

The folder holds every value as it is. In JSONL and CSV a number that is not finite is null. In CSV a null and an empty
text are both an empty cell, lists and objects are JSON text, and a text that a spreadsheet would run as a formula has
an apostrophe before it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from swerve.artifacts.files import MANIFEST_NAME, atomic_directory, atomic_path, regular_file, verify_manifest
from swerve.errors import ArtifactError, ConfigError, nearest, unreadable
from swerve.formats.columnar_check import check_columnar
from swerve.formats.plain_values import is_plain, plain
from swerve.formats.records import MAX_BYTES, UNPACKED
from swerve.version import __version__

ExportFormat = Literal["jsonl", "csv", "hf", "verifiers", "inspect", "messages", "verl"]

MADE_BY = "swerve data export"
OF_RESPONSES: Mapping[ExportFormat, str] = {
    "verifiers": "",
    "inspect": ".json",
    "messages": ".parquet",
    "verl": ".parquet",
}
"""Layouts of other programs -> the ending that their files must have; nothing: a folder."""
_ROWS_AT_ONCE = 4096
_OF_TABLES: Mapping[ExportFormat, str] = {"jsonl": ".jsonl", "csv": ".csv", "hf": ""}
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
    notes: Mapping[str, int] = field(default_factory=dict)
    """What a layout of another program cannot hold, or changes -> of how many responses."""


def format_of(target: Path, name: str | None = None) -> ExportFormat:
    """Return the format of a name, or else the one that a target's ending says; no ending is a folder.

    Raises:
        ConfigError: there is no such format, or the ending says none.

    >>> format_of(Path("tokens.csv")), format_of(Path("tokens")), format_of(Path("log.json"), "inspect")
    ('csv', 'hf', 'inspect')
    """
    endings: Mapping[ExportFormat, str] = {**_OF_TABLES, **OF_RESPONSES}
    if name is not None and name not in endings:
        raise ConfigError(f"--format '{name}' is not known{nearest(name, endings)}; use {', '.join(endings)}")
    given = target.suffix if target.suffix in endings.values() else ""  # of another name: a folder
    if name is None:
        if target.suffix != given or given not in _OF_TABLES.values():
            raise ConfigError(f"the ending of {target} does not say the format; name it: --format {', '.join(endings)}")
        return next(form for form, ending in _OF_TABLES.items() if ending == given)
    chosen = next(form for form in endings if form == name)
    if endings[chosen] != given:
        what = f"a {endings[chosen]} file; give --out a name that ends so" if endings[chosen] else "a folder"
        raise ConfigError(f"--format {chosen} writes {what}, not {target}")
    return chosen


def export_table(source: Path, target: Path, *, format: ExportFormat, overwrite: bool = False) -> ExportSummary:
    """Write a table, or all tables of a folder with the same columns, in another format, atomically.

    Args:
        source: a Parquet file, or a folder of them: those named `step_*` where there are any, else all, in the order of
            their names. Of a folder's tables every row says its file in a first column `file`.
        target: the file (jsonl, csv) or the folder (hf) that is made.
        format: what to write.
        overwrite: replace what is there; a folder only if an export made it.

    Raises:
        ArtifactError: the source is missing, damaged or has tables with different columns.
        ConfigError: the target is there already, or cannot be replaced.
        DiskFullError: no room; nothing is left behind.
    """
    # What is there is checked before anything is written.
    files = table_files(source)
    schema = _common_schema(source, files)
    if target.exists():
        check_replaceable(target, (source, *files), format, overwrite=overwrite)
    num_rows = num_defused = 0

    # A data set folder is one Parquet file under the name that `datasets` looks for, and a card.
    if format == "hf":
        with atomic_directory(target, made_by=MADE_BY, source=source.name) as folder:
            (folder / "data").mkdir()
            path = folder / "data" / "train-00000-of-00001.parquet"
            with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as parquet:
                for batch in _batches(files, schema):
                    parquet.write_batch(batch)
                    num_rows += batch.num_rows
            columns = "\n".join(f"- `{field.name}`: {field.type}" for field in schema)
            said = f"{num_rows} rows, exported by swerve {__version__} from `{source.name}`."
            (folder / "README.md").write_text(f"# {source.name}\n\n{said}\n\n{columns}\n", encoding="utf-8")
        return ExportSummary(num_rows=num_rows, columns=tuple(schema.names), format=format)

    # Of CSV and JSONL rows go to the file a batch at a time.
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        if format == "csv":
            writer.writerow([defused(name) for name in schema.names])
        for batch in _batches(files, schema):
            num_rows += batch.num_rows
            for row in zip(*map(_values, batch.columns), strict=True):
                if format == "csv":
                    cells = [_cell(value) for value in row]
                    changed = [isinstance(value, str) and value != cell for value, cell in zip(row, cells, strict=True)]
                    num_defused += sum(changed)
                    writer.writerow(cells)
                else:
                    stream.write(encode(dict(zip(schema.names, row, strict=True))) + "\n")
    return ExportSummary(num_rows=num_rows, columns=tuple(schema.names), format=format, num_defused=num_defused)


def table_files(path: Path) -> list[Path]:
    """Return a table, or those of a folder; see `export_table`."""
    if path.is_dir():
        files = sorted(path.glob("step_*.parquet")) or sorted(path.glob("*.parquet"))
        if not files:
            raise ArtifactError(f"{path} holds no Parquet tables; give a table, or a folder such as RUN/rollouts")
        return files
    if not regular_file(path).is_file():
        raise ArtifactError(f"{path} does not exist; give a Parquet table, or a folder of them")
    return [path]


def _common_schema(source: Path, files: Sequence[Path]) -> pa.Schema:
    """Return the columns of all tables without dictionaries; of a folder's tables `file` is the first."""
    first: list[tuple[str, pa.DataType]] | None = None
    for file in files:
        check_columnar(file, limit=max(MAX_BYTES, UNPACKED * regular_file(file).stat().st_size))
        schema = pq.read_schema(file)
        kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
        columns = list(zip(schema.names, kinds, strict=True))
        if first is not None and columns != first:
            raise ArtifactError(
                f"{file} has other columns than {files[0]}; export one of them, or a folder of one kind of table"
            )
        first = columns
    columns = first or []
    if source.is_dir():
        if any(name == "file" for name, _ in columns):
            raise ArtifactError(f"{files[0]} has a column 'file' of its own; export the tables of {source} one by one")
        columns = [("file", pa.string()), *columns]
    return pa.schema(columns)


def _batches(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows, some thousand at a time, page checksums verified."""
    for file in files:
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as table:
                for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                    batch.validate(full=True)
                    arrays = batch.columns
                    if len(arrays) < len(schema):  # of a folder: which file the rows are from
                        arrays = [pa.array([file.stem] * batch.num_rows, pa.string()), *arrays]
                    cast = [array.cast(kind) for array, kind in zip(arrays, schema.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(cast, schema=schema)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise ArtifactError(unreadable(file, error)) from None


def check_replaceable(target: Path, sources: Sequence[Path], format: ExportFormat, *, overwrite: bool) -> None:
    """Raise ConfigError if what is there must not be replaced."""
    if any(target.samefile(source) for source in sources):
        raise ConfigError(f"--out {target} is what is exported; give another name")
    if not overwrite:
        raise ConfigError(f"{target} exists already; give another name or --overwrite")
    is_folder = format in ("hf", "verifiers")
    if is_folder != target.is_dir():
        raise ConfigError(f"{target} is {'a folder' if target.is_dir() else 'a file'}; give another name")
    if is_folder and any(target.iterdir()) and not _is_export(target):
        raise ConfigError(f"{target} was not made by an export, so it is not replaced; give another name")


def _is_export(folder: Path) -> bool:
    try:
        manifest = verify_manifest(folder)
    except ArtifactError:
        return False
    here = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return manifest.get("made_by") == MADE_BY and here == {*manifest["files"], MANIFEST_NAME}


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


def restored(cell: str) -> str:
    """Return the text that `defused` was given.

    >>> [restored(defused(text)) for text in ("=1+1", "'=1+1", "'tis", "-2.5")]
    ['=1+1', "'=1+1", "'tis", '-2.5']
    """
    return cell[1:] if cell.startswith("'") and defused(cell[1:]) == cell else cell
