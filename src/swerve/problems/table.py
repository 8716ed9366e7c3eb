"""Your own problems: the rows of any table, or problems that swerve wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from swerve.artifacts.problem_records import is_problem_record, read_problem
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.countdown_rows import countdown_fields
from swerve.formats.records import FileRecord
from swerve.problems.family import Split, problem_id
from swerve.problems.knights.rows import row_problem
from swerve.problems.reading import DataTask, ReadFamily
from swerve.problems.record_values import has_value, list_of_texts, missing_field, number_of, text_of
from swerve.problems.task import TaskKind
from swerve.types import Problem

_MADE_FROM = ("question", "answer", "alternatives", "solution", "kind", "group", "difficulty")
_TABLE_FIELDS = ("id", *_MADE_FROM)
_USUAL = {
    "question": ("problem", "prompt", "instruction", "query", "input"),
    "answer": ("gold", "target", "solution", "label", "expected", "output"),
}
"""What others call fields that every row has."""
_GRADER = "grader"
"""The field with the name of a row's own grader."""


class TableTask(DataTask):
    """Your own problems: JSON, JSONL, CSV or Parquet, with any names of the fields."""

    kind: Literal["table"] = "table"
    fields: dict[str, str] = Field(default_factory=dict)
    """The file's names for id, question, answer, alternatives, solution, kind, group (problems of one template) and
    difficulty, where they differ. An id is read only if named here; otherwise it is made from the question."""
    grader: str | None = None
    """Name of the grader; python: the function `reward(problem, text)` of `reward_file`; null: that of each
    problem's own field `grader`, else math."""
    grading: dict[str, JsonValue] = Field(default_factory=dict)
    """Policies of the grader, where they differ from its defaults."""
    reward_file: str | None = None
    """Python file with a function `reward(problem, text)`, run in the graders' processes; relative to the current
    folder."""

    @field_validator("fields")
    @classmethod
    def _check_fields(cls, fields: dict[str, str]) -> dict[str, str]:
        for name in fields:
            if name not in _TABLE_FIELDS:
                raise ValueError(
                    f"{name!r} is not a field of a problem ({', '.join(_TABLE_FIELDS)}){nearest(name, _TABLE_FIELDS)}"
                )
        return fields

    @field_validator("reward_file")
    @classmethod
    def _make_absolute(cls, path: str | None) -> str | None:
        return None if path is None else str(Path(path).expanduser().absolute())

    @model_validator(mode="after")
    def _check_reward_file(self) -> TableTask:
        if (self.grader == "python") != (self.reward_file is not None):
            raise ValueError("grader 'python' and a reward_file go together; give both or neither")
        return self


_PYTHON = "python"
_LOGIC_RL = "kk_logic"
"""`data_source` of knights and knaves in the files of Logic-RL, whose rows have the puzzle beside the messages."""


_CHOICES = ("choices", "options")
_LOOKED_AT = 100


def _has_unasked(problem: Problem, name: str) -> bool:
    """Whether a problem has a list of choices that its question does not have."""
    choices = problem.metadata.get(name)
    choices = choices.get("text") if isinstance(choices, dict) else choices
    return isinstance(choices, list) and bool(choices) and not all(str(one) in problem.question for one in choices)


