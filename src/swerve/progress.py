"""The progress protocol: how a stage reports what it has done. `SilentProgress` shows nothing.

Stages take a `Progress` and never print. Free of torch and of any terminal library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class ProgressTask(Protocol):
    """One piece of work of known length, while it runs."""

    def advance(self, num: int = 1, **metrics: float | int | str | None) -> None:
        """Record `num` more units done, with the latest metrics to show beside them (None: not measured)."""

    def extend(self, num: int) -> None:
        """Add `num` units to the total."""


class Progress(Protocol):
    """Where a stage reports its progress."""

    def task(self, name: str, total: int, *, done: int = 0) -> AbstractContextManager[ProgressTask]:
        """Open a piece of work of `total` units, `done` of them made earlier; it ends with the context."""

    def note(self, message: str) -> None:
        """Show one line that matters to a person watching."""


class _SilentTask:
    def advance(self, num: int = 1, **metrics: float | int | str | None) -> None:
        """Ignore the progress."""

    def extend(self, num: int) -> None:
        """Ignore the change."""


class SilentProgress:
    """A `Progress` that shows nothing: the default of the Python API and of tests.

    >>> with SilentProgress().task("evaluate", 2) as task:
    ...     task.advance(accuracy=0.5)
    """

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0) -> Iterator[ProgressTask]:
        """Yield a task that ignores all progress."""
        yield _SilentTask()

    def note(self, message: str) -> None:
        """Ignore the message."""
