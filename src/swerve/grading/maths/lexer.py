# The tables below hold signs that look like others; that is what they are for.
# ruff: noqa: RUF001
r"""From an answer's text to tokens: one spelling for what can be spelled in several ways, then one pass.

`normalise` changes no meaning: Unicode signs become LaTeX, spacing and size commands go, doubled backslashes of escaped
text become single ones. What may change a meaning (units, percent, thousands) is left to the parser and the policies.
Characters that are not known stay, so that a text with them is not taken for one without.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from swerve.grading.maths.expressions import NotParsed, Number
from swerve.grading.maths.limits import LIMITS, LimitReached
from swerve.grading.maths.vocabulary import FUNCTIONS, MULTIPLIERS, NUMBER_WORDS, SCALES, SYMBOL_COMMANDS, UNITS

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
    "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "λ": "lambda", "μ": "mu",
    "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "ψ": "psi",
    "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ω": "Omega",
}  # fmt: skip
_SIGNS = {
    **dict.fromkeys("−–‐‑‒﹣", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
    **dict.fromkeys("\u200b\u2060\ufeff", ""),
    **dict.fromkeys("×✕✖⋅·∙", r"\cdot "),
    **{sign: rf"\frac{{{top}}}{{{bottom}}}" for sign, (top, bottom) in _VULGAR.items()},
    **{sign: rf"\{name} " for sign, name in _GREEK.items()},
    "÷": "/", "∕": "/", "⁄": "/", "∗": "*", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∞": r"\infty ", "±": r"\pm ",
    "∓": r"\mp ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "º": r"^\circ ",
    "∠": r"\angle ", "△": r"\triangle ", "′": "'", "’": "'", "ℝ": r"\mathbb{R}", "…": r"\ldots ", "∶": ":", "％": "%",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "−": "-",
}  # fmt: skip
_FULLWIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_SPELLINGS = {ord(sign): text for sign, text in _SIGNS.items()}
_TRANSLATION = {**_FULLWIDTH, **_SPELLINGS}

_ROW_GAP = re.compile(r"(?<=\\\\)\[-?[0-9.]{1,6} ?[a-z]{2}\]")
_MATHEMATICAL = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)}
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}$%])")
_DROPPED = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|middle|displaystyle|textstyle"
    r"|scriptstyle|limits|nolimits|strut|bf|rm|it|boldmath|tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE"
    r"|huge|Huge)(?![a-zA-Z])\.?"
    r"|\\(?:hspace|vspace|hskip|label|tag) ?\*?\{[^{}]{0,40}\}|\\[hv]?phantom ?(?:\{[^{}]{0,40}\}|[^{}\\])"
    r"|\\(?:q?quad|enspace|thinspace|ne?gthinspace|boxed|fbox|underline|uline)(?![a-zA-Z])|~"
    r"|\\(?:text)?color ?\{[a-zA-Z!0-9]{1,20}\}"
)
_BRACKETS = {"lbrace": r"\{", "rbrace": r"\}", "langle": "(", "rangle": ")", "lbrack": "[", "rbrack": "]"}
_BRACKET = re.compile(rf"\\({'|'.join(_BRACKETS)})(?![a-zA-Z])")
_DELIMITERS = re.compile(r"\\?\$|\\[()]|(?<!\\)\\[\[\]]|[\u20ac\u00a3\u00a5\u20b9]|\\(?:pounds|euro|yen)(?![a-z])")
_CURRENCIES = {
    r"\$": "dollars", "\u20ac": "euros", "\u00a3": "pounds", "\u00a5": "yen", "\u20b9": "rupees",
    r"\euro": "euros", r"\pounds": "pounds", r"\yen": "yen",
}  # fmt: skip
_CURRENCY = re.compile(
    r"(\\\$|\\(?:euro|pounds|yen)(?![a-z])|[\u20ac\u00a3\u00a5\u20b9])(?:\{\})? ?"
    r"(\.?[0-9](?:[0-9.,\\!{}]*[0-9])?(?: (?:hundred|thousand|million|billion|trillion))?)"
    r"(?= ?(?:$|[,;)\]}.$]| [a-z]{2}|\\text|\\per|\\[)\]]))"
    r"(?! ?(?:\\text ?\{)? ?(?:dollar|cent|euro|pound|yen|rupee|USD))"
)
"""A sign of money and its number, which then has a unit as any other."""
_NEXT_EQUATION = re.compile(
    r"(?:\\q?quad(?![a-zA-Z])|\\\\(?=\s)|\n)\s{0,9}\$?(?=[a-zA-Z](?:_(?:\{\w{1,4}\}|\w))?\s{0,3}=)"
)
"""Between two equations for names, where no other separator stands."""
_BOLD = re.compile(r"^(\*\*|__|[*`\"'])(.{1,200})\1$", re.DOTALL)
_END_MARK = re.compile(
    r"\\(?:blacksquare|square|Box|checkmark)$|[\u2713\u2714\u2705\u2611\u25a0\u25a1\u220e]\ufe0f?$"
    r"|\\(?:text|mbox) ?\{[ .,;:]{0,4}\}$"
)
_LONGEST_MARK = 24
_CLOSINGS = (")", "]", "}")
_PAIR = re.compile(r"[,;]|\\[{}]")
"""Of texts whose brackets need not match: `]0, 1]`."""
_LEAD = re.compile(
    r"^[\s$]{0,9}(?:\\(?:therefore|Rightarrow|implies|Longrightarrow)(?![a-zA-Z])"
    r"|\\(?:text|mbox|textrm) ?\{(?![^{}]*\b(?:not|never|no)\b)[^{}0-9]{0,80}\b(?:is|are|equals) ?:? ?\}"
    r"(?=[\s\S]*[0-9]))\s{0,9}"
)
"""Words of a sentence, or a sign of inference, before an answer."""
_ONE_WORD = "|".join([*NUMBER_WORDS, *SCALES])
_IN_WORDS = re.compile(
    rf"\b(?:{_ONE_WORD})(?:(?:-| | and )(?:{_ONE_WORD}))+\b(?!-)|\b(?:{_ONE_WORD})(?= \([0-9])", re.IGNORECASE
)
"""Several words of a number, or one before its digits in brackets: `eight (8)`."""
_BASE = re.compile(
    r"(?:\\text ?\{ ?)?\b([0-9]{1,60})\)? ?(?:\\text ?\{ ?)?\(?(?:in )?base[- ]\}? ?\{?([0-9]{1,2})[)}]*$"
)
_BRACKETED_DIGITS = re.compile(r"\(([0-9]{1,60})\) ?_")
_TIMES_TEN = re.compile(r"(?<=[0-9]) +[xX] +(?=10 ?(?:\^|\*\*))")
_ENDLESS = re.compile(
    r"(?<![0-9.])([0-9]{0,20}\.[0-9]{0,20}?)([0-9]{1,6}?)\2{2,20} ?(?:\.\.\.|\\(?:[lc]?dots|dots[cbmio])(?![a-zA-Z]))"
)
"""A decimal whose last digits stand there three times or more, with dots after them."""
_DEGREE = re.compile(r"\\degrees?(?![a-zA-Z])")
_MODULUS = re.compile(
    r"(?:\(|\\(?:text|mbox|mathrm) ?\{ ?\() ?(?:\\(?:text|mbox|mathrm) ?\{ ?)?\\?b?mod ?\}? ?\$?([0-9a-z]{1,9})\$? ?\)"
)
"""`(mod 7)`, in text or not."""
_VACUOUS = re.compile(
    r",? ?(?:\\forall|(?:\\(?:text|mbox|textrm) ?\{ ?)?\bfor (?:all|any|every)(?: real(?: numbers?)?)? ?\}?) ?[a-z]"
    r"(?: ?\\in ?\\mathbb ?\{? ?R ?\}?)?(?: ?\})?$"
)
"""A condition that holds always: `f(x) = x for all real x`."""
_ELLIPSIS = re.compile(r"(?<=,)(\s*)\.\.\.(?!\.)|(?<!\.)\.\.\.(?=\s*[,;+}])")
_SET_IN_WORDS = re.compile(
    r"(?:\\(?:text|mbox|textrm) ?\{ ?)?(?:((?:all|any|every) (?:the )?reals?(?: numbers?)?(?: [xyz])?)"
    r"|(?:there (?:is|are) )?(?:no (?:real )?solutions?|(?:the )?empty set)) ?\}?",
    re.IGNORECASE,
)
_UNION = re.compile(r"(?<=[)\]]) ?U ?(?=[(\[]|\\\{)")
_NEGATIVE = re.compile(r"^(?:negative|minus) (?=[0-9])", re.IGNORECASE)
_ALIGNED = re.compile(r"\\(?:begin|end) ?\{(?:align|aligned|gather|gathered|equation|split|multline)\*?\}")
_CONTINUED = re.compile(r"\\\\\s*(?=&? ?=)")
_ROW_END = re.compile(r"(?:\s*\\\\)+\s*$|(\\\\)")
_WORDS = re.compile(r"[^\w\s:/%+.,-]|[.,](?![0-9])")
_LIST_COMMA = re.compile(r"[,;](?![0-9])")
TEXT_COMMAND = re.compile(
    r"\\(?:text|mbox|textrm|textbf|textit|mathrm|mathbf|operatorname|boxed|fbox)\*?(?![a-zA-Z])|[${}]"
)
_ARTICLES = re.compile(r"\b(?:an?|the)\s+(?=\w)")


def normalise(text: str) -> str:
    r"""Return a text with one spelling of signs, spaces and sizes.

    >>> normalise(r"$\left(3,½\right)$.")
    '(3,\\frac{1}{2} )'
    """
    text = _SUPERSCRIPT_RUN.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _SUBSCRIPT_RUN.sub(lambda match: f"_{{{match[0].translate(_SUBSCRIPTS)}}}", text)
    text = text.translate(_MATHEMATICAL).translate(_TRANSLATION)
    text = _LEAD.sub("", _one_line(_ROW_GAP.sub("", text)))
    if r"\begin" not in text:
        text = _NEXT_EQUATION.sub(", ", _DOUBLED.sub(r"\\", text.strip()))
    text = _IN_WORDS.sub(_digits, _BOLD.sub(r"\2", text.strip()))
    text = _BRACKETED_DIGITS.sub(r"\1_", _BASE.sub(r"\1_{\2}", text))
    text = _ENDLESS.sub(r"\1\\overline{\2}", _TIMES_TEN.sub(r"\\cdot ", text))
    text = _CURRENCY.sub(lambda match: f"{match[2]} \\text{{ {_CURRENCIES[match[1]]}}}", text)
    text = _DEGREE.sub(r"^\\circ ", text).replace(" per cent", " percent")
    text = _VACUOUS.sub("", _MODULUS.sub(r"\\pmod{\1}", text))
    text = _ELLIPSIS.sub(r"\1\\ldots ", text)
    text = _DROPPED.sub(" ", _DELIMITERS.sub(" ", text))
    text = _BRACKET.sub(lambda match: _BRACKETS[match[1]], text)
    text = _without_end(" ".join(text.split())).lstrip("=: ")
    text = _NEGATIVE.sub("-", _UNION.sub(r"\\cup ", text))
    words = _SET_IN_WORDS.fullmatch(text)
    return text if words is None else r"\mathbb{R}" if words[1] else r"\emptyset"


def _digits(words: re.Match[str]) -> str:
    """Return a number in words as digits; words that are no number as they are.

    >>> [normalise(words) for words in ("two thousand and five", "Forty-two apples", "one two")]
    ['2005', '42 apples', 'one two']
    """
    total, part, scale = 0, 0, 10**12
    for word in words[0].casefold().replace("-", " ").replace(" and ", " ").split():
        value = SCALES.get(word) or NUMBER_WORDS[word]
        follows = part % 100 == 0 or (value < 10 and part % 100 >= 20 and part % 10 == 0)
        if word in SCALES and part > 0 and value < scale:
            total, part, scale = total + part * value, 0, value
        elif word == "hundred" and 0 < part < 10:
            part *= 100
        elif word not in SCALES and value < 100 and follows:
            part += value
        else:
            return words[0]
    return str(total + part)


def _one_line(text: str) -> str:
    r"""Return equations that are aligned under one another as one chain, or as a list.

    >>> _one_line(r"\begin{aligned} x &= 40 + 2 \\ &= 42 \end{aligned}").split()
    ['x', '=', '40', '+', '2', '=', '42']
    """
    if not _ALIGNED.search(text):
        return text
    rows = _CONTINUED.sub(" ", _ALIGNED.sub(" ", text)).replace("&", " ")
    return _ROW_END.sub(lambda match: ", " if match[1] else "", rows)


def _without_end(text: str) -> str:
    """Return a text without the punctuation, marks and spacing commands at its end, nor brackets that nothing opens."""
    surplus: int | None = None
    while True:
        shorter = text.rstrip(" .,;:*").removesuffix("\\!").rstrip("\\")
        if mark := _END_MARK.search(shorter, max(0, len(shorter) - _LONGEST_MARK)):
            shorter = shorter[: mark.start()]
        if shorter.endswith(_CLOSINGS):
            if surplus is None and not _PAIR.search(shorter):
                # Marks that are cut off later have as many openings as closings.
                surplus = sum(map(shorter.count, _CLOSINGS)) - sum(map(shorter.count, "([{"))
            if surplus is not None and surplus > 0:
                shorter, surplus = shorter[:-1], surplus - 1
        if shorter == text:
            return text
        text = shorter


def plain_words(text: str) -> str:
    r"""Return a text as words: without LaTeX's text commands, punctuation, articles, and the case of letters.

    >>> plain_words(r"\text{The  midpoints}.")
    'midpoints'
    """
    text = _LIST_COMMA.sub(" ", TEXT_COMMAND.sub(" ", text).replace("\\", ""))
    text = _WORDS.sub("", text).casefold()
    return " ".join(_ARTICLES.sub("", text + " ").split())


TokenKind = Literal["number", "letter", "word", "text", "command", "begin", "end", "sign"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an answer."""

    kind: TokenKind
    text: str
    spaced: bool = False
    """Whether spaces stand before it."""
    comma: bool = False
    """Of a number: whether plain commas group its digits."""
    texted: bool = False
    """Whether it is part of a text command: `\\text{m/s}`."""


