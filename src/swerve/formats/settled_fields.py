"""What fields mean that could mean two things: `label`, the verdict of `swerve grade`, and the cells of a CSV file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from swerve.artifacts.files import parse_json
from swerve.artifacts.messages import THOUGHTS, no_answer
from swerve.artifacts.response_columns import SCHEMA
from swerve.artifacts.responses import Response
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import Fields, Names, as_number, as_truth, shown
from swerve.types import Reward, RewardStatus

_HEAD, _HEAD_CHARS = 256, 2**25
"""Records that are looked at to tell what a field means, and about their characters."""
_ANSWER = re.compile(r"[-+$]?\d[\d.,/]*%?|[A-Za-z]|yes|no|true|false", re.IGNORECASE | re.ASCII)
"""What a name of a model is not, and a gold answer often is."""
_OF_GRADE = ("value", "status", "answered", "extracted", "parts", "detail")
"""Fields that `swerve grade` writes into every record."""


def first_records(records: Iterator[FileRecord]) -> list[FileRecord]:
    """Return the first records, as many as tell what a field means."""
    head, size = [], 0
    for record in records:
        head.append(record)
        size += len(str(record.values))
        if len(head) == _HEAD or size > _HEAD_CHARS:
            break
    return head


def with_label(path: Path, head: Iterable[FileRecord], names: Names, notes: list[str]) -> Names:
    """Return the names under which a file is read that has a field `label`.

    It names the model unless it is, or could only be, the gold answer: it equals that of its record; or no problem has
    two of it, and it is a number or a letter, or differs from problem to problem.
    """
    if {"label", "label?"}.isdisjoint(names.get("label", ())):
        return names
    golds: list[tuple[str, str | None]] = []
    of_problem: dict[str, set[str]] = {}
    for record in head:
        entry = Fields(record.place, record.values, names)
        if (label := entry.word("label")) is None:
            continue
        asked = (entry.get(name) for name in ("id", "problem", "prompt", "messages"))
        of_problem.setdefault(str(next((one for one in asked if one is not None), "")), set()).add(label)
        golds.append((label, entry.word("gold")))
    labels = set().union(*of_problem.values())
    is_gold = any(label == gold for label, gold in golds)
    if not is_gold and len(labels) > 1 and all(len(own) == 1 for own in of_problem.values()):
        is_gold = all(map(_ANSWER.fullmatch, labels)) or len(labels) > max(2, len(of_problem) / 2)
    if not is_gold:
        return names
    rest = {**names, "label": tuple(place for place in names["label"] if place.rstrip("?") != "label")}
    if any(gold is not None for _, gold in golds):
        notes.append(f"{path}: label is no model: it equals the gold answer; --field label=label reads it as one")
        return rest
    notes.append(
        f"{path}: label is read as the gold answer, of which no problem has two; --field label=label reads it as the "
        "model"
    )
    return {**rest, "gold": (*names.get("gold", ()), "label?")}


def as_graded(response: Response, values: Mapping[str, Any]) -> Response:
    """Return a response with the verdict that `swerve grade` wrote into its record, if it did."""
    if not all(name in values for name in _OF_GRADE):
        return response
    said = {name: values[name] for name in _OF_GRADE}
    value, status, parts = as_number(said["value"]), said["status"], as_object(said["parts"] or {})
    if status not in get_args(RewardStatus) or (value is None) == (status == "graded") or parts is None:
        return response
    answered = as_truth(said["answered"])
    given = {"value": value, "answered": None if status == "unparsed" else answered, "parts": parts}
    reward = Reward(**{**said, **given})
    extra = {name: one for name, one in response.extra.items() if name not in _OF_GRADE}
    judged = replace(response.judged(reward), extra=extra)
    if answered is None and status != "unparsed":  # not said is not known
        judged = replace(judged, answered=None)
    return judged if status in ("graded", "unparsed") else replace(judged, correct=None)


def ended_without_text(values: Mapping[str, Any]) -> bool:
    """Whether a record without a text is of a response all the same: it has a thought, or why there is no answer.

    >>> ended_without_text({"response": None, "reasoning": "2 +", "finish_reason": "length"})
    True
    >>> ended_without_text({"response": None, "finish_reason": "stop"})
    False
    """
    reason = values.get("finish_reason")
    is_thought = any(isinstance(values.get(name), str) and values[name] for name in THOUGHTS)
    return is_thought or no_answer((), reason if isinstance(reason, str) else None, None) is not None


def as_object(value: Any) -> dict[str, Any] | None:
    """Return an object with named fields, or the one that is JSON in a text; None for anything else."""
    try:
        found = parse_json(value) if isinstance(value, str) and value[:1] == "{" else value
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def from_cells(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that `swerve data export` wrote as the cells of a CSV file.

    Raises:
        ValueError: a cell is not of its column's type.
    """
    from swerve.formats.export import restored

    values: dict[str, Any] = {}
    for name, cell in columns.items():
        if not isinstance(cell, str) or name not in SCHEMA.names:
            values[name] = cell
        elif pa.types.is_string(SCHEMA.field(name).type):
            values[name] = restored(cell)
        else:
            try:
                values[name] = parse_json(cell.lower())
            except (ValueError, RecursionError):
                raise ValueError(f"{name} must be {SCHEMA.field(name).type}, got {shown(cell)}") from None
    if "text" in values and values["text"] is None and not values.get("completion_ids"):
        values["text"] = ""  # some models answer with nothing, of which an empty cell is all that is left
    return values


_MOST_COUNTED = 10_000
"""Responses that a record may count."""
_COUNTS = (
    ("n_correct", "num_correct", "correct_count"),
    ("n_total", "n_rollouts", "num_samples", "num_total", "n_samples"),
)
"""Where a record has how many responses are right, and of how many, instead of them."""


def counted_right(entry: Fields) -> tuple[int, int] | None:
    """Return how many responses of a record are right, of how many, where it has these counts alone; else None."""
    if entry.get("response") is not None or entry.get("correct") is not None:
        return None
    right, total = (next((entry.values[name] for name in names if name in entry.values), None) for names in _COUNTS)
    if type(right) is not int or type(total) is not int or not 0 <= right <= total <= _MOST_COUNTED:
        return None
    return right, total
