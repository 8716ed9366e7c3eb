"""What a tree is worth numerically, at seeded points, with sixty digits or more.

Nothing here reads text, and every operation is bounded by the magnitude of its result.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from swerve.rewards.maths.expressions import Call, Matrix, Node, Number, Quantity, Symbol, children
from swerve.rewards.maths.limits import LIMITS, LimitReached
from swerve.rewards.maths.rationals import NoValue, exact, symbols
from swerve.rewards.maths.vocabulary import HYPERBOLIC, INVERSE_HYPERBOLIC, INVERSE_TRIGONOMETRY, TRIGONOMETRY

__all__ = ["same_numerically", "value_at", "value_pairs", "variables"]

_NOT_NUMBERS = frozenset({"infinity", "emptyset", "dots"})
_DIGITS = 60
_MOST_DIGITS = 2400
_MOST_EXPONENT = 1000
"""Decimal digits before the point (or zeros after it) that a value on the way may have."""
_POINTS = 8
_POSITIVE_POINTS = 4
_SIZES = (2, 0.25, 5, 0.75)
"""Of the variables: small ones too, since many functions are real only there."""
_LARGE_POINT, _WHOLE_POINT = _POINTS, _POINTS + 1
"""Two more points that can only tell values apart: `max(x, 100)` is 100 at the others, `ceil(x)` is `floor(x) + 1`."""


@functools.lru_cache(maxsize=4096)
def value_at(node: Node, names: tuple[str, ...], point: int, digits: int, natural_log: bool) -> Any:
    """Return the complex value of a tree at a seeded point, None where there is none.

    Args:
        node: the tree.
        names: the variables; each has a value that depends on its place in the order and on the point only.
        point: which one, from 0.
        digits: decimal digits of the arithmetic.
        natural_log: whether `log` without a base is the natural one, not that of base ten.

    Raises:
        NoValue: it is no number at all (words, sets, ...).
        LimitReached: a value on the way is too large.
    """
    context = _context(digits)
    values = {name: _coordinate(context, index, point) for index, name in enumerate(names)}
    try:
        return _Evaluator(context, values, natural_log).value(node)
    except (ZeroDivisionError, OverflowError, ValueError, context.NoConvergence):
        return None


@functools.lru_cache(maxsize=4)
def _context(digits: int) -> Any:
    from mpmath.ctx_mp import MPContext

    context = MPContext()
    context.dps = digits
    return context


def _coordinate(context: Any, index: int, point: int) -> Any:
    """Return a fixed number of the point's size; of the later half of the points, mostly a negative one."""
    digest = hashlib.sha256(f"{index}:{point}".encode()).digest()
    share = context.mpf(int.from_bytes(digest[:16])) / (1 << 128)
    if point == _LARGE_POINT:
        return 1000 + 9000 * share
    if point == _WHOLE_POINT:
        return context.mpf(17 + digest[17] % 64)
    size = (share + context.mpf(1) / 10) * context.mpf(_SIZES[point % len(_SIZES)])
    return -size if point >= _POSITIVE_POINTS and (index == 0 or digest[16] % 2) else size


