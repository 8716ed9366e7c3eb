"""What the process of a grader may use and do: limits of time and memory, and no more than a grader needs to do.

`confine` installs an audit hook (PEP 578) that refuses to run text as code, write files, start processes and open
connections. Several libraries evaluate strings that come from an answer (every string entry point of sympy, a number of
scorers of reasoning_gym); here such an attempt ends the grading. It is a second line of defence: an audit hook sees
what Python does, not what a library's compiled code does.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
from types import CodeType, FrameType
from typing import Any

from swerve.limits import held_limit, lower_limit
from swerve.sandbox.limits import GraderLimits

_START_PROCESS = "start a process"
_CHANGE_FILES = "change files"

_PR_SET_PDEATHSIG = 1

_REFUSED = {
    **dict.fromkeys(("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"), _START_PROCESS),
    **dict.fromkeys(("os.spawn", "os.startfile"), _START_PROCESS),
    **dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill"), "send a signal"),
    **dict.fromkeys(("os.chflags", "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove"), _CHANGE_FILES),
    **dict.fromkeys(("os.removexattr", "os.rename", "os.rmdir", "os.setxattr", "os.symlink"), _CHANGE_FILES),
    **dict.fromkeys(("os.truncate", "os.utime"), _CHANGE_FILES),
    **dict.fromkeys(("code.__new__", "sys.settrace", "sys.setprofile"), "change how Python runs"),
    "pickle.find_class": "unpickle",
}
_REFUSED_MODULES = {  # every event of these
    **dict.fromkeys(("subprocess", "pty", "webbrowser"), _START_PROCESS),
    **dict.fromkeys(("shutil", "tempfile", "sqlite3"), _CHANGE_FILES),
    **dict.fromkeys(("socket", "urllib", "http", "ftplib", "smtplib"), "open a connection"),
    "ctypes": "load compiled code",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_MAKERS_OF_CODE = frozenset({"collections", "dataclasses", "sympy.polys.monomials"})
"""Modules that build functions from source text of their own: named tuples, data classes, products of monomials."""
_NUMBERS_AND_SYMBOLS = frozenset(
    {"Add", "E", "Float", "Function", "I", "Integer", "Mul", "Pow", "Rational", "Symbol", "oo", "pi", "sympy"}
)
"""Names in what sympy's parser makes of plain arithmetic and words: code of only these builds numbers and symbols."""


class ConfinementError(BaseException):
    """A confined grader tried something that is refused.

    It is no `Exception`, so that a library's `except Exception` does not go on with the grading.
    """


class Confinement:
    """What a confined process tried and was refused."""

    def __init__(self) -> None:
        self._violation: str | None = None

    def take_violation(self) -> str | None:
        """Return the first thing refused since the last call, whether or not the grader noticed; None: nothing."""
        violation, self._violation = self._violation, None
        return violation

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse an audit event or let it pass."""
        if event == "exec":
            refused = _runs_text(arguments[0], sys._getframe(1))
        elif event == "open":
            flags = arguments[2]
            refused = "open a file for writing" if isinstance(flags, int) and flags & _WRITING else None
        else:
            refused = _REFUSED.get(event) or _REFUSED_MODULES.get(event.partition(".")[0])
        if refused:
            detail = f"the grader tried to {refused}; refused"
            self._violation = self._violation or detail
            raise ConfinementError(detail)


def confine() -> Confinement:
    """Confine this process from now on; it cannot be undone."""
    confinement = Confinement()
    sys.dont_write_bytecode = True  # an import may still happen, and would be refused to write its cache
    sys.addaudithook(confinement.hook)
    return confinement


def _runs_text(code: CodeType, caller: FrameType) -> str | None:
    """Say what is refused about running a code object: it was compiled from text and not from a module's file."""
    name = code.co_filename
    from_module = not name.startswith("<") or name.startswith("<frozen ")
    if from_module or caller.f_globals.get("__name__") in _MAKERS_OF_CODE or _builds_numbers(code):
        return None
    return "run text as code"


def _builds_numbers(code: CodeType) -> bool:
    """Whether code uses no attribute, no inner function and no name but those of numbers and symbols."""
    return _NUMBERS_AND_SYMBOLS.issuperset(code.co_names) and not any(isinstance(c, CodeType) for c in code.co_consts)


def set_process_limits(limits: GraderLimits, *, confined: bool, used_bytes: int = 0) -> None:
    """Set the limits of this process that hold for every answer; memory comes on top of what is used before."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_AS, used_bytes + limits.memory_bytes)
    if confined:
        lower_limit(resource.RLIMIT_FSIZE, 0)


def limit_cpu_time(seconds: float) -> None:
    """Kill this process when it has used so much more CPU time.

    The signal's default action also works where the interpreter never gets to run a handler, such as inside a power of
    big integers. The process's own limit is the backstop for graders that catch the signal.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    lower_limit(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def memory_reached(limits: GraderLimits, used_bytes: int = 0) -> str:
    """Return which limit a process has reached that is given no more memory."""
    held = held_limit(resource.RLIMIT_AS, used_bytes + limits.memory_bytes)
    if held < used_bytes + limits.memory_bytes:
        return f"memory limit {held >> 20} MiB of the shell or job (ulimit -v)"
    return f"memory limit {limits.memory_bytes >> 20} MiB"


def die_with(worker_pid: int) -> None:
    """Have the kernel kill this process when its worker dies (Linux; elsewhere the end of the pipe ends it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:  # it died before the line above
        os._exit(1)
