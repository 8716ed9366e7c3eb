"""Compare the verdicts recorded in a file with those of the grader: counts both ways, and every disagreement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.records import Record
from swerve.statistics.intervals import share
from swerve.types import Problem, Reward

_WORDS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False, "correct": True, "incorrect": False}
_TOLERANCE = 1e-9


class GradedRecord(NamedTuple):
    """A record, the problem that it is an answer to, and what the grader says of the answer."""

    record: Record
    problem: Problem
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
    judged = [(row, _recorded(row.record, field)) for row in rows if row.record.values.get(field) is not None]
    are_verdicts = all(value in (0.0, 1.0) for _, value in judged)

    # Count the four cases of two verdicts, and keep what disagrees.
    cases: Counter[tuple[bool, bool]] = Counter()
    disagreements: list[dict[str, Any]] = []
    for (record, problem, reward), value in judged:
        cases[value == 1.0, reward.is_right] += 1
        agrees = (value == 1.0) == reward.is_right
        if not are_verdicts:
            agrees = reward.value is not None and abs(reward.value - value) <= _TOLERANCE
        if not agrees:
            said = {name: getattr(reward, name) for name in ("value", "status", "detail")}
            named = {"place": record.place, "id": problem.id, "gold": problem.answer, "extracted": reward.extracted}
            disagreements.append({**named, "recorded": record.values[field], **said})

    num_agreeing = len(judged) - len(disagreements)
    counts = {
        "recorded_right": cases[True, True] + cases[True, False],
        "graded_right": cases[True, True] + cases[False, True],
        "both_right": cases[True, True],
        "only_recorded_right": cases[True, False],
        "only_graded_right": cases[False, True],
        "both_wrong": cases[False, False],
    }
    return {
        "field": field,
        "compared": "verdicts" if are_verdicts else "values",
        "num_without_record": len(rows) - len(judged),
        "num_compared": len(judged),
        "agreement": share(num_agreeing, len(judged)),
        **(counts if are_verdicts else {"num_same": num_agreeing}),
        "disagreements": disagreements,
    }


def _recorded(record: Record, field: str) -> float:
    value = record.values[field]
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise ArtifactError(
        f"{record.place}: the field '{field}' of --audit must be a truth value or a number, got {value!r:.60}"
    )