class Table(ReadFamily[TableTask]):
    """Rows with `question` and `answer`, or the fields that `task.fields` names for them, and problems swerve wrote.

    Gold: a text or number; of a list the first, the others are alternatives. Id: made from the question, unless
    `task.fields.id` names a field. A row's own `grader` judges it, unless the task names one. What no field of a
    problem is made from is the problem's metadata.
    A problem that swerve wrote keeps its family, id, grader and policies, and its prompt unless `task.prompt` is set.
    """

    name = "table"

    def __init__(self, task: TableTask) -> None:
        super().__init__(task)
        self._grading = dict(task.grading)
        if task.reward_file is not None:
            path = Path(task.reward_file).expanduser().resolve()
            if not path.is_file():
                raise ConfigError(f"task.reward_file '{task.reward_file}' does not exist; give a Python file")
            self._grading["file"] = str(path)

    @property
    def grading(self) -> Mapping[str, Any]:
        """The task's policies of grading, with the absolute path of the reward file."""
        return self._grading

    def problem(self, record: FileRecord) -> Problem | None:
        """Return a record as a problem; None: it has no gold answer (which a reward file need not have).

        Raises:
            ArtifactError: a field is missing or wrong; the message names the record's fields.
        """
        # Problems that swerve wrote, and rows of Logic-RL and of Countdown, say themselves how they are read.
        if is_problem_record(record.values):
            problem = read_problem(record.values, record.place)
            if self._runs_code(record, problem.grader or problem.family):
                problem = replace(problem, grading={})
            return replace(problem, grader=self._task.grader or problem.grader)
        if record.values.get("data_source") == _LOGIC_RL and self._task.grader is None:
            return row_problem(record)

        puzzle = countdown_fields(record.values) if self._task.grader is None and not self._task.fields else {}
        if puzzle:
            return Problem(id=problem_id(puzzle["family"], puzzle["question"]), answer="", **puzzle)

        # Question and gold answer; a reward file can do without a gold.
        question_field, answer_field = self._field(record, "question"), self._field(record, "answer")
        if not has_value(record, question_field):
            raise self._missing(record, "question")
        grader = self._task.grader or (text_of(record, _GRADER) if has_value(record, _GRADER) else "math")
        self._runs_code(record, grader)
        if answer_field not in record.values and grader != _PYTHON:
            raise self._missing(record, "answer")
        answers = list_of_texts(record, answer_field)
        if not answers and grader != _PYTHON:
            return None
        question = text_of(record, question_field)

        # Everything else may be absent.
        others = list_of_texts(record, self._field(record, "alternatives"))
        solution = self._field(record, "solution")
        used = {self._task.fields.get(name, name) for name in _MADE_FROM} | {self._task.fields.get("id", "")}
        used |= {_GRADER} if self._task.grader is None else set()
        return Problem(
            id=self._id(record, question),
            family=self.name,
            question=question,
            answer=answers[0] if answers else "",
            alternatives=tuple(dict.fromkeys((*answers[1:], *others))),
            solution=text_of(record, solution) if has_value(record, solution) else None,
            kind=self._word(record, "kind") or "all",
            group=self._word(record, "group") or None,
            difficulty=number_of(record, self._field(record, "difficulty")),
            grader=grader,
            metadata={name: value for name, value in record.values.items() if name not in used and value is not None},
        )

    def remarks(self, split: Split, problems: Iterable[Problem]) -> list[str]:
        """Return that choices beside the questions are not asked, where that is so of the first problems."""
        for name in _CHOICES:
            unasked = [problem.id for problem in islice(problems, _LOOKED_AT) if _has_unasked(problem, name)]
            if unasked:
                named = ", ".join(unasked[:3])
                return [
                    f"{split}: the field {name!r} is no part of what is asked ({named}); write the choices into the "
                    "questions, and name the grader choice where the answer is a letter"
                ]
        return []

    def _missing(self, record: FileRecord, name: str) -> ArtifactError:
        """Return the error that a record lacks the field of a name, with the fields that others call so."""
        meant = {}
        for lacking in _USUAL:
            if not has_value(record, self._field(record, lacking)):
                meant[lacking] = next((field for field in _USUAL[lacking] if has_value(record, field)), "FIELD")
        fix = f"; say {' '.join(f'task.fields.{own}={field}' for own, field in meant.items())}"
        return missing_field(record, self._field(record, name), fix=fix, hints=meant[name] == "FIELD")

    def _runs_code(self, record: FileRecord, grader: str) -> bool:
        """Whether a record is graded by the task's reward file.

        Raises:
            ArtifactError: the record alone says so; what a record names is not run.
        """
        if _PYTHON not in (grader, self._task.grader):
            return False
        if self._task.reward_file is None:
            raise ArtifactError(
                f"{record.place} has the grader python: what a record names is not run; give "
                "task.grader=python and the file as task.reward_file=FILE"
            )
        return True

    def _field(self, record: FileRecord, name: str) -> str:
        """Return the record's field for a field of a problem.

        Raises:
            ArtifactError: the task names one that the record does not have.
        """
        field = self._task.fields.get(name, name)
        if name in self._task.fields and field not in record.values:
            raise missing_field(record, field, fix=f"; task.fields.{name} names it")
        return field

    def _word(self, record: FileRecord, name: str) -> str:
        return next(iter(list_of_texts(record, self._field(record, name))), "")

    def _id(self, record: FileRecord, question: str) -> str:
        named = self._word(record, "id") if "id" in self._task.fields else ""
        return named or problem_id(self.name, question)


TASK = TaskKind(TableTask, Table)
