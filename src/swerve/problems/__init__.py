"""Families of problems: one file a family, each with its traces and its step checker. Free of torch."""

from __future__ import annotations

from swerve.config import AdditionTask, TaskConfig
from swerve.problems.addition import Addition
from swerve.problems.family import ProblemFamily, Split
from swerve.problems.knights_knaves import KnightsKnaves

__all__ = ["Addition", "KnightsKnaves", "ProblemFamily", "Split", "load_family"]


def load_family(task: TaskConfig) -> ProblemFamily:
    """Return the family that a task's configuration describes.

    >>> load_family(AdditionTask(digits=2)).name
    'addition'
    """
    return Addition(task) if isinstance(task, AdditionTask) else KnightsKnaves(task)
