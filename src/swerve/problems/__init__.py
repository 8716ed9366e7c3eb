"""Families of problems, one file or folder a family: where problems come from, how they are asked. Free of torch."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from swerve.config import TaskConfig
from swerve.problems.family import ProblemFamily, Split

if TYPE_CHECKING:
    from swerve.problems.addition import Addition
    from swerve.problems.knights_knaves import KnightsKnaves

__all__ = ["Addition", "KnightsKnaves", "ProblemFamily", "Split", "load_family"]

_FAMILIES = MappingProxyType(
    {  # kind of task -> module under swerve.problems, class that is made from the task
        "addition": ("addition", "Addition"),
        "arithmetic_sequence": ("arithmetic_sequence", "ArithmeticSequence"),
        "countdown": ("countdown", "Countdown"),
        "deepscaler": ("deepscaler", "DeepScaler"),
        "gsm8k": ("gsm8k", "Gsm8k"),
        "k_and_k": ("k_and_k", "KAndK"),
        "knights_knaves": ("knights_knaves", "KnightsKnaves"),
        "math": ("math", "Math"),
        "mixture": ("mixture", "Mixture"),
        "palindrome": ("palindrome", "Palindrome"),
        "reasoning_gym": ("reasoning_gym", "ReasoningGym"),
        "table": ("table", "Table"),
    }
)


def load_family(task: TaskConfig) -> ProblemFamily:
    """Return the family that a task's configuration describes.

    >>> from swerve.config import AdditionTask
    >>> load_family(AdditionTask(digits=2)).name
    'addition'
    """
    module, name = _FAMILIES[task.kind]
    family: ProblemFamily = getattr(importlib.import_module(f"swerve.problems.{module}"), name)(task)
    return family


def __getattr__(name: str) -> Any:
    """Import a family's class when it is first used (PEP 562)."""
    for module, family in _FAMILIES.values():
        if family == name:
            return getattr(importlib.import_module(f"swerve.problems.{module}"), name)
    raise AttributeError(f"module 'swerve.problems' has no attribute {name!r}")
