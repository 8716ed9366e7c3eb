r"""Arithmetic that somebody wrote, read and computed exactly: a small grammar of its own, never Python's.

Whole numbers, `+ - * /` and parentheses, with the other signs that people write for times, divided by and minus, and
LaTeX's `\times \cdot \div \frac{a}{b} \left \right`. Everything else is refused: powers, decimals, names, numbers or
parentheses side by side without a sign between them, and signs in front of a number (unless they are asked for).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Arithmetic", "ArithmeticLimitError", "ParseError", "parse_arithmetic"]

MAX_CHARS = 2000
MAX_NUMBERS = 200
MAX_DIGITS = 30
MAX_DEPTH = 50

# Times sign, middle dot, asterisk operator; division sign, division slash; minus sign, en dash.
_SIGNS = {"\u00d7": "*", "\u00b7": "*", "\u2217": "*", "\u00f7": "/", "\u2215": "/", "\u2212": "-", "\u2013": "-"}
_TOKEN = re.compile(
    rf"[ \t\r\n]*(?:(?P<number>[0-9]+)|(?P<sign>[-+*/(){{}}{''.join(_SIGNS)}])"
    r"|\\(?P<command>times|cdot|div|[dt]?frac|left(?=[ \t]*\()|right(?=[ \t]*\))))"
)
_COMMANDS = {"times": "*", "cdot": "*", "div": "/", "frac": "frac", "dfrac": "frac", "tfrac": "frac"}


class ParseError(ValueError):
    """The text is no arithmetic of this grammar, or has no value (division by zero)."""


class ArithmeticLimitError(ParseError):
    """The text is longer, deeper or has more or larger numbers than are read."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What an expression says."""

    value: Fraction
    numbers: tuple[int, ...]
    """The whole numbers in it, as they stand from left to right."""


def parse_arithmetic(text: str, *, signs: bool = False) -> Arithmetic:
    r"""Return the exact value and the numbers of an expression, in time linear in its length.

    Args:
        text: at most 2,000 characters with 200 numbers of 30 digits, 50 parentheses deep.
        signs: whether a number or a parenthesis may have one sign in front, as in `3 * -(2 + 1)`.

    Raises:
        ArithmeticLimitError: the text goes beyond a limit and is arithmetic up to there.
        ParseError: it is not of the grammar, or divides by zero. Nothing else is raised, whatever the text.

    >>> parse_arithmetic(r"(50 - 2) \div \frac{8}{3}")
    Arithmetic(value=Fraction(18, 1), numbers=(50, 2, 8, 3))
    >>> parse_arithmetic("2 ** 3")
    Traceback (most recent call last):
    ...
    swerve.grading.arithmetic.ParseError: '*' stands where a number or '(' was expected
    """
    parser = _Parser(text.strip(), signs=signs)
    value = parser.sum(depth=0)
    if parser.next is not None:
        raise ParseError(f"{parser.next!r} stands where a sign was expected")
    return Arithmetic(value, tuple(parser.numbers))


class _Parser:
    """Recursive descent, one token after the other: a text is refused at its first fault, a limit is one before it."""

    def __init__(self, text: str, *, signs: bool) -> None:
        self._text = text
        self._position = 0
        self._signs = signs
        self.numbers: list[int] = []
        self.next = self._read()

    def _read(self) -> str | None:
        """Return the next token, None at the end of the text."""
        while self._position < len(self._text):
            if self._position >= MAX_CHARS:
                raise ArithmeticLimitError(
                    f"an expression of {len(self._text)} characters; at most {MAX_CHARS} are read"
                )
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                raise ParseError(f"{self._text[self._position]!r} is not part of arithmetic")
            self._position = match.end()
            token = match["number"] or match["sign"] or _COMMANDS.get(match["command"])
            if token is not None:
                return _SIGNS.get(token, token)
        return None

    def _take(self) -> str | None:
        token = self.next
        self.next = self._read()
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token != wanted:
            raise ParseError(f"{token!r} stands where {wanted!r} was expected" if token else f"{wanted!r} is missing")

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while self.next in ("+", "-"):
            sign = self._take()
            term = self._product(depth)
            value = value + term if sign == "+" else value - term
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._operand(depth)
        while self.next in ("*", "/"):
            sign = self._take()
            factor = self._operand(depth)
            value = value * factor if sign == "*" else _divide(value, factor)
        return value

    def _operand(self, depth: int) -> Fraction:
        if self._signs and self.next in ("+", "-"):
            sign = self._take()
            value = self._unsigned(depth)
            return -value if sign == "-" else value
        return self._unsigned(depth)

    def _unsigned(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise ArithmeticLimitError(f"parentheses nested more than {MAX_DEPTH} deep")
        token = self._take()
        if token is None:
            raise ParseError("the expression ends where a number or '(' was expected")
        if token == "(":
            return self._enclosed(")", depth)
        if token == "frac":
            self._expect("{")
            numerator = self._enclosed("}", depth)
            self._expect("{")
            return _divide(numerator, self._enclosed("}", depth))
        if not token[0].isdigit():
            raise ParseError(f"{token!r} stands where a number or '(' was expected")
        return Fraction(self._number(token))

    def _enclosed(self, end: str, depth: int) -> Fraction:
        value = self.sum(depth + 1)
        self._expect(end)
        return value

    def _number(self, token: str) -> int:
        if len(token) > MAX_DIGITS:
            raise ArithmeticLimitError(f"a number of {len(token)} digits; at most {MAX_DIGITS} are read")
        self.numbers.append(int(token))
        if len(self.numbers) > MAX_NUMBERS:
            raise ArithmeticLimitError(f"more than {MAX_NUMBERS} numbers")
        return self.numbers[-1]


def _divide(value: Fraction, divisor: Fraction) -> Fraction:
    if divisor == 0:
        raise ParseError("division by zero")
    return value / divisor
