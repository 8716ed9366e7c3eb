"""What families share whose problems are read: sources, distinct problems, disjoint splits, filters, seeded choice."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from swerve.config import DataTask
from swerve.config.data_tasks import MathsDataTask
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.records import Record
from swerve.problems.family import SolvedFamily, Split, is_heldout
from swerve.problems.filters import apply_filters, question_key
from swerve.problems.prompt_formats import with_prompt
from swerve.problems.sources import read_source
from swerve.types import Problem

__all__ = ["MathsFamily", "ReadFamily"]

_NUM_NAMED = 3
_DEFAULT_SPLITS: Mapping[Split, str] = {"train": "train", "heldout": "test"}

Task = TypeVar("Task", bound=DataTask)
MathsTask = TypeVar("MathsTask", bound=MathsDataTask)


@dataclass(frozen=True, slots=True)
class _Row:
    """A problem and where it was read."""

    problem: Problem
    place: str
    key: str


class ReadFamily(SolvedFamily, ABC, Generic[Task]):
    """Problems that are read from the sources of a task.

    Of problems with one question (up to white space and letter case) the first is used; one that is held out is never
    trained on. Rows without a gold answer are left out. What was left out, and why, is in `notes`.
    """

    name: ClassVar[str]

    def __init__(self, task: Task) -> None:
        self._task = task

    @abstractmethod
    def problem(self, record: Record) -> Problem | None:
        """Return a record as a problem, without prompt and the task's policies of grading; None: it has no gold answer.

        Raises:
            ArtifactError: a field is missing or wrong.
        """

    @property
    def grading(self) -> Mapping[str, Any]:
        """The task's policies of grading that differ from the grader's defaults; a problem's own come before them."""
        return {}

    def choose(self, splits: Mapping[Split, Sequence[Problem]]) -> tuple[dict[Split, list[Problem]], list[str]]:
        """Return the problems that the family's own settings ask for, and a line for each that left some out."""
        return {split: list(problems) for split, problems in splits.items()}, []

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split in a seeded order, the first `num_train` or `num_heldout` of it.

        Raises:
            ConfigError: there are fewer than asked for, or none, or a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        found, notes = self._loaded
        problems = list(found[split])
        asked = self._task.num_train if split == "train" else self._task.num_heldout
        if not problems:
            raise ConfigError(f"task '{self.name}' has no {split} problems{_because(notes)}; give other sources")
        if asked is not None and asked > len(problems):
            raise ConfigError(
                f"task '{self.name}' has {len(problems):,} {split} problems, fewer than task.num_{split}={asked}"
                f"{_because(notes)}; lower it or give more sources"
            )
        random.Random(f"{self.name} {split} {seed}").shuffle(problems)
        return [self._finished(problem) for problem in problems[:asked]]

    def notes(self) -> list[str]:
        """Return a line for everything that was left out of the sources, and why.

        Raises:
            ConfigError: a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        return list(self._loaded[1])

    def _finished(self, problem: Problem) -> Problem:
        problem = replace(problem, grading={**self.grading, **problem.grading})
        return with_prompt(problem, self._task.prompt)

    @cached_property
    def _loaded(self) -> tuple[dict[Split, list[Problem]], list[str]]:
        notes: list[str] = []
        train = self._rows("train", self._task.train, notes)
        if self._task.heldout:
            heldout = self._rows("heldout", self._task.heldout, notes)
            keys = {row.key for row in heldout}
            repeated = [row for row in train if row.key in keys]
            _note(notes, "train", repeated, "also held out")
            train = [row for row in train if row.key not in keys]
        else:
            heldout = [row for row in train if is_heldout(row.key)]
            train = [row for row in train if not is_heldout(row.key)]
        _refuse_equal_ids([*train, *heldout])
        splits: dict[Split, list[Problem]] = {
            "train": [row.problem for row in train],
            "heldout": [row.problem for row in heldout],
        }
        splits, chosen = self.choose(splits)
        filtered, left_out = apply_filters(splits, self._task.where)
        return filtered, [*notes, *chosen, *left_out]

    def _rows(self, split: Split, specs: Sequence[str], notes: list[str]) -> list[_Row]:
        """Return the problems of some sources, each question once, and add to `notes` what is left out."""
        found: dict[str, _Row] = {}
        unanswered: list[Record] = []
        repeated: list[_Row] = []
        differing: list[_Row] = []
        for record in (record for spec in specs for record in _records(split, spec)):
            problem = self.problem(record)
            if problem is None:
                unanswered.append(record)
                continue
            row = _Row(problem, record.place, question_key(problem.question))
            first = found.setdefault(row.key, row)
            if first is not row:
                repeated.append(row)
                if "".join(first.problem.answer.split()) != "".join(problem.answer.split()):
                    differing.append(row)
        _note(notes, split, unanswered, "no gold answer")
        _note(notes, split, repeated, "the same question as an earlier row")
        _note(notes, split, differing, "of them with another gold answer, which is not used", verb="")
        return list(found.values())


def _records(split: Split, spec: str) -> list[Record]:
    try:
        return read_source(spec, default_split=_DEFAULT_SPLITS[split])
    except ConfigError as error:  # say which of the two sources: one may be the task's default
        raise ConfigError(f"task.{split}: {error}") from None


class MathsFamily(ReadFamily[MathsTask], Generic[MathsTask]):
    """Problems that are read and whose answers are judged as mathematics."""

    @property
    def grading(self) -> Mapping[str, Any]:
        """The task's policies of grading that differ from the defaults of mathematics."""
        return self._task.grading.model_dump(mode="json", exclude_defaults=True)


def _note(
    notes: list[str], split: str, rows: Sequence[_Row | Record], reason: str, *, verb: str = " left out:"
) -> None:
    if rows:
        places = [row.place for row in rows[:_NUM_NAMED]]
        more = ["..."] if len(rows) > _NUM_NAMED else []
        count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
        notes.append(f"{split}: {count}{verb} {reason} ({'; '.join(places + more)})")


def _because(notes: Sequence[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def _refuse_equal_ids(rows: Sequence[_Row]) -> None:
    places: dict[str, str] = {}
    for row in rows:
        first = places.setdefault(row.problem.id, row.place)
        if first != row.place:
            raise ArtifactError(
                f"{row.place} and {first} have different questions with one id {row.problem.id!r}; "
                "give each problem an id of its own, or none"
            )
