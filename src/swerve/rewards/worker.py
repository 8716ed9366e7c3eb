"""A worker process of the pool: imports graders once, and forks children that judge one answer after the other.

A child that reaches a limit or crashes is replaced by a new fork in milliseconds, so that hostile answers do not pay
for the imports each time. Run as `python -m swerve.rewards.worker LIMITS PARENT_PID`; requests come on standard
input, one at a time, answers go to standard output (messages.py has the format).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from swerve.errors import MissingExtraError
from swerve.grading.grader import GraderEntry
from swerve.limits import STOP_SIGNALS, cause_of_end
from swerve.rewards import messages
from swerve.rewards.graders import GRADERS
from swerve.sandbox import confinement, wire
from swerve.sandbox.child import Child, silence
from swerve.sandbox.confinement import Confinement
from swerve.sandbox.limits import GraderLimits
from swerve.types import Problem

KEEP, RETIRE = b"K", b"R"
"""First byte of an answer: whether the child can go on, or must be replaced because its memory was exhausted."""

_PREPARE_CPU_SECONDS = 60.0


def answer_requests(requests: int, replies: int, worker_pid: int, *, limits: GraderLimits, confined: bool) -> None:
    """Answer requests until the pipe ends or memory was exhausted.

    Args:
        requests: descriptor that requests are read from.
        replies: descriptor that answers are written to.
        worker_pid: the process that must not be survived.
        limits: of every request.
        confined: whether what a grader has no reason to do is refused.
    """
    exhausted = wire.frame(RETIRE + messages.encode_reply(messages.limit_reached(confinement.memory_reached(limits))))
    confinement.die_with(worker_pid)
    try:
        try:
            confinement.set_process_limits(limits, confined=confined)
        except (OSError, ValueError) as error:  # no answer's fault
            fault = messages.Fault(f"the process of a grader cannot be limited: {wire.error_line(error)}")
            wire.write_all(replies, wire.frame(RETIRE + messages.encode_reply(fault)))
            return
        guard = confinement.confine() if confined else None
        while (request := wire.read_frame(requests)) is not None:
            wire.write_all(replies, wire.frame(KEEP + messages.encode_reply(_answer(request, limits, guard))))
    except MemoryError:  # nothing more can be made here, not even a message
        wire.write_all(replies, exhausted)


def _answer(request: bytes, limits: GraderLimits, guard: Confinement | None) -> messages.Reply:
    problem, text = messages.decode_request(request)
    if guard is not None:  # the same random numbers for every request: sympy tests equality at random points
        random.seed(0)
        if "sympy" in sys.modules:
            from sympy.core.random import seed

            seed(0)
    reply = verdict_of(GRADERS[messages.grader_of(request)], problem, text, limits)
    violation = guard.take_violation() if guard is not None else None
    return messages.grader_failed(violation) if violation else reply


def verdict_of(entry: GraderEntry, problem: Problem, text: str, limits: GraderLimits) -> messages.Reply:
    """Return what a grader says of a text; the process is killed where it takes more CPU time than the limit.

    Raises:
        MemoryError: the memory limit was reached.
    """
    try:
        # What a problem needs is prepared outside the answer's budget of time.
        grader = entry.load()
        prepare = getattr(sys.modules[grader.__module__], "prepare_for_problem", None)
        if prepare is not None:
            confinement.limit_cpu_time(_PREPARE_CPU_SECONDS)
            prepare(problem)
        confinement.limit_cpu_time(limits.cpu_seconds)
        return messages.checked(grader(problem, text))
    except MemoryError:
        raise
    except RecursionError:
        return messages.limit_reached(f"recursion limit {sys.getrecursionlimit()}")
    except MissingExtraError as error:
        return messages.Fault(str(error))
    except BaseException as error:
        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            return messages.limit_reached(f"limit of {sys.get_int_max_str_digits()} digits of a written integer")
        return messages.grader_failed(wire.error_line(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


_MAX_SERVED = 2000
"""Requests a child serves before it is replaced: the caches of sympy grow."""
_POLL_SECONDS = 0.5
_CHUNK = 1 << 16


class PoolGoneError(Exception):
    """The process that asks has ended or closed the pipe."""


class Worker:
    """Answers requests with the help of at most two children: one for confined graders, one for the others."""

    def __init__(self, limits: GraderLimits, *, requests: int, replies: int, parent_pid: int) -> None:
        self._limits, self._requests, self._replies, self._parent_pid = limits, requests, replies, parent_pid
        self._children: dict[bool, Child] = {}
        self._loaded: set[str] = set()  # names, since several tasks, each a module, have one grader

    def run(self) -> None:
        """Answer until the pool is gone."""
        try:
            while True:
                while not select.select([self._requests], [], [], _POLL_SECONDS)[0]:
                    self._check_parent()
                request = wire.read_frame(self._requests)
                if request is None:
                    return
                reply = self._answer(request)
                message = reply if isinstance(reply, bytes) else messages.encode_reply(reply)
                wire.write_all(self._replies, wire.frame(message))
        except (PoolGoneError, BrokenPipeError):
            return
        finally:
            for confined in list(self._children):
                self._end_child(confined)

    def _check_parent(self) -> None:
        if os.getppid() != self._parent_pid:
            raise PoolGoneError

    def _answer(self, request: bytes) -> messages.Reply | bytes:
        name = messages.grader_of(request)
        entry = GRADERS[name]
        if name not in self._loaded:
            try:
                _load(entry)
            except Exception as error:
                return messages.Fault(f"the grader '{name}' cannot be loaded: {wire.error_line(error)}")
            self._loaded.add(name)
            self._end_child(entry.confined)
        child = self._child(entry.confined)
        try:
            wire.write_all(child.requests, wire.frame(request))
        except BrokenPipeError:
            return self._verdict_of_exit(entry.confined)
        return self._wait(entry.confined)

    def _child(self, confined: bool) -> Child:
        """Return the child for confined graders or the other one; a new one where the last has served enough."""
        child = self._children.get(confined)
        if child is None or child.num_served >= _MAX_SERVED:
            self._end_child(confined)
            siblings = [number for other in self._children.values() for number in (other.requests, other.replies)]
            child = self._children[confined] = Child(
                partial(answer_requests, limits=self._limits, confined=confined),
                not_inherited=(self._requests, self._replies, *siblings),
            )
        child.num_served += 1
        return child

    def _end_child(self, confined: bool) -> None:
        child = self._children.pop(confined, None)
        if child is not None:
            child.end()

    def _wait(self, confined: bool) -> messages.Reply | bytes:
        child, buffer = self._children[confined], wire.FrameBuffer()
        deadline = time.monotonic() + self._limits.wall_seconds
        while True:
            left = deadline - time.monotonic()
            ready = select.select([child.replies, self._requests], [], [], max(0.0, min(left, _POLL_SECONDS)))[0]
            if self._requests in ready:  # one request at a time: this is the end of the pipe
                raise PoolGoneError
            if child.replies in ready:
                piece = os.read(child.replies, _CHUNK)
                if not piece:
                    return self._verdict_of_exit(confined)
                buffer.feed(piece)
                if (answer := buffer.take()) is not None:
                    if answer[:1] == RETIRE:
                        self._end_child(confined)
                    return answer[1:]
            elif left <= 0:
                self._end_child(confined)
                return messages.limit_reached(f"wall clock limit {self._limits.wall_seconds:g} s")
            elif child.has_exited():  # while a process that it started holds the pipe open
                return self._verdict_of_exit(confined)
            else:
                self._check_parent()

    def _verdict_of_exit(self, confined: bool) -> messages.Reply:
        """Return what the end of a child says of the answer it was judging."""
        child = self._children.pop(confined)
        child.wait_for_exit()
        memory = confinement.memory_reached(self._limits)
        end = cause_of_end(*child.end(), most_cpu_seconds=self._limits.cpu_seconds, memory=memory)
        verdicts: dict[str, Callable[[str], messages.Reply]] = {
            "limit": messages.limit_reached,
            "killed": messages.Lost,
            "failed": messages.grader_failed,
        }
        return verdicts[end.kind](end.detail)


def _load(entry: GraderEntry) -> None:
    """Import a grader and what it needs, and keep the result out of the garbage collector of the children."""
    entry.load()
    for module in entry.preloads:
        with suppress(ImportError):  # the grader says itself what it misses
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


def main(arguments: list[str]) -> None:
    """Serve the process that started this one until it closes the pipe.

    Args:
        arguments: the limits as JSON, and the process id of the one that asks.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    limits, parent_pid = GraderLimits(**json.loads(arguments[0])), int(arguments[1])
    requests, replies = os.dup(0), os.dup(1)
    silence(0)
    os.dup2(2, 1)  # what an import prints must not come between the answers
    Worker(limits, requests=requests, replies=replies, parent_pid=parent_pid).run()


if __name__ == "__main__":
    main(sys.argv[1:])
