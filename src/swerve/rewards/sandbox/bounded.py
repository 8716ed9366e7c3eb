"""Calls that must not hang, fill the memory or end the program: made in a forked process that can be killed.

A copy of this process has all that the calls need, so nothing is sent to it; what they return comes back as JSON.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from swerve import errors
from swerve.errors import SwerveError
from swerve.rewards.sandbox import confinement, wire
from swerve.rewards.sandbox.confinement import GraderLimits
from swerve.rewards.sandbox.worker import CPU_LIMIT_SIGNALS, Child, signal_name

_Item = TypeVar("_Item")
_CHUNK = 1 << 16
_MAX_REPLY = 256 << 20
_USUAL_SHARE = 0.05
"""Of the CPU limit: what each of many items may use on average; one alone may use all of it."""
_VALUE = b'{"value": '


class BoundedCallError(Exception):
    """A call reached a limit, ended its process or failed; the message says which."""

    def __init__(self, detail: str, *, number: int) -> None:
        super().__init__(detail)
        self.number = number
        """Place of the item among the items."""


def call_each(function: Callable[[_Item], Any], items: Sequence[_Item], limits: GraderLimits) -> list[Any]:
    """Return `function(item)` of every item, called one after the other in a forked process under limits.

    Args:
        function: returns what JSON can hold. Whatever it changes is changed in the copy alone.
        items: what it is called with.
        limits: of one item; many together may use a twentieth of the CPU limit each. The memory is what they take
            beyond what this process has.

    Raises:
        BoundedCallError: an item reaches a limit, ends the process, or makes the function raise what is no
            `SwerveError`.
        SwerveError: the function raised it.
    """
    if not items:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy uses none of theirs
        child = Child(partial(_serve, function=function, items=items, limits=limits), not_inherited=())
    try:
        replies = _replies(child, len(items), limits)
    finally:
        status = child.end()
    if len(replies) < len(items) and all("value" in reply for reply in replies):
        replies.append(_cause_of_end(os.waitstatus_to_exitcode(status), limits))
    return [_value(reply, number) for number, reply in enumerate(replies)]


def _serve(
    _requests: int,
    replies: int,
    parent_pid: int,
    *,
    function: Callable[[_Item], Any],
    items: Sequence[_Item],
    limits: GraderLimits,
) -> None:
    confinement.die_with(parent_pid)
    confinement.set_process_limits(replace(limits, memory_bytes=limits.memory_bytes + _address_space()), confined=False)
    for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(caught, signal.SIG_DFL)
    faulthandler.disable()
    gc.freeze()  # what was there before is not searched for garbage, on this process's time
    started = time.process_time()
    for number, item in enumerate(items):
        allowed = limits.cpu_seconds * (1 + _USUAL_SHARE * number) - (time.process_time() - started)
        confinement.limit_cpu_time(max(0.001, min(limits.cpu_seconds, allowed)))
        answer = _answer(function, item, limits)
        wire.write_all(replies, wire.frame(answer))
        if not answer.startswith(_VALUE):
            return


def _answer(function: Callable[[_Item], Any], item: _Item, limits: GraderLimits) -> bytes:
    out_of_memory = f'{{"detail": "memory limit {limits.memory_bytes >> 20} MiB"}}'.encode("ascii")
    try:
        answer = json.dumps({"value": function(item)}).encode("ascii")
    except MemoryError:
        return out_of_memory
    except RecursionError:
        return f'{{"detail": "recursion limit {sys.getrecursionlimit()}"}}'.encode("ascii")
    except SwerveError as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)}).encode("ascii")
    except BaseException as error:  # a panic of compiled code is no Exception
        return json.dumps({"detail": wire.describe(error)[:300]}).encode("ascii")
    return answer if len(answer) <= _MAX_REPLY else out_of_memory


def _address_space() -> int:
    """Return the bytes of address space that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _value(reply: Mapping[str, Any], number: int) -> Any:
    if "value" in reply:
        return reply["value"]
    if "error" in reply:
        raise _as_raised(reply["error"], reply["message"])
    raise BoundedCallError(reply["detail"], number=number)


def _as_raised(name: str, message: str) -> SwerveError:
    kind = getattr(errors, name, SwerveError)
    error: SwerveError = kind.__new__(kind)  # some make the message themselves, of other arguments
    Exception.__init__(error, message)
    return error


def _replies(child: Child, num: int, limits: GraderLimits) -> list[dict[str, Any]]:
    """Return what the process answers, up to the first answer that is no value or the end of the process."""
    incoming, replies = wire.FrameBuffer(), list[dict[str, Any]]()
    deadline = time.monotonic() + limits.wall_seconds
    while len(replies) < num:
        if (message := incoming.take()) is not None:
            replies.append(json.loads(message))
            if "value" not in replies[-1]:
                return replies
            deadline = time.monotonic() + limits.wall_seconds
        elif not select.select([child.replies], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return [*replies, {"detail": f"wall clock limit {limits.wall_seconds:g} s"}]
        elif piece := os.read(child.replies, _CHUNK):
            incoming.feed(piece)
        else:
            child.wait_for_exit()
            return replies
    return replies


def _cause_of_end(code: int, limits: GraderLimits) -> dict[str, Any]:
    if -code in CPU_LIMIT_SIGNALS:
        return {"detail": f"CPU time limit {limits.cpu_seconds:g} s"}
    if -code == signal.SIGABRT:  # what compiled code does where it is given no memory
        return {"detail": f"aborted, as where memory ends; memory limit {limits.memory_bytes >> 20} MiB"}
    return {"detail": f"its process died of {signal_name(-code)}" if code < 0 else f"its process ended with {code}"}
