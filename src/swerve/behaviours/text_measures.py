"""What a text is made of: words, repeated n-grams, loops, scripts. Everything takes linear time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_TAG = re.compile(r"</?(?:think|answer)>")
_TYPOGRAPHIC = (("\u2019", "'"), ("\u2010", "-"), ("\u2011", "-"))


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case: runs of letters and digits, joined by single apostrophes and hyphens.

    The tags `<think>` and `<answer>` are no words. Languages written without spaces give one word for
    each run of characters.

    >>> split_words("<think>Let's re-evaluate: x_1 = 3.5!</think>")
    ["let's", 're-evaluate', 'x', '1', '3', '5']
    """
    plain = _TAG.sub(" ", text).lower()
    if not plain.isascii():
        for sign, typewritten in _TYPOGRAPHIC:
            plain = plain.replace(sign, typewritten)
    return _WORD.findall(plain)


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
        raise ValueError(f"n must be at least 1, got {n}")
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
    """How often it occurs there; the first may be cut, as in `cabcabc`: 2.33 times `abc`."""
    num_characters: int


def loop_at_end(text: str, *, min_repeats: float = 3.0, min_characters: int = 100) -> Loop | None:
    """Return the longest suffix that consists of repeats of one piece; None if no such suffix is long enough.

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
        raise ValueError(
            f"a loop has at least two repeats and characters, got {min_repeats} repeats of {min_characters} characters"
        )
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


# Blocks of letters by script; first and last code point. Source: the Unicode Standard's Blocks.txt.
_RANGES: tuple[tuple[int, int, str], ...] = (
    (0x41, 0x5A, "latin"),
    (0x61, 0x7A, "latin"),
    (0xC0, 0xD6, "latin"),
    (0xD8, 0xF6, "latin"),
    (0xF8, 0x24F, "latin"),
    (0x370, 0x3FF, "greek"),
    (0x400, 0x52F, "cyrillic"),
    (0x530, 0x58F, "armenian"),
    (0x590, 0x5FF, "hebrew"),
    (0x600, 0x6FF, "arabic"),
    (0x750, 0x77F, "arabic"),
    (0x900, 0x97F, "devanagari"),
    (0x980, 0x9FF, "bengali"),
    (0xA00, 0xA7F, "gurmukhi"),
    (0xA80, 0xAFF, "gujarati"),
    (0xB80, 0xBFF, "tamil"),
    (0xC00, 0xC7F, "telugu"),
    (0xC80, 0xCFF, "kannada"),
    (0xD00, 0xD7F, "malayalam"),
    (0xE00, 0xE7F, "thai"),
    (0x10A0, 0x10FF, "georgian"),
    (0x1100, 0x11FF, "hangul"),
    (0x1E00, 0x1EFF, "latin"),
    (0x1F00, 0x1FFF, "greek"),
    (0x3040, 0x30FF, "kana"),
    (0x3130, 0x318F, "hangul"),
    (0x3400, 0x4DBF, "han"),
    (0x4E00, 0x9FFF, "han"),
    (0xAC00, 0xD7A3, "hangul"),
    (0xF900, 0xFAFF, "han"),
    (0xFB50, 0xFDFF, "arabic"),
    (0xFE70, 0xFEFE, "arabic"),
    (0xFF21, 0xFF3A, "latin"),
    (0xFF41, 0xFF5A, "latin"),
    (0x20000, 0x323AF, "han"),
)
_EXPECTED = frozenset({"latin", "greek"})


@cache
def _bounds() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    return (
        np.array([first for first, _, _ in _RANGES], dtype=np.uint32),
        np.array([last for _, last, _ in _RANGES], dtype=np.uint32),
    )


def script_counts(text: str) -> dict[str, int]:
    """Return the number of characters of each script, those that occur. Signs, digits and marks have none.

    >>> script_counts("x = π, therefore 答案 4")
    {'latin': 10, 'greek': 1, 'han': 2}
    """
    if text.isascii():
        num = sum(map(str.isalpha, text))
        return {"latin": num} if num else {}
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    firsts, lasts = _bounds()
    ranges = np.searchsorted(firsts, points, side="right") - 1
    inside = (ranges >= 0) & (points <= lasts[ranges])
    counts: dict[str, int] = {}
    for (_, _, script), num in zip(_RANGES, np.bincount(ranges[inside], minlength=len(_RANGES)), strict=True):
        if num:
            counts[script] = counts.get(script, 0) + int(num)
    return counts


def foreign_script_share(text: str, question: str | None = None) -> float | None:
    """Return the share of characters in scripts that neither the question nor ordinary mathematics uses.

    Latin and Greek letters and all scripts of the question are expected. None where no character has a script. Two
    languages of one script (English and French) look the same, and so do two of the question's.

    >>> foreign_script_share("the answer is 答案")
    0.15384615384615385
    >>> foreign_script_share("答案 is 4", "问题是什么")
    0.0
    """
    counts = script_counts(text)
    total = sum(counts.values())
    if total == 0:
        return None
    expected = _EXPECTED | (script_counts(question).keys() if question else set())
    return sum(num for script, num in counts.items() if script not in expected) / total
