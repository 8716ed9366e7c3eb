"""What a layout of records is, and what the layouts share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.records import Record

__all__ = ["Dialect", "Values", "expanded", "is_scalar", "others", "said"]

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A layout of records."""

    name: str
    marks: tuple[frozenset[str], ...]
    """A record that has all fields of one of these sets is of this layout."""
    known: frozenset[str] | None = None
    """The only fields that its records have, where that is needed to tell it from others."""
    convert: Callable[[Record, Path, Mapping[str, str]], Iterator[Values]]
    """Yields the values of each response of a record; takes the file's path and its fields by name."""
    is_exact: bool = True
    """Whether `convert` gives every name as it is read and the rest under `extra`."""

    def matches(self, values: Values) -> bool:
        """Return whether a record is of this layout."""
        is_marked = any(fields <= values.keys() for fields in self.marks)
        return is_marked and (self.known is None or values.keys() <= self.known)


def others(values: Values, *taken: str) -> dict[str, Any]:
    """Return the fields that are not taken and hold something."""
    return {key: value for key, value in values.items() if key not in taken and value is not None}


def said(values: Values, *names: str) -> dict[str, Any]:
    """Return of these fields those that hold a text, a number or a truth value."""
    return {name: values[name] for name in names if isinstance(values.get(name), str | int | float)}


def is_scalar(value: Any) -> bool:
    """Return whether a value is a text or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


_ONE_EACH = {
    "rewards": "reward",
    "scores": "reward",
    "reward": "reward",
    "score": "reward",
    "correct": "correct",
    "is_correct": "correct",
    "finish_reasons": "finish_reason",
    "finish_reason": "finish_reason",
    "extracted": "extracted",
}


def expanded(record: Record, name: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each response of a list, with its own of what else is listed one a response."""
    responses = record.values[name]
    if not isinstance(responses, list) or not responses:
        raise ArtifactError(f"{record.place}: {name} must be a list of responses with at least one")
    lists = {key: value for key, value in record.values.items() if key in _ONE_EACH and isinstance(value, list)}
    for key, value in lists.items():
        if len(value) != len(responses):
            raise ArtifactError(f"{record.place}: {key} has {len(value)} values for {len(responses)} {name}")
    rest = {key: value for key, value in record.values.items() if key != name and key not in lists}
    for number, one in enumerate(responses):
        text = one.get("response") if isinstance(one, dict) else one
        if not isinstance(text, str):
            raise ArtifactError(f"{record.place}: response {number + 1} of {name} is not text")
        own = {_ONE_EACH[key]: value[number] for key, value in lists.items()}
        yield {**rest, **own, "response": text, "sample": number}
