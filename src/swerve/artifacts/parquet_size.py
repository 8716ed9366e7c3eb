"""How much a Parquet file holds, found out before it is read.

A few kilobytes can describe billions of values: repeated values are stored once, with a count. So the numbers of values
and the sizes of texts are summed up from the file's metadata and its dictionaries, and nothing is spread out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from swerve.artifacts.parquet_footer import Struct, read_footer
from swerve.errors import ArtifactError

_TABLE_BYTES = 2**31
_TABLE_EXPANSION = 100
_BYTE_ARRAY = 6
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, _BYTE_ARRAY: 4}
"""Bytes of a value by the number of its type; of a text's place, to which its bytes are added."""
_DELTA_BYTE_ARRAY = 7
_WRITTEN_OUT = frozenset({0, 3, 4, 6})
"""Numbers of the encodings of texts that hold every byte: plain, with lengths apart, and those of levels."""
_ROWS_AT_ONCE = 2**16
_VALUES_AT_ONCE = 2**20
_BYTES_AT_ONCE = 2**26


def table_limit(path: Path) -> int:
    """Return how many bytes a table may hold: 2 GiB, or a hundred times its file where that is more."""
    return max(_TABLE_BYTES, _TABLE_EXPANSION * path.stat().st_size)


def check_parquet_size(path: Path, *, limit: int, per_value: int = 0) -> int:
    """Return the bytes of all values of a Parquet file, at most, which are not more than a limit; none is read.

    Args:
        path: the file.
        limit: in bytes.
        per_value: bytes that each value takes beside its own, such as those of a Python object.

    Raises:
        ArtifactError: they are more.
        OSError, pyarrow.ArrowException, UnicodeDecodeError: the file is damaged.
    """
    try:
        chunks = list(_chunks(read_footer(path)))
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise OSError("its footer does not describe columns") from error
    size = sum(chunk.num * (chunk.width + per_value) + chunk.num_written for chunk in chunks)
    repeated = [chunk for chunk in chunks if chunk.is_repeated]
    most = size + sum(chunk.num * chunk.num_bytes for chunk in repeated)
    if size <= limit:
        size = most if most <= limit else size + _size_of_texts(path, repeated, limit - size)
    if size > limit:
        raise ArtifactError(
            f"{path} holds more than {limit / 2**30:.3g} GiB, the most that is read at once; give it in parts"
        )
    return size


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The values of a column in a group of rows."""

    path: str
    num: int
    width: int
    """Bytes of a value, without those of a text."""
    num_bytes: int
    """Of all values as they are encoded; no value is longer."""
    is_repeated: bool
    """Whether texts are written once, or in part, and used more often."""
    is_delta: bool

    @property
    def num_written(self) -> int:
        return 0 if self.is_repeated else self.num_bytes


def _chunks(footer: Struct) -> Iterator[_Chunk]:
    widths = _widths(footer[2])
    for group in footer[4]:
        for column in group[1]:
            described = column[3]
            path = ".".join(part.decode() for part in described[3])
            is_text = described[1] == _BYTE_ARRAY
            yield _Chunk(
                path=path,
                num=max(described[5], group[3], 0),
                width=_WIDTHS.get(described[1]) or widths[path],
                num_bytes=max(described[6], 0) if is_text else 0,
                is_repeated=is_text and not set(described[2]) <= _WRITTEN_OUT,
                is_delta=_DELTA_BYTE_ARRAY in described[2],
            )


def _widths(schema: Sequence[Struct]) -> dict[str, int]:
    """Return the length of the values of each column, 0 where they have no fixed one; the schema is in prefix order."""
    widths: dict[str, int] = {}
    parents: list[tuple[str, int]] = []  # names above an element, with how many of their children are left
    for element in schema[1:]:
        while parents and parents[-1][1] == 0:
            parents.pop()
        name = ".".join([*(name for name, _ in parents), element[4].decode()])
        if parents:
            parents[-1] = (parents[-1][0], parents[-1][1] - 1)
        if element.get(5):
            parents.append((element[4].decode(), element[5]))
        else:
            widths[name] = max(0, element.get(2, 0))
    return widths


def _size_of_texts(path: Path, chunks: Sequence[_Chunk], limit: int) -> int:
    """Return the bytes of the texts in some columns, or more than the limit as soon as that is known."""
    names = sorted({chunk.path for chunk in chunks})
    spread = {chunk.path for chunk in chunks if chunk.is_delta}  # these cannot be read as indices into a dictionary
    longest = max((chunk.num_bytes for chunk in chunks if chunk.path in spread), default=1)
    rows = min(_ROWS_AT_ONCE, max(1, _BYTES_AT_ONCE // max(1, longest)))
    size = 0
    with pq.ParquetFile(path, read_dictionary=[name for name in names if name not in spread]) as file:
        for batch in file.iter_batches(batch_size=rows, columns=names):
            size += sum(_size_of_array(array) for column in batch.columns for array in _arrays_of_texts(column))
            if size > limit:
                return size
    return size


def _arrays_of_texts(array: Any) -> Iterator[Any]:
    """Yield the arrays in an array, however deep, that hold texts or indices into different texts."""
    kind = array.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _arrays_of_texts(array.field(index))
    elif pa.types.is_map(kind):
        yield from _arrays_of_texts(array.keys)
        yield from _arrays_of_texts(array.items)
    elif pa.types.is_nested(kind):
        yield from _arrays_of_texts(array.values)
    else:
        yield array


def _size_of_array(array: Any) -> int:
    if not pa.types.is_dictionary(array.type):
        return pc.sum(pc.binary_length(array)).as_py() or 0
    lengths = pc.binary_length(array.dictionary)
    parts = (array.indices.slice(start, _VALUES_AT_ONCE) for start in range(0, len(array), _VALUES_AT_ONCE))
    return sum(pc.sum(lengths.take(part)).as_py() or 0 for part in parts)
