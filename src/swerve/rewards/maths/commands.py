"""The names and signs of the grammar: which commands are relations, products, fractions, and so on."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ACCENTS",
    "BARS",
    "BINOMIALS",
    "DOTS",
    "FONTS",
    "FRACTIONS",
    "FUNCTION_LETTERS",
    "INTEGRALS",
    "MATRICES",
    "OVER",
    "PERCENT_WORDS",
    "RELATIONS",
    "ROUNDINGS",
    "SET_OPERATORS",
    "STRONG",
    "SUMS",
    "TIMES",
]

RELATIONS: Mapping[str, str] = {
    "=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "leq": "<=", "leqslant": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "approx",
    "in": "in", "equiv": "=", "coloneqq": "=",
}  # fmt: skip
SET_OPERATORS = {"cup": "union", "cap": "intersection", "setminus": "setminus", "backslash": "setminus"}
TIMES = ("*", "cdot", "times", "ast")
OVER = ("/", "div")
FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac")
BINOMIALS = ("binom", "dbinom", "tbinom")
MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix")
FONTS = (
    "mathbf",
    "mathbb",
    "mathcal",
    "mathsf",
    "mathit",
    "mathrm",
    "boldsymbol",
    "vec",
    "overrightarrow",
    "bold",
    "bm",
)
ACCENTS = ("overline", "bar", "hat", "widehat", "tilde", "dot", "ddot", "underline")
DOTS = ("dots", "ldots", "cdots", "dotsc", "dotsb", "dotsm", "dotso")
SUMS = {"sum": "+", "prod": "*"}
INTEGRALS = ("int", "iint", "iiint", "oint")
ROUNDINGS = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil")}
BARS = ("|", "lvert", "rvert", "vert", "mid")
FUNCTION_LETTERS = ("f", "g", "F", "G")
STRONG = ("and", "or")
PERCENT_WORDS = ("percent", "pct", "percentage", "percents")
