r"""The parts of a response: thinking, answer, `\boxed{}`; and whether it has the form that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "RESPONSE_FORMATS",
    "Regions",
    "ResponseFormat",
    "boxed_contents",
    "has_format",
    "is_unfinished",
    "split_regions",
]

ResponseFormat = Literal["think_answer", "answer_tag", "boxed"]
RESPONSE_FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)

_THINK, _END_THINK, _ANSWER, _END_ANSWER = "<think>", "</think>", "<answer>", "</answer>"
_BRACES = re.compile(r"\\f?boxed\s*\{|\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\f?boxed\s*\{")
_MID_FORMULA = tuple("=+-*/^_,({[&\\")


@dataclass(frozen=True, slots=True)
class Regions:
    """The parts of a response."""

    thinking: str | None
    """Text between `<think>` and `</think>`; None where there is neither tag."""
    rest: str
    """What comes after the thinking; the whole text where there is none."""
    answers: tuple[str, ...]
    """Contents of the closed `<answer>` blocks of the rest, in their order."""


def split_regions(text: str) -> Regions:
    """Return the parts of a response. Time is linear in its length.

    Thinking that is not opened begins where the text does (prompts often end with `<think>`); thinking that is not
    closed ends before the first `<answer>`, or with the text. Only the first block is thinking.

    >>> split_regions("<think>2 + 2</think> <answer>4</answer>")
    Regions(thinking='2 + 2', rest=' <answer>4</answer>', answers=('4',))
    """
    start, end = text.find(_THINK), text.find(_END_THINK)
    if end >= 0:
        begin = start + len(_THINK) if 0 <= start < end else 0
        thinking, rest = text[begin:end], text[end + len(_END_THINK) :]
    elif start >= 0:
        answer = text.find(_ANSWER, start)
        stop = answer if answer >= 0 else len(text)
        thinking, rest = text[start + len(_THINK) : stop], text[stop:]
    else:
        return Regions(None, text, _answer_blocks(text))
    return Regions(thinking, rest, _answer_blocks(rest))


def _answer_blocks(text: str) -> tuple[str, ...]:
    blocks = []
    start = text.find(_ANSWER)
    while start >= 0:
        end = text.find(_END_ANSWER, start)
        if end < 0:
            break
        blocks.append(text[start + len(_ANSWER) : end])
        start = text.find(_ANSWER, end)
    return tuple(blocks)


def boxed_contents(text: str) -> list[str]:
    r"""Return the contents of the balanced `\boxed{}` and `\fboxed{}`, in their order; of nested ones the outermost.

    Time is linear in the length of the text.

    >>> boxed_contents(r"\boxed{\frac{1}{2}} or \boxed{3} or \boxed{4")
    ['\\frac{1}{2}', '3']
    """
    opened: list[int | None] = []  # start of the content, for braces that a box opened
    spans: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        mark = match.group()
        if mark == "}":
            start = opened.pop() if opened else None
            if start is not None:
                while spans and spans[-1][0] > start:  # nested in this one
                    spans.pop()
                spans.append((start, match.start()))
        elif mark == "{":
            opened.append(None)
        elif mark[-1] == "{" and len(mark) > 2:
            opened.append(match.end())
    return [text[start:end] for start, end in spans]


def has_format(text: str, response_format: ResponseFormat) -> bool:
    r"""Say whether a whole answer (prefix included) has a form.

    - `think_answer`: each of `<think>`, `</think>`, `<answer>`, `</answer>` occurs once, in this order. This is the
      format rule of Logic-RL (arXiv:2502.14768); what stands outside the tags does not matter.
    - `answer_tag`: there is a closed `<answer>` block.
    - `boxed`: there is a balanced `\boxed{}` that is not empty.

    >>> has_format("<think>2 + 2</think><answer>4</answer>", "think_answer")
    True
    >>> has_format("<answer>4</answer><think>2 + 2</think>", "think_answer")
    False
    """
    if response_format == "boxed":
        return _BOX.search(text) is not None and any(content.strip() for content in boxed_contents(text))
    if response_format == "answer_tag":
        return bool(_answer_blocks(text))
    tags = (_THINK, _END_THINK, _ANSWER, _END_ANSWER)
    places = [text.find(tag) for tag in tags]
    return places == sorted(places) and all(text.count(tag) == 1 for tag in tags)


def is_unfinished(text: str) -> bool:
    r"""Say whether a text stops in the middle of something it opened.

    That is: `<think>` without its end or an answer, `<answer>` or a code fence without its end, `\[` without its end or
    a box, or a last character that cannot end a formula or sentence, such as `=` or a comma. A text cut between two
    sentences or words looks finished, so this is a lower bound of what was cut off.

    >>> is_unfinished("so x ="), is_unfinished("so x = 3")
    (True, False)
    """
    if text.rfind(_THINK) > max(text.rfind(_END_THINK), text.rfind(_END_ANSWER)):
        return True
    if text.rfind(_ANSWER) > text.rfind(_END_ANSWER) or text.count("```") % 2 == 1:
        return True
    _, opened, formula = text.replace(r"\\[", "").rpartition(r"\[")  # `\\[` is a line break with its height
    if opened and r"\]" not in formula and not boxed_contents(formula):
        return True
    return text.rstrip().endswith(_MID_FORMULA)
