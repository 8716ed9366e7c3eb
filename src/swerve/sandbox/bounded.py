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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from swerve import errors
from swerve.errors import SwerveError
from swerve.limits import End, cause_of_end
from swerve.sandbox import confinement, wire
from swerve.sandbox.child import Child
from swerve.sandbox.confinement import memory_reached
from swerve.sandbox.limits import GraderLimits

_Item = TypeVar("_Item")
_CHUNK = 1 << 16
_MAX_REPLY = 256 << 20
_ITEMS_A_LIMIT = 1000
"""All items together may use the CPU limit of one once more for so many items, and for so much text as one may have."""
_VALUE = b'{"value": '


class BoundedCallError(Exception):
    """A call reached a limit, ended its process or failed; the message says which."""

    def __init__(self, end: End, *, number: int) -> None:
        super().__init__(end.detail)
        self.kind = end.kind
        self.number = number
        """Place of the item among the items."""


def call_each(
    function: Callable[[_Item], Any], items: Sequence[_Item], limits: GraderLimits, *, num_chars: int = 0
) -> list[Any]:
    """Return `function(item)` of every item, called one after the other in a forked process under limits.

    Args:
        function: returns what JSON can hold. Whatever it changes is changed in the copy alone.
        items: what it is called with.
        limits: of one item. The memory is what the items take beyond what this process has.
        num_chars: length of all texts among the items. The CPU time of the whole call is bounded, too: by the limit of
            one item, times 1 + a thousandth of the items + `num_chars / limits.max_chars`.

    Raises:
        BoundedCallError: an item reaches a limit, ends the process, or makes the function raise what is no
            `SwerveError`.
        SwerveError: the function raised it.
    """
    if not items:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy uses none of theirs
        whole = limits.cpu_seconds * (1 + len(items) / _ITEMS_A_LIMIT + num_chars / limits.max_chars)
        serve = partial(_serve, function=function, items=items, limits=limits, whole_seconds=whole)
        child = Child(serve, not_inherited=())
    try:
        replies = _replies(child, len(items), limits)
    finally:
        code, cpu_seconds = child.end()
    if len(replies) < len(items) and all("value" in reply for reply in replies):
        memory = memory_reached(limits)
        end = cause_of_end(code, cpu_seconds, most_cpu_seconds=limits.cpu_seconds, memory=memory)
        if end.kind == "limit" and replies and whole - replies[-1]["spent"] < limits.cpu_seconds:
            end = End("limit", f"CPU time limit {whole:.3g} s of {len(items)} together")
        replies.append(asdict(end))
    return [_value(reply, number) for number, reply in enumerate(replies)]


def _serve(
    _requests: int,
    replies: int,
    parent_pid: int,
    *,
    function: Callable[[_Item], Any],
    items: Sequence[_Item],
    limits: GraderLimits,
    whole_seconds: float,
) -> None:
    confinement.die_with(parent_pid)
    used_bytes = _address_space()
    out_of_memory = _ended("limit", memory_reached(limits, used_bytes))
    confinement.set_process_limits(limits, confined=False, used_bytes=used_bytes)
    for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(caught, signal.SIG_DFL)
    faulthandler.disable()
    gc.freeze()  # what was there before is not searched for garbage, on this process's time
    started = time.process_time()
    for item in items:
        left = whole_seconds - (time.process_time() - started)
        confinement.limit_cpu_time(max(0.001, min(limits.cpu_seconds, left)))
        answer = _answer(function, item, out_of_memory, started)
        wire.write_all(replies, wire.frame(answer))
        if not answer.startswith(_VALUE):
            return


def _ended(kind: Literal["limit", "failed"], detail: str) -> bytes:
    return json.dumps(asdict(End(kind, detail))).encode("ascii")


def _answer(function: Callable[[_Item], Any], item: _Item, out_of_memory: bytes, started: float) -> bytes:
    try:
        answer = json.dumps({"value": function(item), "spent": time.process_time() - started}).encode("ascii")
    except MemoryError:
        return out_of_memory
    except RecursionError:
        return _ended("limit", f"recursion limit {sys.getrecursionlimit()}")
    except SwerveError as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)}).encode("ascii")
    except BaseException as error:  # a panic of compiled code is no Exception
        return _ended("failed", wire.error_line(error)[:300])
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
        kind = getattr(errors, reply["error"], SwerveError)
        error: SwerveError = kind.__new__(kind)  # some make the message themselves, of other arguments
        Exception.__init__(error, reply["message"])
        raise error
    raise BoundedCallError(End(**reply), number=number)


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
            return [*replies, {"kind": "limit", "detail": f"wall clock limit {limits.wall_seconds:g} s"}]
        elif piece := os.read(child.replies, _CHUNK):
            incoming.feed(piece)
        else:
            child.wait_for_exit()
            return replies
    return replies
