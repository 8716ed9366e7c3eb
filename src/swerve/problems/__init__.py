"""Tasks, one file or folder each: configuration, problems and grader. Free of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

from pydantic import Field

from swerve.problems.family import ProblemFamily, Split
from swerve.problems.mixture import Mixture, MixtureTask
from swerve.problems.registry import TASKS, SingleTaskConfig
from swerve.problems.task import Task

__all__ = ["TASKS", "ProblemFamily", "SingleTaskConfig", "Split", "Task", "TaskConfig", "load_family"]

if TYPE_CHECKING:
    TaskConfig = Task
else:
    TaskConfig = Annotated[get_args(SingleTaskConfig)[0] | MixtureTask, Field(discriminator="kind")]


def load_family(task: Task) -> ProblemFamily:
    """Return the family of problems that a task's configuration describes.

    >>> from swerve.problems.addition import AdditionTask
    >>> load_family(AdditionTask(digits=2)).name
    'addition'
    """
    return Mixture(task) if isinstance(task, MixtureTask) else TASKS[task.kind].family(task)
