"""Results as data frames of pandas and polars, which are optional. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from swerve.artifacts.tables import data_frame
from swerve.errors import MissingExtraError
from swerve.estimates import Estimate

if TYPE_CHECKING:
    import polars
    from pandas import DataFrame


_SINGLE = (str, int, float)


class Framed(ABC):
    """What has a table: `table()` in Arrow, `to_pandas()` and `to_polars()` as data frames.

    By the Arrow PyCapsule interface other libraries take it as it is: `polars.DataFrame(x)`, `pyarrow.table(x)`,
    `pandas.DataFrame.from_arrow(x)`; but what is a list or a mapping, too, polars reads as such.
    """

    __slots__ = ()

    @abstractmethod
    def table(self) -> pa.Table:
        """Return the table."""

    def to_pandas(self) -> DataFrame:
        """Return `table` as a data frame of pandas.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return data_frame(self.table())

    def to_polars(self) -> polars.DataFrame:
        """Return `table` as a data frame of polars.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return polars_frame(self.table())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return `table` as a stream of the Arrow PyCapsule interface."""
        return self.table().__arrow_c_stream__(requested_schema)

    def _instead_of(self, name: str) -> str | None:
        """Return what to write in place of an attribute that there is not; None: nothing in particular."""
        return None

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            """Say where the data frame is, whose attribute may have been meant."""
            try:
                return super().__getattr__(name)  # of records: their private attributes
            except AttributeError:
                instead = self._instead_of(name) or "its to_pandas() is the data frame"
                raise AttributeError(f"{type(self).__name__} has no {name!r}; {instead}") from None


def polars_frame(table: pa.Table) -> polars.DataFrame:
    """Return a table as a data frame of polars.

    Raises:
        MissingExtraError: polars is not installed.
    """
    try:
        import polars
    except ModuleNotFoundError:
        raise MissingExtraError("polars", None, "a data frame of polars") from None
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame), "of a table"
    return frame


def table_of_rows(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table whose columns are those of any of them; what a row lacks is null.

    >>> table_of_rows([{"a": 1}, {"b": "x"}]).to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 'x'}]
    """
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows], from_pandas=False) for name in names})


def flat_cells(record: Iterable[tuple[str, Any]], *, prefix: str = "") -> dict[str, Any]:
    """Return the values of a record by name, of an estimate its mean and ends: `x`, `x_low` and `x_high`.

    What is neither a single value nor a list of them is left out.
    """
    cells: dict[str, Any] = {}
    for name, value in record:
        if isinstance(value, Estimate):
            ends = {"": value.mean, "_low": value.low, "_high": value.high}
            cells |= {f"{prefix}{name}{end}": number for end, number in ends.items()}
        elif value is None or isinstance(value, _SINGLE):
            cells[f"{prefix}{name}"] = value
        elif isinstance(value, tuple) and all(isinstance(one, _SINGLE) for one in value):
            cells[f"{prefix}{name}"] = list(value)
    return cells
