"""The marks around an answer in a text, and what they hold: boxes, tags, `####`, phrases, signs of mathematics."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from itertools import pairwise

Span = tuple[int, int, str]
"""Start and end in the text, and the content."""
BOX = re.compile(r"\\(?:boxed|fbox)(?:[ \t\n]{0,4}(?={)|[ \t]{1,4}(?=[^\s{])|(?=[0-9]))")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[^\s$]{1,40}")
_NOISE = re.compile(r"\\[()\[\],;:! ]|\\q?quad(?![a-z])|\\(?:text|mbox|textrm)(?![a-z])|[{}$*\s]")
_CONNECTOR = re.compile(r"(?:for[a-z()]{1,12}?)?(?:[,;]?(?:and|or)|[,;])|", re.IGNORECASE)
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_LONGEST_CONNECTOR = 60
_MOST_JOINED = 200
_NAME_BEFORE = re.compile(r"(?<![a-zA-Z\\])([a-zA-Z](?:_(?:\{\w{1,4}\}|\w))?)\s{0,3}=[\s$]{0,3}$")
LONGEST_NAME = 20
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_HASHES = re.compile("#{4,}")
PHRASE = re.compile(
    r"\b(?:answer|result|solution|option|choice)s?[\"']?[ \t*_]{0,4}"
    r"(?:(?:is|are|was|(?:should|must|would|will|has to) be)\b|=|:|\u2192|[-\u2013\u2014](?=\s))"
    r"(?:[ \t*:_]{0,4}(?:therefore|thus|then|simply|now|actually|exactly|equal to)\b)?[ \t:*_]{0,12}"
    r"(?![ \t:*]{0,4}(?:correct|incorrect|wrong|verified|confirmed)\b)"
    r"|\banswer[ \t]{1,4}(?=\$|\\[(\[])",
    re.IGNORECASE,
)
ASKED = re.compile(
    r"\b(?:whether|if|(?:not|un) ?(?:sure|certain))\b(?:[^.!?\n]{0,60}$| [a-z]+ (?:is|are)\b)", re.IGNORECASE
)
"""Before a phrase that asks for an answer and states none."""
_DENIED = re.compile(
    r"(?:\b(?:no|not|never|nobody|none|cannot|hardly|doubt\w*|unlikely|false)\b|n't\b)"
    r"(?![^.,;:!?\n]*\b(?:so|thus|hence)\b)[^.,;:!?\n]{0,60}$",
    re.IGNORECASE,
)
"""Before a phrase that denies an answer: `I do not think that`."""
_DELIMITER = re.compile(r"(?<!(?<!\\)\\)\$\$?|\\[()\[\]](?!-?[0-9.]{1,6} ?[a-z]{2}\])")
_CLOSING = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_HEADING = re.compile(r"[\s*]*[A-Za-z]{2,}")
_EMPTY = re.compile(
    r"(?:\\(?:boxed|fbox|text\w{0,6})|\b(?:the )?(?:final )?(?:answer|solution|result)s?\b(?: is\b)?|\\[()\[\]]"
    r"|</?answer>|(?<!\\)[{}]|[\s$*#`:.,;_])*",
    re.IGNORECASE,
)
"""Marks without anything in them."""
_NO_BOX = re.compile(
    r"(?:(?:^|[.,;]|\b(?:is|are|and|but))\s{1,4}not|\b(?:instead of|rather than))[\s$]{0,4}(?:\\\(\s?)?$", re.IGNORECASE
)


def _closing_braces(text: str) -> dict[int, int]:
    """Return the position of the closing brace for each opening one that is closed; escaped braces do not count."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACES.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def _boxes(text: str) -> list[Span]:
    """Return the outermost closed boxes; of a box that holds nothing but a box, the content is the inner one's."""
    openings = list(BOX.finditer(text))
    closing = _closing_braces(text) if openings else {}
    outer: list[tuple[int, int]] = []
    content: list[tuple[int, int]] = []
    for match in openings:
        # In braces that are closed, or a word without braces.
        opening = match.end()
        word = None if text.startswith("{", opening) else _UNBRACED.match(text, opening)
        if opening in closing:
            span = (opening + 1, closing[opening])
        elif word:
            span = (opening, opening + len(word[0].rstrip(".,;}")))
        else:
            continue
        end = max(span[1], closing.get(opening, -1) + 1)
        if not outer or match.start() >= outer[-1][1]:
            outer.append((match.start(), end))
            content.append(span)
        elif _is_blank(text, content[-1][0], match.start()) and _is_blank(text, end, content[-1][1]):
            content[-1] = span
    boxes = [(*span, text[inner[0] : inner[1]]) for span, inner in zip(outer, content, strict=True)]
    return [box for box in boxes if not _is_denied(text, box[0])]


