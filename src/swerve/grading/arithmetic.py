r"""Arithmetic that somebody wrote, read by a small grammar of its own, never by Python or sympy as text.

`parse_arithmetic` reads whole numbers, `+ - * /` and parentheses, with the other signs that people write for times,
divided by and minus, one sign in front of a number or a parenthesis, and LaTeX's `\times \cdot \div \frac{a}{b} \left
\right`, and computes them exactly. Everything else is refused: powers, decimals, names, numbers or parentheses side by
side without a sign between them. `read_expression` also reads powers, decimals, functions and variables, into sympy.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

MAX_CHARS = 2000
MAX_NUMBERS = 200
MAX_EXPONENT = 100
MAX_POWER_BITS = 20_000

# Times sign, middle dot, asterisk operator; division sign, division slash; minus sign, en dash.
_SIGNS = {"\u00d7": "*", "\u00b7": "*", "\u2217": "*", "\u00f7": "/", "\u2215": "/", "\u2212": "-", "\u2013": "-"}
_COMMANDS = {"times": "*", "cdot": "*", "div": "/", "dfrac": "frac", "tfrac": "frac", "left": "", "right": ""}
_FUNCTION_NAMES = """
sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh asinh acosh atanh exp log ln sqrt erf erfi
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""Names in sympy."""


class ParseError(ValueError):
    """The text is not of the grammar, or has no value (division by zero)."""


class ArithmeticLimitError(ParseError):
    """The text is longer, deeper or has more or larger numbers or powers than are read."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What an expression says."""

    value: Fraction
    numbers: tuple[int, ...]
    """The whole numbers in it, as they stand from left to right."""


