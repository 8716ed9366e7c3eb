"""Exact values of trees, bounded by the bits of a number, and decimals that stand for an endless one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from swerve.grading.maths.expressions import Call, Node, Number, Quantity
from swerve.grading.maths.limits import LIMITS, LimitReached, Limits
from swerve.grading.maths.shapes import unbracketed


class NoValue(Exception):
    """The tree has no value of the kind that was asked for."""


class NeedsNumbers(Exception):
    """The comparison needs numerical values, which were not allowed."""


def exact(node: Node, limits: Limits = LIMITS) -> Fraction:
    """Return the exact value of rational arithmetic.

    Raises:
        NoValue: it holds more than rational numbers and arithmetic, or divides by zero.
        LimitReached: a number on the way has more than `limits.magnitude_bits` bits, or is too large for a factorial.

    >>> from swerve.grading.maths.parser import parse
    >>> exact(parse("2^{-3} + 4 4/9"))
    Fraction(329, 72)
    """
    if isinstance(node, Number):
        return _bounded(node.value, limits)
    if isinstance(node, Quantity):
        return exact(node.value, limits)
    if not isinstance(node, Call) or node.name not in _EXACT:
        raise NoValue("no rational arithmetic")
    return _bounded(_EXACT[node.name]([exact(arg, limits) for arg in node.args], limits), limits)


def _bounded(value: Fraction, limits: Limits) -> Fraction:
    _check_bits(max(value.numerator.bit_length(), value.denominator.bit_length()), limits)
    return value


def _check_bits(bits: int | Fraction, limits: Limits) -> None:
    if bits > limits.magnitude_bits:
        raise LimitReached(f"bits of an exact number > {limits.magnitude_bits}")


def _fold(join: Callable[[Fraction, Fraction], Fraction], start: int) -> _Operation:
    """Return the operation that joins its arguments one after the other, none of the results beyond the limit."""

    def fold(args: Sequence[Fraction], limits: Limits) -> Fraction:
        value = Fraction(start)
        for arg in args:
            value = _bounded(join(value, arg), limits)
        return value

    return fold


def _exact_quotient(args: Sequence[Fraction], _: Limits) -> Fraction:
    if args[1] == 0:
        raise NoValue("division by zero")
    return args[0] / args[1]


def _exact_power(args: Sequence[Fraction], limits: Limits) -> Fraction:
    base, exponent = args
    if base in (0, 1, -1):
        if base == 1 or (base == 0 and exponent > 0):
            return base
        if base == -1 and exponent.denominator == 1:
            return Fraction(-1 if exponent.numerator % 2 else 1)
        raise NoValue("no rational power")
    if exponent.denominator != 1:
        if base < 0 or exponent.denominator > 64:
            raise NoValue("no rational power")
        root = _exact_root(base, exponent.denominator)
        return _exact_power([root, Fraction(exponent.numerator)], limits)
    _check_bits(max(abs(base.numerator), base.denominator).bit_length() * abs(exponent), limits)
    return base ** int(exponent)


def _exact_root(value: Fraction, degree: int) -> Fraction:
    if value < 0 and degree % 2:
        return -_exact_root(-value, degree)
    if value < 0:
        raise NoValue("no real root")
    return Fraction(_whole_root(value.numerator, degree), _whole_root(value.denominator, degree))


def _whole_root(value: int, degree: int) -> int:
    """Return the whole root of a number that has one."""
    root = math.isqrt(value) if degree == 2 else _floor_root(value, degree)
    if root**degree != value:
        raise NoValue("no whole root")
    return root


def _floor_root(value: int, degree: int) -> int:
    """Return the whole part of a root: Newton's method from above, begun with the root of the leading half of the bits.

    >>> _floor_root(10**300 - 1, 3) == 10**100 - 1, _floor_root(2, 5)
    (True, 1)
    """
    if value < 2:
        return value
    shift = value.bit_length() // degree // 2
    root = (_floor_root(value >> shift * degree, degree) + 1) << shift if shift else 4
    while (lower := ((degree - 1) * root + value // root ** (degree - 1)) // degree) < root:
        root = lower
    return root


def _exact_root_call(args: Sequence[Fraction], _: Limits) -> Fraction:
    degree = args[1] if len(args) > 1 else Fraction(2)
    if degree.denominator != 1 or not 1 <= degree <= 64 or args[0].numerator.bit_length() > 4096:
        raise NoValue("no whole root")
    return _exact_root(args[0], int(degree))


def _natural(value: Fraction, limits: Limits) -> int:
    if value.denominator != 1 or value < 0:
        raise NoValue("no natural number")
    if value > limits.factorial:
        raise LimitReached(f"factorial of a number > {limits.factorial}")
    return int(value)


def _whole(args: Sequence[Fraction]) -> list[int]:
    if any(arg.denominator != 1 for arg in args):
        raise NoValue("no whole numbers")
    return [int(arg) for arg in args]


def _remainder(args: Sequence[Fraction], _: Limits) -> Fraction:
    value, divisor = _whole(args)
    if divisor <= 0:
        raise NoValue("no positive divisor")
    return Fraction(value % divisor)


_Operation = Callable[[Sequence[Fraction], Limits], Fraction]
_EXACT: Mapping[str, _Operation] = {
    "+": _fold(operator.add, 0),
    "*": _fold(operator.mul, 1),
    "/": _exact_quotient,
    "^": _exact_power,
    "neg": lambda args, _: -args[0],
    **dict.fromkeys(("group", "degrees"), lambda args, _: args[0]),
    "percent": lambda args, _: args[0] / 100,
    "abs": lambda args, _: abs(args[0]),
    "floor": lambda args, _: Fraction(math.floor(args[0])),
    "ceil": lambda args, _: Fraction(math.ceil(args[0])),
    "factorial": lambda args, limits: Fraction(math.factorial(_natural(args[0], limits))),
    "binomial": lambda args, limits: Fraction(math.comb(*(_natural(arg, limits) for arg in args[:2]))),
    "gcd": lambda args, _: Fraction(math.gcd(*_whole(args))),
    "lcm": _fold(lambda value, arg: Fraction(math.lcm(*_whole([value, arg]))), 1),
    "mod": _remainder,
    "sqrt": _exact_root_call,
    "root": _exact_root_call,
}


ROUNDED_GOLD, ROUNDED_ANSWER = 6, 12
"""Significant digits that a decimal must have to stand for a number that it is the rounding of: a gold answer has the
digits that were asked for, an answer those of a program's output."""


def last_place(node: Node, digits: int) -> Fraction | None:
    """Return the size of the last printed digit of a decimal with at least so many significant digits, else None."""
    node = unbracketed(node)
    if isinstance(node, Call) and node.name in ("neg", "percent"):
        return last_place(node.args[0], digits)
    if isinstance(node, Call) and node.name == "*" and len(node.args) == 2:
        factor, power = node.args
        if isinstance(power, Call) and power.name == "^" and power.args[0] == Number(Fraction(10)):
            inner = last_place(factor, digits)
            return None if inner is None else inner * abs(exact(power))
    if isinstance(node, Number) and node.significant >= digits:
        return node.unit_in_last_place
    return None


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
