"""Repetition against brute force and by hand."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.behaviours import compression_ratio, loop_at_end, repeated_ngram_share

WORDS = st.lists(st.sampled_from("abc"), max_size=20)


@given(WORDS, st.integers(1, 5))
def test_repeated_ngrams_against_the_definition(words, n):
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    seen_before = [grams.index(gram) < i for i, gram in enumerate(grams)]
    expected = sum(seen_before) / len(grams) if grams else None
    assert repeated_ngram_share(words, n) == (None if expected is None else pytest.approx(expected))


def test_ngrams_need_a_length():
    with pytest.raises(ValueError, match="at least one word"):
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
    with pytest.raises(ValueError, match="two repeats or more"):
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
