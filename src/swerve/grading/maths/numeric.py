"""What a tree is worth numerically, at seeded points, with sixty digits or more.

Nothing here reads text, and every operation is bounded by the magnitude of its result.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any

from swerve.grading.maths import expressions
from swerve.grading.maths.expressions import Call, Matrix, Node, Number, Quantity, Symbol, is_call
from swerve.grading.maths.limits import LIMITS, LimitReached
from swerve.grading.maths.rationals import NoValue, exact
from swerve.grading.maths.vocabulary import HYPERBOLIC, INVERSE_HYPERBOLIC, INVERSE_TRIGONOMETRY, TRIGONOMETRY

_NOT_NUMBERS = frozenset({"infinity", "emptyset", "dots"})
_DIGITS = 60
_MOST_DIGITS = 2400
_MOST_EXPONENT = 1000
"""Decimal digits before the point (or zeros after it) that a value on the way may have."""
_POINTS = 8
_POSITIVE_POINTS = 4
_SIZES = (2, 0.25, 5, 0.75)
"""Of the variables: small ones too, since many functions are real only there."""
_MORE_SIZES = (1, 2, 3, 4.5, 6, 8, 12, 18, 30, 50, 90, 300)
"""Of the variables at further points, where too few of the first have a value: `sqrt(x-30)`."""
_LARGE_POINT, _WHOLE_POINT = _POINTS, _POINTS + 1
_FURTHER_POINTS = range(_WHOLE_POINT + 1, _WHOLE_POINT + 1 + 2 * len(_MORE_SIZES))
"""Two more points that can only tell values apart: `max(x, 100)` is 100 at the others, `ceil(x)` is `floor(x) + 1`."""


@functools.lru_cache(maxsize=4096)
def value_at(node: Node, names: tuple[str, ...], point: int, digits: int, natural_log: bool) -> Any:
    """Return the complex value of a tree at a seeded point, or None where it has no value.

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
        return _Evaluator(context, values, natural_log, point).value(node)
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
    if point in _FURTHER_POINTS:
        step = (point - _FURTHER_POINTS.start) // 2
        size = (1 + share / 3) * _MORE_SIZES[(step + 5 * index) % len(_MORE_SIZES)]
    else:
        size = (share + context.mpf(1) / 10) * context.mpf(_SIZES[point % len(_SIZES)])
    return -size if not _is_positive(point) and (index == 0 or digest[16] % 2) else size


def _is_positive(point: int) -> bool:
    """Return whether all variables, and all values of undefined functions, are positive at a point."""
    if point in _FURTHER_POINTS:
        return (point - _FURTHER_POINTS.start) % 2 == 0
    return point < _POSITIVE_POINTS or point >= _POINTS


class _Evaluator:
    """Evaluates a tree at one point."""

    def __init__(self, context: Any, values: Mapping[str, Any], natural_log: bool, point: int) -> None:
        self._mp = context
        self._point = point
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
            if len(args) > 1:
                return self._mp.log(args[0]) / self._mp.log(args[1])
            return self._mp.log(args[0]) if self._natural_log and name == "log" else self._mp.log10(args[0])
        if name not in _NUMERIC:
            raise NoValue(f"{name} has no value")
        return _NUMERIC[name](self._mp, args)

    def _undefined_function(self, name: str, args: Sequence[Any]) -> Any:
        """Return a number that depends on the function, its arguments and the point: f(1+1) is f(2) but not f(3).

        It can be negative where a variable can, so that f(2) is not |f(2)|.
        """
        rounded = [self._mp.nstr(self._mp.chop(arg, tol=1e-30), 25) for arg in args]
        digest = hashlib.sha256(repr((name, rounded, self._point)).encode()).digest()
        value = self._mp.mpf(int.from_bytes(digest[:16])) / (1 << 127)
        always = self._point == _POSITIVE_POINTS
        return -value if not _is_positive(self._point) and (always or digest[16] % 2) else value

    def _determinant(self, matrix: Node) -> Any:
        if not isinstance(matrix, Matrix) or not len(matrix.rows[0]) == len(matrix.rows) <= 5:
            raise NoValue("no determinant")
        entries = [[self.value(entry) for entry in row] for row in matrix.rows]
        determinant = 0
        for order in permutations(range(len(entries))):
            inversions = sum(second < first for first, second in combinations(order, 2))
            product = math.prod((entries[row][column] for row, column in enumerate(order)), start=self._mp.mpf(1))
            determinant += -product if inversions % 2 else product
        return determinant


