"""Values of Arrow's columns as plain Python that strict JSON can hold."""

from __future__ import annotations

import math
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def widened_floats(column: pa.Array) -> pa.Array:
    """Return a column whose float32 values are the float64 numbers of the same shortest decimals: 0.1 stays 0.1."""
    import pyarrow as pa

    as_text, as_double = (_with_float32_as(kind, column.type) for kind in (pa.string(), pa.float64()))
    return column if as_text == column.type else column.cast(as_text).cast(as_double)


def _with_float32_as(kind: pa.DataType, whole: pa.DataType) -> pa.DataType:
    """Return a type with another in place of float32, also within lists and structs."""
    import pyarrow as pa

    if pa.types.is_float32(whole):
        return kind
    if pa.types.is_list(whole):
        return pa.list_(_with_float32_as(kind, whole.value_type))
    if pa.types.is_struct(whole):
        return pa.struct([field.with_type(_with_float32_as(kind, field.type)) for field in whole])
    return whole


def is_plain(kind: pa.DataType) -> bool:
    """Return whether a column's values are plain Python as Arrow gives them; those of others go through `plain`."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_plain(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(pa.types.is_integer(kind.value_type))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def plain(value: Any) -> Any:
    """Return a value as plain Python that strict JSON can hold; see `records`.

    >>> plain({"reward": float("nan"), "ids": (1, 2)})
    {'reward': None, 'ids': [1, 2]}
    """
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):  # maps come as lists of pairs
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal | date | time | timedelta):
        return str(value)
    return None if isinstance(value, bytes | bytearray | memoryview) else value
