"""Reads atoms: numbers, names, words, brackets, and the arguments of commands."""

from __future__ import annotations

from fractions import Fraction

from swerve.rewards.maths.building import (
    is_proper,
    number_in_words,
    substituted,
    whole_number,
)
from swerve.rewards.maths.command_reader import CommandReader
from swerve.rewards.maths.commands import (
    BARS,
    FRACTIONS,
    FUNCTION_LETTERS,
)
from swerve.rewards.maths.expressions import Based, Call, Group, Node, Number, Symbol
from swerve.rewards.maths.numerals import read_number
from swerve.rewards.maths.rationals import symbols
from swerve.rewards.maths.tokens import NotParsed, Token
from swerve.rewards.maths.vocabulary import (
    NUMBER_WORDS,
    SHORT_WORDS,
)

__all__ = ["AtomReader"]


_SUCH_THAT = ("|", "mid", ":", "colon")
_LONGEST_ELEMENT = 12
"""Tokens of what stands before `such that`."""


class AtomReader(CommandReader):
    """Reads what stands on its own."""

    def _atom(self) -> Node:
        with self._deeper():
            return self._atom_here()

    def _atom_here(self) -> Node:
        token = self._next()
        match token.kind:
            case "number":
                return self._number(token)
            case "letter":
                return self._letter(token.text)
            case "word":
                return self._word(token.text)
            case "text":
                return self._text_name(token.text) or number_in_words(token.text)
            case "begin":
                return self._matrix(token.text)
            case "command":
                return self._command(token.text)
            case _:
                return self._bracketed(token)

    def _bracketed(self, token: Token) -> Node:
        if token.text in ("(", "[", "{", "{set"):
            return self._group(token.text)
        if token.text in BARS:
            return self._absolute()
        raise NotParsed(f"no formula begins with {token.text!r}")

    def _absolute(self) -> Node:
        self._bars += 1
        inner = self._sum()
        self._bars -= 1
        self._expect(*BARS)
        return Call("abs", (inner,))

    def _group(self, opening: str) -> Node:
        """Read brackets: one item in matching ones is that item; else a pair, tuple, interval or set."""
        start, bars, self._bars = self._position, self._bars, 0
        if opening.startswith("{") and (builder := self._set_builder()) is not None:
            self._bars = bars
            return builder
        closings = {"{": ("}",), "{set": ("}set",)}.get(opening, (")", "]"))
        items: list[Node] = []
        while not self._sees(*closings):
            items.append(self._relation())
            if not self._separators() and not self._sees(*closings):
                raise NotParsed("bracket is not closed")
        closing = self._expect(*closings)
        self._bars = bars
        if opening != "{" and len(items) == 1 and any(token.comma for token in self._tokens[start : self._position]):
            raise NotParsed("a comma in brackets separates")
        if opening == "{set":
            return Group("{}", tuple(items)) if items else Symbol("emptyset")
        if len(items) == 1 and (opening + closing) in ("()", "[]", "{}"):
            return items[0] if opening == "{" else Call("group", (items[0],))
        return Group(opening + closing, tuple(items))

    def _is_set_builder(self) -> bool:
        """Look ahead for `element such that` or `element in numbers such that`, so that nothing long is read twice."""
        texts = [token.text for token in self._tokens[self._position : self._position + _LONGEST_ELEMENT]]
        end = next((index for index, text in enumerate(texts) if text in ("in", *_SUCH_THAT)), 0)
        if not end or any(text in ("{", "{set", "}", "}set") for text in texts[:end]):
            return False
        if texts[end] != "in":
            return True
        after = [token.text for token in self._tokens[self._position + end + 1 : self._position + end + 6]]
        return after[:1] == ["mathbb"] and any(text in _SUCH_THAT for text in after)

    def _set_of_numbers(self) -> Node:
        self._expect("mathbb")
        return self._set_name("mathbb")

    def _set_builder(self) -> Node | None:
        r"""Read `x \in D \mid condition}` and the like; the variable's own name does not count."""
        start = self._position
        if not self._is_set_builder():
            return None
        self._bars = 1  # the bar that follows opens nothing
        try:
            element = self._sum()
        except NotParsed:
            element = Symbol("emptyset")
        domain = self._set_of_numbers() if self._takes("in") else Symbol("mathbb R")
        self._bars = 0
        if not symbols(element) - {"emptyset"} or not self._takes(*_SUCH_THAT):
            self._position = start
            return None
        condition = self.answer()
        self._expect("}set", "}")
        parts = (element, domain, condition)
        names = sorted(symbols(element))
        bound = Symbol("bound x")
        return Call(
            "set builder", tuple(substituted(part, names[0], bound) if len(names) == 1 else part for part in parts)
        )

    def _number(self, token: Token) -> Node:
        if self._sees("_"):
            return self._based(token)
        value = read_number(token.text)
        before = self._tokens[self._position - 2].text if self._position > 1 else ""
        fraction = self._fraction_after() if value.unit_in_last_place is None and before != "/" else None
        return Number(value.value + fraction) if fraction is not None else value

    def _based(self, token: Token) -> Node:
        self._next()
        base = self._argument()
        if isinstance(base, Call) and base.name == "group":
            base = base.args[0]
        if not set(token.text) <= set("0123456789.") or not isinstance(base, Number) or not 2 <= base.value <= 36:
            raise NotParsed("no base")
        return Based(token.text.lstrip("0") or "0", whole_number(base))

    def _fraction_after(self) -> Fraction | None:
        r"""Read the fraction of a mixed number such as `4 4/9` or `4\frac49`, where a proper one follows."""
        start, tokens = self._position, self._tokens[self._position : self._position + 8]
        top, bottom = self._slashed_parts() or self._stacked_parts() or (None, None)
        if isinstance(top, Number) and isinstance(bottom, Number) and is_proper(top, bottom):
            return top.value / bottom.value
        self._position, self._tokens[start : start + 8] = start, tokens
        return None

    def _slashed_parts(self) -> tuple[Node, Node] | None:
        top, over, bottom = self.token, self._ahead(1), self._ahead(2)
        if (
            top is None
            or over is None
            or bottom is None
            or (top.kind, over.text, bottom.kind) != ("number", "/", "number")
        ):
            return None
        self._position += 3
        return read_number(top.text), read_number(bottom.text)

    def _stacked_parts(self) -> tuple[Node, Node] | None:
        if not self._takes(*FRACTIONS):
            return None
        top = self._plain_number()
        bottom = self._plain_number() if top is not None else None
        return None if top is None or bottom is None else (top, bottom)

    def _plain_number(self) -> Node | None:
        """Read an argument that is a number, in braces or not; another one may be long, and is not read twice."""
        kinds = [token.kind for token in self._tokens[self._position : self._position + 2]]
        after = self._ahead(2)
        braced = self._sees("{") and kinds[1:] == ["number"] and after is not None and after.text == "}"
        return self._digit_argument() if braced or kinds[:1] == ["number"] else None

    def _digit_argument(self) -> Node:
        """Read an argument of a fraction: braces, or one token, of a number its first digit."""
        token = self.token
        if token is not None and token.kind == "number" and len(token.text) > 1 and token.text.isdigit():
            self._tokens[self._position] = Token("number", token.text[1:])
            return Number(Fraction(int(token.text[0])))
        return self._argument()

    def _argument(self) -> Node:
        """Read an argument of a command: braces, or one token."""
        with self._deeper():
            return self._argument_here()

    def _argument_here(self) -> Node:
        if self._takes("{"):
            inner = self.answer()
            self._expect("}")
            return inner
        token = self._next()
        if token.kind == "number":
            return read_number(token.text)
        if token.kind == "letter":
            return Symbol(token.text)
        if token.kind == "text":
            return number_in_words(token.text)
        if token.kind == "command":
            return self._command(token.text)
        if token.text == "(":
            return self._group("(")
        raise NotParsed(f"no argument begins with {token.text!r}")

    def _letter(self, letter: str) -> Node:
        name = letter + self._subscript()
        while self._takes_prime():
            name += "'"
        if letter in FUNCTION_LETTERS and self._takes_inverse():
            name += "^-1"
        if self._sees("(") and (letter in FUNCTION_LETTERS or name.endswith("'") or self._is_value_at_number(letter)):
            self._next()
            inner = self._group("(")
            return Call(f"function {name}", inner.items if isinstance(inner, Group) else (inner,))
        return Symbol(name)

    def _is_value_at_number(self, letter: str) -> bool:
        """Return whether `I(0)` comes: as a product it would be 0, and any zero the same answer."""
        number, closing = self._ahead(1), self._ahead(2)
        is_call = number is not None and number.kind == "number" and closing is not None and closing.text == ")"
        return is_call and letter not in ("e", "i")

    def _takes_inverse(self) -> bool:
        """Take the exponent of an inverse function, `f^{-1}(x)`."""
        tokens = [token.text for token in self._tokens[self._position : self._position + 6]]
        found = tokens == ["^", "{", "-", "1", "}", "("]
        self._position += 5 * found
        return found

    def _takes_prime(self) -> bool:
        if self._takes("'"):
            return True
        start = self._position
        if self._takes("^") and (self._takes("prime") or self._takes_braced("prime")):
            return True
        self._position = start
        return False

    def _subscript(self) -> str:
        """Read a subscript as part of a name: `v_0` and `v_{0}` are one name."""
        if not self._takes("_"):
            return ""
        if not self._takes("{"):
            return f"_{self._next().text}"
        parts: list[str] = []
        while not self._takes("}"):
            parts.append(self._next().text)
        return f"_{''.join(parts)}"

    def _text_name(self, text: str) -> Node | None:
        """Return words before an equals sign as the name of what follows: `Area = 5`."""
        named = self._sees("=") and text.casefold() not in SHORT_WORDS
        return Symbol(f"text {' '.join(text.casefold().split())}") if named else None

    def _word(self, word: str) -> Node:
        """Read letters without a command: a number word, points such as `ABC`, or the product of a few letters."""
        if word.casefold() in NUMBER_WORDS:
            return Number(Fraction(NUMBER_WORDS[word.casefold()]))
        if (name := self._text_name(word)) is not None:
            return name
        if word in SHORT_WORDS or (len(word) > 3 and not word.isupper()):
            raise NotParsed(f"{word!r} is a word")
        if len(word) > 2 and word.isupper():
            return Symbol(word + self._subscript())
        letters = [Symbol(letter) for letter in word[:-1]]
        return Call("*", (*letters, self._power(self._letter(word[-1]))))