class _Evaluator:
    """Evaluates a tree at one point."""

    def __init__(self, context: Any, values: Mapping[str, Any], natural_log: bool) -> None:
        self._mp = context
        self._values = values
        self._natural_log = natural_log
        self._radians_in_degree: Any = 1

    def value(self, node: Node) -> Any:
        """Return the value of a tree."""
        mp = self._mp
        if isinstance(node, Number):
            return mp.mpf(node.value.numerator) / node.value.denominator
        if isinstance(node, Quantity):
            return self.value(node.value)
        if isinstance(node, Symbol):
            return self._symbol(node.name)
        if not isinstance(node, Call):
            raise NoValue("no number")
        return self._bounded(self._call(node))

    def _bounded(self, value: Any) -> Any:
        mp = self._mp
        if mp.isnan(value) or mp.isinf(value):
            raise ZeroDivisionError
        if value and mp.mag(value) > _MOST_EXPONENT * 3.33:
            raise LimitReached(f"digits of a value > {_MOST_EXPONENT}")
        return value

    def _symbol(self, name: str) -> Any:
        mp = self._mp
        if name in self._values:
            return self._values[name]
        constants = {"pi": mp.pi, "e": mp.e, "i": mp.j}
        if name not in constants:
            raise NoValue(f"{name} is no number")
        return +constants[name]

    def _call(self, node: Call) -> Any:
        name = node.name
        if name == "det":
            return self._determinant(node.args[0])
        if name in _ANGLE_FUNCTIONS:
            outside, self._radians_in_degree = self._radians_in_degree, self._mp.pi / 180
            args = [self.value(arg) for arg in node.args]
            self._radians_in_degree = outside
        else:
            args = [self.value(arg) for arg in node.args]
        if name.startswith("function "):
            return self._undefined_function(name, args)
        if name == "degrees":
            return args[0] * self._radians_in_degree
        if name in ("log", "lg"):
            return self._logarithm(name, args)
        if name not in _NUMERIC:
            raise NoValue(f"{name} has no value")
        return _NUMERIC[name](self._mp, args)

    def _logarithm(self, name: str, args: Sequence[Any]) -> Any:
        if len(args) > 1:
            return self._mp.log(args[0]) / self._mp.log(args[1])
        return self._mp.log(args[0]) if self._natural_log and name == "log" else self._mp.log10(args[0])

    def _undefined_function(self, name: str, args: Sequence[Any]) -> Any:
        """Return a number that depends on the function and its arguments only, so that f(1+1) is f(2) but not f(3)."""
        rounded = [self._mp.nstr(self._mp.chop(arg, tol=1e-30), 25) for arg in args]
        digest = hashlib.sha256(repr((name, rounded)).encode()).digest()
        return self._mp.mpf(int.from_bytes(digest[:16])) / (1 << 127)

    def _determinant(self, matrix: Node) -> Any:
        if not isinstance(matrix, Matrix) or not len(matrix.rows[0]) == len(matrix.rows) <= 5:
            raise NoValue("no determinant")
        entries = [[self.value(entry) for entry in row] for row in matrix.rows]
        size = range(len(entries))
        return sum(
            _parity(order)
            * math.prod((entries[row][column] for row, column in enumerate(order)), start=self._mp.mpf(1))
            for order in permutations(size)
        )


def _parity(order: Sequence[int]) -> int:
    inversions = sum(1 for index, first in enumerate(order) for second in order[index + 1 :] if second < first)
    return -1 if inversions % 2 else 1


def _power(mp: Any, args: Sequence[Any]) -> Any:
    base, exponent = args
    if not base:
        if mp.re(exponent) <= 0:
            raise ZeroDivisionError
        return mp.mpf(0)
    if abs(mp.re(exponent * mp.log(base))) > _MOST_EXPONENT * 2.31:
        raise LimitReached(f"digits of a value > {_MOST_EXPONENT}")
    return base**exponent


def _exponential(mp: Any, args: Sequence[Any]) -> Any:
    return _power(mp, [mp.e, args[0]])


def _root(mp: Any, args: Sequence[Any]) -> Any:
    """Return the real root where there is one."""
    value, degree = args
    if mp.im(value) == 0 and mp.re(value) < 0 and mp.isint(degree) and int(mp.re(degree)) % 2:
        return -_power(mp, [-value, 1 / degree])
    return _power(mp, [value, 1 / degree])


def _factorial(mp: Any, args: Sequence[Any]) -> Any:
    if abs(args[0]) > LIMITS.factorial:
        raise LimitReached(f"factorial of more than {LIMITS.factorial}")
    return mp.factorial(args[0])


