"""Reads what stands on its own: numbers, names, words, brackets, and commands with their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction

from swerve.grading.maths import expressions, vocabulary
from swerve.grading.maths.expressions import Based, Call, Group, Matrix, Node, NotParsed, Number, Relation, Symbol
from swerve.grading.maths.lexer import Token, TokenReader, read_number
from swerve.grading.maths.limits import LimitReached

_DIFFERENTIALS = (Symbol("d"), Symbol("partial"))
_MOST_WRITTEN_OUT = 2000
"""Nodes of all sums and products of a formula."""
_SUCH_THAT = ("|", "mid", ":", "colon")
_LONGEST_ELEMENT = 12
"""Tokens of what stands before `such that`."""


class AtomReader(TokenReader, ABC):
    """Reads what stands on its own; `parser` reads the operators between, and has the rules that are abstract here."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._bars = 0
        self._num_written_out = 0

    @abstractmethod
    def answer(self) -> Node:
        """Read answers with separators between them."""

    @abstractmethod
    def _separators(self) -> list[str]: ...

    @abstractmethod
    def _relation(self) -> Node: ...

    @abstractmethod
    def _sum(self) -> Node: ...

    @abstractmethod
    def _product(self) -> Node: ...

    @abstractmethod
    def _starts_factor(self) -> bool: ...

    @abstractmethod
    def _function(self, name: str) -> Node: ...

    @abstractmethod
    def _power(self, base: Node) -> Node: ...

    # Numbers, names and words

    def _atom(self) -> Node:
        with self._deeper():
            token = self._next()
            match token.kind:
                case "number":
                    return self._number(token)
                case "letter":
                    return self._letter(token.text)
                case "word":
                    return self._word(token.text)
                case "text":
                    return self._text_name(token.text) or expressions.number_in_words(token.text)
                case "begin":
                    return self._matrix(token.text)
                case "command":
                    return self._command(token.text)
                case _:
                    return self._bracketed(token)

    def _bracketed(self, token: Token) -> Node:
        if token.text in ("(", "[", "{", "{set"):
            return self._group(token.text)
        if token.text in vocabulary.BARS:
            return self._absolute()
        raise NotParsed(f"no formula begins with {token.text!r}")

    def _absolute(self) -> Node:
        self._bars += 1
        inner = self._sum()
        self._bars -= 1
        self._expect(*vocabulary.BARS)
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

    def _end_of_element(self) -> int | None:
        """Look ahead for `element such that` or `element in numbers such that`, so that nothing long is read twice."""
        texts = [token.text for token in self._tokens[self._position : self._position + _LONGEST_ELEMENT]]
        end = next((index for index, text in enumerate(texts) if text in ("in", *_SUCH_THAT)), 0)
        if not end or any(text in ("{", "{set", "}", "}set") for text in texts[:end]):
            return None
        if texts[end] != "in":
            return self._position + end
        after = [token.text for token in self._tokens[self._position + end + 1 : self._position + end + 6]]
        is_builder = after[:1] == ["mathbb"] and any(text in _SUCH_THAT for text in after)
        return self._position + end if is_builder else None

    def _set_builder(self) -> Node | None:
        r"""Read `x \in D \mid condition}` and the like; the variable's own name does not count."""
        start, stop, end = self._position, self._stop, self._end_of_element()
        if end is None:
            return None
        self._bars, self._stop = 1, end  # the bar that follows opens nothing
        try:
            element = self._sum()
        except NotParsed:
            element = Symbol("emptyset")
        self._stop = stop
        domain: Node = Symbol("mathbb R")
        if self._takes("in"):
            domain = self._set_name(self._expect("mathbb"))
        self._bars = 0
        if not expressions.symbols(element) - {"emptyset"} or not self._takes(*_SUCH_THAT):
            self._position = start
            return None
        condition = self.answer()
        self._expect("}set", "}")
        parts: tuple[Node, ...] = (element, domain, condition)
        names = sorted(expressions.symbols(element))
        if len(names) == 1:
            parts = tuple(expressions.substituted(part, names[0], Symbol("bound x")) for part in parts)
        return Call("set builder", parts)

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
        return Based(token.text.lstrip("0") or "0", expressions.whole_number(base))

    def _fraction_after(self) -> Fraction | None:
        r"""Read the fraction of a mixed number such as `4 4/9` or `4\frac49`, where a proper one follows."""
        start, tokens = self._position, self._tokens[self._position : self._position + 8]
        top, bottom = self._slashed_parts() or self._stacked_parts() or (None, None)
        if isinstance(top, Number) and isinstance(bottom, Number) and expressions.is_proper(top, bottom):
            return top.value / bottom.value
        self._position, self._tokens[start : start + 8] = start, tokens
        return None

    def _slashed_parts(self) -> tuple[Node, Node] | None:
        match self._tokens[self._position : self._position + 3]:
            case [Token("number", top), Token(_, "/"), Token("number", bottom)]:
                self._position += 3
                return read_number(top), read_number(bottom)
        return None

    def _stacked_parts(self) -> tuple[Node, Node] | None:
        if not self._takes(*vocabulary.FRACTIONS):
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
            if self._takes("{"):
                inner = self.answer()
                self._expect("}")
                return inner
            match self._next():
                case Token("number", text):
                    return read_number(text)
                case Token("letter", text):
                    return Symbol(text)
                case Token("text", text):
                    return expressions.number_in_words(text)
                case Token("command", text):
                    return self._command(text)
                case Token(_, "("):
                    return self._group("(")
                case Token(_, text):
                    raise NotParsed(f"no argument begins with {text!r}")

    def _letter(self, letter: str) -> Node:
        name = letter + self._subscript()
        while self._takes_prime():
            name += "'"
        if letter in vocabulary.FUNCTION_LETTERS and self._takes_inverse():
            name += "^-1"
        is_function = letter in vocabulary.FUNCTION_LETTERS or name.endswith("'") or self._is_value_at_number(letter)
        if is_function and self._sees("("):
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
        is_there = tokens == ["^", "{", "-", "1", "}", "("]
        self._position += 5 * is_there
        return is_there

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
        named = self._sees("=") and text.casefold() not in vocabulary.SHORT_WORDS
        return Symbol(f"text {' '.join(text.casefold().split())}") if named else None

    def _word(self, word: str) -> Node:
        """Read letters without a command: a number word, points such as `ABC`, or the product of a few letters."""
        if word.casefold() in vocabulary.NUMBER_WORDS:
            return Number(Fraction(vocabulary.NUMBER_WORDS[word.casefold()]))
        if (name := self._text_name(word)) is not None:
            return name
        if word in vocabulary.SHORT_WORDS or (len(word) > 3 and not word.isupper()):
            raise NotParsed(f"{word!r} is a word")
        if len(word) > 2 and word.isupper():
            return Symbol(word + self._subscript())
        letters = [Symbol(letter) for letter in word[:-1]]
        return Call("*", (*letters, self._power(self._letter(word[-1]))))

    # Commands with their arguments

    def _command(self, name: str) -> Node:
        if name in COMMANDS:
            return COMMANDS[name](self, name)
        if name in vocabulary.SYMBOL_COMMANDS:
            return Symbol(vocabulary.SYMBOL_COMMANDS[name] + self._subscript())
        if name in vocabulary.FUNCTIONS:
            return self._function(name)
        raise NotParsed(f"unknown command {name!r}")

    def _fraction(self, _: str) -> Node:
        top, bottom = self._digit_argument(), self._digit_argument()
        if top in _DIFFERENTIALS and isinstance(bottom, Call) and bottom.args[0] == top and self._starts_factor():
            return Call(r"function \derivative", (bottom, self._product()))
        return Call("/", (top, bottom))

    def _big_sum(self, name: str) -> Node:
        """Read a sum or product over an index; it is written out where its bounds are whole numbers."""
        index, last = self._bounds()
        body = self._product()
        match index, last:
            case Relation(("=",), (Symbol(i), Number(low))), Number(high) if low.denominator * high.denominator == 1:
                return self._written_out(name, i, range(int(low), int(high) + 1), body)
        return _unevaluated(name, index, last, body)

    def _written_out(self, name: str, index: str, values: range, body: Node) -> Node:
        self._num_written_out += max(0, values.stop - values.start) * expressions.size_of(body)
        if self._num_written_out > _MOST_WRITTEN_OUT:
            raise LimitReached(f"size of a written-out \\{name} > {_MOST_WRITTEN_OUT}")
        terms = (expressions.substituted(body, index, Number(Fraction(value))) for value in values)
        return Call(vocabulary.SUMS[name], tuple(terms))

    def _integral(self, name: str) -> Node:
        return _unevaluated(name, *self._bounds(), self._product())

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

    def _accent(self, name: str) -> Node:
        inner = self._argument()
        is_product = isinstance(inner, Call) and inner.name == "*" and all(map(expressions.is_capital, inner.args))
        capitals = is_product or (isinstance(inner, Symbol) and len(inner.name) > 1 and expressions.is_capital(inner))
        return inner if capitals else Call(f"function {name}{self._subscript()}", (inner,))

    def _rounding(self, name: str) -> Node:
        closing, function = vocabulary.ROUNDINGS[name]
        inner = self._sum()
        self._expect(closing)
        return Call(function, (inner,))

    def _angle(self, _: str) -> Node:
        r"""Read an angle, which has the same name from either side: `\angle ABC` is `\angle CBA`."""
        inner = self._atom()
        if isinstance(inner, Symbol) and inner.name.isupper():
            return Symbol(min(inner.name, inner.name[::-1]))
        return inner

    def _set_name(self, _: str) -> Node:
        braced = self._takes("{")
        name = Symbol(f"mathbb {self._next().text}")
        if braced:
            self._expect("}")
        return name

    def _matrix(self, environment: str) -> Node:
        if environment not in (*vocabulary.MATRICES, "vmatrix", "cases"):
            raise NotParsed(f"unknown environment {environment!r}")

        # Entries end with `&`, rows with a double backslash.
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

        # One double backslash may stand before the end.
        if token.text == "\\\\":
            token = self._next()
        if token.kind != "end" or len({len(entries) for entries in rows}) != 1:
            raise NotParsed("no matrix")
        if environment == "cases":  # equations under one another; a function in pieces is not read
            if any(len(row) != 1 or not isinstance(row[0], Relation) for row in rows):
                raise NotParsed("no system of equations")
            return Group("", tuple(row[0] for row in rows))
        return Call("det", (Matrix(tuple(rows)),)) if environment == "vmatrix" else Matrix(tuple(rows))


