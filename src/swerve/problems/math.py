r"""MATH: competition problems of five levels and seven subjects, each with a `\boxed` answer (arXiv:2103.03874)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.records import FileRecord
from swerve.problems.data_specs import Sources, Specs
from swerve.problems.family import problem_id
from swerve.problems.prompt import PromptConfig
from swerve.problems.reading import Condition, MathsDataTask, ReadFamily
from swerve.problems.record_values import has_value, list_of_texts, number_text, text_of
from swerve.problems.task import MATHS, TaskKind
from swerve.settings import Words
from swerve.types import Problem


class MathTask(MathsDataTask):
    """Competition problems of five levels and seven subjects (MATH)."""

    kind: Literal["math"] = "math"
    train: Sources = ("train@DigitalLearningGmbH/MATH-lighteval",)
    """Sources of training problems: data specs, files or folders."""
    heldout: Specs = ("test@HuggingFaceH4/MATH-500",)
    """Sources of held-out problems."""
    levels: Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], Field(strict=False)] = ()
    """Levels to use, 1 to 5; none: all, with problems without a level."""
    subjects: Words = ()
    """Subjects to use, such as Algebra; none: all."""
    prompt: PromptConfig = PromptConfig(format="boxed")


_BOX = re.compile(r"\\(?:boxed|fbox)(?=[\s{])\s*")
_LEVEL = re.compile(r"(?:Level )?([1-5])")


class Math(ReadFamily[MathTask]):
    r"""Rows with `problem`, `solution`, `level` (3 or `Level 3`), `subject` or `type`, and maybe `answer`, `unique_id`.

    Gold: the field `answer`, or what the last `\boxed` of the solution holds. Id: `unique_id`, such as
    `test/algebra/2584.json`. Difficulty: the level; `Level ?` means unknown. Kind: `level 3`.
    """

    name = "math"

    def problem(self, record: FileRecord) -> Problem | None:
        """Return a record as a problem; None: it has no gold answer.

        Raises:
            ArtifactError: it has no problem or an unknown level.
        """
        question = text_of(record, "problem", "question")
        solution = text_of(record, "solution") if has_value(record, "solution") else None
        given = next(iter(list_of_texts(record, "answer")), "") or last_boxed(solution or "")
        if not given:
            return None

        # Level and subject are what evaluation reports by.
        level = _level(record)
        unique_id = record.values.get("unique_id")
        subject = record.values.get("subject") or record.values.get("type")
        facts = {"subject": subject, "unique_id": unique_id}
        return Problem(
            id=str(unique_id or problem_id(self.name, question)),
            family=self.name,
            question=question,
            answer=given,
            solution=solution,
            kind="no level" if level is None else f"level {level}",
            difficulty=None if level is None else float(level),
            metadata={name: str(fact) for name, fact in facts.items() if fact is not None},
        )

    def conditions(self, problems: Iterable[Problem]) -> list[Condition]:
        """Return the conditions of the task's levels and subjects.

        Raises:
            ConfigError: no problem is of a subject that is asked for.
        """
        subjects, levels = self._subjects(problems), self._task.levels
        return [
            ("levels", lambda problem: not levels or problem.difficulty in levels),
            ("subjects", lambda problem: not subjects or problem.metadata.get("subject") in subjects),
        ]

    def _subjects(self, problems: Iterable[Problem]) -> set[str]:
        """Return the subjects that are asked for, as the source writes them."""
        subjects = {problem.metadata["subject"] for problem in problems if "subject" in problem.metadata}
        known = {_subject_key(subject): subject for subject in sorted(subjects)}
        for subject in self._task.subjects:
            if _subject_key(subject) not in known:
                near = nearest(_subject_key(subject), known)
                raise ConfigError(
                    f"task.subjects has {subject!r}, which no problem is of; there are "
                    f"{', '.join(known.values()) or 'none'}{near}"
                )
        return {known[_subject_key(subject)] for subject in self._task.subjects}


def _subject_key(subject: str) -> str:
    """Return what `Counting & Probability` and `counting_and_probability` share."""
    return " ".join(subject.casefold().replace("_", " ").replace(" and ", " & ").split())


def _level(record: FileRecord) -> int | None:
    value = record.values.get("level")
    if value is None or value == "Level ?":
        return None
    level = _LEVEL.fullmatch(number_text(value)) if isinstance(value, str | int | float) else None
    if level is None:
        raise ArtifactError(f"{record.place}: the level is {value!r}; expected 1 to 5, 'Level 1' to 'Level 5' or null")
    return int(level[1])


def last_boxed(text: str) -> str:
    r"""Return what the last `\boxed{...}` with balanced braces holds, or the word after a `\boxed` without braces.

    An empty text without one, and where the last one is empty.

    >>> last_boxed(r"Not $\boxed{1}$ but $\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    >>> last_boxed(r"so it is $\boxed 9$.")
    '9'
    """
    for box in reversed(list(_BOX.finditer(text))):
        if text[box.end() : box.end() + 1] != "{":
            word = re.match(r"[^\s$.,;]+", text[box.end() :])
            return word[0] if word else ""
        depth = 0
        for brace in re.finditer(r"\\[{}]|[{}]", text[box.end() :]):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if depth == 0:
                return text[box.end() + 1 : box.end() + brace.start()].strip()
    return ""


TASK = TaskKind(MathTask, Math, MATHS)
