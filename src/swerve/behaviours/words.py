"""How texts are cut into words."""

from __future__ import annotations

import re

__all__ = ["split_words"]

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