_GROUPED = r"(?<!_)[0-9]{1,3}(?:(?:%s)[0-9]{3})+(?![0-9])"
_SURE_SEPARATOR = r",\\! ?|\{,\}|\\!\\, ?|\\[,;:] ?|'"
_AFTER_POINT = r"\\(?:overline|bar|dot)(?![a-z])| ?(?:[-+*/)}\]^,]|\\(?:cdot|times|div)(?![a-z]))"
"""What may follow a point without digits after it, as in `3./2`."""
_NUMBER = r"(?:%s|[0-9]+)(?:\.(?:[0-9]+|(?=%s)))?|\.[0-9]+"
_REPEATING = r"(?:\\(?:overline|bar|dot) ?\{ ?(?P<repeating>[0-9]+) ?\})?(?P<power>[eE][-+]?[0-9]+(?![0-9A-Za-z.]))?"
_TEXT_COMMANDS = (
    "text|mbox|textrm|textbf|textit|textnormal|texttt|textsf|textsc|emph|mathrm|(?P<bold>mathbf)|operatorname|rm"
)
_TEXT = rf"\\(?:{_TEXT_COMMANDS})\*? ?\{{(?P<content>[^{{}}]*(?:\{{[^{{}}]{{0,9}}\}}[^{{}}]*)?)\}}"
_REST = (
    rf"|(?P<texted>{_TEXT})"
    r"|\\(?P<edge>begin|end) ?(?:\[[bct]\])?\{(?P<environment>[a-zA-Z]{1,20}\*?)\}(?: ?\[[bct]\])?"
    r"(?: ?\{(?:[clr| ]|@ ?\{\}){1,20}\})?"
    r"|(?P<space>\\[,;:! ]| +)"
    rf"|\\(?P<command>[a-zA-Z]+)|(?P<letters>[a-zA-Z]+)"
    r"|(?P<sign>\\\\|\\[{}|%&#_]|<=|>=|!=|==|\*\*|[-+*/^_=<>()\[\]{}|,;:!'%&])"
)


