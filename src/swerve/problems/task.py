"""What a task consists of: its configuration, its family of problems and its grader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from swerve.grading.grader import GraderEntry
from swerve.grading.policies import MathGrading
from swerve.problems.family import ProblemFamily
from swerve.problems.prompt import FORMATS, PromptConfig
from swerve.settings import Model


class Task(Model):
    """The configuration of a task."""

    if TYPE_CHECKING:
        kind: str  # the task's name in the table of tasks; each class has its own literal

    planted: ClassVar[str] = ""
    """The mistake that its supervised traces make at its `mistake_rate`, as a sentence has it; empty: it has none."""

    @property
    def train_sources(self) -> tuple[str, ...]:
        """Data specs of its training problems; none: it makes them."""
        return ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Data specs of all that it reads."""
        return ()

    @property
    def policies(self) -> Model | None:
        """Of its grader; None: it has none."""
        return None

    @property
    def prefix(self) -> str:
        """Beginning of the answer that its prompts give to the model."""
        return ""


class SingleTask(Task):
    """A task with problems of its own: every one but a mixture."""

    if TYPE_CHECKING:
        num_train: int | None  # each class has its own field
        num_heldout: int | None


class PromptedTask(SingleTask):
    """A task whose questions stand in a prompt."""

    if TYPE_CHECKING:
        prompt: PromptConfig  # each class has its own default

    @property
    def prefix(self) -> str:
        """See the base class."""
        return FORMATS[self.prompt.format].prefix if self.prompt.prefix is None else self.prompt.prefix


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
