"""What the pool, its workers and their children tell each other: rewards or faults, as JSON.

The JSON is ASCII with escapes, so any text survives, lone surrogates included. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from swerve.types import Problem, Reward

_MAX_DETAIL_CHARS = 300


@dataclass(frozen=True, slots=True)
class Fault:
    """No answer can be judged: something is missing or wrong in the installation."""

    message: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The process that judged was ended from outside; the answer may be judged again."""

    detail: str


Reply = Reward | Fault | Lost


def limit_reached(limit: str) -> Reward:
    """Return the reward of a text for which a limit of time, memory or size was reached."""
    return Reward(value=None, status="timeout", detail=limit[:_MAX_DETAIL_CHARS])


def too_long(text: str, max_chars: int) -> Reward:
    """Return the reward of a text that is longer than graders look at."""
    return limit_reached(f"text of {len(text)} characters, limit {max_chars}")


def grader_failed(detail: str) -> Reward:
    """Return the reward of a text on which the grader itself failed."""
    return Reward(value=None, status="error", detail=detail[:_MAX_DETAIL_CHARS])


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


def encode_request(grader: str, problem: Problem, text: str) -> bytes:
    """Return the message that asks for a grader's verdict.

    Raises:
        ValueError: the problem's grading or metadata is not made of JSON values.
    """
    values = {
        "problem": {**_values_of(problem), "grading": dict(problem.grading), "metadata": dict(problem.metadata)},
        "text": text,
    }
    try:
        body = json.dumps(values)
    except (TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"problem {problem.id!r} cannot be sent to a grader: {error}") from error
    return f"{grader}\n{body}".encode("ascii")


def _values_of(record: Any) -> dict[str, Any]:
    """Return a record's fields without copying their values (`dataclasses.asdict` copies them deeply)."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def grader_of(request: bytes) -> str:
    """Return the name of the grader that a request asks for, without reading the rest."""
    return request.partition(b"\n")[0].decode("ascii")


def decode_request(request: bytes) -> tuple[Problem, str]:
    """Return the problem and the text of a request."""
    values = json.loads(request.partition(b"\n")[2])
    problem = values["problem"]
    problem["alternatives"] = tuple(problem["alternatives"])
    problem["messages"] = tuple((role, text) for role, text in problem["messages"])
    return Problem(**problem), values["text"]


def encode_reply(reply: Reply) -> bytes:
    """Return the message that carries a verdict, or the reason for having no verdict."""
    if isinstance(reply, Reward):
        values = {"reward": {**_values_of(reply), "parts": dict(reply.parts)}}
    else:
        values = {type(reply).__name__.lower(): _values_of(reply)}
    return json.dumps(values).encode("ascii")


def decode_reply(message: bytes) -> Reply:
    """Return what a worker answered."""
    ((kind, values),) = json.loads(message).items()
    if kind == "reward":
        return Reward(**values)
    return Fault(**values) if kind == "fault" else Lost(**values)
