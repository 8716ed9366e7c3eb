"""Decimals that stand for the number without an end that they are rounded to or cut from."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from swerve.rewards.maths.expressions import Call, Node, Number
from swerve.rewards.maths.rationals import exact
from swerve.rewards.maths.shapes import unwrapped

__all__ = ["is_endless", "is_rounded", "last_place"]

_ROUNDED_DIGITS = 6
"""Significant digits that a decimal must have to stand for a number that it is the rounding of."""


def last_place(node: Node) -> Fraction | None:
    """Return the size of the last printed digit of a decimal with at least six significant digits, else None."""
    node = unwrapped(node)
    if isinstance(node, Call) and node.name in ("neg", "percent"):
        return last_place(node.args[0])
    if isinstance(node, Call) and node.name == "*" and len(node.args) == 2 and _is_power_of_ten(node.args[1]):
        inner = last_place(node.args[0])
        return None if inner is None else inner * abs(exact(node.args[1]))
    if isinstance(node, Number) and node.significant >= _ROUNDED_DIGITS:
        return node.unit_in_last_place
    return None


def _is_power_of_ten(node: Node) -> bool:
    return isinstance(node, Call) and node.name == "^" and node.args[0] == Number(Fraction(10))


def is_rounded(decimal: Any, endless: Any, place: Any) -> bool:
    """Return whether a decimal with this last place is a number rounded, or cut off there.

    The last of fifteen digits and more may be one off, as in what programs print of a float.
    """
    difference = abs(decimal - endless)
    is_cut = abs(decimal) < abs(endless) or place * 10**14 <= abs(endless)
    return bool(2 * difference <= place or (difference < place and is_cut))


def is_endless(value: Fraction) -> bool:
    """Return whether the decimal digits never end: the denominator has another prime factor than 2 and 5.

    >>> is_endless(Fraction(1, 3)), is_endless(Fraction(1, 40))
    (True, False)
    """
    return pow(10, value.denominator.bit_length(), value.denominator) != 0
