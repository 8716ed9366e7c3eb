r"""Reads an answer's text into a tree: a recursive-descent parser for the LaTeX and plain text of answers.

    answer    relation ((`,` | `;` | and | or) relation)*
    relation  ratio ((= | < | \le | \in | ...) ratio)*
    ratio     union (: union | \over union)* [\pmod ...]
    union     sum ((\cup | \cap | \setminus) sum)*
    sum       [+ | - | \pm] product ((+ | - | \pm) product)*
    product   factor ((* | / | nothing) factor)*
    factor    atom [^ exponent] [! | % | degrees | unit]

It reads all of the text or nothing: a part that it does not understand makes the whole text no formula. Nesting is
bounded before (`limits`), so recursion is too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from swerve.grading.maths import expressions, vocabulary
from swerve.grading.maths.atoms import COMMANDS, AtomReader
from swerve.grading.maths.expressions import Call, Group, Node, NotParsed, Number, Quantity, Relation, is_call
from swerve.grading.maths.lexer import Token, lex


def parse(text: str, *, thousands: bool = True) -> Node:
    r"""Read a normalised answer.

    Args:
        text: the answer, as `normalise` leaves it.
        thousands: whether `1,234` is one number, not two; inside brackets it never makes one number of a pair.

    Raises:
        NotParsed: it is no formula of the grammar.
        LimitReached: it is nested too deeply.

    >>> parse("4 4/9").value
    Fraction(40, 9)
    >>> parse(r"x \in [2, \infty)").operators
    ('in',)
    """
    # `]0, 1[` is written as other brackets write it.
    if _OUTWARD.search(text):
        text = _BETWEEN.sub(_inward, text)
    parser = _Parser(lex(text, thousands=thousands))
    node = parser.alternatives()
    if parser.token is not None:
        raise NotParsed(f"cannot read on at {parser.token.text!r}")
    return node


_OUTWARD = re.compile(r"(?:^|\\(?:cup|cap|in) ?)\]|\[(?: ?\\cup|$)|[0-9]\[")
_BETWEEN = re.compile(r"([\[\]])([^\[\]]{1,200})([\[\]])")
_INVERSES = ("sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc")


def _inward(match: re.Match[str]) -> str:
    """Return an interval whose open ends are written `]0, 1[` in the brackets of the grammar."""
    low, inner, high = match.groups()
    return f"{'[' if low == '[' else '('}{inner}{']' if high == ']' else ')'}"


_DIVISORS = {**vocabulary.LETTER_UNITS, **vocabulary.UNITS}
_READABLE_COMMANDS = {*COMMANDS, *vocabulary.FUNCTIONS, *vocabulary.SYMBOL_COMMANDS}


class _Parser(AtomReader):
    """Reads the operators, from the separators of a list down to powers and units."""

    _is_logical = False

    def alternatives(self) -> Node:
        """Read an answer; a list with `or` in it is marked, since what is in it twice counts once."""
        node, separators = self._listed()
        is_list = isinstance(node, Group) and not node.brackets
        return Call("either", expressions.children(node)) if is_list and "or" in separators else node

    def answer(self) -> Node:
        """Read answers with commas, semicolons, `and`, `or` between them."""
        return self._listed()[0]

    def _listed(self) -> tuple[Node, set[str]]:
        parts: list[list[Node]] = [[self._relation()]]
        seen: set[str] = set()
        while separators := self._separators():
            seen.update(separators)
            if separators != [","]:
                parts.append([])
            parts[-1].append(self._relation())
        sizes = {len(part) for part in parts}
        named = all(expressions.is_equation(node) for part in parts for node in part)
        if len(parts) > 1 and sizes not in ({1}, set()) and len(sizes) == 1 and (";" in seen or named):
            return Group("", tuple(Group("", tuple(part)) for part in parts)), seen
        items = tuple(node for part in parts for node in part)
        if self._is_logical and not all(isinstance(node, Relation) for node in items):
            raise NotParsed("joins statements")
        words = seen & set(vocabulary.STRONG)
        if words and len(items) > 1 and all(expressions.is_inequality(node) for node in items):
            return Call("or" if "or" in words else "and", items), seen
        return items[0] if len(items) == 1 else Group("", items), seen

    def _separators(self) -> list[str]:
        separators: list[str] = []
        while (token := self.token) is not None:
            word = token.text.strip(" ,").casefold()
            if token.kind == "sign" and token.text in (",", ";"):
                separators.append(token.text)
            elif token.kind in ("word", "text") and word in vocabulary.STRONG:
                separators.append(word)
            elif token.kind == "command" and token.text in vocabulary.LOGICAL:
                separators.append(vocabulary.LOGICAL[token.text])
                self._is_logical = True
            else:
                break
            self._position += 1
        return separators

    def _relation(self) -> Node:
        sides = [self._ratio()]
        operators: list[str] = []
        while self._sees(*vocabulary.RELATIONS):
            operators.append(vocabulary.RELATIONS[self._next().text])
            sides.append(self._ratio())
        if operators == [] and self._sees("approx"):
            raise NotParsed("misses a side")
        node = Relation(tuple(operators), tuple(sides)) if operators else sides[0]
        return Call("modulo", (node, self._argument())) if self._takes("pmod") else node

    def _ratio(self) -> Node:
        if self._takes("approx"):
            return self._ratio()
        items = [expressions.unit_outside(self._union())]
        if self._takes("over"):
            return Call("/", (items[0], self._union()))
        if self._takes("choose"):
            return Call("binomial", (items[0], self._union()))
        while self._takes(":"):
            items.append(expressions.unit_outside(self._union()))
        return Call("ratio", tuple(items)) if len(items) > 1 else items[0]

    def _union(self) -> Node:
        node = self._sum()
        while self._sees(*vocabulary.SET_OPERATORS):
            name = vocabulary.SET_OPERATORS[self._next().text]
            node = Call(name, (*expressions.operands(node, name), self._sum()))
        return node

    def _sum(self) -> Node:
        terms = [self._signed_product()]
        while self._sees("+", "-", "pm", "mp"):
            terms.append(self._signed_product())
        return Call("+", tuple(terms)) if len(terms) > 1 else terms[0]

    def _signed_product(self) -> Node:
        negative, both = False, ""
        while self._sees("+", "-", "pm", "mp"):
            sign = self._next().text
            negative ^= sign == "-"
            both = sign if sign in ("pm", "mp") else both
        product = self._product()
        if both:
            return Call(both, (product,))
        return expressions.negated(product) if negative else product

    def _product(self) -> Node:
        """Read factors; `a/b*c/d` is `a c` over `b d`, so that a long chain is no deep tree."""
        top: list[Node] = [self._factor()]
        bottom: list[Node] = []
        last = top
        while True:
            # Each factor goes over or under the line; `bmod` takes all that was read so far.
            if self._takes(*vocabulary.TIMES):
                last = top
                last.append(self._signed_factor())
            elif self._takes("bmod"):
                divisor = self._signed_factor()
                top, bottom = [Call("mod", (self._quotient(top, bottom), divisor))], []
                last = top
            elif self._takes(*vocabulary.OVER):
                last = bottom
                last.append(self._signed_factor())
            elif self._starts_factor():
                self._refuse_number_after(last[-1])
                last = top
                last.append(self._factor())
            else:
                return self._quotient(top, bottom)

    def _quotient(self, top: Sequence[Node], bottom: Sequence[Node]) -> Node:
        product = expressions.product_of(top)
        return Call("/", (product, expressions.product_of(bottom))) if bottom else product

    def _refuse_number_after(self, node: Node) -> None:
        """Refuse `2 3` and `x2`; `2^6 3^5` and `(n-2) 2^n` are products."""
        after = self._ahead(1)
        raised = after is not None and after.text == "^"
        is_product = is_call(node, "^") or (raised and not isinstance(node, Number))
        if self._tokens[self._position].kind == "number" and not is_product:
            raise NotParsed("two numbers side by side")

    def _signed_factor(self) -> Node:
        negative = False
        while self._sees("+", "-"):
            negative ^= self._next().text == "-"
        factor = self._factor()
        return expressions.negated(factor) if negative else factor

    def _starts_factor(self) -> bool:
        token = self.token
        if token is None:
            return False
        if token.kind in ("number", "letter", "begin"):
            return True
        if token.kind == "word":
            return token.text.casefold() not in vocabulary.STRONG
        if token.kind == "command":
            return token.text in _READABLE_COMMANDS
        opens = token.text in ("(", "[", "{", "{set") or (token.text == "|" and not self._bars)
        return token.kind == "sign" and opens

    def _factor(self) -> Node:
        node = self._power(self._atom())
        while True:
            if self._takes("!"):
                node = Call("factorial", (node,))
            elif not is_call(node, "percent") and (self._takes("%") or self._takes_word(vocabulary.PERCENT_WORDS)):
                node = Call("percent", (node,))
            elif (multiplier := self._multiplier()) is not None:
                node = Call("*", (node, Number(Fraction(multiplier))))
            elif (unit := self._unit(node)) is not None:
                node = Quantity(node, unit)
            else:
                return node

    def _function(self, name: str) -> Node:
        r"""Read a function with its power and argument: `\sin^2 x`, `\log_2 8`, `\sin b \cos a`."""
        if name == "sqrt":
            return self._root(name)
        name = vocabulary.PROGRAM_NAMES.get(name, name)
        base: Node | None = None
        if name in ("log", "lg") and self._takes("_"):
            base = self._argument()
        elif name == "log" and (digits := self.token) is not None and digits.text in ("2", "10") and not digits.spaced:
            base = self._argument() if (after := self._ahead(1)) is not None and after.text == "(" else None
        power = self._exponent() if self._takes("^") else None
        arguments = self._function_arguments()
        if power in (Number(Fraction(-1)), Call("group", (Number(Fraction(-1)),))) and name in _INVERSES:
            name, power = f"arc{name}", None
        node = Call(name, (*arguments, *([base] if base is not None else [])))
        return node if power is None else Call("^", (node, power))

    def _function_arguments(self) -> tuple[Node, ...]:
        if self._takes("("):
            inner = self._group("(")
            return inner.items if isinstance(inner, Group) else (inner,)
        if self._sees("-"):
            self._next()
            return (expressions.negated(self._factor()),)
        factors = [self._factor()]
        while self._starts_factor() and self._tokens[self._position].text not in vocabulary.FUNCTIONS:
            self._refuse_number_after(factors[-1])
            factors.append(self._factor())
        return (Call("*", tuple(factors)) if len(factors) > 1 else factors[0],)

    def _power(self, base: Node) -> Node:
        if not self._takes("^"):
            return base
        if self._takes("circ") or self._takes_braced("circ"):
            scale = self._scale_of_temperature()
            return Quantity(base, scale) if scale else self._power(Call("degrees", (base,)))
        if any(self._takes_braced(ordinal) for ordinal in vocabulary.ORDINALS):
            return Quantity(base, "th")
        return self._power(Call("^", (base, self._exponent())))

    def _exponent(self) -> Node:
        if self._sees("-", "+"):
            negative = self._next().text == "-"
            inner = self._power(self._argument())
            return expressions.negated(inner) if negative else inner
        if self._sees("("):
            return self._atom()
        exponent = self._argument()
        return self._power(exponent) if self._sees("^") else exponent

    def _scale_of_temperature(self) -> str | None:
        r"""Read the C of `20^\circ C`, or the F; before a bracket it is a function."""
        token, after = self.token, self._ahead(1)
        if token is None or token.text not in ("C", "F") or (after is not None and after.text in ("(", "_", "^")):
            return None
        self._position += 1
        return vocabulary.LETTER_UNITS[token.text]

    def _takes_word(self, words: tuple[str, ...]) -> bool:
        token = self.token
        is_there = token is not None and token.kind in ("word", "text") and token.text.casefold() in words
        self._position += is_there
        return is_there

    def _multiplier(self) -> int | None:
        token = self.token
        if token is None or token.kind not in ("word", "text") or token.text not in vocabulary.MULTIPLIERS:
            return None
        self._position += 1
        return vocabulary.MULTIPLIERS[token.text]

    def _unit(self, value: Node) -> str | None:
        """Read the unit after a value: known units, longer plain words, or text of a text command."""
        parts: list[str] = []
        words = 0
        while (token := self.token) is not None:
            # Letters are units only in a text command, and where they are no variable of the value.
            if token.text == "Omega" and isinstance(value, Number) and self._ahead(1) is None:
                parts.append("ohm")
            elif token.texted and token.text in vocabulary.LETTER_UNITS and not expressions.symbols(value):
                parts.append(vocabulary.LETTER_UNITS[token.text])
            elif _can_be_unit(token, is_first=not parts):
                words += token.kind == "word"
                if words > vocabulary.MOST_UNIT_WORDS:
                    raise NotParsed("more words than a unit has")
                parts.append(expressions.unit_text(token.text))

            # A point multiplies units; an exponent and a divisor belong to the unit before them.
            elif parts and token.text == "^" and self._ahead(1) is not None:
                self._position += 1
                parts[-1] += f"^{expressions.whole_number(self._argument())}"
                continue
            elif parts and token.text == "cdot" and (unit := self._ahead(1)) is not None and unit.text in _DIVISORS:
                parts.append(_DIVISORS[unit.text])
                self._position += 1
            elif parts and token.text in ("/", "a") and (unit := self._ahead(1)) is not None and unit.text in _DIVISORS:
                parts += ["per", _DIVISORS[unit.text]]
                self._position += 1
            else:
                break
            self._position += 1
        return vocabulary.canonical_unit(" ".join(parts)) if parts else None


def _can_be_unit(token: Token, *, is_first: bool) -> bool:
    if token.text.strip(" ,").casefold() in vocabulary.STRONG or token.kind not in ("text", "word"):
        return False
    if token.text in vocabulary.ORDINALS:
        return is_first and not (token.kind == "word" and token.spaced)
    if token.kind == "text" or token.text in vocabulary.UNITS or token.text in ("square", "sq", "cubic", "per"):
        return True
    return token.spaced and token.text.islower() and (len(token.text) > 3 or not is_first)
