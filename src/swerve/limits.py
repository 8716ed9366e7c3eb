"""Limits of the shell or job that started a process (`ulimit`): only ever lowered, and named where one ends it."""

from __future__ import annotations

import errno
import os
import resource
import signal
from dataclasses import dataclass
from functools import cache
from typing import Literal

_SYSTEM = {
    errno.ENOMEM: ("out of memory", "v"),
    errno.EMFILE: ("too many open files", "n"),
    errno.EFBIG: ("file too large", "f"),
    errno.EAGAIN: ("no more processes or threads can be started", "vu"),
}
"""By the system's error numbers: what happened, and the options of `ulimit` that may be behind it."""
_KINDS = {
    "v": resource.RLIMIT_AS,
    "n": resource.RLIMIT_NOFILE,
    "f": resource.RLIMIT_FSIZE,
    "u": resource.RLIMIT_NPROC,
}
STOP_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Meant for the process that asks, which saves its work: some terminals and schedulers send them to everybody."""


@cache
def given_limit(kind: int) -> int | None:
    """Return what this process was started with, whatever it has limited itself to since; None: no limit."""
    finite = [limit for limit in resource.getrlimit(kind) if limit != resource.RLIM_INFINITY]
    return min(finite, default=None)


os.register_at_fork(after_in_child=given_limit.cache_clear)


def held_limit(kind: int, wanted: int) -> int:
    """Return a limit that this process may set: the given one where that is lower."""
    given = given_limit(kind)
    return wanted if given is None else min(wanted, given)


def lower_limit(kind: int, wanted: int) -> None:
    """Limit this process; the hard limit is never touched, since one that was lowered cannot be raised again."""
    resource.setrlimit(kind, (held_limit(kind, wanted), resource.getrlimit(kind)[1]))


def system_said(number: int | None) -> str | None:
    """Return what an error number of the system means if a limit may be behind it, with the limit that is set.

    >>> system_said(errno.EIO) is None
    True
    """
    if number not in _SYSTEM:
        return None
    words, options = _SYSTEM[number]
    given = {option: limit for option in options if (limit := given_limit(_KINDS[option])) is not None}
    allowed = [
        f"{limit >> 10} KiB: ulimit -{option}" if option in "vf" else f"{limit}: ulimit -{option}"
        for option, limit in given.items()
    ]
    return f"{words} (the shell or job allows {', '.join(allowed)})" if allowed else words


@dataclass(frozen=True, slots=True)
class End:
    """How a helper process ended."""

    kind: Literal["limit", "killed", "failed"]
    """`limit`: it reached one; `killed`: by a signal from outside; `failed`: by itself."""
    detail: str


def cause_of_end(
    code: int | None, cpu_seconds: float = 0.0, *, most_cpu_seconds: float | None = None, memory: str | None = None
) -> End:
    """Return what ended a helper process, as far as that is known.

    Args:
        code: its exit status, or minus the number of the signal that ended it; None: it lived on without its pipe.
        cpu_seconds: CPU time that it used; 0: not known.
        most_cpu_seconds: what it limited itself to.
        memory: its limit of memory, in words.

    >>> cause_of_end(3).detail, cause_of_end(-11).detail
    ('its process ended with status 3', 'its process died of SIGSEGV')
    >>> cause_of_end(-signal.SIGPROF, 2.0, most_cpu_seconds=2)
    End(kind='limit', detail='CPU time limit 2 s')
    >>> cause_of_end(-signal.SIGXCPU, 3.0, most_cpu_seconds=2).detail, cause_of_end(-signal.SIGXCPU).detail
    ('CPU time limit 2 s', 'its process died of SIGXCPU')
    """
    if code is None:
        return End("failed", "its process closed its connection")
    if code >= 0:
        return End("failed", f"its process ended with status {code}")
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    # The kernel kills where the hard limit is reached, whether or not the soft one was heard.
    if number in (signal.SIGXCPU, signal.SIGKILL) and hard != resource.RLIM_INFINITY and cpu_seconds > hard - 1:
        return End("limit", f"CPU time limit {hard} s of the shell or job (ulimit -t)")
    if most_cpu_seconds is not None and number in (signal.SIGPROF, signal.SIGXCPU):
        return End("limit", f"CPU time limit {most_cpu_seconds:g} s")
    if memory is not None and number == signal.SIGABRT:
        return End("failed", f"aborted ({name}), as compiled code does at its {memory}")
    if number == signal.SIGKILL:
        return End("killed", f"killed by {name}: by somebody, or by the system where memory ran out")
    if number in (signal.SIGTERM, *STOP_SIGNALS):
        return End("killed", f"killed by {name}")
    return End("failed", f"its process died of {name}")
