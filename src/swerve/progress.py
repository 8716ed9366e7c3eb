"""How long work tells whoever started it how far it is: a protocol, and the version that says nothing.

Stages take a `Progress` and never print. Free of torch and of any terminal library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "ProgressTask", "SilentProgress"]


class ProgressTask(Protocol):
    """One piece of work of known length, while it runs."""

    def advance(self, num: int = 1, **figures: float | int | str | None) -> None:
        """Record `num` more units done, with the latest figures to show beside them (None: not measured)."""

    def extend(self, num: int) -> None:
        """Say that there are `num` units more to do than was known."""


class Progress(Protocol):
    """Where a stage reports its progress."""

    def task(self, name: str, total: int, *, done: int = 0) -> AbstractContextManager[ProgressTask]:
        """Open a piece of work of `total` units, `done` of them made earlier; it ends with the context."""

    def note(self, message: str) -> None:
        """Say one line that matters to a person watching."""


class _SilentTask:
    def advance(self, num: int = 1, **figures: float | int | str | None) -> None:
        """Ignore the progress."""

    def extend(self, num: int) -> None:
        """Ignore it too."""


class SilentProgress:
    """A `Progress` that shows nothing: the default of the Python API and of tests.

    >>> with SilentProgress().task("evaluate", 2) as task:
    ...     task.advance(accuracy=0.5)
    """

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0) -> Iterator[ProgressTask]:
        """Yield a task that ignores what it is told."""
        yield _SilentTask()

    def note(self, message: str) -> None:
        """Ignore the message."""