def _is_denied(text: str, start: int) -> bool:
    """Return whether a box is denied by the word before it, or by the sentence whose phrase it ends."""
    if _NO_BOX.search(text, max(0, start - LONGEST_NAME), start):
        return True
    phrase = last_match(PHRASE, before := text[max(0, start - 2 * _LONGEST_CONNECTOR) : start])
    return phrase is not None and not before[phrase.end() :].strip(" $") and leaves_open(before, phrase.start())


def leaves_open(text: str, start: int) -> bool:
    """Return whether the words before the phrase of an answer ask for one, or deny it."""
    first = max(0, start - _LONGEST_CONNECTOR)
    return any(words.search(text, first, start) for words in (ASKED, _DENIED))


def _is_blank(text: str, start: int, end: int) -> bool:
    return end - start <= 8 and not text[start:end].strip()


def formula_spans(text: str) -> list[Span]:
    """Return what stands between two matching signs of mathematics."""
    spans: list[Span] = []
    opened: re.Match[str] | None = None
    for match in _DELIMITER.finditer(text):
        if opened is None:
            opened = match if match[0] in _CLOSING else None
        elif match[0] == _CLOSING[opened[0]]:
            spans.append((opened.start(), match.end(), text[opened.end() : match.start()]))
            opened = None
    return spans


def outside(text: str, spans: Sequence[Span]) -> list[str]:
    """Return what stands before, between and after spans."""
    ends = [0, *(end for _, end, _ in spans)]
    starts = [*(start for start, _, _ in spans), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


def joined_spans(text: str, spans: Sequence[Span]) -> str | None:
    """Return the last content, together with those before it that are joined to it; equal ones count once."""
    if not spans:
        return None
    first = len(spans) - 1
    while first > len(spans) - _MOST_JOINED and first and are_joined(text, spans[first - 1][1], spans[first][0]):
        first -= 1
    between = [text[span[1] : following[0]] for span, following in pairwise(spans[first:])]
    joint = " or " if any(map(_OR.search, between)) else ", "
    return joint.join(dict.fromkeys(content.strip() for _, _, content in spans[first:]))


def are_joined(text: str, start: int, end: int) -> bool:
    """Return whether only spaces, commas, semicolons, `and` or `or` stand between two places."""
    return end - start <= _LONGEST_CONNECTOR and _CONNECTOR.fullmatch(_NOISE.sub("", text[start:end])) is not None


def boxed(text: str) -> str | None:
    """Return what the last closed box holds, with the boxes that are joined to it."""
    return held(joined_spans(text, _with_names(text, _boxes(text))))


def held(content: str | None) -> str | None:
    """Return what a mark holds; None where it holds nothing but other marks."""
    return None if content is None or is_only_marks(content) else content


def is_only_marks(text: str) -> bool:
    r"""Return whether a text has nothing but marks around an answer, such as an empty box.

    >>> is_only_marks(r"\boxed{ }"), is_only_marks("The answer is:"), is_only_marks("0")
    (True, True, False)
    """
    return _EMPTY.fullmatch(text) is not None


def _with_names(text: str, boxes: Sequence[Span]) -> Sequence[Span]:
    r"""Return boxes with the names before them, if the last two have one each: `x = \boxed{2}, y = \boxed{3}`."""
    if len(boxes) < 2:
        return boxes
    named = []
    for box in boxes[-_MOST_JOINED:]:
        name = _NAME_BEFORE.search(text, max(0, box[0] - LONGEST_NAME), box[0])
        named.append(box if name is None or "=" in box[2] else (name.start(), box[1], f"{name[1]} = {box[2]}"))
    have_names = named[-1] != boxes[-1] and named[-2] != boxes[-2]
    return named if have_names and are_joined(text, named[-2][1], named[-1][0]) else boxes


def last_box(text: str) -> str | None:
    r"""Return the content of the last `\boxed{`, whatever stands before it; it says nothing if it is never closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for position in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : position]
    return ""


def answer_tag(text: str) -> str | None:
    """Return what the last closed tag `<answer>` holds."""
    marks = list(_TAG.finditer(text))
    while marks and not marks[-1][1]:
        marks.pop()
    opened = next((mark for mark in reversed(marks) if not mark[1]), None)
    return held(text[opened.end() : marks[-1].start()]) if opened else None


def last_tag(text: str) -> str | None:
    """Return what the last closed tag in lower case holds; a tag that is never closed says nothing."""
    if "<answer>" not in text:
        return None
    _, opening, content = text.rpartition("</answer>")[0].rpartition("<answer>")
    return content if opening else ""


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern in a text."""
    last = collections.deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def after_hashes(text: str) -> str | None:
    """Return the rest of the line after the last `####` with something behind it that is no heading of further text."""
    end = len(text)
    for mark in reversed(list(_HASHES.finditer(text))):
        line, _, after = text[mark.end() : end].partition("\n")
        if held(line) and not (end == len(text) and after.strip() and _HEADING.match(line)):
            return line
        end = mark.start()
    return None
