"""Compare the verdicts recorded in a file with those of the grader: counts both ways, and every disagreement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.imported_problems import has_made_id
from swerve.formats.records import FileRecord
from swerve.statistics.intervals import share
from swerve.types import Problem, Reward

_WORDS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False, "correct": True, "incorrect": False}
_TOLERANCE = 1e-9
FAILED = ("timeout", "error")
"""Statuses that say nothing of the answer."""


class VerdictComparison:
    """How the verdicts recorded in a field compare with the grader's.

    Where every recorded value is a truth value (true, false, 0, 1 or such words), right is compared with right: a
    reward of 1 or more is right. Other numbers are compared with the reward's value itself. Records without a recorded
    value, and those at which the grader failed or reached a limit, are counted apart.
    """

    def __init__(self, field: str, *, most: int | None = None) -> None:
        """Begin with no record; at most so many disagreements are kept, the others are counted."""
        self._field, self._most = field, most
        self._are_verdicts = True
        self._present: dict[str, None] = {}
        self._cases: Counter[tuple[bool, bool]] = Counter()
        self._num = self._num_agreeing = self._num_failed = 0
        self._disagreements: list[dict[str, Any]] = []

    def look(self, record: FileRecord, *, counts: bool = True) -> None:
        """Look at a record before any is added; one that does not count is left out of the comparison.

        Raises:
            ArtifactError: it holds something else than a verdict in the field.
        """
        self._present |= dict.fromkeys(record.values)
        if record.values.get(self._field) is not None:
            is_verdict = _recorded(record, self._field) in (0.0, 1.0)
            self._are_verdicts &= is_verdict or not counts

    def check(self, file: Path) -> None:
        """Raise ConfigError if no record that was looked at has the field."""
        if self._field not in self._present:
            known = sorted(self._present)
            raise ConfigError(
                f"--audit '{self._field}': {file} has no such field{nearest(self._field, known)}; it has "
                f"{', '.join(known)}"
            )

    def add(self, record: FileRecord, problem: Problem, reward: Reward) -> None:
        """Compare the verdict of a record with what the grader says of it as an answer to a problem.

        Raises:
            ArtifactError: it holds something else than a verdict in the field.
        """
        self._num += 1
        if record.values.get(self._field) is None:
            return
        if reward.status in FAILED:
            self._num_failed += 1
            return
        value = _recorded(record, self._field)
        self._cases[value == 1.0, reward.is_right] += 1
        agrees = (value == 1.0) == reward.is_right
        if not self._are_verdicts:
            agrees = reward.value is not None and abs(reward.value - value) <= _TOLERANCE
        self._num_agreeing += agrees
        if not agrees and (self._most is None or len(self._disagreements) < self._most):
            said = {name: getattr(reward, name) for name in ("value", "status", "detail")}
            name = None if has_made_id(problem) else problem.id
            named = {"place": record.place, "id": name, "gold": problem.answer, "extracted": reward.extracted}
            self._disagreements.append({**named, "recorded": record.values[self._field], **said})

    def summary(self) -> dict[str, Any]:
        """Return the counts both ways, and the disagreements."""
        cases, num_judged = self._cases, self._cases.total()
        counts = {
            "recorded_right": cases[True, True] + cases[True, False],
            "graded_right": cases[True, True] + cases[False, True],
            "both_right": cases[True, True],
            "only_recorded_right": cases[True, False],
            "only_graded_right": cases[False, True],
            "both_wrong": cases[False, False],
        }
        return {
            "field": self._field,
            "compared": "verdicts" if self._are_verdicts else "values",
            "num_without_record": self._num - num_judged - self._num_failed,
            "num_not_graded": self._num_failed,
            "num_compared": num_judged,
            "agreement": share(self._num_agreeing, num_judged),
            **(counts if self._are_verdicts else {"num_same": self._num_agreeing}),
            "num_disagreements": num_judged - self._num_agreeing,
            "disagreements": self._disagreements,
        }


def _recorded(record: FileRecord, field: str) -> float:
    value = record.values[field]
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise ArtifactError(
        f"{record.place}: the field '{field}' of --audit must be a truth value or a number, got {value!r:.60}"
    )
