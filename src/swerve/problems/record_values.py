"""Values of a record's fields, each checked where it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from swerve.errors import ArtifactError, nearest
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import as_number

_CHARS_SHOWN = 60


def has_value(record: FileRecord, name: str) -> bool:
    """Whether a record has a field and it is not null."""
    return record.values.get(name) is not None


def text_of(record: FileRecord, *names: str) -> str:
    """Return the first of the named fields that the record has, a text that is not empty.

    Raises:
        ArtifactError: it has none of them, or it is not such a text.
    """
    name = next((name for name in names if has_value(record, name)), None)
    if name is None:
        raise missing_field(record, names[0])
    value = record.values[name]
    if not isinstance(value, str) or not value.strip():
        raise _wrong(record.place, name, value, "a text that is not empty")
    return value


def number_of(record: FileRecord, name: str) -> float | None:
    """Return a field that is a number, or a text that writes one; None where it is missing or null.

    Raises:
        ArtifactError: it is something else.
    """
    value = record.values.get(name)
    if value is None:
        return None
    number = as_number(value)
    if number is None:
        raise _wrong(record.place, name, value, "a number")
    return number


def list_of_texts(record: FileRecord, name: str, clean: Callable[[str], str] = str.strip) -> tuple[str, ...]:
    """Return a field that is a text, a number or a list of them as distinct texts without the empty ones.

    Args:
        record: The record.
        name: The field; missing and null are no texts.
        clean: What is done to each text.

    Raises:
        ArtifactError: it is something else.
    """
    value = record.values.get(name)
    texts: dict[str, str] = {}
    for text in () if value is None else map(clean, texts_in(record.place, name, value)):
        texts.setdefault("".join(text.split()), text)
    texts.pop("", None)
    return tuple(texts.values())


def texts_in(place: str, name: str, value: Any) -> tuple[str, ...]:
    """Return the texts and numbers of a value as texts, however many; of a truth value both spellings.

    Args:
        place: Where the record is, for messages.
        name: What they call the value.
        value: A text, a number or a list of them.

    Raises:
        ArtifactError: it is something else.
    """
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str | int | float) for entry in values):
        raise _wrong(place, name, value, "a text, a number or a list of them")
    return tuple(text for entry in values for text in _spellings(entry))


def _spellings(value: str | float) -> tuple[str, ...]:
    """Return a value as text; a truth value also as Python writes it."""
    text = number_text(value)
    return (text, text.capitalize()) if isinstance(value, bool) else (text,)


def number_text(value: str | float) -> str:
    """Return a value as text, whole numbers without a fraction and truth values in small letters.

    >>> [number_text(value) for value in (142.0, 0.5, True, "1/2")]
    ['142', '0.5', 'true', '1/2']
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if float(value).is_integer() else repr(value)


def missing_field(record: FileRecord, name: str, *, fix: str = "", hints: bool = True) -> ArtifactError:
    """Return the error that a record has no value for a field; `fix` says what to do, `hints`: name the nearest one."""
    state = "has no value for the field" if name in record.values else "has no field"
    hint = nearest(name, [field for field in record.values if field != name]) if hints else ""
    return ArtifactError(f"{record.place} {state} {name!r}; it has {', '.join(record.values) or 'none'}{hint}{fix}")


def _wrong(place: str, name: str, value: Any, wanted: str) -> ArtifactError:
    shown = re.sub(r"\s+", " ", json.dumps(value, default=str, ensure_ascii=False))
    shown = shown if len(shown) <= _CHARS_SHOWN else f"{shown[:_CHARS_SHOWN]}..."
    return ArtifactError(f"{place}: the field {name!r} is {shown}; expected {wanted}")
