"""The category of every token, decided with its neighbours by the rules of `categories.yaml`, and its style.

A token is style if it is mark-up, punctuation or a discourse word; otherwise it carries the reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_SPECIAL_TOKEN = "format"


@cache
def _table() -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load(files("swerve").joinpath("categories.yaml").read_text(encoding="utf-8")))


@cache
def _rules() -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the categories by precedence and one pattern whose group number i is the i-th category's rules."""
    table = _table()
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


def style_categories() -> frozenset[str]:
    """Return the categories whose every token is style.

    >>> sorted(style_categories())
    ['format', 'punctuation', 'whitespace']
    """
    return frozenset(rule["category"] for rule in _table() if rule["style"])


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


@cache
def _style_patterns() -> dict[str, re.Pattern[str]]:
    """Return, for each category that is not style, the pattern of its words that are."""
    rules = [rule for rule in _table() if "style_patterns" in rule]
    return {rule["category"]: re.compile("|".join(rule["style_patterns"]), re.MULTILINE) for rule in rules}


def token_styles(text: str, spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Return whether each token is style rather than reasoning, given the characters of `text` it stands for.

    Style is every token of a category that `categories.yaml` marks so, and the discourse words that it names within
    another category (a token with a character of such a word). The idea that tuning changes style first is that of
    URIAL (arXiv 2312.01552).

    >>> token_styles("Okay, let x", [(0, 4), (4, 5), (5, 9), (9, 11)])
    [True, True, False, False]
    """
    discourse: list[str | None] = [None] * len(text)  # the category within which the character is style
    for category, pattern in _style_patterns().items():
        for match in pattern.finditer(text):
            discourse[match.start() : match.end()] = [category] * len(match[0])
    always = style_categories()
    return [
        category in always or category in discourse[start:end]
        for category, (start, end) in zip(token_categories(text, spans), spans, strict=True)
    ]
