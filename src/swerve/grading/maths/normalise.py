r"""One spelling for what can be spelled in several ways, on the text, before it is read as a formula.

What changes no meaning is done here: Unicode signs become LaTeX, spacing and size commands go, doubled backslashes of
escaped text become single ones. What may change a meaning (units, percent, thousands) is left to the reader and to the
policies. Characters that are not known stay, so that a text with them is not taken for one without.
"""

from __future__ import annotations

import re

# The tables below hold signs that look like others; that is what they are for.
# ruff: noqa: RUF001


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
_TRANSLATION = {**_FULLWIDTH, **{ord(sign): text for sign, text in _SIGNS.items()}}

_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}$%])")
_DROPPED = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|middle|displaystyle|textstyle"
    r"|scriptstyle|limits|nolimits|strut|bf|rm|it|boldmath)(?![a-zA-Z])\.?"
    r"|\\(?:hspace|vspace|hskip|label|tag) ?\*?\{[^{}]{0,40}\}|\\[hv]?phantom ?(?:\{[^{}]{0,40}\}|[^{}\\])"
    r"|\\(?:boxed|fbox|underline|uline)(?![a-zA-Z])|\\(?:text)?color ?\{[a-zA-Z!0-9]{1,20}\}"
)
_BRACKETS = {"lbrace": r"\{", "rbrace": r"\}", "langle": "(", "rangle": ")", "lbrack": "[", "rbrack": "]"}
_BRACKET = re.compile(rf"\\({'|'.join(_BRACKETS)})(?![a-zA-Z])")
_SPACING = re.compile(r"\\(?:q?quad|enspace|thinspace|ne?gthinspace)(?![a-zA-Z])|~")
_DELIMITERS = re.compile(r"\\?\$|\\[()]|(?<!\\)\\[\[\]]|[\u20ac\u00a3]")
_SPACES = re.compile(r"\s+")
_BOLD = re.compile(r"^(\*\*|__|[*`])(.{1,200})\1$", re.DOTALL)
_TIMES_TEN = re.compile(r"(?<=[0-9]) +[xX] +(?=10 ?(?:\^|\*\*))")
_ENDLESS = re.compile(
    r"(?<![0-9.])([0-9]{0,20}\.[0-9]{0,20}?)([0-9]{1,6}?)\2{2,20} ?(?:\.\.\.|\\(?:[lc]?dots|dots[cbmio])(?![a-zA-Z]))"
)
"""A decimal whose last digits stand there three times or more, with dots after them."""
_DEGREE = re.compile(r"\\degrees?(?![a-zA-Z])")
_PER_CENT = re.compile(r"\bper cent\b")
_ELLIPSIS = re.compile(r"(?<=,)(\s*)\.\.\.(?!\.)|(?<!\.)\.\.\.(?=\s*[,;+}])")
_ALL_REALS = re.compile(
    r"(?:\\(?:text|mbox|textrm) ?\{ ?)?(?:all|any|every) (?:the )?reals?(?: numbers?)?(?: [xyz])? ?\}?", re.IGNORECASE
)
_WORDS = re.compile(r"[^\w\s:/%+.,-]|[.,](?![0-9])")
_LIST_COMMA = re.compile(r"[,;](?![0-9])")
_COMMAND = re.compile(
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
    text = text.translate(_TRANSLATION)
    if r"\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = _ENDLESS.sub(r"\1\\overline{\2}", _TIMES_TEN.sub(r"\\cdot ", text))
    text = _PER_CENT.sub("percent", _DEGREE.sub(r"^\\circ ", text))
    text = _ELLIPSIS.sub(r"\1\\ldots ", text)
    text = _BOLD.sub(r"\2", text.strip())
    text = _DROPPED.sub(" ", _DELIMITERS.sub(" ", text))
    text = _BRACKET.sub(lambda match: _BRACKETS[match[1]], _SPACING.sub(" ", text))
    text = _without_end(_SPACES.sub(" ", text).strip()).lstrip("=: ")
    return r"\mathbb{R}" if _ALL_REALS.fullmatch(text) else text


def _without_end(text: str) -> str:
    """Return a text without the punctuation and the spacing commands at its end."""
    while True:
        shorter = text.rstrip(" .,;:*")
        if shorter.endswith("\\") and len(shorter) < len(text):
            shorter = shorter[:-1]
        elif shorter.endswith(("\\\\", "\\!")):
            shorter = shorter[:-2]
        if shorter == text:
            return text
        text = shorter


def plain_words(text: str) -> str:
    r"""Return a text as words: without LaTeX's text commands, punctuation, articles, and the case of letters.

    >>> plain_words(r"\text{The  midpoints}.")
    'midpoints'
    """
    text = _LIST_COMMA.sub(" ", _COMMAND.sub(" ", text).replace("\\", ""))
    text = _WORDS.sub("", text).casefold()
    return " ".join(_ARTICLES.sub("", text + " ").split())


_TIME = re.compile(r"([0-9]{1,2})(?: ?: ?([0-9]{2}))?(?: ?: ?([0-9]{2}))? ?(?:([AaPp])\.? ?[Mm]\.?)?")
_NOISE = re.compile(r"\\(?:text|mbox|textrm|mathrm)(?![a-z])|\\[!,;: ]|[{}$]")
_HALF_DAY = 12 * 3600


def clock_times(text: str) -> frozenset[int] | None:
    """Return the seconds after midnight that a time of the day can mean; two without a.m. or p.m. None: it is no time.

    >>> sorted(clock_times("8:34 p.m.")), sorted(clock_times("08:34")), clock_times("8")
    ([74040], [30840, 74040], None)
    """
    match = _TIME.fullmatch(" ".join(_NOISE.sub(" ", text).split()).replace(" :", ":").replace(": ", ":").strip(" ."))
    if match is None or (match[2] is None and match[4] is None):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59 or (match[4] and not 1 <= hours <= 12):
        return None
    time = hours * 3600 + minutes * 60 + seconds
    if match[4]:
        return frozenset({time % _HALF_DAY + _HALF_DAY * (match[4] in "Pp")})
    return frozenset({time}) if hours > 12 else frozenset({time % _HALF_DAY, time % _HALF_DAY + _HALF_DAY})


def is_marked(text: str) -> bool:
    """Return whether a text says a.m. or p.m.

    >>> is_marked("4 pm"), is_marked("4:30")
    (True, False)
    """
    return re.search(r"[AaPp]\.? ?[Mm]\b", text) is not None