def _power(mp: Any, args: Sequence[Any]) -> Any:
    base, exponent = args
    if not base:
        if mp.re(exponent) <= 0:
            raise ZeroDivisionError
        return mp.mpf(0)
    if abs(mp.re(exponent * mp.log(base))) > _MOST_EXPONENT * 2.31:
        raise LimitReached(f"digits of a value > {_MOST_EXPONENT}")
    return base**exponent


def _root(mp: Any, args: Sequence[Any]) -> Any:
    """Return the real root where there is one."""
    value, degree = args
    if mp.im(value) == 0 and mp.re(value) < 0 and mp.isint(degree) and int(mp.re(degree)) % 2:
        return -_power(mp, [-value, 1 / degree])
    return _power(mp, [value, 1 / degree])


def _of_small_numbers(name: str) -> Callable[[Any, Sequence[Any]], Any]:
    def evaluate(mp: Any, args: Sequence[Any]) -> Any:
        if max(abs(arg) for arg in args) > LIMITS.factorial:
            raise LimitReached(f"{name} of more than {LIMITS.factorial}")
        return getattr(mp, name)(*args)

    return evaluate


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
    **{name: _of_small_numbers(name) for name in ("factorial", "binomial")},
    "sqrt": lambda mp, args: mp.sqrt(args[0]),
    "root": _root,
    "exp": lambda mp, args: _power(mp, [mp.e, args[0]]),
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

    With variables or undefined functions, points where a value is not real (and no `i` is in the trees) do not count,
    nor points with a negative variable where one side is not defined. Two points must remain, one of them with positive
    variables only, or none where neither side is real for those. Further points are tried where too few count. Two more
    points, a large and a whole one, can say no but not yes.

    Args:
        first: a tree.
        second: the other.
        log: what `log` without a base is: `natural`, `ten`, or `either`, whichever makes the two equal.

    Raises:
        NoValue: one of them is no number.
        LimitReached: a value is too large, or so large that its last digits cannot be told.

    >>> from swerve.grading.maths.parser import parse
    >>> same_numerically(parse("(x+1)^2"), parse("x^2+2x+1")), same_numerically(parse("|x|"), parse("x"))
    (True, False)
    """
    # Either reading of `log` may make the two equal.
    return any(_same_with(first, second, natural) for natural in _log_readings(first, second, log))


def _log_readings(first: Node, second: Node, log: str) -> tuple[bool, ...]:
    if log != "either":
        return (log == "natural",)
    parts = (*expressions.walk(first), *expressions.walk(second))
    return (True, False) if any(is_call(part, "log") and len(part.args) == 1 for part in parts) else (True,)


def _has_magnitude(node: Node) -> bool:
    """Return whether `|x|` is in a tree: then what is not defined for a negative x is another function."""
    return any(is_call(part, "abs") and variables(part) for part in expressions.walk(node))


def _same_with(first: Node, second: Node, natural_log: bool) -> bool:
    names = variables(first, second)
    agreement = _Agreement(first, second, varies=bool(names) or _has_function(first, second))
    for point, values in enumerate(value_pairs(first, second, names, natural_log)):
        if not agreement.takes(*values, is_positive=_is_positive(point), counts=point < _POINTS):
            return False
    return agreement.is_enough or (agreement.varies and _agree_further(first, second, names, natural_log, agreement))


def _agree_further(first: Node, second: Node, names: Sequence[str], natural_log: bool, agreement: _Agreement) -> bool:
    """Go on at further points until enough of them count."""
    least = _DIGITS + 2 * _written_digits(first, second)
    for point in _FURTHER_POINTS:
        try:
            values = _value_pair(first, second, tuple(names), point, natural_log, least)
        except LimitReached:
            continue
        if not agreement.takes(*values, is_positive=_is_positive(point), counts=True):
            return False
    return agreement.is_enough


class _Agreement:
    """Counts the points at which two trees have the same real value."""

    def __init__(self, first: Node, second: Node, *, varies: bool) -> None:
        self.varies = varies
        self._strict = _has_magnitude(first) != _has_magnitude(second)
        self._is_complex = Symbol("i") in (*expressions.walk(first), *expressions.walk(second))
        self._counted = 0
        self._positive = 0
        self._has_one_sided = False

    @property
    def is_enough(self) -> bool:
        """Whether enough points count; none of positive variables is needed where neither tree is real there."""
        if not self.varies:
            return self._counted == 1
        return self._counted >= 2 and (self._positive >= 1 or not self._has_one_sided)

    def takes(self, first: Any, second: Any, digits: int, *, is_positive: bool, counts: bool) -> bool:
        """Take the values at a point, and return whether the trees can still be equal."""
        defined = first is not None and second is not None
        one_sided = (first is None) != (second is None)
        if one_sided and (self._strict or (is_positive and counts)):
            return False
        if defined and self.varies and not self._is_complex:
            imaginary = first.context.im(first), second.context.im(second)
            defined = imaginary == (0, 0)
            one_sided = (imaginary[0] == 0) != (imaginary[1] == 0)
            if one_sided and self._strict:
                return False
        self._has_one_sided |= one_sided and is_positive
        if not defined:
            return True
        self._counted += counts
        self._positive += counts and is_positive
        return _close(first, second, digits)


def variables(*nodes: Node) -> list[str]:
    """Return the names of the variables in trees, sorted; undefined functions are none."""
    names: frozenset[str] = frozenset().union(*(expressions.symbols(node) for node in nodes))
    return sorted(name for name in names if not name.startswith("function ") and name not in _NOT_NUMBERS)


def _has_function(*nodes: Node) -> bool:
    """Return whether an undefined function is in trees: its values differ from point to point."""
    return any(name.startswith("function ") for node in nodes for name in expressions.symbols(node))


def value_pairs(
    first: Node, second: Node, names: Sequence[str], natural_log: bool = True
) -> Iterator[tuple[Any, Any, int]]:
    """Yield the values of two trees at the points, and the digits they have; one point where nothing varies.

    There are as many digits as it takes to have sixty behind the point, to tell small values from zero, and to see the
    smallest number that is written in the trees.
    """
    least = _DIGITS + 2 * _written_digits(first, second)
    varies = bool(names) or _has_function(first, second)
    for point in range(_POINTS if varies else 1):
        yield _value_pair(first, second, tuple(names), point, natural_log, least)
    for point in (_LARGE_POINT, _WHOLE_POINT) if varies else ():
        try:
            yield _value_pair(first, second, tuple(names), point, natural_log, least)
        except LimitReached:  # such as e^x at a large x, where nothing is wrong with the answer
            continue


def _value_pair(
    first: Node, second: Node, names: tuple[str, ...], point: int, natural_log: bool, least: int
) -> tuple[Any, Any, int]:
    digits = least
    while True:
        first_value, second_value = (value_at(node, names, point, digits, natural_log) for node in (first, second))
        if first_value is None or second_value is None:
            needed = digits
        else:
            needed = least + _more_digits(first_value, second_value, digits)
        if needed <= digits:
            return first_value, second_value, digits
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
        return max(map(_digits_of_rationals, expressions.children(node)), default=0)
    return math.ceil(0.302 * max(value.numerator.bit_length(), value.denominator.bit_length()))


def _is_tiny(first: Any, second: Any, digits: int) -> bool:
    return bool(max(abs(first), abs(second)) < first.context.mpf(10) ** -(digits // 2)) and first != second


def _close(first: Any, second: Any, digits: int) -> bool:
    """Return whether two values agree to half of their digits, both relatively and absolutely, or are both zero."""
    scale = max(abs(first), abs(second))
    tolerance = first.context.mpf(10) ** -(digits // 2) * min(scale, 1)
    return _is_tiny(first, second, digits) or bool(abs(first - second) <= tolerance)
