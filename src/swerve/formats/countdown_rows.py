"""Rows of Countdown as data sets have them, `{target, nums}`: the fields of the problem that they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from swerve.artifacts.files import parse_json
from swerve.formats.typed_fields import as_number

FAMILY = "countdown"
_QUESTION = (
    "Using {which} of the numbers {numbers}, {times}, write an arithmetic expression with the value {target}. You may "
    "use +, -, *, / and parentheses. Answer with the expression alone, such as (1 + 2) * 3."
)
_ASKS = re.compile(r"\b(?:equations?|expressions?|countdown)\b", re.IGNORECASE)
"""What the prompt of a row says, if it has one: other puzzles have a target and numbers, too."""


def question(numbers: Sequence[int], target: int, *, use_all: bool) -> str:
    """Return the question of a problem."""
    return _QUESTION.format(
        which="all" if use_all else "some or all",
        times="each exactly once" if use_all else "each at most once",
        numbers=", ".join(map(str, numbers)),
        target=target,
    )


def numbers_and_target(values: Mapping[str, Any]) -> tuple[list[int], int] | None:
    """Return the numbers and the target of a row; None: it has no such fields.

    >>> numbers_and_target({"target": "65", "nums": "[19, 36, 55, 7]"})
    ([19, 36, 55, 7], 65)
    """
    numbers, target = values.get("nums"), _whole(values.get("target"))
    if isinstance(numbers, str):
        try:
            numbers = parse_json(numbers)
        except (ValueError, RecursionError):
            return None
    found = [_whole(number) for number in numbers] if isinstance(numbers, list) else []
    known = [number for number in found if number is not None]
    return (known, target) if target is not None and len(known) == len(found) > 1 else None


def is_countdown(values: Mapping[str, Any]) -> bool:
    """Return whether a row is of Countdown: it has numbers and a target, no other answer, and asks for an expression.

    >>> is_countdown({"target": 10, "nums": [2, 3, 4]})
    True
    >>> is_countdown({"target": 9, "nums": [2, 7, 11], "question": "Which two add up to the target?"})
    False
    """
    if any(values.get(name) is not None for name in ("gold", "ground_truth", "family", "grader", "reward_model")):
        return False
    asked = [values[name] for name in ("question", "problem", "prompt", "messages") if values.get(name) is not None]
    return numbers_and_target(values) is not None and all(_ASKS.search(str(text)) for text in asked)


def countdown_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the problem of a row of Countdown; empty for any other row.

    All numbers are to be used, as those who score this data set ask.
    """
    if not is_countdown(values):
        return {}
    found = numbers_and_target(values)
    assert found is not None
    numbers, target = found
    return {
        "question": question(numbers, target, use_all=True),
        "family": FAMILY,
        "kind": f"{len(numbers)} numbers",
        "difficulty": float(len(numbers)),
        "metadata": {"numbers": numbers, "target": target, "use_all": True},
    }


def _whole(value: Any) -> int | None:
    number = as_number(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else None
