"""Where the short answer of a puzzle stands in a completion: one rule for the generated families."""

from __future__ import annotations

__all__ = ["find_stated_answer"]

_THINKING_ENDS = "</think>"
_TAG, _TAG_ENDS = "<answer>", "</answer>"
_BOX = "\\boxed{"
_HASH = "####"


def find_stated_answer(text: str, *, whole: bool = False) -> str | None:
    r"""Return the answer that a completion states, without white space around it; None where there is none.

    Only what follows the last `</think>` is looked at. There, the first of these that the text has: what stands between
    the last `</answer>` and the `<answer>` before it; the content of the last `\boxed{...}`; what follows the last
    `####`; the last line that is not empty. A tag or box that is empty or does not end states nothing. Linear time.

    Args:
        text: the completion.
        whole: for answers of several lines: where there is neither tag nor box, all of the text is the answer.

    >>> find_stated_answer("<think>abc?</think> So:\n<answer> abba </answer>")
    'abba'
    >>> find_stated_answer("The letters are a, b, b, a.\nabba\n")
    'abba'
    """
    text = text.rpartition(_THINKING_ENDS)[2]
    if _TAG in text:
        return _tagged(text)
    if _BOX in text:
        return _boxed(text)
    if whole:
        return text.strip() or None
    if _HASH in text:
        return text.rpartition(_HASH)[2].strip() or None
    return text.strip().rpartition("\n")[2].strip() or None


def _tagged(text: str) -> str | None:
    end = text.rfind(_TAG_ENDS)
    start = text.rfind(_TAG, 0, end) if end >= 0 else -1
    return text[start + len(_TAG) : end].strip() or None if start >= 0 else None


def _boxed(text: str) -> str | None:
    start = text.rfind(_BOX) + len(_BOX)
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position].strip() or None
    return None
