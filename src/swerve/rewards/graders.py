"""The graders by name: those of the tasks, and those that any problem can name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from swerve.grading.grader import GraderEntry
from swerve.grading.policies import MathGrading
from swerve.problems.registry import TASKS
from swerve.types import Problem

GRADERS: Mapping[str, GraderEntry] = MappingProxyType(
    {
        **{kind: task.grader for kind, task in TASKS.items() if task.grader},
        "choice": GraderEntry(module="swerve.grading.text", function="grade_choice"),
        "exact": GraderEntry(module="swerve.grading.text", function="grade_exact"),
        "math_verify": GraderEntry(
            module="swerve.rewards.maths",
            function="grade_math_verify",
            isolated=True,
            preloads=("math_verify",),
            policies=MathGrading,
        ),
        "python": GraderEntry(
            module="swerve.rewards.sandbox.python_file", function="grade_python", isolated=True, confined=False
        ),
    }
)


def entry_for(problem: Problem) -> GraderEntry:
    """Return the grader of a problem: the one it names, or its family's.

    Raises:
        ValueError: there is none of that name.
    """
    name = problem.grader or problem.family
    entry = GRADERS.get(name)
    if entry is None:
        raise ValueError(f"no grader {name!r}; known: {', '.join(sorted(GRADERS))}")
    return entry
