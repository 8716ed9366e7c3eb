"""Which grader judges which problems, and where it runs. Graders are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from swerve.types import Problem, Reward

__all__ = ["GRADERS", "Grader", "GraderEntry", "entry_for"]

Grader = Callable[[Problem, str], Reward]
"""Judges a text as an answer to a problem; never raises on any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderEntry:
    """A grader by name."""

    module: str
    """Module under `swerve`."""
    function: str
    isolated: bool = False
    """Whether it runs in a worker process that can be killed, under limits of CPU time and memory."""
    confined: bool = True
    """Of isolated ones: whether the worker also refuses to run text as code, to open files for writing, and so on."""
    quick: str | None = None
    """Of isolated ones: a function of the module that answers easy cases where it is called, `(problem, text)` to a
    reward or None."""

    def load(self) -> Grader:
        """Import the grader."""
        grader: Grader = getattr(importlib.import_module(f"swerve.{self.module}"), self.function)
        return grader

    def load_quick(self) -> Callable[[Problem, str], Reward | None] | None:
        """Import the function for easy cases, where there is one."""
        if self.quick is None:
            return None
        found: Callable[[Problem, str], Reward | None] = getattr(
            importlib.import_module(f"swerve.{self.module}"), self.quick
        )
        return found


_FINAL_ANSWER = GraderEntry(module="grading.text", function="grade_final_answer")
_MATHS = GraderEntry(module="rewards.maths", function="grade_math", isolated=True, quick="quick_math")

GRADERS: Mapping[str, GraderEntry] = MappingProxyType(
    {
        "addition": _FINAL_ANSWER,
        "arithmetic_sequence": GraderEntry(module="rewards.arithmetic_sequence", function="grade_arithmetic_sequence"),
        "choice": GraderEntry(module="grading.text", function="grade_choice"),
        "countdown": GraderEntry(module="rewards.countdown", function="grade_countdown"),
        "deepscaler": _MATHS,
        "exact": GraderEntry(module="grading.text", function="grade_exact"),
        "gsm8k": _MATHS,
        "k_and_k": GraderEntry(module="rewards.k_and_k", function="grade_k_and_k"),
        "knights_knaves": _FINAL_ANSWER,
        "math": _MATHS,
        "math_verify": GraderEntry(module="rewards.maths", function="grade_math_verify", isolated=True),
        "palindrome": GraderEntry(module="rewards.palindrome", function="grade_palindrome"),
        "python": GraderEntry(
            module="rewards.sandbox.python_file", function="grade_python", isolated=True, confined=False
        ),
        "reasoning_gym": GraderEntry(module="rewards.reasoning_gym", function="grade_reasoning_gym", isolated=True),
    }
)


def entry_for(problem: Problem) -> GraderEntry:
    """Return the grader of a problem: the one it names, or its family's.

    Raises:
        ValueError: there is no grader of that name.
    """
    name = problem.grader or problem.family
    entry = GRADERS.get(name)
    if entry is None:
        raise ValueError(f"no grader {name!r}; known: {', '.join(sorted(GRADERS))}")
    return entry
