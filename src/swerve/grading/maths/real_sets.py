r"""Sets of real numbers: `1 < x \le 2`, `|x-1| < 2`, `\mathbb{R} \setminus \{0\}`, `\{x \mid x > 0\}`.

Two sets are compared at every number where one of them can begin or end, between these numbers, and beyond them: what
is written differently is the same set if it holds the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from swerve.grading.maths.expressions import Call, Group, Node, Relation, Symbol, children, symbols
from swerve.grading.maths.limits import LIMITS, Limits
from swerve.grading.maths.numeric import value_at, variables
from swerve.grading.maths.rationals import NeedsNumbers, NoValue, exact

_DIGITS = 80
_SCALE = 10**50
"""Irrational bounds are kept to this part of one."""
_NEAREST = Fraction(1, 10**40)
"""Bounds closer together are one."""
_MOST_BOUNDS = 50
_LARGEST = 10**30
_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda sign: sign < 0,
    ">": lambda sign: sign > 0,
    "<=": lambda sign: sign <= 0,
    ">=": lambda sign: sign >= 0,
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
}
_INFINITY = Symbol("infinity")
_REALS = Symbol("mathbb R")
_Affine = tuple[Fraction, Fraction]
"""Slope and constant of what one side of an inequality is, as a function of its variable."""


def is_described(node: Node) -> bool:
    """Return whether a tree says which numbers are in a set: by inequalities, set operations, or a condition."""
    if isinstance(node, Relation):
        return any(operator not in ("=", "approx") for operator in node.operators)
    if isinstance(node, Group):
        return not node.brackets and any(map(is_described, node.items))
    return node == _REALS or (isinstance(node, Call) and node.name in (*_OPERATIONS, "set builder"))


def same_real_sets(first: Node, second: Node, *, numerically: bool, limits: Limits = LIMITS) -> bool:
    """Return whether two trees are the same set of real numbers; False also where one is no such set.

    Args:
        first: a set or inequalities.
        second: the other.
        numerically: whether irrational bounds may be computed.
        limits: of the exact values on the way.

    Raises:
        LimitReached: a value is larger than the limits allow.
        NeedsNumbers: a bound is irrational, and numerical values are not allowed.

    >>> from swerve.grading.maths.parser import parse
    >>> same_real_sets(parse("|x-1|<2"), parse("(-1,3)"), numerically=True)
    True
    """
    names = {name for node in (first, second) for name in [_variable(node)] if name is not None}
    if len(names) > 1:
        return False

    # Between neighbouring bounds membership does not change: one sample of each stretch says all.
    reader = _Reader(names.pop() if names else "", numerically, limits, {})
    try:
        bounds = sorted({*reader.bounds(first), *reader.bounds(second)})
        if len(bounds) > _MOST_BOUNDS:
            return False
        return all(reader.contains(first, x) == reader.contains(second, x) for x in _samples(bounds))
    except NoValue:
        return False


def _variable(node: Node) -> str | None:
    """Return the variable of inequalities; that of a set-builder is bound."""
    if isinstance(node, Call) and node.name == "set builder":
        return None
    if isinstance(node, Relation) and node.operators == ("in",):
        return node.sides[0].name if isinstance(node.sides[0], Symbol) else ""
    if isinstance(node, Relation):
        names = [name for name in variables(node) if not name.startswith("mathbb ")]
        return names[0] if len(names) == 1 else ""
    variables_of_parts = {_variable(part) for part in children(node)} - {None}
    if not variables_of_parts:
        return None
    return variables_of_parts.pop() if len(variables_of_parts) == 1 else ""


def _samples(bounds: Sequence[Fraction]) -> Iterator[Fraction]:
    """Yield the bounds, a number between each two, and one beyond each end."""
    distinct = [bound for index, bound in enumerate(bounds) if not index or bound - bounds[index - 1] > _NEAREST]
    yield from distinct
    yield from ((low + high) / 2 for low, high in pairwise(distinct))
    yield distinct[0] - 1 if distinct else Fraction(0)
    yield distinct[-1] + 1 if distinct else Fraction(0)


class _Reader:
    """Reads trees as sets of one variable. What is no set of real numbers has no value."""

    def __init__(self, name: str, numerically: bool, limits: Limits, joined: dict[int, bool]) -> None:
        self._name, self._numerically, self._limits = name, numerically, limits
        self._joined = joined
        """By the identity of a list: whether a number meets all of its conditions."""

    def bounds(self, node: Node) -> Iterator[Fraction]:
        """Yield all numbers where membership can change."""
        # Where relations cross, where intervals end, and the same of the parts of what is joined.
        match node:
            case Symbol(name="mathbb R" | "emptyset"):
                return
            case Relation(operators=("in",), sides=(_, inner)):
                yield from self.bounds(inner)
            case Relation(sides=sides):
                if not variables(node):
                    raise NoValue("says nothing of a variable")
                for left, right in pairwise(sides):
                    yield from self._crossings(left, right)
            case Call(name="set builder", args=args):
                yield from self._bound(args).bounds(args[2])
            case (
                Call(name="or" | "and" | "union" | "intersection" | "setminus", args=parts)
                | Group(brackets="", items=parts)
            ):
                for part in parts:
                    yield from self.bounds(part)
            case Group(items=items):
                yield from (self._constant(item) for item in items if not _is_infinite(item))
            case _:
                raise NoValue("no set of real numbers")

    def contains(self, node: Node, x: Fraction) -> bool:
        """Return whether a number is in a set."""
        match node:
            case Symbol():
                return node == _REALS
            case Relation(operators=("in",), sides=(_, inner)):
                return self.contains(inner, x)
            case Relation(operators=operators, sides=sides):
                return self._holds(operators, sides, x)
            case Call(name="set builder", args=args):
                return self._bound(args).contains(args[2], x)
            case Call(name=name, args=parts):
                return _OPERATIONS[name]([self.contains(part, x) for part in parts])
            case Group(brackets="", items=items):
                return self._in_list(items, x)
            case Group(brackets="{}", items=items):
                return any(_sign(x - self._constant(item)) == 0 for item in items)
        return self._in_interval(node, x)

    def _bound(self, builder: Sequence[Node]) -> _Reader:
        element, domain, _ = builder
        if not isinstance(element, Symbol) or domain != _REALS:
            raise NoValue("no set of real numbers")
        return _Reader(element.name, self._numerically, self._limits, self._joined)

    def _in_list(self, items: Sequence[Node], x: Fraction) -> bool:
        """Read conditions with commas: all of them, or any where no number meets all of them."""
        if id(items) not in self._joined:
            bounds = sorted({bound for item in items for bound in self.bounds(item)})
            self._joined[id(items)] = any(all(self.contains(item, y) for item in items) for y in _samples(bounds))
        holds = [self.contains(item, x) for item in items]
        return all(holds) if self._joined[id(items)] else any(holds)

    def _in_interval(self, node: Node, x: Fraction) -> bool:
        if not isinstance(node, Group) or len(node.items) != 2:
            raise NoValue("no set of real numbers")
        brackets, (low, high) = node.brackets, node.items
        if low == _INFINITY or (_is_infinite(high) and high != _INFINITY):
            raise NoValue("ends before it begins")
        above = 1 if _is_infinite(low) else _sign(x - self._constant(low))
        below = 1 if _is_infinite(high) else _sign(self._constant(high) - x)
        return (above > 0 or (above == 0 and brackets[0] == "[")) and (below > 0 or (below == 0 and brackets[1] == "]"))

    def _holds(self, operators: Sequence[str], sides: Sequence[Node], x: Fraction) -> bool:
        values = [self._at(side, x) for side in sides]
        if not set(operators) <= _ORDERS.keys():
            raise NoValue("no order")
        return all(
            _ORDERS[operator](_sign(left - right))
            for operator, (left, right) in zip(operators, pairwise(values), strict=True)
        )

    def _at(self, side: Node, x: Fraction) -> Fraction:
        if isinstance(side, Call) and side.name == "abs":
            return abs(self._at(side.args[0], x))
        slope, constant = self._affine(side)
        return slope * x + constant

    def _crossings(self, left: Node, right: Node) -> Iterator[Fraction]:
        """Yield the numbers where two sides are equal; each is affine, or the magnitude of what is affine."""
        first, second = (
            self._affine(side.args[0] if isinstance(side, Call) and side.name == "abs" else side)
            for side in (left, right)
        )
        for sign in (1, -1):
            slope = first[0] - sign * second[0]
            if slope:
                yield (sign * second[1] - first[1]) / slope

    def _affine(self, node: Node) -> _Affine:
        if node == Symbol(self._name):
            return Fraction(1), Fraction(0)
        if not variables(node):
            return Fraction(0), self._constant(node)
        if isinstance(node, Call) and node.name in ("neg", "group", "+", "*", "/"):
            parts = [self._affine(arg) for arg in node.args]
            if node.name in ("neg", "group"):
                sign = -1 if node.name == "neg" else 1
                return sign * parts[0][0], sign * parts[0][1]
            if node.name == "+":
                return sum((part[0] for part in parts), Fraction(0)), sum((part[1] for part in parts), Fraction(0))
            return _product(parts) if node.name == "*" else _quotient(*parts)
        raise NoValue("not affine")

    def _constant(self, node: Node) -> Fraction:
        try:
            value = exact(node, self._limits)
        except NoValue:
            value = self._irrational(node)
        if abs(value) > _LARGEST or (value and abs(value) < Fraction(1, _LARGEST)) or value.denominator > _SCALE:
            raise NoValue("too large or too small for a bound")
        return value

    def _irrational(self, node: Node) -> Fraction:
        if symbols(node):  # of undefined functions too: what f(1) is worth is not known
            raise NoValue("no constant")
        if not self._numerically:
            raise NeedsNumbers
        value = value_at(node, (), 0, _DIGITS, True)
        if value is None or value.context.im(value) != 0 or abs(value) > _LARGEST:
            raise NoValue("no real constant")
        return Fraction(int(value.context.nint(value.context.re(value) * _SCALE)), _SCALE)


def _product(parts: Sequence[_Affine]) -> _Affine:
    slope, constant = Fraction(0), Fraction(1)
    for other_slope, other in parts:
        if slope and other_slope:
            raise NoValue("not affine")
        slope, constant = slope * other + constant * other_slope, constant * other
    return slope, constant


def _quotient(top: _Affine, bottom: _Affine) -> _Affine:
    if bottom[0] or not bottom[1]:
        raise NoValue("not affine")
    return top[0] / bottom[1], top[1] / bottom[1]


def _sign(value: Fraction) -> int:
    return 0 if abs(value) <= _NEAREST else 1 if value > 0 else -1


def _is_infinite(node: Node) -> bool:
    if isinstance(node, Call) and node.name in ("neg", "group"):
        return _is_infinite(node.args[0])
    return node == _INFINITY


_OPERATIONS: dict[str, Callable[[Sequence[bool]], bool]] = {
    "or": any,
    "and": all,
    "union": any,
    "intersection": all,
    "setminus": lambda found: found[0] and not any(found[1:]),
}
