"""Limits on what is compared at all: they are checked on the text, before anything is computed from it."""

from __future__ import annotations

import re
from dataclasses import dataclass


class LimitReached(Exception):
    """A limit of size was reached; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest answers that are compared other than as identical text."""

    characters: int = 4000
    nesting: int = 30
    """Of brackets as written."""
    depth: int = 40
    """Of the tree that is read."""
    digits: int = 1000
    """Of one number as written."""
    elements: int = 200
    """Commas, semicolons, ampersands, line breaks of matrices, unions."""
    commands: int = 400
    tower: int = 2
    """Exponents of exponents: 2 allows x^{2^3}."""
    exponent: int = 10_000
    """The largest number in an exponent."""
    factorial: int = 3000
    magnitude_bits: int = 50_000
    """Size of an exact number on the way to a value."""
    comparisons: int = 100_000
    """Of a part of one answer with a part of the other."""


LIMITS = Limits()
QUICK_LIMITS = Limits(
    characters=200,
    nesting=10,
    digits=77,
    elements=24,
    commands=40,
    exponent=64,
    factorial=57,
    magnitude_bits=256,
    comparisons=300,
)
"""Of what is judged in the caller's process; longer, larger and deeper answers are left to a process that is killed."""

_DIGITS = re.compile(r"[0-9]+")
_EXPONENT = re.compile(r"(?:\^|\*\*)[{( ]*[-+]? ?([0-9]{1,40})")
_SCIENTIFIC = re.compile(r"(?<=[0-9.])[eE][-+]?([0-9]{1,40})")
_FACTORIAL = re.compile(r"([0-9]{1,40})[)} ]*!(?![=!])|!!|(?<=[)}])!(?!=)")
_BINOMIAL = re.compile(r"\\[dt]?binom *{? *([0-9]{1,40})")
_ELEMENT = re.compile(r"[,;&]|\\\\|\\cup|\\cap|\\setminus|\\backslash")
_COMMAND = re.compile(r"\\[a-zA-Z]")
_MARK = re.compile(r"\*\*|[{}()\[\]^]")
_OPENING = ("{", "(", "[")
_OPERAND = re.compile(r"[-+ ]{0,3}(?:[0-9.]{1,40}|\\[a-zA-Z]{1,20}|[a-zA-Z])?[ ]{0,3}")
_SPACES = re.compile(r"[ ]{0,3}")
_SIGN = re.compile(r"[-+ ]{0,3}")


def check_limits(text: str, limits: Limits = LIMITS) -> None:
    """Check an answer's text against the limits; linear in its length.

    Raises:
        LimitReached: the first limit that is passed, with its name and value.
    """
    _at_most("characters", len(text), limits.characters)
    _at_most("elements", sum(1 for _ in _ELEMENT.finditer(text)), limits.elements)
    _at_most("commands", sum(1 for _ in _COMMAND.finditer(text)), limits.commands)
    _at_most("digits of a number", max((len(match[0]) for match in _DIGITS.finditer(text)), default=0), limits.digits)
    for pattern in (_EXPONENT, _SCIENTIFIC):
        _at_most("exponent", max((int(match[1]) for match in pattern.finditer(text)), default=0), limits.exponent)
    for match in _FACTORIAL.finditer(text):
        if match[1] is None:
            raise LimitReached("factorial of an expression or a factorial")
        _at_most("factorial", int(match[1]), limits.factorial)
    _at_most("binomial", max((int(match[1]) for match in _BINOMIAL.finditer(text)), default=0), limits.factorial)
    _check_nesting(text, limits)


def _at_most(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise LimitReached(f"{what}: {size} > {limit}")


def _check_nesting(text: str, limits: Limits) -> None:
    """Check how deep brackets and exponents are nested.

    The brackets right after a caret are its exponent. A caret right after an exponent (`9^9^9`) raises that exponent.
    """
    enclosing: list[tuple[int, bool]] = []
    base = tower = 0
    exponent_start: int | None = None
    after_group = False
    for match in _MARK.finditer(text):
        mark, start = match[0], match.start()

        # A caret raises what stands right before it: the last exponent, or a new base.
        if mark in ("^", "**"):
            operand = _SPACES if after_group else _OPERAND
            chained = exponent_start is not None and operand.fullmatch(text, exponent_start, start)
            tower = tower + 1 if chained else base + 1
            _at_most("exponents of exponents", tower, limits.tower)
            exponent_start, after_group = match.end(), False

        # Brackets right after a caret are its exponent; all others begin at the present height.
        elif mark in _OPENING:
            follows_caret = exponent_start is not None and not after_group
            is_exponent = follows_caret and _SIGN.fullmatch(text, exponent_start or 0, start) is not None
            enclosing.append((base, is_exponent))
            _at_most("nesting", len(enclosing), limits.nesting)
            base = tower if is_exponent else base
            exponent_start = None
        elif enclosing:
            tower = base
            base, is_exponent = enclosing.pop()
            exponent_start, after_group = (match.end() if is_exponent else None), True
