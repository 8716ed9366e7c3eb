"""Rewards without a value, and the check of what a grader returned."""

from __future__ import annotations

import math

from swerve.types import Reward

_MAX_DETAIL_CHARS = 300


def limit_reached(limit: str) -> Reward:
    """Return the reward of a text for which a limit of time, memory or size was reached."""
    return Reward(value=None, status="timeout", detail=limit[:_MAX_DETAIL_CHARS])


def grader_failed(detail: str) -> Reward:
    """Return the reward of a text on which the grader itself failed."""
    return Reward(value=None, status="error", detail=detail[:_MAX_DETAIL_CHARS])


def describe(error: BaseException) -> str:
    """Return an exception's type and the first line of its message.

    >>> describe(KeyError("gold"))
    "KeyError: 'gold'"
    """
    try:
        lines = str(error).splitlines()
    except Exception:  # a grader's own exception class may fail here as well
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def checked(returned: object) -> Reward:
    """Return what a grader returned if it is a reward of finite numbers, else an error that says what it was.

    >>> checked(0.5).detail
    'the grader returned 0.5 (float) instead of a Reward'
    """
    if not isinstance(returned, Reward):
        return grader_failed(f"the grader returned {returned!r:.80} ({type(returned).__name__}) instead of a Reward")
    numbers = {**returned.parts} if returned.value is None else {"value": returned.value, **returned.parts}
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not math.isfinite(number):
            return grader_failed(f"the grader returned {name}={number!r:.80}; it must be a finite number")
    if not isinstance(returned.extracted, str | None):
        return grader_failed(f"the grader returned extracted={returned.extracted!r:.80}; it must be a string or None")
    return returned
