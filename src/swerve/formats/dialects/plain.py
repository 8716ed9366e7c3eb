"""Any other record: fields found by name, one response a record or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from swerve.formats.dialects.layout import Dialect, Values, expanded
from swerve.formats.records import Record

__all__ = ["PLAIN"]

_LISTS = ("responses", "completions", "outputs")


def _convert_plain(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    given = fields.get("response")
    listed = given if given is not None and isinstance(record.values.get(given), list) else None
    if given is None and not any(isinstance(record.values.get(name), str) for name in ("response", "completion")):
        listed = next((name for name in _LISTS if isinstance(record.values.get(name), list)), None)
    if listed is None:
        yield record.values
        return
    for values in expanded(record, listed):
        yield {**values, listed: values["response"]} if listed == given else values


PLAIN = Dialect(name="plain", marks=(), convert=_convert_plain, is_exact=False)
