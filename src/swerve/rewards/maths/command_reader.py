"""Reads commands with their arguments: fractions, roots, functions, accents, matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from swerve.rewards.maths.building import (
    is_capital,
    negated,
    size_of,
    substituted,
    whole_number,
)
from swerve.rewards.maths.commands import (
    ACCENTS,
    BINOMIALS,
    DOTS,
    FONTS,
    FRACTIONS,
    INTEGRALS,
    MATRICES,
    ROUNDINGS,
    SUMS,
)
from swerve.rewards.maths.expressions import Call, Group, Matrix, Node, Number, Relation, Symbol
from swerve.rewards.maths.grammar import Grammar
from swerve.rewards.maths.limits import LimitReached
from swerve.rewards.maths.tokens import NotParsed
from swerve.rewards.maths.vocabulary import (
    FUNCTIONS,
    SYMBOL_COMMANDS,
)

__all__ = ["COMMANDS", "CommandReader"]


class CommandReader(Grammar):
    """Reads commands."""

    def _command(self, name: str) -> Node:
        if name in COMMANDS:
            return COMMANDS[name](self, name)
        if name in SYMBOL_COMMANDS:
            return Symbol(SYMBOL_COMMANDS[name] + self._subscript())
        if name in FUNCTIONS:
            return self._function(name)
        raise NotParsed(f"unknown command {name!r}")

    def _fraction(self, _: str) -> Node:
        top, bottom = self._digit_argument(), self._digit_argument()
        if top in _DIFFERENTIALS and isinstance(bottom, Call) and bottom.args[0] == top and self._starts_factor():
            return Call(r"function \derivative", (bottom, self._product()))
        return Call("/", (top, bottom))

    def _dots(self, _: str) -> Node:
        return Symbol("dots")

    def _big_sum(self, name: str) -> Node:
        """Read a sum or product over an index; it is written out where its bounds are whole numbers."""
        index, last = self._bounds()
        body = self._product()
        if isinstance(index, Relation) and index.operators == ("=",) and isinstance(index.sides[0], Symbol):
            first = index.sides[1]
            if _is_whole(first) and _is_whole(last):
                return self._written_out(name, index.sides[0].name, range(_whole(first), _whole(last) + 1), body)
        parts = tuple(part for part in (index, last, body) if part is not None)
        return Call(rf"function \{name}", parts)

    def _written_out(self, name: str, index: str, values: range, body: Node) -> Node:
        if len(values) * size_of(body) > _MOST_WRITTEN_OUT:
            raise LimitReached(f"size of a written-out \\{name} > {_MOST_WRITTEN_OUT}")
        return Call(SUMS[name], tuple(substituted(body, index, Number(Fraction(value))) for value in values))

    def _integral(self, name: str) -> Node:
        low, high = self._bounds()
        parts = tuple(part for part in (low, high, self._product()) if part is not None)
        return Call(rf"function \{name}", parts)

    def _limit(self, _: str) -> Node:
        return Call(rf"function \lim{self._subscript()}", (self._product(),))

    def _bounds(self) -> tuple[Node | None, Node | None]:
        lower = upper = None
        while self._sees("_", "^"):
            if self._next().text == "_":
                lower = self._argument()
            else:
                upper = self._argument()
        return lower, upper

    def _binomial(self, _: str) -> Node:
        return Call("binomial", (self._digit_argument(), self._digit_argument()))

    def _root(self, _: str) -> Node:
        index: Node | None = None
        if self._takes("["):
            index = self._sum()
            self._expect("]")
        if self._takes("{"):
            inner = self._sum()
            self._expect("}")
        elif self._takes("("):
            inner = self._group("(")
        else:
            inner = self._argument()
        return Call("sqrt", (inner,)) if index is None else Call("root", (inner, index))

    def _font(self, _: str) -> Node:
        return self._argument()

    def _accent(self, name: str) -> Node:
        inner = self._argument()
        is_product = isinstance(inner, Call) and inner.name == "*" and all(map(is_capital, inner.args))
        capitals = is_product or (isinstance(inner, Symbol) and len(inner.name) > 1 and is_capital(inner))
        return inner if capitals else Call(f"function {name}{self._subscript()}", (inner,))

    def _rounding(self, name: str) -> Node:
        closing, function = ROUNDINGS[name]
        inner = self._sum()
        self._expect(closing)
        return Call(function, (inner,))

    def _absolute_command(self, _: str) -> Node:
        return self._absolute()

    def _angle(self, _: str) -> Node:
        r"""Read an angle, which has the same name from either side: `\angle ABC` is `\angle CBA`."""
        inner = self._atom()
        if isinstance(inner, Symbol) and inner.name.isupper():
            return Symbol(min(inner.name, inner.name[::-1]))
        return inner

    def _triangle(self, _: str) -> Node:
        return Call("function triangle", (self._atom(),))

    def _set_name(self, _: str) -> Node:
        return Symbol(f"mathbb {self._subscript_free_letters()}")

    def _subscript_free_letters(self) -> str:
        braced = self._takes("{")
        token = self._next()
        if braced:
            self._expect("}")
        return token.text

    def _function(self, name: str) -> Node:
        r"""Read a function with its power and argument: `\sin^2 x`, `\log_2 8`, `\sin b \cos a`."""
        if name == "sqrt":
            return self._root(name)
        base: Node | None = None
        if name in ("log", "lg") and self._takes("_"):
            base = self._argument()
        power = self._exponent() if self._takes("^") else None
        arguments = self._function_arguments()
        if power == Number(Fraction(-1)) and name in _INVERSES:
            name, power = f"arc{name}", None
        node = Call(name, (*arguments, *([base] if base is not None else [])))
        return node if power is None else Call("^", (node, power))

    def _function_arguments(self) -> tuple[Node, ...]:
        if self._takes("("):
            inner = self._group("(")
            return inner.items if isinstance(inner, Group) else (inner,)
        if self._sees("-"):
            self._next()
            return (negated(self._factor()),)
        factors = [self._factor()]
        while self._starts_factor() and self._tokens[self._position].text not in FUNCTIONS:
            self._refuse_number_after(factors[-1])
            factors.append(self._factor())
        return (Call("*", tuple(factors)) if len(factors) > 1 else factors[0],)

    def _matrix(self, environment: str) -> Node:
        if environment not in (*MATRICES, "vmatrix", "cases"):
            raise NotParsed(f"unknown environment {environment!r}")
        rows: list[tuple[Node, ...]] = []
        row = [self._relation()]
        token = None
        while True:
            token = self._next()
            if token.kind == "sign" and token.text == "&":
                row.append(self._relation())
                continue
            rows.append(tuple(row))
            if token.kind == "sign" and token.text == "\\\\" and self.token is not None and self.token.kind != "end":
                row = [self._relation()]
                continue
            break
        if token.text == "\\\\":
            token = self._next()
        if token.kind != "end" or len({len(entries) for entries in rows}) != 1:
            raise NotParsed("no matrix")
        if environment == "cases":
            return _system(rows)
        return Call("det", (Matrix(tuple(rows)),)) if environment == "vmatrix" else Matrix(tuple(rows))


def _system(rows: Sequence[tuple[Node, ...]]) -> Node:
    """Return equations under one another as their list; a function in pieces is not read."""
    if any(len(row) != 1 or not isinstance(row[0], Relation) for row in rows):
        raise NotParsed("no system of equations")
    return Group("", tuple(row[0] for row in rows))


def _is_whole(node: Node | None) -> bool:
    return isinstance(node, Number) and node.value.denominator == 1


def _whole(node: Node | None) -> int:
    return whole_number(node) if node is not None else 0


COMMANDS: Mapping[str, Callable[[CommandReader, str], Node]] = {
    **dict.fromkeys(FRACTIONS, CommandReader._fraction),
    **dict.fromkeys(BINOMIALS, CommandReader._binomial),
    **dict.fromkeys(FONTS, CommandReader._font),
    **dict.fromkeys(ACCENTS, CommandReader._accent),
    **dict.fromkeys(ROUNDINGS, CommandReader._rounding),
    "mathbb": CommandReader._set_name,
    **dict.fromkeys(DOTS, CommandReader._dots),
    **dict.fromkeys(SUMS, CommandReader._big_sum),
    **dict.fromkeys(INTEGRALS, CommandReader._integral),
    "lim": CommandReader._limit,
    "sqrt": CommandReader._root,
    **dict.fromkeys(("lvert", "vert"), CommandReader._absolute_command),
    "angle": CommandReader._angle,
    "triangle": CommandReader._triangle,
}
_DIFFERENTIALS = (Symbol("d"), Symbol("partial"))
_MOST_WRITTEN_OUT = 2000
_INVERSES = ("sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc")
