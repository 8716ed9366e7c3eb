"""The graders by name: those of the tasks, and those that any problem can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from swerve.errors import nearest
from swerve.grading.grader import GraderEntry
from swerve.problems.registry import TASKS, LazyTable
from swerve.problems.task import MATHS
from swerve.types import Problem

_OF_NO_TASK: Mapping[str, GraderEntry] = {
    "choice": GraderEntry(module="swerve.grading.text", function="grade_choice"),
    "exact": GraderEntry(module="swerve.grading.text", function="grade_exact"),
    "math_verify": replace(MATHS, function="grade_math_verify", quick=None, preloads=("math_verify",)),
    "python": GraderEntry(
        module="swerve.rewards.python_file",
        function="grade_python",
        isolated=True,
        confined=False,
        needs_gold=False,
    ),
}


def _grader(name: str) -> GraderEntry:
    entry = _OF_NO_TASK.get(name) or TASKS[name].grader
    if entry is None:
        raise KeyError(name)
    return entry


GRADERS: Mapping[str, GraderEntry] = LazyTable(
    _grader, lambda: [name for name in (*TASKS, *_OF_NO_TASK) if name in GRADERS]
)
"""By name; one is found without the tasks of the others."""


_USUAL = {
    "multiple_choice": "choice", "mcq": "choice", "exact_match": "exact", "string_match": "exact", "numeric": "math",
}  # fmt: skip
"""What others call graders."""


def nearest_grader(name: str) -> str:
    """Return `"; did you mean 'choice'?"` for the grader that a name may mean, or an empty string."""
    return nearest(_USUAL.get(name, name), GRADERS)


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
