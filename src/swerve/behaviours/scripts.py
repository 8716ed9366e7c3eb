"""Writing systems of a text: a sign of language mixing."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["foreign_script_share", "script_counts"]

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
