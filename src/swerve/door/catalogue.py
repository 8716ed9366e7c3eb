"""`swerve.tasks` and `swerve.recipes`: what ships, by name."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from swerve.artifacts.frames import Framed, table_of_rows
from swerve.door.spoken import spoken
from swerve.errors import ConfigError, nearest
from swerve.text import counted


class Catalogue(Mapping[str, Mapping[str, Any]], Framed):
    """Things by name, each with what is known of it; it prints as a list."""

    def __init__(self, what: str, rows: list[dict[str, Any]], *, name: str) -> None:
        """Keep the rows.

        Args:
            what: they are.
            rows: one each, with a `description`.
            name: the key of their names.
        """
        self._what, self._all = what, rows
        self._rows: dict[str, Mapping[str, Any]] = {row[name]: row for row in reversed(rows)}  # of one name the first

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """Return what is known of one."""
        if name not in self._rows:
            raise ConfigError(f"there is no {self._what} {name!r}{nearest(str(name), self._rows)}")
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is one of this name."""
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(sorted(self._rows))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def __repr__(self) -> str:
        """Return a heading, and a paragraph each: the name, and what it is."""
        heading = f"{counted(len(self), self._what)} by name; swerve.{self._what}s()[NAME] has what is known of one"
        return "\n".join(
            [
                heading,
                *(
                    textwrap.fill(f"{name}: {self._rows[name]['description']}", 110, subsequent_indent="    ")
                    for name in self
                ),
            ]
        )

    def table(self) -> pa.Table:
        """Return one row each."""
        return table_of_rows(self._all)


@spoken
def tasks() -> Catalogue:
    """Return the tasks by name: each has a `description`, and the `source` of its problems. See `swerve data list`.

    >>> tasks()["addition"]["source"]
    'generated'
    """
    from swerve.recipes.task_names import described_tasks

    return Catalogue("task", described_tasks(), name="task")


@spoken
def recipes(task: str | None = None) -> Catalogue:
    """Return the recipes that ship by name: each has its `command`, `task`, `profiles` and a `description`.

    Args:
        task: only those of a task.

    Raises:
        ConfigError: no recipe is of this task.

    >>> sorted(recipes("gsm8k"))
    ['gsm8k', 'spo_gsm8k', 'spo_pretraining']
    """
    from swerve.recipes.described import described_recipes

    rows = described_recipes(task)
    return Catalogue("recipe", rows, name="name")
