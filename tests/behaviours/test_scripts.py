from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.behaviours import foreign_script_share, script_counts

_NAMES = {
    "LATIN": "latin",
    "FULLWIDTH LATIN": "latin",
    "GREEK": "greek",
    "CYRILLIC": "cyrillic",
    "HEBREW": "hebrew",
    "ARABIC": "arabic",
    "CJK UNIFIED": "han",
    "HANGUL SYLLABLE": "hangul",
    "HIRAGANA": "kana",
    "DEVANAGARI": "devanagari",
}


@given(st.characters(categories=["Lu", "Ll", "Lo"], max_codepoint=0xFFFF))
def test_scripts_agree_with_the_names_of_characters(character):
    name = unicodedata.name(character)
    script = next((script for beginning, script in _NAMES.items() if name.startswith(f"{beginning} ")), None)
    found = script_counts(character)
    if script is not None and found:
        assert found == {script: 1}
    if script in {"han", "cyrillic"} and ord(character) < 0xFFFF and character <= "\u9fff" and character < "\u1c80":
        assert found == {script: 1}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("abc 123 +-", {"latin": 3}),
        ("\u7b54\u6848 answer", {"han": 2, "latin": 6}),
        ("\u03c0r\u00b2 \u00d7 \u00e9", {"greek": 1, "latin": 2}),
        ("\u043e\u0442\u0432\u0435\u0442", {"cyrillic": 5}),
        ("1 + 2 = \u222b \u2208 \U0001f600", {}),
        ("\ud800x", {"latin": 1}),
        ("\U00020000", {"han": 1}),
        ("", {}),
    ],
)
def test_counts(text, counts):
    assert script_counts(text) == counts


def test_what_is_foreign():
    assert foreign_script_share("ab\u7b54\u6848") == 0.5
    assert foreign_script_share("ab\u7b54\u6848", "\u95ee\u9898") == 0.0
    assert foreign_script_share("ab\u7b54\u6848", "question") == 0.5
    assert foreign_script_share("\u03c0\u03c0 a") == 0.0
    assert foreign_script_share("1 + 1") is None
