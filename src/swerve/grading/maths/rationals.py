"""Exact values of trees, bounded by the bits of a number, and decimals that stand for an endless one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from swerve.grading.maths.expressions import Call, Node, Number, Quantity
from swerve.grading.maths.limits import LIMITS, LimitReached
from swerve.grading.maths.shapes import unwrapped


class NoValue(Exception):
    """The tree has no value of the kind that was asked for."""


class NeedsNumbers(Exception):
    """The comparison needs numerical values, which were not allowed."""


def exact(node: Node) -> Fraction:
    """Return the exact value of rational arithmetic.

    Raises:
        NoValue: it holds more than rational numbers and arithmetic, or divides by zero.
        LimitReached: a number on the way is too large.

    >>> from swerve.grading.maths.parser import parse
    >>> exact(parse("2^{-3} + 4 4/9"))
    Fraction(329, 72)
    """
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Quantity):
        return exact(node.value)
    if not isinstance(node, Call) or node.name not in _EXACT:
        raise NoValue("no rational arithmetic")
    value = _EXACT[node.name]([exact(arg) for arg in node.args])
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LIMITS.magnitude_bits:
        raise LimitReached(f"bits of an exact number > {LIMITS.magnitude_bits}")
    return value


def _exact_quotient(args: Sequence[Fraction]) -> Fraction:
    if args[1] == 0:
        raise NoValue("division by zero")
    return args[0] / args[1]


def _exact_power(args: Sequence[Fraction]) -> Fraction:
    base, exponent = args
    if base in (0, 1, -1):
        return _power_of_unit(base, exponent)
    if exponent.denominator != 1:
        return _exact_root_power(base, exponent)
    size = max(abs(base.numerator), base.denominator).bit_length()
    if size * abs(exponent) > LIMITS.magnitude_bits:
        raise LimitReached(f"bits of an exact number > {LIMITS.magnitude_bits}")
    return base ** int(exponent)


def _power_of_unit(base: Fraction, exponent: Fraction) -> Fraction:
    if base == 1 or (base == 0 and exponent > 0):
        return base
    if base == -1 and exponent.denominator == 1:
        return Fraction(-1 if exponent.numerator % 2 else 1)
    raise NoValue("no rational power")


def _exact_root_power(base: Fraction, exponent: Fraction) -> Fraction:
    if base < 0 or exponent.denominator > 64:
        raise NoValue("no rational power")
    root = _exact_root(base, exponent.denominator)
    return _exact_power([root, Fraction(exponent.numerator)])


def _exact_root(value: Fraction, degree: int) -> Fraction:
    if value < 0 and degree % 2:
        return -_exact_root(-value, degree)
    if value < 0:
        raise NoValue("no real root")
    return Fraction(_whole_root(value.numerator, degree), _whole_root(value.denominator, degree))


def _whole_root(value: int, degree: int) -> int:
    """Return the whole root of a number that has one, by bisection."""
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    if low**degree != value:
        raise NoValue("no whole root")
    return low


def _exact_root_call(args: Sequence[Fraction]) -> Fraction:
    degree = args[1] if len(args) > 1 else Fraction(2)
    if degree.denominator != 1 or not 1 <= degree <= 64 or args[0].numerator.bit_length() > 4096:
        raise NoValue("no whole root")
    return _exact_root(args[0], int(degree))


def _natural(value: Fraction) -> int:
    if value.denominator != 1 or value < 0:
        raise NoValue("no natural number")
    if value > LIMITS.factorial:
        raise LimitReached(f"factorial: {value} > {LIMITS.factorial}")
    return int(value)


def _whole(args: Sequence[Fraction]) -> list[int]:
    if any(arg.denominator != 1 for arg in args):
        raise NoValue("no whole numbers")
    return [int(arg) for arg in args]


def _remainder(args: Sequence[Fraction]) -> Fraction:
    value, divisor = _whole(args)
    if divisor <= 0:
        raise NoValue("no positive divisor")
    return Fraction(value % divisor)


_EXACT: Mapping[str, Callable[[Sequence[Fraction]], Fraction]] = {
    "+": lambda args: sum(args, Fraction(0)),
    "*": lambda args: math.prod(args, start=Fraction(1)),
    "/": _exact_quotient,
    "^": _exact_power,
    "neg": lambda args: -args[0],
    **dict.fromkeys(("group", "degrees"), lambda args: args[0]),
    "percent": lambda args: args[0] / 100,
    "abs": lambda args: abs(args[0]),
    "floor": lambda args: Fraction(math.floor(args[0])),
    "ceil": lambda args: Fraction(math.ceil(args[0])),
    "factorial": lambda args: Fraction(math.factorial(_natural(args[0]))),
    "binomial": lambda args: Fraction(math.comb(_natural(args[0]), _natural(args[1]))),
    "gcd": lambda args: Fraction(math.gcd(*_whole(args))),
    "lcm": lambda args: Fraction(math.lcm(*_whole(args))),
    "mod": _remainder,
    "sqrt": _exact_root_call,
    "root": _exact_root_call,
}


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
