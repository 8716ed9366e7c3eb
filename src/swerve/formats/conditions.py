"""Conditions of `--where`: which problems and responses are looked at, by what is recorded of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from swerve.artifacts.responses import Response
from swerve.errors import ConfigError
from swerve.formats.typed_fields import as_number
from swerve.types import Problem

_CONDITION = re.compile(r"([\w.-]+)\s*(!=|<=|>=|=)(.*)", re.DOTALL)
LENGTH = "length"
"""Completion tokens."""


@dataclass(frozen=True, slots=True)
class Condition:
    """`FIELD=VALUE,VALUE`, `FIELD=LOW..HIGH`, `FIELD!=VALUE`, `FIELD>=N` or `FIELD<=N`."""

    text: str
    field: str
    allowed: tuple[str, ...]
    """Texts, numbers and ranges, of which one must hold."""
    negated: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a value is among those asked for; letter case does not count.

        >>> parse_condition("level=3,4").holds(3.0), parse_condition("length<=500").holds(501)
        (True, False)
        >>> parse_condition("subject=algebra").holds("Algebra"), parse_condition("step=100..").holds(None)
        (True, False)
        """
        return any(_is_in(value, allowed) for allowed in self.allowed) != self.negated


def parse_condition(text: str) -> Condition:
    """Return what a condition says.

    Raises:
        ConfigError: it is of another form, or a bound is not a number.
    """
    match = _CONDITION.fullmatch(text.strip())
    values = [] if match is None else [value.strip() for value in match[3].split(",")]
    if match is None or not all(values):
        raise ConfigError(
            f"--where {text!r} is not a condition; write FIELD=VALUE, FIELD=VALUE,VALUE, FIELD=LOW..HIGH, "
            "FIELD!=VALUE, FIELD>=N or FIELD<=N"
        )

    # A bound is a range that is open at one end.
    field, sign = match[1], match[2]
    if sign in ("<=", ">="):
        values = [f"..{match[3]}" if sign == "<=" else f"{match[3]}.."]
    for value in values:
        low, dots, high = value.partition("..")
        for end in (low, high):
            if dots and end.strip() and as_number(end) is None:
                raise ConfigError(f"--where {text!r}: {end.strip()!r} is not a number")
    return Condition(text, field, tuple(values), negated=sign == "!=")


def field_of(name: str, problem: Problem, response: Response | None = None) -> Any:
    """Return a field of a response, of its problem, or of what else is recorded of either; None where it has none."""
    if name == LENGTH and response is not None:
        return len(response.completion_ids) or None
    slot = {"set": "population", "gold": "answer"}.get(name, name)
    for record in (problem,) if response is None else (response, problem):
        value = getattr(record, slot) if slot in record.__slots__ else None
        if value not in (None, "", ()):
            return value
    value = problem.metadata.get(name)
    if response is not None:
        value = response.extra.get(name, value)
    return problem.difficulty if value is None and name == "level" else value


def _is_in(value: Any, allowed: str) -> bool:
    low, dots, high = allowed.partition("..")
    number = as_number(value)
    if dots:
        least, most = (float(end) if end.strip() else None for end in (low, high))
        return number is not None and (least is None or number >= least) and (most is None or number <= most)
    if number is not None and as_number(allowed) is not None:
        return number == as_number(allowed)
    return str(value).casefold() == allowed.casefold()