_INDIAN = r"|(?<![_,])[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
"""Groups of two digits before the last three: `1,66,105`."""


def _pattern(separator: str, more: str = "") -> re.Pattern[str]:
    return re.compile(rf"(?P<number>{_NUMBER % (_GROUPED % separator + more, _AFTER_POINT)}){_REPEATING}" + _REST)


_WITH_THOUSANDS = _pattern(_SURE_SEPARATOR + "|,| ", _INDIAN)
_WITHOUT_THOUSANDS = _pattern(_SURE_SEPARATOR)
_WORD_RUN = re.compile(r"[a-zA-Z]{2,}")
_ALIASES = {
    r"\{": "{set", r"\}": "}set", r"\%": "%", "**": "^", "==": "=", r"\|": "|", r"\&": "&",
}  # fmt: skip
_WORD_COMMANDS = FUNCTIONS | SYMBOL_COMMANDS.keys()


def lex(text: str, *, thousands: bool) -> list[Token]:
    """Split a normalised answer into tokens.

    Args:
        text: the answer.
        thousands: whether plain commas and spaces before three digits group the digits of one number.

    Raises:
        NotParsed: a character has no place in a formula.
    """
    return list(_tokens(text, _WITH_THOUSANDS if thousands else _WITHOUT_THOUSANDS))


