"""The graders by name: those of the tasks, and those that any problem can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from swerve.grading.grader import GraderEntry
from swerve.problems.reading import MATHS
from swerve.problems.registry import TASKS
from swerve.types import Problem

_PYTHON_FILE = GraderEntry(
    module="swerve.rewards.python_file",
    function="grade_python",
    isolated=True,
    confined=False,
    needs_gold=False,
)
GRADERS: Mapping[str, GraderEntry] = MappingProxyType(
    {
        **{kind: task.grader for kind, task in TASKS.items() if task.grader},
        "choice": GraderEntry(module="swerve.grading.text", function="grade_choice"),
        "exact": GraderEntry(module="swerve.grading.text", function="grade_exact"),
        "math_verify": replace(MATHS, function="grade_math_verify", quick=None, preloads=("math_verify",)),
        "python": _PYTHON_FILE,
    }
)


def entry_for(problem: Problem) -> GraderEntry:
    """Return the grader of a problem: the one it names, or its family's.

    Raises:
        ValueError: no grader has that name.
    """
    name = problem.grader or problem.family
    entry = GRADERS.get(name)
    if entry is None:
        raise ValueError(f"no grader {name!r}; known: {', '.join(sorted(GRADERS))}")
    return entry
