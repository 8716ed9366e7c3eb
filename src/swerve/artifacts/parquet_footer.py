"""The footer of a Parquet file, read without the library: a damaged one ends the process that asks pyarrow for it.

The footer is a structure of Thrift's compact protocol (https://github.com/apache/parquet-format, parquet.thrift), read
here into its fields by number, whatever they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Struct = dict[int, Any]
"""A structure's fields by their number."""

_MAGIC = b"PAR1"
_LONGEST = 2**28
_DEEPEST = 32
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


def read_footer(path: Path) -> Struct:
    """Return the fields of the structure `FileMetaData`.

    Raises:
        OSError: the file cannot be read, or is not a Parquet file with a footer that is whole.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if len(tail) < 8 or tail[4:] != _MAGIC or not 0 < length <= min(size - 8, _LONGEST):
            raise OSError("it does not end as a Parquet file does")
        file.seek(size - 8 - length)
        content = file.read(length)
    try:
        return _Reader(content).struct(0)
    except (IndexError, ValueError) as error:
        raise OSError("its footer is damaged") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("too deep")
        found: Struct = {}
        number = 0
        while kind := self._byte():
            step, kind = kind >> 4, kind & 15
            number = number + step if step else self._whole()
            found[number] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind < _DOUBLE:
            return self._whole()
        read: dict[int, Callable[[], Any]] = {
            _DOUBLE: lambda: self._bytes(8),
            _BINARY: lambda: self._bytes(self._unsigned()),
            _LIST: lambda: self._list(depth),
            _SET: lambda: self._list(depth),
            _STRUCT: lambda: self.struct(depth + 1),
        }
        if kind not in read:  # a map, which Parquet does not have
            raise ValueError("unknown type")
        return read[kind]()

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        num, kind = head >> 4, head & 15
        num = self._unsigned() if num == 15 else num
        if num > len(self._content) or depth > _DEEPEST:
            raise ValueError("too long")
        if kind in (_TRUE, _FALSE):
            return [self._byte() == _TRUE for _ in range(num)]
        return [self._value(kind, depth + 1) for _ in range(num)]

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _bytes(self, num: int) -> bytes:
        if num > len(self._content) - self._at:
            raise ValueError("cut off")
        self._at += num
        return self._content[self._at - num : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("too large")
        return value | byte << shift

    def _whole(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
