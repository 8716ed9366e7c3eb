"""Commands in forked copies of this process, killed before a call that touches the disk, or in the middle of a write.

A process that has imported everything once forks for each command. The copy counts events below a directory: before
every call that opens a file for writing, flushes, renames, makes or deletes, and in every write that was seen between
two of them, also of compiled code. A killed write leaves half of what it added.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

OnEvent = Callable[[str, Path, Path | None], None]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CALLS = ("os.mkdir", "os.remove", "os.rmdir", "os.chmod")
_ORPHAN_SECONDS = 60.0
"""How long children may live after a command, on a machine that does other work too."""
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def watch_disk(root: Path, on_event: OnEvent) -> None:
    """Call `on_event(name, path, target)` before every call of this process that touches the disk below `root`.

    The target is that of a rename; other calls have none. There is no way back: it is for a process that ends soon.
    """
    root, here = root.resolve(), os.getpid()
    fsync = os.fsync

    def report(name: str, path: Path, target: Path | None = None) -> None:
        if os.getpid() == here and path.is_relative_to(root):  # a forked copy that tries a model does not count
            on_event(name, path, target)

    def synced(descriptor: int) -> None:
        report("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def audit(name: str, arguments: tuple) -> None:
        if name == "open" and isinstance(arguments[0], str | os.PathLike) and arguments[2] & _WRITING:
            report(name, _absolute(arguments[0]))
        elif name == "os.rename":
            report(name, _absolute(arguments[0], arguments[2]), _absolute(arguments[1], arguments[3]))
        elif name in ("os.symlink", "os.link"):
            report(name, _absolute(arguments[1]))
        elif name == "os.truncate" and not isinstance(arguments[0], int):
            report(name, _absolute(arguments[0]))
        elif name in _CALLS and not isinstance(arguments[0], int):
            report(name, _absolute(arguments[0], arguments[-1]))

    os.fsync = synced
    sys.addaudithook(audit)


def _absolute(path: str | os.PathLike, folder: int | None = None) -> Path:
    """Return the path of a call that may be relative to an open directory, links in its folders resolved."""
    at = Path(os.readlink(f"/proc/self/fd/{folder}")) if isinstance(folder, int) and folder >= 0 else Path.cwd()
    whole = at / os.fspath(path)
    return whole.parent.resolve() / whole.name


class Events:
    """The numbered events of this process below a directory; at one of them it may kill itself."""

    def __init__(self, root: Path, *, last: int | None = None, log: Path | None = None) -> None:
        """Begin to count.

        Args:
            root: the directory.
            last: the event at which the process kills itself.
            log: file outside of the directory for the events, a line for each.
        """
        self._num, self._last, self._root = 0, last, root.resolve()
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._sizes: dict[Path, int] = {}
        watch_disk(root, self._on_event)

    def _on_event(self, name: str, path: Path, target: Path | None) -> None:
        if name == "fsync" and path.is_file():
            self._sizes.setdefault(path, 0)  # written by compiled code, which no hook sees
        for file, size in list(self._sizes.items()):
            if file.is_file() and (grown := file.stat().st_size) > size:
                self._count("write", file, cut=(size + grown) // 2)
                self._sizes[file] = grown
        self._count(name, path)
        if name == "open":
            self._sizes[path] = path.stat().st_size if path.is_file() else 0
        elif target is not None or name == "os.remove":
            self._sizes.pop(path, None)

    def _count(self, name: str, path: Path, cut: int | None = None) -> None:
        self._num += 1
        if self._log is not None:
            os.write(self._log, f"{name.removeprefix('os.')} {path.relative_to(self._root)}\n".encode())
        if self._num == self._last:
            if cut is not None:
                os.truncate(path, cut)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a forked command ended."""

    status: int
    """Of the exit; negative: the number of the signal that killed it."""
    out: str
    err: str
    orphans: tuple[str, ...] = ()
    """Command lines of processes that it started and that were still there long after its end."""

    @property
    def killed(self) -> bool:
        """Whether it was killed, rather than finishing first."""
        return self.status == -signal.SIGKILL


def forked(
    command: Callable[[], None], *, log: Path, kill_after: float | None = None, time_limit: float = 900.0
) -> Ended:
    """Run a command in a copy of this process, and wait for the processes that it started.

    Args:
        command: what it does; `SystemExit` has its status.
        log: file for what it prints, with the endings `.out` and `.err`.
        kill_after: seconds after which it is killed.
        time_limit: seconds after which it is killed as one that hangs; its status is then that of SIGALRM.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    others = _children()
    child = started(command, log=log, time_limit=time_limit)
    until, found, status = time.monotonic() + (kill_after or 0.0), 0, 0
    while kill_after is not None and not found and time.monotonic() < until:
        time.sleep(0.002)
        found, status = os.waitpid(child, os.WNOHANG)
    if kill_after is not None and not found:
        os.kill(child, signal.SIGKILL)
    status = status if found else os.waitpid(child, 0)[1]
    return replace(ended(status, log), orphans=_orphans(others))


def _children() -> set[int]:
    """Return the children of this process; those whose parent was killed are among them."""
    tasks = Path("/proc/self/task")
    found = [path.read_text() for path in tasks.glob("*/children")] if tasks.is_dir() else []
    return {int(one) for text in found for one in text.split()}


def _orphans(others: set[int]) -> tuple[str, ...]:
    """Wait until there are no children beside `others`; return those that stay, and end them."""
    until, lines = time.monotonic() + _ORPHAN_SECONDS, list[str]()
    while left := _children() - others:
        is_late = time.monotonic() > until
        for child in left:
            if is_late and os.waitpid(child, os.WNOHANG) == (0, 0):
                lines.append(Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip())
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            elif not is_late:
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    return tuple(lines)


def started(command: Callable[[], None], *, log: Path, time_limit: float) -> int:
    """Start a command in a copy of this process, as `forked` does; return its number."""
    outputs = _outputs(log)
    child = os.fork()
    if not child:
        gc.freeze()  # to collect a process group of the parent would be to wait for threads that a copy does not have
        opened = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in outputs]
        leave_after(command, opened, time_limit=time_limit)
    return child


def leave_after(command: Callable[[], None], outputs: Sequence[int], *, time_limit: float) -> NoReturn:
    """In a copy of a process: run a command that prints to two descriptors, and end with its status."""
    status = 70
    try:
        for number, output in enumerate(outputs, start=1):
            os.dup2(output, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        signal.alarm(round(time_limit))
        command()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(status: int, log: Path) -> Ended:
    """Return how a copy ended, from what `os.waitpid` says of it."""
    out, err = (path.read_text(encoding="utf-8", errors="replace") for path in _outputs(log))
    return Ended(status=os.waitstatus_to_exitcode(status), out=out, err=err)


def _outputs(log: Path) -> list[Path]:
    return [log.with_name(f"{log.name}.{ending}") for ending in ("out", "err")]


def killed_at(command: Callable[[], None], number: int, *, root: Path, log: Path) -> bool:
    """Return whether a copy of this process was killed at the `number`-th event below `root`; it may finish first."""

    def counted() -> None:
        Events(root, last=number)
        command()

    ended = forked(counted, log=log)
    assert ended.killed or ended.status == 0, ended.err
    return ended.killed
