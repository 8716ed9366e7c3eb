"""Compare the verdicts recorded in a file with those of the grader: counts both ways, and every disagreement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.records import Record
from swerve.statistics.intervals import share
from swerve.types import Reward

_WORDS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False, "correct": True, "incorrect": False}
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedRecord:
    """A graded record, as far as the comparison needs it."""

    place: str
    id: str
    gold: str
    values: Mapping[str, Any]
    """The record's own fields."""
    reward: Reward


def check_recorded(records: Sequence[Record], field: str, file: Path) -> None:
    """Check that a field of the records can be compared with verdicts.

    Raises:
        ConfigError: no record has the field.
        ArtifactError: a record holds something else than a verdict in it.
    """
    if not any(field in record.values for record in records):
        known = sorted({key for record in records for key in record.values})
        raise ConfigError(
            f"--audit '{field}': {file} has no such field{nearest(field, known)}; it has {', '.join(known)}"
        )
    for record in records:
        if record.values.get(field) is not None:
            _recorded(record, field)


def compare_verdicts(rows: Sequence[GradedRecord], field: str) -> dict[str, Any]:
    """Return how the verdicts recorded in `field` compare with the grader's.

    Where every recorded value is a truth value (true, false, 0, 1 or such words), right is compared with right: a
    reward of 1 or more is right, a failure is not. Other numbers are compared with the reward's value itself. Records
    without a recorded value are counted apart.

    Raises:
        ArtifactError: a record holds something else than a verdict in the field.
    """
    judged = [(row, _recorded(row, field)) for row in rows if row.values.get(field) is not None]
    are_verdicts = all(value in (0.0, 1.0) for _, value in judged)
    compare = _compare_verdicts if are_verdicts else _compare_values
    return {
        "field": field,
        "compared": "verdicts" if are_verdicts else "values",
        "num_without_record": len(rows) - len(judged),
        **compare(judged, field),
    }


def _recorded(row: GradedRecord | Record, field: str) -> float:
    value = row.values[field]
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise ArtifactError(
        f"{row.place}: the field '{field}' of --audit must be a truth value or a number, got {value!r:.60}"
    )


def _compare_verdicts(judged: Sequence[tuple[GradedRecord, float]], field: str) -> dict[str, Any]:
    pairs = [(value == 1.0, row.reward.is_right) for row, value in judged]
    agreeing = sum(recorded == graded for recorded, graded in pairs)
    return {
        "num_compared": len(pairs),
        "agreement": share(agreeing, len(pairs)),
        "recorded_right": sum(recorded for recorded, _ in pairs),
        "graded_right": sum(graded for _, graded in pairs),
        "both_right": pairs.count((True, True)),
        "only_recorded_right": pairs.count((True, False)),
        "only_graded_right": pairs.count((False, True)),
        "both_wrong": pairs.count((False, False)),
        "disagreements": [
            _disagreement(row, field)
            for (row, _), (recorded, graded) in zip(judged, pairs, strict=True)
            if recorded != graded
        ],
    }


def _compare_values(judged: Sequence[tuple[GradedRecord, float]], field: str) -> dict[str, Any]:
    same = [row.reward.value is not None and abs(row.reward.value - value) <= _TOLERANCE for row, value in judged]
    return {
        "num_compared": len(judged),
        "agreement": share(sum(same), len(same)),
        "num_same": sum(same),
        "disagreements": [_disagreement(row, field) for (row, _), equal in zip(judged, same, strict=True) if not equal],
    }


def _disagreement(row: GradedRecord, field: str) -> dict[str, Any]:
    return {
        "place": row.place,
        "id": row.id,
        "gold": row.gold,
        "extracted": row.reward.extracted,
        "recorded": row.values[field],
        "value": row.reward.value,
        "status": row.reward.status,
        "detail": row.reward.detail,
    }
