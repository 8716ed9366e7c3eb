"""Rows of any fields as a file of JSON lines or a Parquet table, as the name of the file says.

A column of the table has the type of its values. Where they have none in common, texts stay and all else is JSON text.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_path
from swerve.artifacts.streams import chunks
from swerve.formats.records import without_surrogates


def row_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of JSON; in ASCII, as a text may hold half of a surrogate pair, which UTF-8 cannot."""
    return json.dumps(row, allow_nan=False, default=str) + "\n"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, or as a Parquet table where the name ends in `.parquet`; a chunk of them is held.

    Args:
        path: the file, which is replaced when all rows are there.
        rows: JSON values by field; a row need not have every field.

    Raises:
        DiskFullError: no room.
        WriteError: any other refusal of the operating system.
    """
    with atomic_path(path) as temporary:
        if path.suffix == ".parquet":
            with tempfile.TemporaryFile("w+", dir=path.parent, encoding="utf-8") as lines:
                schema = _spooled(rows, lines)
                lines.seek(0)
                with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
                    for table in _tables(lines, schema):
                        writer.write_table(table)
        else:
            with temporary.open("w", encoding="utf-8") as stream:
                stream.writelines(map(row_line, rows))


def _spooled(rows: Iterable[Mapping[str, Any]], lines: TextIO) -> pa.Schema:
    """Write rows as lines; return the columns that hold all of them."""
    kinds: dict[str, pa.DataType] = {}
    for some in chunks(map(row_line, rows), len):
        lines.writelines(some)
        read = list(map(_read, some))
        for name in dict.fromkeys(name for row in read for name in row):
            kinds[name] = _common(kinds.get(name, pa.null()), _kind([row.get(name) for row in read]))
    return pa.schema([(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in kinds.items()])


def _read(line: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    return without_surrogates(row) if "\\ud" in line else row


def _kind(values: Sequence[Any]) -> pa.DataType:
    """Return the type of a column's values: text where they have none in common, or one that no file holds.

    >>> print(_kind([1, 2.5, None]), _kind([[1], []]), _kind([1, "a"]), _kind([{}]), _kind([2**70]))
    double list<item: int64> string string string
    """
    with suppress(pa.ArrowException, OverflowError, ValueError):
        kind = pa.array(values).type  # `infer_type` does not look at all of them
        return pa.string() if "struct<>" in str(kind) else kind
    return pa.string()


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    try:
        schemas = [pa.schema([("value", kind)]) for kind in (first, second)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("value").type
    except pa.ArrowException:
        return pa.string()


def _tables(lines: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of lines as tables of some columns."""
    for some in chunks(lines, len):
        rows = list(map(_read, some))
        columns = [[row.get(field.name) for row in rows] for field in schema]
        for field, column in zip(schema, columns, strict=True):
            if pa.types.is_string(field.type):
                column[:] = [value if isinstance(value, str | None) else json.dumps(value) for value in column]
        arrays = [pa.array(column, field.type) for field, column in zip(schema, columns, strict=True)]
        yield pa.Table.from_arrays(arrays, schema=schema)