def parse_arithmetic(text: str) -> Arithmetic:
    r"""Return the exact value and the numbers of an expression, in time linear in its length.

    Args:
        text: at most 2,000 characters with 200 numbers of 30 digits, 50 parentheses deep.

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
    reader = _FractionReader(text)
    value = reader.whole()
    return Arithmetic(value, tuple(reader.numbers))


def read_expression(text: str, variables: Collection[str] = ()) -> Any:
    """Return a text as a sympy expression, with the precedence of Python's `+ - * / **`.

    Names are elementary functions with their argument in parentheses, the constants E, I and pi, and symbols: any
    single letter, and `variables`. Decimals are exact. Only sympy's constructors are called, on numbers and symbols.

    Raises:
        ArithmeticLimitError: the text goes beyond a limit and is an expression up to there.
        ParseError: it is not of the grammar, or has no value (0 to a negative power).

    >>> read_expression("2*x**3/6 + sin(x)*E**(-x) + C")
    C + x**3/3 + exp(-x)*sin(x)
    >>> read_expression("Integral(x, x)")
    Traceback (most recent call last):
    ...
    swerve.grading.arithmetic.ParseError: unknown name 'Integral'
    """
    return _SympyReader(text, variables).whole()


class _Reader(ABC):
    """Recursive descent, one token after the other: a text is refused at its first fault, a limit is one before it."""

    token: ClassVar[re.Pattern[str]]
    spellings: ClassVar[Mapping[str, str]] = {}
    """Tokens that stand for another, or for nothing."""
    language: ClassVar[str]
    wanted: ClassVar[str]
    max_digits: ClassVar[int]

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._position = 0
        self._next = self._read()

    def whole(self) -> Any:
        """Return the value of all of the text."""
        value = self._sum(0)
        if self._next:
            raise ParseError(f"{self._next!r} stands where a sign was expected")
        return value

    def _read(self) -> str:
        """Return the next token, nothing at the end of the text."""
        while self._position < len(self._text):
            if self._position >= MAX_CHARS:
                raise ArithmeticLimitError(
                    f"an expression of {len(self._text)} characters; at most {MAX_CHARS} are read"
                )
            match = self.token.match(self._text, self._position)
            if match is None:
                raise ParseError(f"{self._text[self._position]!r} is not part of {self.language}")
            self._position = match.end()
            token = match[match.lastgroup or 0]
            if token := self.spellings.get(token, token):
                return token
        return ""

    def _take(self) -> str:
        token, self._next = self._next, self._read()
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token != wanted:
            raise ParseError(f"{token!r} stands where {wanted!r} was expected" if token else f"{wanted!r} is missing")

    def _sum(self, depth: int) -> Any:
        value = self._product(depth)
        while self._next in ("+", "-"):
            sign = self._take()
            term = self._product(depth)
            value = value + term if sign == "+" else value - term
        return value

    def _product(self, depth: int) -> Any:
        value = self._operand(depth)
        while self._next in ("*", "/"):
            sign = self._take()
            factor = self._operand(depth)
            value = value * factor if sign == "*" else self._quotient(value, factor)
        return value

    def _quotient(self, value: Any, divisor: Any) -> Any:
        if self._is_zero(divisor):
            raise ParseError("division by zero")
        return value / divisor

    def _enclosed(self, end: str, depth: int) -> Any:
        value = self._sum(depth + 1)
        self._expect(end)
        return value

    def _checked_number(self, token: str) -> str:
        if len(token) > self.max_digits:
            raise ArithmeticLimitError(f"a number of {len(token)} digits; at most {self.max_digits} are read")
        return token

    def _refuse(self, token: str) -> ParseError:
        start = f"{token!r} stands" if token else "the expression ends"
        return ParseError(f"{start} where {self.wanted} was expected")

    @abstractmethod
    def _operand(self, depth: int) -> Any: ...

    @abstractmethod
    def _is_zero(self, value: Any) -> bool: ...


class _FractionReader(_Reader):
    token = re.compile(
        rf"[ \t\r\n]*(?:(?P<number>[0-9]+)|(?P<sign>[-+*/(){{}}{''.join(_SIGNS)}])"
        r"|\\(?P<command>times|cdot|div|[dt]?frac|left(?=[ \t]*\()|right(?=[ \t]*\))))"
    )
    spellings = _SIGNS | _COMMANDS
    language, wanted = "arithmetic", "a number or '('"
    max_digits, max_depth = 30, 50

    def __init__(self, text: str) -> None:
        self.numbers: list[int] = []
        super().__init__(text)

    def _operand(self, depth: int) -> Fraction:
        if self._next in ("+", "-"):
            return self._unsigned(depth) if self._take() == "+" else -self._unsigned(depth)
        return self._unsigned(depth)

    def _unsigned(self, depth: int) -> Fraction:
        if depth > self.max_depth:
            raise ArithmeticLimitError(f"parentheses nested more than {self.max_depth} deep")
        token = self._take()
        if token == "(":
            return Fraction(self._enclosed(")", depth))
        if token == "frac":
            self._expect("{")
            numerator = self._enclosed("}", depth)
            self._expect("{")
            return Fraction(self._quotient(numerator, self._enclosed("}", depth)))
        if not token[:1].isdigit():
            raise self._refuse(token)
        self.numbers.append(int(self._checked_number(token)))
        if len(self.numbers) > MAX_NUMBERS:
            raise ArithmeticLimitError(f"more than {MAX_NUMBERS} numbers")
        return Fraction(self.numbers[-1])

    def _is_zero(self, value: Any) -> bool:
        return bool(value == 0)


class _SympyReader(_Reader):
    token = re.compile(
        r"[ \t\r\n]*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>[A-Za-z]\w*)|(?P<sign>\*\*|[-+*/()]))", re.A
    )
    language, wanted = "an expression", "a value"
    max_digits, max_depth = 40, 40

    def __init__(self, text: str, variables: Collection[str]) -> None:
        self._variables = variables
        super().__init__(text)

    def _operand(self, depth: int) -> Any:
        if depth > self.max_depth:
            raise ArithmeticLimitError(f"an expression nested more than {self.max_depth} deep")
        if self._next in ("+", "-"):
            sign = self._take()
            value = self._operand(depth + 1)
            return -value if sign == "-" else value
        base = self._atom(depth)
        if self._next != "**":
            return base
        self._take()
        return _power(base, self._operand(depth + 1))

    def _atom(self, depth: int) -> Any:
        import sympy

        token = self._take()
        if token == "(":
            return self._enclosed(")", depth)
        if token[:1].isdigit():
            whole, _, decimals = self._checked_number(token).partition(".")
            return sympy.Rational(int(whole + decimals), 10 ** len(decimals))
        if token[:1].isalpha():
            return self._named(token, depth)
        raise self._refuse(token)

    def _named(self, name: str, depth: int) -> Any:
        import sympy

        if name in _FUNCTIONS and self._next == "(":
            self._take()
            return getattr(sympy, name)(self._enclosed(")", depth))
        if name in self._variables:
            return sympy.Symbol(name)
        if name in ("E", "I", "pi"):
            return getattr(sympy, name)
        if len(name) == 1:
            return sympy.Symbol(name)
        raise ParseError(f"unknown name {name!r}")

    def _is_zero(self, value: Any) -> bool:
        return bool(value.is_zero)


def _power(base: Any, exponent: Any) -> Any:
    import sympy

    if exponent.is_Rational:
        if abs(exponent) > MAX_EXPONENT or exponent.q > MAX_EXPONENT:
            raise ArithmeticLimitError(f"an exponent beyond {MAX_EXPONENT}")
        if base.is_Rational:
            if base == 0 and exponent < 0:
                raise ParseError("0 to a negative power")
            if max(int(base.p).bit_length(), int(base.q).bit_length()) * abs(exponent) > MAX_POWER_BITS:
                raise ArithmeticLimitError(f"a power of more than {MAX_POWER_BITS} bits")
    return sympy.Pow(base, exponent)
