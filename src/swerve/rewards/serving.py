"""The child of a worker: judges one answer after the other under limits, until its pipe ends."""

from __future__ import annotations

import ctypes
import math
import os
import random
import resource
import signal
import sys

from swerve.errors import MissingExtraError
from swerve.grading.grader import GraderEntry
from swerve.rewards.confinement import Confinement, confine
from swerve.rewards.graders import GRADERS
from swerve.rewards.limits import GraderLimits
from swerve.rewards.outcomes import checked, describe, grader_failed, limit_reached
from swerve.rewards.wire import Fault, Reply, decode_request, encode_reply, frame, grader_of, read_frame, write_all
from swerve.types import Problem

__all__ = ["KEEP", "RETIRE", "judge", "serve"]

KEEP, RETIRE = b"K", b"R"
"""First byte of an answer: whether the child can go on, or must be replaced because its memory was exhausted."""

_PREPARE_CPU_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


def serve(requests: int, replies: int, *, limits: GraderLimits, confined: bool, worker_pid: int) -> None:
    """Answer requests until the pipe ends or memory was exhausted.

    Args:
        requests: descriptor that requests are read from.
        replies: descriptor that answers are written to.
        limits: of every request.
        confined: whether what a grader has no reason to do is refused.
        worker_pid: the process that must not be survived.
    """
    exhausted = frame(RETIRE + encode_reply(limit_reached(f"memory limit {limits.memory_bytes >> 20} MiB")))
    _die_with(worker_pid)
    try:
        _set_process_limits(limits, confined=confined)
        confinement = confine() if confined else None
        while (request := read_frame(requests)) is not None:
            write_all(replies, frame(KEEP + encode_reply(_answer(request, limits, confinement))))
    except MemoryError:  # nothing more can be made here, not even a message
        write_all(replies, exhausted)


def _answer(request: bytes, limits: GraderLimits, confinement: Confinement | None) -> Reply:
    problem, text = decode_request(request)
    if confinement is None:
        return judge(GRADERS[grader_of(request)], problem, text, limits)
    _reseed()
    reply = judge(GRADERS[grader_of(request)], problem, text, limits)
    violation = confinement.take_violation()
    return grader_failed(violation) if violation else reply


def judge(entry: GraderEntry, problem: Problem, text: str, limits: GraderLimits) -> Reply:
    """Return what a grader says of a text; the process is killed where it takes more CPU time than the limit.

    Raises:
        MemoryError: the memory limit was reached.
    """
    try:
        grader = entry.load()
        prepare = getattr(sys.modules[grader.__module__], "prepare_for_problem", None)
        if prepare is not None:
            _limit_cpu_time(_PREPARE_CPU_SECONDS)
            prepare(problem)
        _limit_cpu_time(limits.cpu_seconds)
        return checked(grader(problem, text))
    except MemoryError:
        raise
    except RecursionError:
        return limit_reached(f"recursion limit {sys.getrecursionlimit()}")
    except MissingExtraError as error:
        return Fault(str(error))
    except BaseException as error:
        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            return limit_reached(f"limit of {sys.get_int_max_str_digits()} digits of a written integer")
        return grader_failed(describe(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_cpu_time(seconds: float) -> None:
    """Kill this process when it has used so much more CPU time.

    The signal's default action also works where the interpreter never gets to run a handler, such as inside a power of
    big integers. The process's own limit is the backstop for graders that catch the signal.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    backstop = math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (backstop, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _set_process_limits(limits: GraderLimits, *, confined: bool) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    if confined:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _reseed() -> None:
    """Give every request the same random numbers: sympy tests equality at random points."""
    random.seed(0)
    if "sympy" in sys.modules:
        from sympy.core.random import seed

        seed(0)


def _die_with(worker_pid: int) -> None:
    """Have the kernel kill this process when its worker dies (Linux; elsewhere the end of the pipe ends it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:  # it died before the line above
        os._exit(1)
