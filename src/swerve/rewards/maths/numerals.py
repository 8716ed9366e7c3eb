"""Reads numbers as tokens spell them: `digits[.digits][(repeating)][epower]`."""

from __future__ import annotations

import re
from fractions import Fraction

from swerve.rewards.maths.expressions import Number
from swerve.rewards.maths.tokens import NotParsed

__all__ = ["read_number"]

_WRITTEN = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(?:\(([0-9]+)\))?(?:e([-+]?[0-9]+))?")


def read_number(written: str) -> Number:
    """Return the exact value of `digits[.digits][(repeating)][epower]`."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise NotParsed(f"{written!r} is no number")
    whole, point, decimals, repeating, power = match.groups()
    if repeating and not point:
        raise NotParsed(f"{written!r} is no number")
    decimals = decimals or ""
    value = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    if repeating:
        value += Fraction(int(repeating), (10 ** len(repeating) - 1) * 10 ** len(decimals))
    scale = Fraction(10) ** int(power or 0)
    if repeating or (not point and not power):
        return Number(value * scale)
    return Number(value * scale, scale / 10 ** len(decimals), len((whole + decimals).lstrip("0")))
