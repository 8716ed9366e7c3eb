"""Verdicts recorded in a file against those of the grader: counts both ways, and every disagreement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.files import dump_json
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.records import Record
from swerve.statistics import share
from swerve.types import Reward

__all__ = ["Audited", "audit", "audit_lines", "refuse_unauditable"]

_WORDS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False, "correct": True, "incorrect": False}
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One graded record, as far as an audit needs it."""

    place: str
    id: str
    gold: str
    values: Mapping[str, Any]
    """The record's own fields."""
    reward: Reward


def refuse_unauditable(records: Sequence[Record], field: str, file: Path) -> None:
    """Do nothing if the records' field can be audited.

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


def audit(rows: Sequence[Audited], field: str) -> dict[str, Any]:
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


def _recorded(row: Audited | Record, field: str) -> float:
    value = row.values[field]
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise ArtifactError(
        f"{row.place}: the field '{field}' of --audit must be a truth value or a number, got {value!r:.60}"
    )


def _compare_verdicts(judged: Sequence[tuple[Audited, float]], field: str) -> dict[str, Any]:
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


def _compare_values(judged: Sequence[tuple[Audited, float]], field: str) -> dict[str, Any]:
    same = [row.reward.value is not None and abs(row.reward.value - value) <= _TOLERANCE for row, value in judged]
    return {
        "num_compared": len(judged),
        "agreement": share(sum(same), len(same)),
        "num_same": sum(same),
        "disagreements": [_disagreement(row, field) for (row, _), equal in zip(judged, same, strict=True) if not equal],
    }


def _disagreement(row: Audited, field: str) -> dict[str, Any]:
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


def audit_lines(found: Mapping[str, Any], *, limit: int) -> list[str]:
    """Return an audit as lines for people: counts, then at most `limit` disagreements."""
    agreement = found["agreement"]
    if agreement is None:
        return [f"Against '{found['field']}': no record has a verdict in it."]
    interval = f"{agreement['mean']:.1%} [{agreement['low']:.1%}, {agreement['high']:.1%}]"
    lines = [f"Against '{found['field']}' ({found['num_compared']} records): agreement {interval}"]
    if found["compared"] == "verdicts":
        lines.append(
            f"  recorded right {found['recorded_right']}, graded right {found['graded_right']}: "
            f"both {found['both_right']}, only recorded {found['only_recorded_right']}, "
            f"only graded {found['only_graded_right']}, neither {found['both_wrong']}"
        )
    if found["num_without_record"]:
        lines.append(f"  {found['num_without_record']} records have no verdict in it")
    disagreements = found["disagreements"]
    lines += [_line(one) for one in disagreements[:limit]]
    if len(disagreements) > limit:
        lines.append(
            f"  and {len(disagreements) - limit} more; all are in the output of --json or --disagreements FILE"
        )
    return lines


def _line(one: Mapping[str, Any]) -> str:
    verdict = one["status"] if one["value"] is None else f"{one['value']:g}"
    detail = f" ({one['detail']})" if one["detail"] else ""
    return (
        f"  {one['id']}: recorded {one['recorded']}, graded {verdict}{detail}; "
        f"gold {_short(one['gold'])}, read {_short(one['extracted'])}"
    )


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    text = dump_json(value).strip()
    return text if len(text) <= 70 else f"{text[:67]}..."
