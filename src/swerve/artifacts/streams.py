"""Rows that are not held: some of them at a time, and which belong together in eight bytes a row."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
T = TypeVar("T")
ROWS_AT_ONCE, SIZE_AT_ONCE = 1000, 2**21
"""Rows of a chunk, and characters of their texts and entries of their lists, about: it ends where either is reached."""


def chunks(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield rows so many at a time as take some megabytes; the rows alone say how many.

    >>> list(chunks("abc", lambda row: SIZE_AT_ONCE // 2))
    [['a', 'b'], ['c']]
    """
    chunk, total = list[T](), 0
    for row in rows:
        chunk.append(row)
        total += size(row)
        if len(chunk) == ROWS_AT_ONCE or total >= SIZE_AT_ONCE:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


class RowKeys:
    """The key of each row as 64 bits of its digest: of ten million keys two are alike once in 400,000 times.

    >>> keys = RowKeys()
    >>> for name in "abacab":
    ...     keys.add(name)
    >>> keys.places().tolist()
    [0, 0, 1, 0, 2, 1]
    """

    def __init__(self) -> None:
        self._digests = array("Q")

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, *key: Any) -> None:
        """Add a row; its key is equal to another where `repr` is."""
        text = repr(key).encode("utf-8", "surrogatepass")
        self._digests.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """Of the key of each row."""
        return np.frombuffer(self._digests, np.uint64) if self._digests else np.zeros(0, np.uint64)

    def places(self) -> Integers:
        """Return how many rows of the same key stand before each row."""
        order = np.argsort(self.digests, kind="stable")
        ordered, rows = self.digests[order], np.arange(len(self))
        starts = rows.copy()  # of the rows of each key, among those in order
        starts[1:][ordered[1:] == ordered[:-1]] = 0
        rows -= np.maximum.accumulate(starts, out=starts)
        starts[order] = rows
        return starts
