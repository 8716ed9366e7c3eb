from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.behaviours.text_measures import (
    compression_ratio,
    foreign_script_share,
    loop_at_end,
    repeated_ngram_share,
    script_counts,
    split_words,
)


def test_words_are_cut_as_documented():
    assert split_words("Wait\u2014let\u2019s re\u2011check x_1, isn't it 3.14?") == [
        *("wait", "let's", "re-check", "x", "1", "isn't", "it", "3", "14")
    ]
    assert split_words("<think>a</think><answer>b</answer> <other>") == ["a", "b", "other"]
    assert split_words("--- 'quoted' -5 a--b") == ["quoted", "5", "a", "b"]


WORDS = st.lists(st.sampled_from("abc"), max_size=20)


@given(WORDS, st.integers(1, 5))
def test_repeated_ngrams_against_the_definition(words, n):
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    seen_before = [grams.index(gram) < i for i, gram in enumerate(grams)]
    expected = sum(seen_before) / len(grams) if grams else None
    assert repeated_ngram_share(words, n) == (None if expected is None else pytest.approx(expected))


def test_ngrams_need_a_length():
    with pytest.raises(ValueError, match="n must be at least 1"):
        repeated_ngram_share(["a"], 0)


def _brute_loop(text, min_repeats, min_characters):
    best = None
    for period in range(1, len(text) + 1):
        length = period
        while length < len(text) and text[-length - 1] == text[len(text) - length - 1 + period]:
            length += 1
        if length >= min_repeats * period and (best is None or length > best[0]):
            best = (length, period)
    return best if best and best[0] >= min_characters else None


@given(st.text(alphabet="ab", max_size=24), st.sampled_from([2.0, 3.0, 2.5]), st.integers(2, 12))
def test_loops_against_every_period(text, min_repeats, min_characters):
    loop = loop_at_end(text, min_repeats=min_repeats, min_characters=min_characters)
    expected = _brute_loop(text, min_repeats, min_characters)
    found = None if loop is None else (loop.num_characters, len(loop.period))
    assert found == expected
    if loop is not None:
        assert loop.repeats == pytest.approx(loop.num_characters / len(loop.period))
        assert (loop.period * len(text))[-loop.num_characters :] == text[-loop.num_characters :]


def test_a_loop_that_is_cut_off_in_the_middle():
    loop = loop_at_end("We start. " + "No, wait. It is 4! " * 9 + "No, wait. It\n")
    assert (loop.repeats, loop.num_characters) == (pytest.approx((9 * 19 + 12 + 1) / 19), 9 * 19 + 13)
    assert sorted(loop.period) == sorted("No, wait. It is 4! ")


def test_ordinary_ends_are_no_loops():
    assert loop_at_end("1, 2, 3, " + ", ".join(map(str, range(4, 400)))) is None
    assert loop_at_end("yes yes yes yes yes") is None  # under 100 characters
    assert loop_at_end("a" * 99) is None
    assert loop_at_end("a" * 100).num_characters == 100
    assert loop_at_end("loop " * 50 + "and a different end of the text") is None
    assert loop_at_end("") is None


def test_loops_need_two_repeats():
    with pytest.raises(ValueError, match="at least two repeats"):
        loop_at_end("abc", min_repeats=1)


@pytest.mark.parametrize("text", ["a" * 1_000_000, "ab" * 499_999 + "ac", "a" * 999_999 + "b", "aab" * 333_333])
def test_a_megabyte_takes_linear_time(text):
    start = time.process_time()
    loop_at_end(text)
    repeated_ngram_share(text[:200_000])
    compression_ratio(text)
    assert time.process_time() - start < 4


def test_compression():
    assert compression_ratio("") is None
    assert compression_ratio("word " * 2000) > 100
    assert compression_ratio("\ud800") < 1  # half a surrogate pair is no error
    varied = " ".join(str(number * 7919 % 10007) for number in range(2000))
    assert 1 < compression_ratio(varied) < 4


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
