"""The progress protocol: how a stage reports what it has done, and what shows it: lines, bars or nothing.

Stages take a `Progress` and never print. Free of torch; bars are drawn by rich, which is imported when one is.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from swerve.errors import ConfigError, printable, redacted
from swerve.text import NOT_MEASURED

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

Metric = float | int | str | None


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


class UnwatchedProgress(SilentProgress):
    """That of a function called from Python which shows nothing; what must not be missed is a warning (`tell`)."""


def tell(progress: Progress, message: str) -> None:
    """Note what must not be missed, such as that earlier results make way; where nobody watches, as a warning.

    The warning names the line outside of swerve that called it, and is shown each time.
    """
    if not isinstance(progress, UnwatchedProgress):
        progress.note(message)
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "swerve":
        frame = frame.f_back
    warnings.warn_explicit(message_line(message), UserWarning, frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True)
class WithinTask:
    """Progress of work that is one of many within a task, which alone shows it; notes, the same for each, are left out.

    The task has counted the work with so many units beforehand; a shard has fewer.
    """

    outer: ProgressTask
    counted: int

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0) -> Iterator[ProgressTask]:
        """See `Progress.task`."""
        self.outer.extend(total - self.counted)
        self.outer.advance(done)
        yield self

    def advance(self, num: int = 1, **metrics: float | int | str | None) -> None:
        """See `ProgressTask.advance`; the metrics of one of many say nothing of all."""
        self.outer.advance(num)

    def extend(self, num: int) -> None:
        """See `ProgressTask.extend`."""
        self.outer.extend(num)

    def note(self, message: str) -> None:
        """Ignore the message."""


def one_line(text: str) -> str:
    r"""Return `text` on one line, its control characters replaced.

    >>> one_line("a\n b\x1b[31m")
    'a b�[31m'
    """
    return printable(" ".join(text.split()))


def message_line(text: str, *, quoted: bool = False) -> str:
    """Return a message on one line, without keys; see `redacted`. All that is said on stderr goes through this."""
    return one_line(redacted(text, quoted=quoted))


def format_metrics(metrics: Mapping[str, Metric]) -> str:
    """Return metrics as text: underscores become spaces, None is "not measured".

    >>> format_metrics({"reward": 0.51234, "lr": 5e-05, "step": 1200, "mean_kl": None})
    'reward 0.512, lr 5e-05, step 1200, mean kl not measured'
    """

    def shown(value: Metric) -> str:
        return f"{value:.3g}" if isinstance(value, float) else NOT_MEASURED if value is None else one_line(str(value))

    return ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in metrics.items())


def format_duration(seconds: float) -> str:
    """Return a duration for people.

    >>> format_duration(7.26), format_duration(75), format_duration(7260)
    ('7.3 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
        self._stream.write(message_line(message) + "\n")
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
        self._console.print(message_line(message), markup=False, soft_wrap=True)


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


def shown_progress(progress: Progress | bool | None) -> Progress:
    """Return where a function called from Python reports its progress.

    Args:
        progress: given as it is; True: shown on stderr; False: nowhere; None: shown where a person watches, in a
            terminal or a notebook, by the first process. Where it is not shown, `tell` warns.
    """
    if progress is None:
        if os.environ.get("RANK", "0") != "0":
            return SilentProgress()
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    if isinstance(progress, bool):
        return console_progress(sys.stderr) if progress else UnwatchedProgress()
    if not hasattr(progress, "task"):
        raise ConfigError(f"progress is True, False or None, or what is told of it, got {progress!r:.60}")
    return progress
