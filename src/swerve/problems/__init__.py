"""Tasks, one file or folder each: configuration, problems and grader. Free of torch."""

from __future__ import annotations

from swerve.problems.family import ProblemFamily, Split
from swerve.problems.registry import TASKS
from swerve.problems.task import Task

__all__ = ["TASKS", "ProblemFamily", "Split", "Task", "load_family"]


def load_family(task: Task) -> ProblemFamily:
    """Return the family of problems that a task's configuration describes.

    >>> from swerve.problems.addition import AdditionTask
    >>> load_family(AdditionTask(digits=2)).name
    'addition'
    """
    if task.kind != "mixture":
        return TASKS[task.kind].family(task)
    from swerve.problems.mixture import Mixture, MixtureTask

    assert isinstance(task, MixtureTask)
    return Mixture(task)
