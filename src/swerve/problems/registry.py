"""The table of tasks: a new task is a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from swerve.problems.task import Task, TaskKind

_MODULES = {  # kind -> module under swerve.problems that has the task as `TASK`
    "addition": "addition",
    "knights_knaves": "knights.knights_knaves",
    "gsm8k": "gsm8k",
    "math": "math",
    "deepscaler": "deepscaler",
    "k_and_k": "knights.k_and_k",
    "palindrome": "palindrome",
    "countdown": "countdown",
    "arithmetic_sequence": "arithmetic_sequence",
    "word_problems": "word_problems.word_problems",
    "reasoning_gym": "reasoning_gym.reasoning_gym",
    "table": "table",
}

TASKS: Mapping[str, TaskKind] = MappingProxyType(
    {kind: import_module(f"swerve.problems.{module}").TASK for kind, module in _MODULES.items()}
)

if TYPE_CHECKING:
    SingleTaskConfig = Task
else:
    SingleTaskConfig = Annotated[reduce(or_, (task.config for task in TASKS.values())), Field(discriminator="kind")]
