"""Token categories: exactly one a token, decided with its neighbours by the rules of `categories.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import yaml

__all__ = ["category_names", "token_categories"]

_SPECIAL_TOKEN = "format"


@cache
def _rules() -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the categories by precedence and one pattern whose group number i is the i-th category's rules."""
    table = yaml.safe_load(files("swerve.probe").joinpath("categories.yaml").read_text(encoding="utf-8"))
    groups = ["|".join(f"(?:{pattern})" for pattern in rule["patterns"]) for rule in table]
    pattern = re.compile("|".join(f"({group})" for group in groups), re.MULTILINE)
    assert pattern.groups == len(table), "the patterns of categories.yaml must not have capturing groups"
    return tuple(rule["category"] for rule in table), pattern


def category_names() -> tuple[str, ...]:
    """Return all categories, in order of precedence.

    >>> sorted(category_names())  # doctest: +NORMALIZE_WHITESPACE
    ['format', 'logical', 'math_symbol', 'number', 'punctuation', 'step_marker', 'variable', 'whitespace', 'word']
    """
    return _rules()[0]


def _character_ranks(text: str) -> list[int]:
    """Return, for each character, which rule its unit was cut by (its index in order of precedence)."""
    names, pattern = _rules()
    ranks = [len(names) - 1] * len(text)
    for match in pattern.finditer(text):
        assert match.lastindex is not None
        for index in range(match.start(), match.end()):
            if not text[index].isspace():
                ranks[index] = match.lastindex - 1
    return ranks


def token_categories(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the category of each token, given the characters of `text` it stands for.

    A token of several units has the category whose rule comes first in `categories.yaml`; white space beside other
    characters does not count. A token without characters (special tokens) is `format`.

    >>> token_categories("3.14 = x", [(0, 1), (1, 4), (4, 6), (6, 8), (8, 8)])
    ['number', 'number', 'math_symbol', 'variable', 'format']
    """
    names, ranks = category_names(), _character_ranks(text)
    return [names[min(ranks[start:end])] if start < end else _SPECIAL_TOKEN for start, end in spans]
