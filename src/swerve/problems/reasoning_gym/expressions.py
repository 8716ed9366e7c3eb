"""Expressions of one or several variables, read into sympy by its constructors: no text is ever handed to sympy."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ExpressionError", "ExpressionLimitError", "read_expression"]

MAX_CHARS = 2000
MAX_DIGITS = 40
MAX_DEPTH = 40
MAX_EXPONENT = 100
MAX_POWER_BITS = 20_000

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>[A-Za-z]\w*)|(?P<sign>\*\*|[-+*/()]))", re.A
)
_FUNCTIONS = (  # names in sympy
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "asin",
    "acos",
    "atan",
    "acot",
    "asec",
    "acsc",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "exp",
    "log",
    "ln",
    "sqrt",
    "erf",
    "erfi",
)


class ExpressionError(ValueError):
    """The text is no expression of this grammar."""


class ExpressionLimitError(ExpressionError):
    """The text is longer, deeper or has larger numbers or powers than are read."""


@cache
def _functions() -> Mapping[str, Any]:
    import sympy

    return MappingProxyType({name: getattr(sympy, name) for name in _FUNCTIONS})


@cache
def _constants() -> Mapping[str, Any]:
    import sympy

    return MappingProxyType({"E": sympy.E, "I": sympy.I, "pi": sympy.pi})


def read_expression(text: str, variables: Collection[str] = ()) -> Any:
    """Return a text as a sympy expression, with the precedence of Python's `+ - * / **`.

    Names are elementary functions with their argument in parentheses, the constants E, I and pi, and symbols: any
    single letter, and `variables`. Decimals are exact.

    Raises:
        ExpressionLimitError: the text goes beyond a limit and is an expression up to there.
        ExpressionError: it is not of the grammar, or has no value (0 to a negative power).

    >>> read_expression("2*x**3/6 + sin(x)*E**(-x) + C")
    C + x**3/3 + exp(-x)*sin(x)
    >>> read_expression("Integral(x, x)")
    Traceback (most recent call last):
    ...
    swerve.problems.reasoning_gym.expressions.ExpressionError: unknown name 'Integral'
    """
    parser = _Parser(text.strip(), variables)
    found = parser.sum(0)
    if parser.next:
        raise ExpressionError(f"{parser.next!r} stands where a sign was expected")
    return found


class _Parser:
    """Recursive descent, one token after the other: a text is refused at its first fault, a limit is one before it."""

    def __init__(self, text: str, variables: Collection[str]) -> None:
        self._text = text
        self._position = 0
        self._variables = variables
        self.next = self._read()

    def _read(self) -> str:
        """Return the next token, nothing at the end of the text."""
        if self._position >= len(self._text):
            return ""
        if self._position >= MAX_CHARS:
            raise ExpressionLimitError(f"an expression of {len(self._text)} characters; at most {MAX_CHARS} are read")
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise ExpressionError(f"{self._text[self._position]!r} is not part of an expression")
        self._position = match.end()
        return match[match.lastgroup or 0]

    def _take(self) -> str:
        token = self.next
        self.next = self._read()
        return token

    def sum(self, depth: int) -> Any:
        value = self._product(depth)
        while self.next in ("+", "-"):
            sign = self._take()
            term = self._product(depth)
            value = value + term if sign == "+" else value - term
        return value

    def _product(self, depth: int) -> Any:
        value = self._signed(depth)
        while self.next in ("*", "/"):
            sign = self._take()
            factor = self._signed(depth)
            if sign == "/" and factor.is_zero:
                raise ExpressionError("division by zero")
            value = value * factor if sign == "*" else value / factor
        return value

    def _signed(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ExpressionLimitError(f"an expression nested more than {MAX_DEPTH} deep")
        if self.next in ("+", "-"):
            sign = self._take()
            value = self._signed(depth + 1)
            return -value if sign == "-" else value
        base = self._atom(depth)
        if self.next != "**":
            return base
        self._take()
        return _power(base, self._signed(depth + 1))

    def _atom(self, depth: int) -> Any:
        token = self._take()
        if token == "(":
            return self._closed(depth)
        if token[:1].isdigit():
            return _number(token)
        if token[:1].isalpha():
            return self._named(token, depth)
        raise ExpressionError(
            f"{token!r} stands where a value was expected" if token else "the expression is not complete"
        )

    def _closed(self, depth: int) -> Any:
        value = self.sum(depth + 1)
        if self._take() != ")":
            raise ExpressionError("')' is missing")
        return value

    def _named(self, name: str, depth: int) -> Any:
        import sympy

        function = _functions().get(name)
        if function is not None and self.next == "(":
            self._take()
            return function(self._closed(depth))
        if name in self._variables:
            return sympy.Symbol(name)
        if name in _constants():
            return _constants()[name]
        if len(name) == 1:
            return sympy.Symbol(name)
        raise ExpressionError(f"unknown name {name!r}")


def _number(token: str) -> Any:
    import sympy

    if len(token) > MAX_DIGITS:
        raise ExpressionLimitError(f"a number of {len(token)} digits; at most {MAX_DIGITS} are read")
    whole, _, decimals = token.partition(".")
    return sympy.Rational(int(whole + decimals), 10 ** len(decimals))


def _power(base: Any, exponent: Any) -> Any:
    import sympy

    if exponent.is_Rational:
        if abs(exponent) > MAX_EXPONENT or exponent.q > MAX_EXPONENT:
            raise ExpressionLimitError(f"an exponent beyond {MAX_EXPONENT}")
        if base.is_Rational:
            if base == 0 and exponent < 0:
                raise ExpressionError("0 to a negative power")
            if max(int(base.p).bit_length(), int(base.q).bit_length()) * abs(exponent) > MAX_POWER_BITS:
                raise ExpressionLimitError(f"a power of more than {MAX_POWER_BITS} bits")
    return sympy.Pow(base, exponent)
