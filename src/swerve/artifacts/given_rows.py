"""Tables that Python hands over, whatever made them, as rows. Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from swerve.errors import ConfigError, shown


def rows_of(given: Any, *, what: str, form: str) -> list[Any]:
    """Return the rows of a table, the entries of a list, or one record alone.

    A table is of pandas, polars, pyarrow or datasets, or a mapping of columns.

    Args:
        given: the table.
        what: they are, in the plural, as messages call them.
        form: what to give, as messages end.

    Raises:
        ConfigError: it is something else, or columns have different lengths.
    """
    if isinstance(given, Mapping):
        return _by_row(given, what, form) if _has_columns(given, what, form) else [given]
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if hasattr(given, method):
            return list(getattr(given, method)())
    if hasattr(given, "columns"):  # pandas
        return _by_row({name: given[name] for name in given.columns}, what, form)
    entries = list(given) if isinstance(given, Iterable) else []
    is_list = isinstance(given, Sequence) or hasattr(given, "tolist")
    if not isinstance(given, Iterable) or (not is_list and any(isinstance(entry, str) for entry in entries)):
        raise ConfigError(f"the {what} are {shown(given)}; {form}")
    return entries


def _has_columns(given: Mapping[str, Any], what: str, form: str) -> bool:
    """Whether a mapping is of columns, and no record: a record's own lists are of token ids or of messages.

    Raises:
        ConfigError: it holds tables.
    """
    if not given or any(hasattr(value, "column_names") or hasattr(value, "columns") for value in given.values()):
        raise ConfigError(f"the {what} are a mapping of {', '.join(map(str, given)) or 'nothing'}; {form}")
    if not all(isinstance(value, Collection) and not isinstance(value, str | Mapping) for value in given.values()):
        return False
    entries = [entry for column in given.values() for entry in column]
    return any(isinstance(entry, str | list | tuple) or getattr(entry, "shape", ()) for entry in entries)


def _by_row(columns: Mapping[str, Any], what: str, form: str) -> list[Any]:
    """Return the rows of columns.

    Raises:
        ConfigError: columns have different lengths.
    """
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ConfigError(f"the columns of the {what} have different lengths ({said}); {form}")
    values = [map(_plain, column) for column in columns.values()]
    return [dict(zip(map(str, columns), row, strict=True)) for row in zip(*values, strict=True)]


def _plain(value: Any) -> Any:
    """Return a cell without numpy's types; None for NaN, which pandas writes for it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and value != value else value
