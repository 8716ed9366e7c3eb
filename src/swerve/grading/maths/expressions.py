"""The trees that answers are read into, and the small steps of building them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeGuard

from swerve.grading.maths.vocabulary import NO_UNITS, NUMBER_WORDS

_CONSTANTS = frozenset({"pi", "e", "i"})


class NotParsed(Exception):
    """The text is no formula of the grammar."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written; for a decimal, how fine the last printed digit is and how many significant digits it has."""

    value: Fraction
    unit_in_last_place: Fraction | None = None
    significant: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable or a named constant: `x`, `v_{0}`, `pi`, `infinity`."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function with its arguments: `+`, `*`, `/`, `^`, `sqrt`, `sin`, `union`, `f`, ..."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Several answers together. `brackets` is `()`, `[]`, `(]`, `[)`, `{}`, or empty for a list without brackets."""

    brackets: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix or a column vector, by rows."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain such as `0 < x <= 1`: one operator between each two neighbouring sides."""

    operators: tuple[str, ...]
    sides: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit; the unit is in its canonical spelling where it is a known one."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a stated base, such as `4210_7`."""

    digits: str
    base: int


Node = Number | Symbol | Call | Group | Matrix | Relation | Quantity | Based


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of a node."""
    match node:
        case Call(args=parts) | Group(items=parts) | Relation(sides=parts):
            return parts
        case Matrix(rows=rows):
            return tuple(entry for row in rows for entry in row)
        case Quantity(value=value):
            return (value,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a tree and all of its parts."""
    yield node
    for part in children(node):
        yield from walk(part)


def size_of(node: Node) -> int:
    """Return how many nodes a tree has."""
    return sum(1 for _ in walk(node))


def is_call(node: Node, *names: str) -> TypeGuard[Call]:
    """Return whether a tree is an operator or function of one of these names."""
    return isinstance(node, Call) and node.name in names


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the variables and undefined functions in a tree.

    >>> from swerve.grading.maths.parser import parse
    >>> sorted(symbols(parse("2x + e^y")))
    ['x', 'y']
    """
    variables = frozenset(part.name for part in walk(node) if isinstance(part, Symbol)) - _CONSTANTS
    calls = {part.name for part in walk(node) if isinstance(part, Call)}
    return variables | {name for name in calls if name.startswith("function ")}


def whole_number(node: Node) -> int:
    """Return the value of a whole number; other trees are refused."""
    if not isinstance(node, Number) or node.value.denominator != 1:
        raise NotParsed("no whole number")
    return int(node.value)


def negated(node: Node) -> Node:
    """Return minus a tree; a unit stays outside, a decimal stays a decimal."""
    if isinstance(node, Number):
        return Number(-node.value, node.unit_in_last_place, node.significant)
    if isinstance(node, Quantity):
        return Quantity(negated(node.value), node.unit)
    if is_call(node, "degrees"):
        return Call("degrees", (negated(node.args[0]),))
    return Call("neg", (node,))


def with_parts(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with each of its direct parts changed."""
    match node:
        case Call(args=parts):
            return replace(node, args=tuple(map(change, parts)))
        case Group(items=parts):
            return replace(node, items=tuple(map(change, parts)))
        case Relation(sides=parts):
            return replace(node, sides=tuple(map(change, parts)))
        case Quantity(value=inner):
            return replace(node, value=change(inner))
        case Matrix(rows=rows):
            return Matrix(tuple(tuple(map(change, row)) for row in rows))
        case _:
            return node


def without_units(node: Node) -> Node:
    """Return a tree without the units in it."""
    return without_units(node.value) if isinstance(node, Quantity) else with_parts(node, without_units)


def substituted(node: Node, name: str, value: Node) -> Node:
    """Return a tree with a value in place of a variable."""
    if isinstance(node, Symbol):
        return value if node.name == name else node
    return with_parts(node, lambda part: substituted(part, name, value))


def unit_outside(node: Node) -> Node:
    """Return a value whose last factor or term has a unit as a value with that unit."""
    if is_call(node, "+", "*", "neg") and node.args:
        last = unit_outside(node.args[-1])
        if isinstance(last, Quantity):
            return Quantity(Call(node.name, (*node.args[:-1], last.value)), last.unit)
    return node


def operands(node: Node, name: str) -> tuple[Node, ...]:
    """Return the operands of an operator, or the tree itself as the only one."""
    return node.args if is_call(node, name) else (node,)


def product_of(factors: Sequence[Node]) -> Node:
    """Return the product of factors, or the only one."""
    return Call("*", tuple(factors)) if len(factors) > 1 else factors[0]


def is_proper(top: Number, bottom: Number) -> bool:
    """Return whether two whole numbers make a fraction from 0 to below 1."""
    whole = top.value.denominator == 1 and bottom.value.denominator == 1
    return whole and 0 <= top.value < bottom.value


def is_capital(node: Node) -> bool:
    """Return whether a tree is a symbol in upper case."""
    return isinstance(node, Symbol) and node.name.isupper()


def is_equation(node: Node) -> bool:
    """Return whether a tree is one equation."""
    return isinstance(node, Relation) and node.operators == ("=",)


def is_inequality(node: Node) -> bool:
    """Return whether a tree is an inequality or a chain of them."""
    return isinstance(node, Relation) and "=" not in node.operators


def unit_text(text: str) -> str:
    """Return text after a value; numbers and words such as `or`, `six` and `half` in it change the answer."""
    words = re.findall(r"[a-z]+", text.casefold())
    if re.search(r"[0-9]", text) or not NO_UNITS.isdisjoint(words) or not NUMBER_WORDS.keys().isdisjoint(words):
        raise NotParsed(f"{text!r} is no unit")
    return text


def number_in_words(text: str) -> Node:
    """Read a number in words; other text is no formula."""
    number = NUMBER_WORDS.get(" ".join(text.casefold().split()))
    if number is not None:
        return Number(Fraction(number))
    raise NotParsed(f"{text!r} is text")
