"""Responses that other programs wrote: one record a response, whatever the program's layout.

Nothing is computed here and nothing is made up: what a record does not have is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.dialects import DIALECTS, Dialect, detect
from swerve.formats.fields import RESPONSE_NAMES, Fields, Ids, renamed
from swerve.formats.problems import ProblemRecord, problem_from_fields
from swerve.formats.records import Record, read_records

__all__ = ["ResponseRecord", "dialect_of", "read_responses"]

_EXACT_NAMES = {name: (name,) for name in (*RESPONSE_NAMES, "alternatives", "prefix", "grader", "grading")} | {
    name: (name,) for name in ("difficulty", "metadata", "token_starts", "token_ends", "boundary", "extra")
}
"""What a converted record has its fields under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One response: its text, or the ids of its tokens, or both."""

    place: str
    """Where it stands, for messages."""
    problem: ProblemRecord
    response: str | None = None
    completion_ids: Ids | None = None
    spans: tuple[tuple[int, int], ...] | None = None
    """Character offsets of each completion token in `response`, where they are recorded."""
    boundary: str | None = None
    """How the ids were made, where that is recorded; see `swerve.probe.rollouts.tokenise`."""
    correct: bool | None = None
    """As recorded."""
    reward: float | None = None
    """As recorded."""
    extracted: str | None = None
    set: str | None = None
    """The part of the file it belongs to."""
    label: str | None = None
    """The checkpoint that wrote it."""
    step: int | None = None
    sample: int | None = None
    """Its number among the responses to one problem."""
    finish_reason: str | None = None
    gold_is_damaged: bool = False
    """Whether the recorded gold answer was cut off."""
    dialect: str = "plain"
    """The layout it was read from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The record's other fields."""


def dialect_of(records: Sequence[Record], dialect: str = "auto") -> Dialect:
    """Return the layout of a file's records: the one named, or for `auto` the one that the first record shows.

    Raises:
        ConfigError: there is no layout of that name.
    """
    if dialect == "auto":
        return detect(records[0].values)
    if dialect not in DIALECTS:
        allowed = ["auto", *DIALECTS]
        raise ConfigError(
            f"--format '{dialect}' is not a known layout{nearest(dialect, allowed)}; use {', '.join(allowed)}"
        )
    return DIALECTS[dialect]


def read_responses(
    path: Path, *, fields: Mapping[str, str] | None = None, dialect: str = "auto"
) -> list[ResponseRecord]:
    """Return the responses of a file, in its order; a record with several responses gives one record for each.

    Args:
        path: JSON (a list, or `{problem_id: {response, correct, ...}}`), JSONL, CSV (each also `.gz`) or Parquet.
        fields: names of the file's fields where they differ from those known (`parse_fields`).
        dialect: layout of the records, a key of `DIALECTS`; auto: told from the first record.

    Raises:
        ArtifactError: the file is missing or damaged, a field is missing or of the wrong type; the message says where.
        ConfigError: there is no such layout.
    """
    records = read_records(path)
    _refuse_absent_fields(path, records, fields or {})
    layout = dialect_of(records, dialect)
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    found: list[ResponseRecord] = []
    for record in records:
        for values in layout.convert(record, path, fields or {}):
            given = {name: record.values[key] for name, key in (fields or {}).items() if key in record.values}
            converted = {**values, **given} if layout.is_exact else values
            names = _EXACT_NAMES if layout.is_exact else renamed(RESPONSE_NAMES, fields)
            if is_csv:  # an empty cell reads as a missing value, but is all that an empty response leaves there
                converted = {
                    key: "" if value is None and key in names["response"] else value for key, value in converted.items()
                }
            entry = Fields(record.place, converted, names, frozenset(fields or ()))
            found.append(replace(_response(entry), dialect=layout.name))
    return found


def _refuse_absent_fields(path: Path, records: Sequence[Record], fields: Mapping[str, str]) -> None:
    for name, key in fields.items():
        present = sorted({key for record in records for key in record.values})
        if key not in present:
            raise ArtifactError(
                f"{path} has no field '{key}' (--field {name}={key}){nearest(key, present)}; "
                f"it has {', '.join(present[:12])}"
            )


def _response(entry: Fields) -> ResponseRecord:
    response = entry.get("response")
    if response != "":  # some models answer with nothing
        response = entry.text("response")
    ids, problem = entry.ids("completion_ids"), problem_from_fields(entry)
    if response is None and ids is None:
        raise ArtifactError(
            f"{entry.place} has no response (nor completion_ids); if its field has another name say --field "
            "response=FIELD"
        )
    if ids is not None and problem.prompt_ids is None:
        raise ArtifactError(f"{entry.place} has completion_ids but no prompt_ids; give both or the texts")
    if ids is None and problem.prompt_ids is not None:
        raise ArtifactError(f"{entry.place} has prompt_ids but no completion_ids; give both or the texts")
    return ResponseRecord(
        place=entry.place,
        problem=problem,
        response=response,
        completion_ids=ids,
        spans=_spans(entry, ids, response),
        boundary=entry.word("boundary"),
        correct=entry.truth("correct"),
        reward=entry.number("reward"),
        extracted=entry.label("extracted"),
        set=entry.label("set"),
        label=entry.word("label"),
        step=entry.whole("step"),
        sample=entry.whole("sample"),
        finish_reason=entry.word("finish_reason"),
        gold_is_damaged=entry.values.get("gold_is_damaged") is True,
        extra=_extra(entry),
    )


def _extra(entry: Fields) -> dict[str, Any]:
    nested = entry.get("extra")
    if isinstance(nested, dict) and "extra" in entry.names:
        return nested
    return {} if "extra" in entry.names else entry.others(tuple(entry.names))


def _spans(entry: Fields, ids: Ids | None, response: str | None) -> tuple[tuple[int, int], ...] | None:
    starts, ends = entry.get("token_starts"), entry.get("token_ends")
    if ids is None or response is None or not isinstance(starts, list) or not isinstance(ends, list):
        return None
    edges = [*starts, *ends]
    if not len(starts) == len(ends) == len(ids) or not all(type(one) is int for one in edges):
        raise ArtifactError(f"{entry.place}: token_starts and token_ends must hold one whole number a completion token")
    spans = tuple(zip(starts, ends, strict=True))
    touching = all(before[1] == after[0] for before, after in pairwise(spans))
    if spans[0][0] != 0 or spans[-1][1] != len(response) or not touching or any(end < start for start, end in spans):
        raise ArtifactError(f"{entry.place}: token_starts and token_ends do not cover the response from begin to end")
    return spans
