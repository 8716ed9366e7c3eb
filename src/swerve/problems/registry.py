"""The table of tasks: a new task is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from swerve.problems.task import TaskKind

EntryT = TypeVar("EntryT")


class LazyTable(Mapping[str, EntryT]):
    """A table whose entries are imported when they are asked for."""

    def __init__(self, load: Callable[[str], EntryT], names: Callable[[], Iterable[str]]) -> None:
        """Describe the table; nothing is imported.

        Args:
            load: returns the entry of a name, or raises KeyError for an unknown one.
            names: returns the names of all entries, in their order.
        """
        self._load, self._names = load, names

    def __getitem__(self, name: str) -> EntryT:
        return self._load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


_MODULES = {  # kind -> module under swerve.problems that has the task as `TASK`
    "addition": "addition",
    "multiplication": "multiplication",
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


def _task(kind: str) -> TaskKind:
    task: TaskKind = import_module(f"swerve.problems.{_MODULES[kind]}").TASK
    return task


TASKS: Mapping[str, TaskKind] = LazyTable(_task, lambda: _MODULES)
"""By kind; to name the kinds imports no task."""
