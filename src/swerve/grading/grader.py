"""How a grader is named, imported and run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swerve.grading.marks import is_only_marks
from swerve.settings import Model
from swerve.types import Problem, Reward

Grader = Callable[[Problem, str], Reward]
"""Judges a text as an answer to a problem; never raises on any text."""


def graded(is_right: bool, answer: str, parts: Mapping[str, float] | None = None) -> Reward:
    r"""Return the reward of an answer that is right or wrong; without `parts` it is its own part `answer`.

    An answer of nothing but the marks around one, such as an empty box, does not count: `unparsed`.

    >>> graded(True, "7").parts, graded(False, r"\boxed{ }").status
    ({'answer': 1.0}, 'unparsed')
    """
    if not is_right and is_only_marks(answer):
        return Reward(value=None, status="unparsed")
    value = float(is_right)
    return Reward(value=value, status="graded", parts={"answer": value} if parts is None else parts, extracted=answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderEntry:
    """A grader, imported when it is first used."""

    module: str
    function: str
    isolated: bool = False
    """Whether it runs in a worker process that can be killed, under limits of CPU time and memory."""
    confined: bool = True
    """Of isolated ones: whether the worker also refuses to run text as code, to open files for writing, and so on."""
    quick: str | None = None
    """Of isolated ones: a function of the module that answers easy cases where it is called, `(problem, text)` to a
    reward or None."""
    preloads: tuple[str, ...] = ()
    """Modules that it imports when it first judges; a worker imports them before, outside an answer's CPU time."""
    needs_gold: bool = True
    """Whether it compares with the gold answer; else what the problem says decides."""
    policies: type[Model] | None = None
    """The model of `Problem.grading`; None: it has no policies, or checks them itself."""

    def load(self) -> Grader:
        """Import the grader."""
        grader: Grader = getattr(importlib.import_module(self.module), self.function)
        return grader

    def load_quick(self) -> Callable[[Problem, str], Reward | None] | None:
        """Import the function for easy cases, where there is one."""
        if self.quick is None:
            return None
        quick: Callable[[Problem, str], Reward | None] = getattr(importlib.import_module(self.module), self.quick)
        return quick
