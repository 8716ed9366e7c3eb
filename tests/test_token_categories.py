from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.token_categories import category_names, style_categories, token_categories, token_styles
from tests.cases import each


def by_words(text: str) -> list[tuple[str, str]]:
    spans = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    return list(zip(text.split(), token_categories(text, spans), strict=True))


def pieces(*parts: str) -> list[str]:
    ends = [sum(map(len, parts[: count + 1])) for count in range(len(parts))]
    return token_categories("".join(parts), list(zip([0, *ends[:-1]], ends, strict=True)))


@each(
    ("text", "expected"),
    [
        ("4 + 6 = 1 0", ["number", "math_symbol", "number", "math_symbol", "number", "number"]),
        ("write 0 carry 1 ; answer", ["step_marker", "number", "step_marker", "number", "punctuation", "step_marker"]),
        ("if Zoe then Liam", ["logical", "word", "logical", "word"]),
        ("case Zoe T Max F bad", ["step_marker", "word", "logical", "word", "logical", "word"]),
        ("knave F = T ok", ["word", "logical", "math_symbol", "logical", "word"]),
        ("There is a solution", ["word", "word", "word", "word"]),
        ("a = 3", ["variable", "math_symbol", "number"]),
        ("So I add x to b", ["logical", "word", "word", "variable", "word", "variable"]),
        ("a well-known fact", ["word", "word", "word"]),
        ("don't wait", ["word", "word"]),
        ("x - y", ["variable", "math_symbol", "variable"]),
        (r"\boxed{42} <think> **so**", ["format", "format", "format"]),
        (r"\frac \alpha", ["math_symbol", "variable"]),
        ("Therefore , done .", ["logical", "punctuation", "word", "punctuation"]),
    ],
)
def test_literal_texts(text: str, expected: list[str]) -> None:
    assert [category for _, category in by_words(text)] == expected


def test_a_piece_of_a_word_belongs_to_the_word() -> None:
    assert pieces(" ther", "efore", " we", " are", " not", "able") == [
        *["logical"] * 2,
        "word",
        "word",
        *["word"] * 2,
    ]
    assert pieces("a", "bc") == ["word", "word"]


def test_numbers_keep_their_points_and_commas() -> None:
    assert pieces("3", ".", "14", ",", " 1", ",", "000") == [*["number"] * 3, "punctuation", *["number"] * 3]


def test_pieces_of_a_latex_command() -> None:
    assert pieces("\\", "frac", "{", "1") == ["math_symbol", "math_symbol", "punctuation", "number"]
    assert pieces("\\", "boxed", "{", "7") == ["format", "format", "punctuation", "number"]


def test_step_numbers_at_the_start_of_a_line() -> None:
    assert pieces("1", ".", " Add", "\n", "2", ".", " See", " 3", ".") == [
        *["step_marker"] * 2,
        "word",
        "whitespace",
        *["step_marker"] * 2,
        "word",
        "number",
        "punctuation",
    ]
    assert pieces("Step", " 2", ":", " go") == [*["step_marker"] * 3, "word"]


def test_whitespace_and_special_tokens() -> None:
    assert pieces("x", "\n\n", "  ", "y") == ["variable", "whitespace", "whitespace", "variable"]
    assert token_categories("ok", [(0, 2), (2, 2)]) == ["word", "format"]


def test_a_token_of_several_units_takes_the_first_in_precedence() -> None:
    assert pieces("y", "):\n", "2)", " go") == ["variable", "punctuation", "step_marker", "word"]
    assert pieces("=2") == ["number"]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_every_character_has_exactly_one_known_category(text: str) -> None:
    spans = [(index, index + 1) for index in range(len(text))]
    categories = token_categories(text, spans)
    assert len(categories) == len(text)
    assert set(categories) <= set(category_names())
    for character, category in zip(text, categories, strict=True):
        assert (category == "whitespace") == character.isspace()


def style_words(text: str) -> list[str]:
    spans = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    return [text[start:end] for (start, end), style in zip(spans, token_styles(text, spans), strict=True) if style]


@each(
    ("text", "expected"),
    [
        ("Okay , so x = 3", ["Okay", ","]),
        ("Well , let's add", ["Well", ",", "let's"]),
        ("a well-known sum", []),
        ("well known", []),
        ("Let us take x ; let x be 2", ["Let", "us", ";"]),
        ("Now add 4 and 6", ["Now"]),
        ("Wait, that is wrong", ["Wait,"]),
        ("wait for a perfect square", []),
        ("Perfect ! Here is the sum", ["Perfect", "!", "Here", "is"]),
        ("here we add", []),
        ("Hmm 7 nowhere", ["Hmm"]),
        (r"**so** \boxed{42} <answer>", ["**so**", r"\boxed{42}", "<answer>"]),
        ("Step 2: if T then \\frac", []),
    ],
)
def test_style_is_dress_and_discourse(text: str, expected: list[str]) -> None:
    assert style_words(text) == expected


def test_style_of_pieces_white_space_and_special_tokens() -> None:
    assert token_styles("Alright x", [(0, 3), (3, 7), (7, 9), (9, 9)]) == [True, True, False, True]
    assert token_styles("ok\n", [(0, 2), (2, 3)]) == [True, True]


@settings(deadline=None)
@given(st.text(max_size=40))
def test_style_follows_the_category_but_for_words(text: str) -> None:
    spans = [(index, index + 1) for index in range(len(text))]
    for category, style in zip(token_categories(text, spans), token_styles(text, spans), strict=True):
        assert style == (category in style_categories()) or category == "word"
