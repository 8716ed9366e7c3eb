"""What a task consists of: its configuration, its family of problems and its grader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from swerve.grading.grader import GraderEntry
from swerve.grading.policies import MathGrading
from swerve.problems.family import ProblemFamily
from swerve.settings import Model


class Task(Model):
    """The configuration of a task."""

    if TYPE_CHECKING:
        kind: str  # the task's name in the table of tasks; each class has its own literal

    planted: ClassVar[str] = ""
    """The mistake that its supervised traces make at its `mistake_rate`, as a sentence has it; empty: it has none."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One kind of task; each module of the table of tasks has one as `TASK`."""

    config: type[Task]
    """Its configuration, with a `kind` of its own."""
    family: Callable[[Any], ProblemFamily]
    """From the configuration to its problems."""
    grader: GraderEntry | None = None
    """Judges the problems that name no other grader; None: they all name one."""


FINAL_ANSWER = GraderEntry(module="swerve.grading.text", function="grade_final_answer")
"""The words after `answer` must be those of the gold answer."""
MATHS = GraderEntry(
    module="swerve.grading.grade_math",
    function="grade_math",
    isolated=True,
    quick="quick_math",
    preloads=("mpmath",),
    policies=MathGrading,
)
"""The grader of mathematics."""