def _unevaluated(name: str, *parts: Node | None) -> Node:
    """Return an operation that is not carried out, with those of its bounds that are given."""
    return Call(rf"function \{name}", tuple(part for part in parts if part is not None))


COMMANDS: Mapping[str, Callable[[AtomReader, str], Node]] = {
    **dict.fromkeys(vocabulary.FRACTIONS, AtomReader._fraction),
    **dict.fromkeys(vocabulary.BINOMIALS, AtomReader._binomial),
    **dict.fromkeys(vocabulary.FONTS, lambda reader, _: reader._argument()),
    **dict.fromkeys(vocabulary.ACCENTS, AtomReader._accent),
    **dict.fromkeys(vocabulary.ROUNDINGS, AtomReader._rounding),
    "mathbb": AtomReader._set_name,
    **dict.fromkeys(vocabulary.DOTS, lambda reader, _: Symbol("dots")),
    **dict.fromkeys(vocabulary.SUMS, AtomReader._big_sum),
    **dict.fromkeys(vocabulary.INTEGRALS, AtomReader._integral),
    "lim": lambda reader, _: Call(rf"function \lim{reader._subscript()}", (reader._product(),)),
    "sqrt": AtomReader._root,
    **dict.fromkeys(("lvert", "vert"), lambda reader, _: reader._absolute()),
    "angle": AtomReader._angle,
    "triangle": lambda reader, _: Call("function triangle", (reader._atom(),)),
}
