"""What people see: results on stdout, progress on stderr (a live bar on a terminal, plain lines elsewhere).

Nothing that comes from data is read as terminal markup, and control characters in it are not passed on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from swerve.artifacts.files import record_fields
from swerve.cli.text import Metric, format_duration, format_metrics, one_line
from swerve.errors import ConfigError
from swerve.progress import Progress, ProgressTask

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


def print_text(text: str) -> None:
    """Write lines to stdout, ended by exactly one line break."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    print_text(json.dumps(value, indent=2, allow_nan=False, default=record_fields))


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print what a command found: the value as JSON, or the text."""
    if as_json:
        print_json(value)
    else:
        print_text(text)


def check_output(option: str, path: Path, *, ending: str, read: Iterable[Path | None] = ()) -> None:
    """Check that a command can write its output file there; an existing file is replaced.

    Args:
        option: what the command line calls the file, for messages.
        path: the file.
        ending: how its name must end, such as `.jsonl`.
        read: the files that the command reads.

    Raises:
        ConfigError: the name ends otherwise, or is that of a directory, a device or a file that is read.
    """
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a directory; give the name of a file")
    if path.exists() and any(given is not None and given.exists() and path.samefile(given) for given in read):
        raise ConfigError(f"{option} {path} is a file that is read; give another name")
    if path.exists() and not path.is_file():  # a device would be replaced by a file of its name
        raise ConfigError(f"{option} {path} is not an ordinary file; give the name of one")
    if not path.name.endswith(ending):
        raise ConfigError(f"{option} {path} must end in {ending}")


class _LineTask:
    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float], name: str, total: int, done: int, every: float
    ):
        self._write, self._clock, self._name, self._total, self._every = write, clock, name, total, every
        self._started = self._written = clock()
        self._done = self._done_before = done
        self._metrics: dict[str, Metric] = {}
        write(f"{name}: {done}/{total}" if total else name)

    def advance(self, num: int = 1, **metrics: Metric) -> None:
        self._done += num
        self._metrics.update(metrics)
        now = self._clock()
        if now - self._written >= self._every and self._done < self._total:
            self._written = now
            self._write(self._line(self._time_left(now - self._started)))

    def extend(self, num: int) -> None:
        self._total += num

    def finish(self, *, failed: bool) -> None:
        took = format_duration(self._clock() - self._started)
        complete = self._done >= self._total and not failed
        self._write(self._line(f"done in {took}" if complete else f"stopped after {took}"))

    def _time_left(self, elapsed: float) -> str:
        made = self._done - self._done_before
        if 100 * made < self._total - self._done_before:  # the first ones wait for models to load
            return f"{format_duration(elapsed)} so far"
        return f"{format_duration(elapsed / made * (self._total - self._done))} left"

    def _line(self, state: str) -> str:
        metrics = f"; {format_metrics(self._metrics)}" if self._metrics else ""
        return f"{self._name}: {self._done}/{self._total}, {state}{metrics}"


class LineProgress:
    """A `Progress` that writes a line at the start and end of a task, and between them one every few seconds."""

    def __init__(
        self, stream: TextIO, *, seconds_between_lines: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every = seconds_between_lines
        self._clock = clock

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0) -> Iterator[ProgressTask]:
        """Report the work done inside the context."""
        task = _LineTask(self.note, self._clock, name, total, done, self._every)
        try:
            yield task
        except BaseException:
            task.finish(failed=True)
            raise
        task.finish(failed=False)

    def note(self, message: str) -> None:
        """Write one line."""
        self._stream.write(one_line(message) + "\n")
        self._stream.flush()


class _BarTask:
    def __init__(self, bar: Bar, task_id: TaskID) -> None:
        self._bar, self._id = bar, task_id
        self._metrics: dict[str, Metric] = {}

    def advance(self, num: int = 1, **metrics: Metric) -> None:
        self._metrics.update(metrics)
        self._bar.update(self._id, advance=num, metrics=format_metrics(self._metrics))

    def extend(self, num: int) -> None:
        task = next(task for task in self._bar.tasks if task.id == self._id)
        self._bar.update(self._id, total=(task.total or 0) + num)


class BarProgress:
    """A `Progress` that draws bars with the time left on a terminal; finished ones stay as a line."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        # rich itself honours NO_COLOR.
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._bar: Bar | None = None

    def _make_bar(self) -> Bar:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        return RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=self._console,
        )

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0) -> Iterator[ProgressTask]:
        """Draw a bar while the context is open; a task opened inside another gets a bar below it."""
        outer = self._bar
        bar = outer or self._make_bar()
        if outer is None:
            self._bar = bar
            bar.start()
        task_id = bar.add_task(one_line(name), total=total, completed=done, metrics="")
        try:
            yield _BarTask(bar, task_id)
        finally:
            bar.stop_task(task_id)
            if outer is None:
                bar.stop()
                self._bar = None
            else:
                bar.remove_task(task_id)

    def note(self, message: str) -> None:
        """Print one line above the bars."""
        self._console.print(one_line(message), markup=False, soft_wrap=True)


class _UntilClosed:
    """A stream whose reader may go away, as a closed terminal does: then nothing is written and nothing fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # What is still buffered, and the last words of Python at exit, need somewhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        return len(text)


def console_progress(stream: TextIO) -> Progress:
    """Return bars if `stream` is a terminal that can redraw a line, else plain lines."""
    kept = cast(TextIO, _UntilClosed(stream))
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        return BarProgress(kept)
    return LineProgress(kept)
