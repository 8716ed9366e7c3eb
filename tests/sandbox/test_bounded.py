"""Calls in a copy of the process that can be killed: values come back, and whatever happens there is said."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from swerve.errors import ConfigError, MissingExtraError
from swerve.rewards.pool import GraderPool
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import GraderLimits
from swerve.types import Problem
from tests.cases import each

LIMITS = GraderLimits(cpu_seconds=0.3, wall_seconds=5.0, memory_bytes=64 << 20)


def test_values_come_back_in_order_and_nothing_changes_here() -> None:
    seen: list[int] = []

    def squared(number: int) -> dict[str, Any]:
        seen.append(number)
        return {"square": number**2, "seen": len(seen), "pid": os.getpid()}

    found = call_each(squared, [3, 4, 5], LIMITS)
    assert [one["square"] for one in found] == [9, 16, 25]
    assert [one["seen"] for one in found] == [1, 2, 3]
    assert seen == []
    assert {one["pid"] for one in found}.isdisjoint({os.getpid()})
    assert call_each(squared, [], LIMITS) == []


def recurse(number: int) -> int:
    return recurse(number + 1)


ENDS: dict[str, tuple[Callable[[int], Any], str]] = {
    "computes": (lambda _: 9**9**9, "CPU time limit 0.3 s"),
    "sleeps": (lambda _: time.sleep(60), "wall clock limit 0.5 s"),
    "takes memory": (lambda _: len("x" * 10**11), "memory limit 64 MiB"),
    "returns much": (lambda _: "x" * 10**9, "memory limit 64 MiB"),
    "recurses": (recurse, "recursion limit LIMIT"),  # another test may have changed it
    "aborts": (lambda _: os.abort(), "aborted (SIGABRT), as compiled code does at its memory limit 64 MiB"),
    "is killed": (
        lambda _: os.kill(os.getpid(), signal.SIGKILL),
        "killed by SIGKILL: by somebody, or by the system where memory ran out",
    ),
    "crashes": (lambda _: os.kill(os.getpid(), signal.SIGSEGV), "its process died of SIGSEGV"),
    "leaves its pipe": (lambda _: os.closerange(3, 99) or time.sleep(60), "its process closed its connection"),
    "exits": (lambda _: os._exit(3), "its process ended with status 3"),
    "leaves": (lambda _: sys.exit(4), "SystemExit: 4"),
    "raises": (lambda _: {}["key"], "KeyError: 'key'"),
    "returns no JSON": (lambda _: object(), "TypeError: Object of type object is not JSON serializable"),
}


@each(("function", "said"), ENDS.values())
def test_the_first_item_that_fails_is_named_with_the_reason(function: Callable[[int], Any], said: str) -> None:
    wall = 0.5 if "wall" in said else 20.0
    cpu = 0.3 if "CPU" in said else 10.0
    limits = GraderLimits(cpu_seconds=cpu, wall_seconds=wall, memory_bytes=64 << 20)
    with pytest.raises(BoundedCallError) as raised:
        call_each(lambda number: function(number) if number == 2 else number, [0, 1, 2, 3], limits)
    assert str(raised.value) == said.replace("LIMIT", str(sys.getrecursionlimit()))
    assert raised.value.number == 2


def test_errors_of_swerve_are_raised_here_as_they_were_there() -> None:
    def refuse(_: int) -> None:
        raise ConfigError("no such key")

    def miss(_: int) -> None:
        raise MissingExtraError("package", "extra", "this")

    with pytest.raises(ConfigError, match="^no such key$"):
        call_each(refuse, [1], LIMITS)
    with pytest.raises(MissingExtraError, match=r"^this needs the package 'package'; install it with"):
        call_each(miss, [1], LIMITS)


def test_many_items_have_one_budget_together() -> None:
    def spend(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    with pytest.raises(BoundedCallError, match=r"CPU time limit 0\.306 s of 20 together") as raised:
        call_each(spend, [0.1] * 20, LIMITS)
    assert 2 <= raised.value.number <= 3
    assert call_each(spend, [0.1] * 5, LIMITS, num_chars=LIMITS.max_chars) == [None] * 5


def in_a_shell_with(kind: int, limit: int, call: Callable[[], object]) -> str:
    """Return what a call says in a copy of this process whose soft and hard limit are those of `ulimit`."""
    reads, writes = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            resource.setrlimit(kind, (limit, limit))
            said = call()
        except BaseException as error:
            said = error
        os.write(writes, str(said).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as stream:
        said = stream.read()
    assert os.waitpid(copy, 0)[1] == 0
    return said


def test_calls_and_graders_work_under_limits_of_the_shell() -> None:
    def grade() -> list[float | None]:
        problem = Problem(id="p", family="math", question="", answer="1+x^2")
        with GraderPool(num_workers=1) as graders:
            return [reward.value for reward in graders.grade_all([(problem, r"\boxed{x^2+1}"), (problem, "")])]

    assert in_a_shell_with(resource.RLIMIT_CPU, 10_800, lambda: call_each(str, [3], LIMITS)) == "['3']"
    assert in_a_shell_with(resource.RLIMIT_CPU, 10_800, grade) == "[1.0, None]"


def test_a_limit_of_the_shell_is_said_to_be_the_shells() -> None:
    limits = GraderLimits(cpu_seconds=30.0, memory_bytes=1 << 40)
    said = in_a_shell_with(resource.RLIMIT_CPU, 1, lambda: call_each(lambda _: 9**9**9, [1], limits))
    assert said == "CPU time limit 1 s of the shell or job (ulimit -t)"
    said = in_a_shell_with(resource.RLIMIT_AS, 64 << 30, lambda: call_each(lambda _: len("x" * 10**12), [1], limits))
    assert said == "memory limit 65536 MiB of the shell or job (ulimit -v)"