def _binomial(mp: Any, args: Sequence[Any]) -> Any:
    if max(abs(arg) for arg in args) > LIMITS.factorial:
        raise LimitReached(f"binomial of more than {LIMITS.factorial}")
    return mp.binomial(*args)


def _real(mp: Any, value: Any) -> Any:
    if mp.im(value) != 0:
        raise NoValue("not real")
    return mp.re(value)


def _function(name: str) -> Callable[[Any, Sequence[Any]], Any]:
    def evaluate(mp: Any, args: Sequence[Any]) -> Any:
        if len(args) != 1:
            raise NoValue(f"{name} takes one argument")
        if mp.mag(args[0]) > 200:
            raise LimitReached(f"{name} of a huge number")
        return getattr(mp, name)(args[0])

    return evaluate


_NUMERIC: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    "+": lambda mp, args: sum(args, mp.mpf(0)),
    "*": lambda mp, args: math.prod(args, start=mp.mpf(1)),
    "/": lambda mp, args: args[0] / args[1],
    "^": _power,
    "neg": lambda mp, args: -args[0],
    "group": lambda mp, args: args[0],
    "percent": lambda mp, args: args[0] / 100,
    "abs": lambda mp, args: abs(args[0]),
    "floor": lambda mp, args: mp.floor(_real(mp, args[0])),
    "ceil": lambda mp, args: mp.ceil(_real(mp, args[0])),
    "factorial": _factorial,
    "binomial": _binomial,
    "sqrt": lambda mp, args: mp.sqrt(args[0]),
    "root": _root,
    "exp": _exponential,
    "cis": lambda mp, args: mp.expj(args[0]),
    "ln": lambda mp, args: mp.log(args[0]),
    "min": lambda mp, args: min(_real(mp, arg) for arg in args),
    "max": lambda mp, args: max(_real(mp, arg) for arg in args),
    **{
        name: _function({"arc": "a"}.get(name[:3], name[:3]) + name[3:])
        for name in (*TRIGONOMETRY, *INVERSE_TRIGONOMETRY, *HYPERBOLIC, *INVERSE_HYPERBOLIC)
    },
}
_ANGLE_FUNCTIONS = frozenset({*TRIGONOMETRY, "cis"})


def same_numerically(first: Node, second: Node, log: str = "either") -> bool:
    """Return whether two trees have the same value at all seeded points where both have one.

    With variables, points where a value is not real (and no `i` is in the trees) do not count, nor points with a
    negative variable where one side is not defined; two points must remain, one of them with positive variables only.
    Two more points, a large and a whole one, can say no but not yes.

    Args:
        first: a tree.
        second: the other.
        log: what `log` without a base is: `natural`, `ten`, or `either`, whichever makes the two equal.

    Raises:
        NoValue: one of them is no number.
        LimitReached: a value is too large, or so large that its last digits cannot be told.

    >>> from swerve.rewards.maths.parser import parse
    >>> same_numerically(parse("(x+1)^2"), parse("x^2+2x+1")), same_numerically(parse("|x|"), parse("x"))
    (True, False)
    """
    return any(_same_with(first, second, natural) for natural in _log_readings(first, second, log))


def _log_readings(first: Node, second: Node, log: str) -> tuple[bool, ...]:
    if log != "either":
        return (log == "natural",)
    return (True, False) if any(_has_plain_log(node) for node in (first, second)) else (True,)


def _has_plain_log(node: Node) -> bool:
    own = isinstance(node, Call) and node.name == "log" and len(node.args) == 1
    return own or any(_has_plain_log(part) for part in children(node))


def _has_magnitude(node: Node) -> bool:
    """Return whether `|x|` is in a tree: then what is not defined for a negative x is another function."""
    own = isinstance(node, Call) and node.name == "abs" and bool(variables(node))
    return own or any(map(_has_magnitude, children(node)))