def _tokens(text: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    position = 0
    spaced = False
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise NotParsed(f"no place for {text[position]!r}")
        position = match.end()
        if match["space"] is not None:
            spaced = True
            continue
        for token in _read(match, pattern):
            yield Token(token.kind, token.text, spaced or token.spaced, token.comma, token.texted)
            spaced = False


def _read(match: re.Match[str], pattern: re.Pattern[str]) -> Iterator[Token]:
    if match["number"] is not None:
        yield _number(match)
    elif match["texted"] is not None:
        yield from _text(match["content"], pattern, is_upright=match["bold"] is None)
    elif match["edge"] is not None:
        yield Token("begin" if match["edge"] == "begin" else "end", match["environment"])
    elif match["command"] is not None:
        yield Token("command", match["command"])
    elif match["letters"] is not None:
        yield _letters(match["letters"], is_call=match.string.startswith("(", match.end()))
    else:
        yield Token("sign", _ALIASES.get(match["sign"], match["sign"]))


def _number(match: re.Match[str]) -> Token:
    """Return a number as `digits[.digits][(repeating)][epower]`."""
    written = match["number"]
    digits = re.sub(r"[^0-9.]", "", written)
    repeating = f"({match['repeating']})" if match["repeating"] else ""
    comma = "," in written.replace("{,}", "").replace(r",\!", "")
    return Token("number", digits + repeating + (match["power"] or "").lower(), comma=comma)


def _text(content: str, pattern: re.Pattern[str], *, is_upright: bool) -> Iterator[Token]:
    """Read what stands in a text command: as a formula where it has no words, else as text."""
    if _WORD_RUN.search(content) is not None and not set(content).isdisjoint("\\0123456789"):
        yield from _tokens(content.strip(), pattern)
    elif _WORD_RUN.search(content) is None:
        for token in _tokens(content.strip(), pattern):
            yield Token(token.kind, token.text, token.spaced, token.comma, texted=is_upright)
    elif content.strip() in _WORD_COMMANDS - UNITS.keys():
        yield Token("command", content.strip())
    else:
        words = content.split()
        number = 1 if words[0] in MULTIPLIERS else 0
        yield from (Token("text", part) for part in (" ".join(words[:number]), " ".join(words[number:])) if part)


def _letters(letters: str, *, is_call: bool) -> Token:
    """Read letters; names that are both a function and a unit (`min`, `sec`) are functions before a bracket."""
    if len(letters) == 1:
        return Token("letter", letters)
    is_command = letters in _WORD_COMMANDS and (is_call or letters not in UNITS)
    return Token("command" if is_command else "word", letters)


class TokenReader:
    """Tokens and a position in them."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._stop = len(tokens)
        self._depth = 0

    @property
    def token(self) -> Token | None:
        """The next token, or None at the end."""
        return self._tokens[self._position] if self._position < self._stop else None

    def _ahead(self, distance: int) -> Token | None:
        position = self._position + distance
        return self._tokens[position] if position < self._stop else None

    def _next(self) -> Token:
        token = self.token
        if token is None:
            raise NotParsed("ends too early")
        self._position += 1
        return token

    def _sees(self, *texts: str) -> bool:
        token = self.token
        return token is not None and token.kind in ("sign", "command") and token.text in texts

    def _takes(self, *texts: str) -> bool:
        is_there = self._sees(*texts)
        self._position += is_there
        return is_there

    def _expect(self, *texts: str) -> str:
        if not self._sees(*texts):
            raise NotParsed(f"misses {texts[0]!r}")
        return self._next().text

    def _takes_braced(self, command: str) -> bool:
        tokens = self._tokens[self._position : self._position + 3]
        is_there = [token.text for token in tokens] == ["{", command, "}"]
        self._position += 3 * is_there
        return is_there

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > LIMITS.depth:
            raise LimitReached(f"depth of a formula > {LIMITS.depth}")
        try:
            yield
        finally:
            self._depth -= 1


_WRITTEN = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(?:\(([0-9]+)\))?(?:e([-+]?[0-9]+))?")


def read_number(written: str) -> Number:
    """Return the exact value of `digits[.digits][(repeating)][epower]`."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise NotParsed(f"{written!r} is no number")
    whole, point, decimals, repeating, power = match.groups()
    if repeating and not point:
        raise NotParsed(f"{written!r} is no number")
    decimals = decimals or ""
    value = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    if repeating:
        value += Fraction(int(repeating), (10 ** len(repeating) - 1) * 10 ** len(decimals))
    scale = Fraction(10) ** int(power or 0)
    if repeating or (not point and not power):
        return Number(value * scale)
    return Number(value * scale, scale / 10 ** len(decimals), len((whole + decimals).lstrip("0")))
