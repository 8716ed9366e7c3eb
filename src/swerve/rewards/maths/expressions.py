"""The trees that answers are read into: frozen, small, and nothing but data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Based", "Call", "Group", "Matrix", "Node", "Number", "Quantity", "Relation", "Symbol", "children"]


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