def _same_with(first: Node, second: Node, natural_log: bool) -> bool:
    names = variables(first, second)
    strict = _has_magnitude(first) != _has_magnitude(second)
    is_complex = any(_has_symbol(node, "i") for node in (first, second))
    compared = positive = 0
    for point, (one, other, digits) in enumerate(value_pairs(first, second, names, natural_log)):
        if one is None or other is None:
            if (one is not None or other is not None) and (strict or point < _POSITIVE_POINTS):
                return False
            continue
        if names and not (is_complex or one.context.im(one) == 0 == other.context.im(other)):
            if strict and (one.context.im(one) == 0) != (other.context.im(other) == 0):
                return False
            continue
        if not _close(one, other, digits):
            return False
        compared += point < _POINTS
        positive += point < _POSITIVE_POINTS
    return compared >= 2 and positive >= 1 if names else compared == 1


def variables(*nodes: Node) -> list[str]:
    """Return the names of the variables in trees, sorted; undefined functions are none."""
    found: frozenset[str] = frozenset().union(*(symbols(node) for node in nodes))
    return sorted(name for name in found if not name.startswith("function ") and name not in _NOT_NUMBERS)


def value_pairs(
    first: Node, second: Node, names: Sequence[str], natural_log: bool = True
) -> Iterator[tuple[Any, Any, int]]:
    """Yield the values of two trees at the points (one point without variables), and the digits they have.

    There are as many digits as it takes to have sixty behind the point, to tell small values from zero, and to see the
    smallest number that is written in the trees.
    """
    least = _DIGITS + 2 * _written_digits(first, second)
    for point in range(_POINTS if names else 1):
        yield _value_pair(first, second, tuple(names), point, natural_log, least)
    for point in (_LARGE_POINT, _WHOLE_POINT) if names else ():
        try:
            yield _value_pair(first, second, tuple(names), point, natural_log, least)
        except LimitReached:  # such as e^x at a large x, where nothing is wrong with the answer
            continue


def _value_pair(
    first: Node, second: Node, names: tuple[str, ...], point: int, natural_log: bool, least: int
) -> tuple[Any, Any, int]:
    digits = least
    while True:
        one, other = (value_at(node, names, point, digits, natural_log) for node in (first, second))
        needed = digits if one is None or other is None else least + _more_digits(one, other, digits)
        if needed <= digits:
            return one, other, digits
        if needed > _MOST_DIGITS:
            raise LimitReached(f"digits of a value > {_MOST_DIGITS}")
        digits = needed


def _more_digits(first: Any, second: Any, digits: int) -> int:
    if _is_tiny(first, second, digits):
        return max(0, _MOST_DIGITS - digits)
    return max(0, *(math.ceil(0.302 * int(value.context.mag(value))) if value else 0 for value in (first, second)))


def _written_digits(*nodes: Node) -> int:
    """Return the decimal digits of the largest numerator or denominator among the rational parts of trees."""
    most = max(map(_digits_of_rationals, nodes))
    if most > _MOST_EXPONENT:
        raise LimitReached(f"digits of a value > {_MOST_EXPONENT}")
    return most


def _digits_of_rationals(node: Node) -> int:
    try:
        value = exact(node)
    except NoValue:
        return max(map(_digits_of_rationals, children(node)), default=0)
    return math.ceil(0.302 * max(value.numerator.bit_length(), value.denominator.bit_length()))


def _has_symbol(node: Node, name: str) -> bool:
    return node == Symbol(name) or any(_has_symbol(part, name) for part in children(node))


def _is_tiny(first: Any, second: Any, digits: int) -> bool:
    return bool(max(abs(first), abs(second)) < first.context.mpf(10) ** -(digits // 2)) and first != second


def _close(first: Any, second: Any, digits: int) -> bool:
    """Return whether two values agree to half of their digits, both relatively and absolutely, or are both zero."""
    scale = max(abs(first), abs(second))
    tolerance = first.context.mpf(10) ** -(digits // 2) * min(scale, 1)
    return _is_tiny(first, second, digits) or bool(abs(first - second) <= tolerance)
