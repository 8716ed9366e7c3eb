"""Repetition: repeated n-grams, loops at the end of a text, and how far it can be compressed. All in linear time."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Loop", "compression_ratio", "loop_at_end", "repeated_ngram_share"]


def repeated_ngram_share(words: Sequence[str], n: int = 4) -> float | None:
    """Return the share of n-grams of words that stand earlier in the text already; None for fewer than n words.

    rep-n = 1 - |distinct n-grams| / |n-grams|

    Source: Welleck et al., Neural Text Generation with Unlikelihood Training (arXiv:1908.04319), seq-rep-n.

    Raises:
        ValueError: n is below 1.

    >>> repeated_ngram_share("a b a b a b".split(), n=2)
    0.6
    """
    if n < 1:
        raise ValueError(f"n-grams have at least one word, got n={n}")
    num = len(words) - n + 1
    if num < 1:
        return None
    distinct = set(zip(*(words[start:] for start in range(n)), strict=False))
    return 1 - len(distinct) / num


@dataclass(frozen=True, slots=True)
class Loop:
    """The end of a text that repeats one piece."""

    period: str
    """The repeated piece."""
    repeats: float
    """How often it stands there; the first may be cut, as in `cabcabc`: 2.33 times `abc`."""
    num_characters: int


def loop_at_end(text: str, *, min_repeats: float = 3.0, min_characters: int = 100) -> Loop | None:
    """Return the longest suffix that consists of repeats of one piece; None where there is none worth the name.

    A suffix of length L has the period p where every character equals the one p before it; it then holds L / p repeats,
    the last of which may be cut off anywhere. Of all suffixes with `min_repeats` or more the longest is taken, with its
    smallest period. White space at the end of the text does not count. Time is linear (Z-function of the reversed text;
    Gusfield, Algorithms on Strings, Trees, and Sequences, 1997, section 1.4).

    Rulers of dashes and tables of equal rows are found as well. A loop that counts (`1, 2, 3, ...`) is not one.

    Raises:
        ValueError: fewer than two repeats or characters are asked for.

    >>> loop = loop_at_end("The answer is 4" + " I am sure." * 20)
    >>> loop.period, loop.num_characters
    (' I am sure.', 220)
    """
    if min_repeats < 2 or min_characters < 2:
        raise ValueError(f"a loop has two repeats or more, got {min_repeats} repeats of {min_characters} characters")
    stripped = text.rstrip()
    # What is repeated that often ends with this many characters that stand there already, one period before.
    num_again = int(min_characters * (1 - 1 / min_repeats))
    if stripped.rfind(stripped[len(stripped) - num_again :], 0, -1) < 0:
        return None
    reversed_text = stripped[::-1]
    best_length, best_period = 0, 0
    for period, matched in enumerate(_z_function(reversed_text)):
        length = period + matched
        if period and length > best_length and length >= min_repeats * period:
            best_length, best_period = length, period
    if best_length < min_characters or best_period == 0:
        return None
    return Loop(reversed_text[:best_period][::-1], best_length / best_period, best_length)


def _z_function(text: str) -> list[int]:
    """Return, for each place, how many characters from there on equal the beginning of the text."""
    num = len(text)
    matched = [0] * num
    left = right = 0
    for place in range(1, num):
        known = min(right - place, matched[place - left]) if place < right else 0
        while place + known < num and text[known] == text[place + known]:
            known += 1
        if place + known > right:
            left, right = place, place + known
        matched[place] = known
    return matched


def compression_ratio(text: str) -> float | None:
    """Return the size of a text over its size after zlib compression; None of an empty text.

    Ordinary prose of some thousand characters has about 2 to 3; below a few hundred characters zlib's header and
    missing history lower it, so compare texts of like length. Source: Shaib et al., Standardizing the Measurement of
    Text Diversity (arXiv:2403.00553).

    >>> compression_ratio("abc" * 1000) > 50
    True
    """
    data = text.encode("utf-8", "surrogatepass")
    return len(data) / len(zlib.compress(data, 6)) if data else None
