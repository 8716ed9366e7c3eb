r"""Where the answer stands in a text. Every form takes linear time on any text.

The rules for what is ambiguous:

- boxes: the last closed box counts. Boxes before it that are joined to it only by spaces, commas, semicolons, `and` or
  `or` belong to the answer, which is then their list: a text cannot be right by naming several answers.
- a box that is never closed is no box; an empty one is an answer that says nothing (unparsed).
- tags, `####`, phrases, formulas and numbers: the last one counts.

Puzzles say where the answer must stand; for them the last tag or box alone counts, and one that is never closed is an
answer that says nothing.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

_Span = tuple[int, int, str]
"""Start and end in the text, and the content."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?:[ \t\n]{0,4}(?={)|[ \t]{1,4}(?=[^\s{])|(?=[0-9]))")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[^\s$]{1,40}")
_NOISE = re.compile(r"\\[()\[\],;:! ]|\\q?quad(?![a-z])|\\(?:text|mbox|textrm)(?![a-z])|[{}$*\s]")
_CONNECTOR = re.compile(r"(?:for[a-z()]{1,12}?)?(?:[,;]?(?:and|or)|[,;])|", re.IGNORECASE)
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_LONGEST_CONNECTOR = 60
_MOST_JOINED = 200
_TAG_OPEN = re.compile(r"<answer>", re.IGNORECASE)
_TAG_CLOSE = re.compile(r"</answer>", re.IGNORECASE)
_PHRASE = re.compile(
    r"\b(?:answer|result|solution)s?[ \t*]{0,4}(?:(?:is|are|was)\b|=|:)"
    r"(?:[ \t*:]{0,4}(?:therefore|thus|then|simply|now|equal to)\b)?[ \t:*]{0,4}"
    r"(?![ \t:*]{0,4}(?:correct|incorrect|wrong|verified|confirmed)\b)"
    r"|\banswer[ \t]{1,4}(?=\$|\\[(\[])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"[.!?](?=\s|$|\*|\")|\n|<\||</|\*\*|,? \(?(?:because|since|which|so|as|hence)\b", re.IGNORECASE
)
_LONGEST_PHRASE = 1000
_DELIMITER = re.compile(r"\$\$?|\\[()\[\]]")
_CLOSING = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_PROSE = re.compile(r"\b(?:is|are|the|thus|therefore|hence|so|get|gives|here|answer|solution|we)\b|:\s", re.IGNORECASE)
_DIGIT = re.compile("[0-9]")
_SAYING = re.compile(r"\b(?:is|are|equals|was)\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z_.)}])[-+\u2212])?(?<![0-9A-Za-z_.^])[$\u20ac\u00a3]?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:[.,][0-9]+)?)|\.[0-9]+)(?!\.?[0-9])"
    r"(?:[eE][-+]?[0-9]+)?(?:/[0-9]+| [0-9]+/[0-9]+)?(?: ?\\?%)?"
)


def find_answer(text: str, finders: Sequence[str], *, after_thinking: bool = True) -> str | None:
    r"""Return the answer that a text gives, without white space around it; None where it gives none.

    Args:
        text: what the model wrote.
        finders: names in `FINDERS`, tried in order; the first whose form is in the text decides, so an empty box is no
            answer even if a number follows.
        after_thinking: whether only what follows the last `</think>` is looked at, where there is one.

    >>> find_answer(r"<think>\boxed{4}</think> So \boxed{\frac{1}{2}}.", ["boxed"])
    '\\frac{1}{2}'
    >>> find_answer(r"either \boxed{5} or \boxed{7}", ["boxed"]), find_answer(r"\boxed{5} or \boxed{7}", STATED)
    ('5 or 7', '7')
    >>> find_answer("so 3 + 4 = 7\n#### 7", ["boxed", "hash"])
    '7'
    """
    if after_thinking:
        text = text.rpartition("</think>")[2]
    for name in finders:
        found = FINDERS[name](text)
        if found is not None:
            return found.strip() or None
    return None


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


def _boxes(text: str) -> list[_Span]:
    """Return the outermost closed boxes; of a box that holds nothing but a box, the content is the inner one's."""
    found = list(_BOX.finditer(text))
    closing = _closing_braces(text) if found else {}
    outer: list[tuple[int, int]] = []
    content: list[tuple[int, int]] = []
    for match in found:
        span = _box_content(text, match.end(), closing)
        if span is None:
            continue
        end = max(span[1], closing.get(match.end(), -1) + 1)
        if not outer or match.start() >= outer[-1][1]:
            outer.append((match.start(), end))
            content.append(span)
        elif _is_blank(text, content[-1][0], match.start()) and _is_blank(text, end, content[-1][1]):
            content[-1] = span
    return [(*span, text[inner[0] : inner[1]]) for span, inner in zip(outer, content, strict=True)]


def _box_content(text: str, opening: int, closing: Mapping[int, int]) -> tuple[int, int] | None:
    if text.startswith("{", opening):
        return (opening + 1, closing[opening]) if opening in closing else None
    match = _UNBRACED.match(text, opening)
    return (opening, opening + len(match[0].rstrip(".,;}"))) if match else None


def _is_blank(text: str, start: int, end: int) -> bool:
    return end - start <= 8 and not text[start:end].strip()


def _formulas(text: str) -> list[_Span]:
    """Return what stands between two matching signs of mathematics."""
    spans: list[_Span] = []
    opened: re.Match[str] | None = None
    for match in _DELIMITER.finditer(text):
        if opened is None:
            opened = match if match[0] in _CLOSING else None
        elif match[0] == _CLOSING[opened[0]]:
            spans.append((opened.start(), match.end(), text[opened.end() : match.start()]))
            opened = None
    return spans


def _joined(text: str, spans: Sequence[_Span]) -> str | None:
    """Return the last content, together with those before it that are joined to it; equal ones count once."""
    if not spans:
        return None
    first = len(spans) - 1
    while first > len(spans) - _MOST_JOINED and first and _connects(text, spans[first - 1][1], spans[first][0]):
        first -= 1
    between = [text[one[1] : other[0]] for one, other in pairwise(spans[first:])]
    joint = " or " if any(map(_OR.search, between)) else ", "
    return joint.join(dict.fromkeys(content.strip() for _, _, content in spans[first:]))


def _connects(text: str, start: int, end: int) -> bool:
    return end - start <= _LONGEST_CONNECTOR and _CONNECTOR.fullmatch(_NOISE.sub("", text[start:end])) is not None


def _boxed(text: str) -> str | None:
    return _joined(text, _boxes(text))


def _last_box(text: str) -> str | None:
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


def _answer_tag(text: str) -> str | None:
    closing = [match.start() for match in _TAG_CLOSE.finditer(text)]
    opening = [match.end() for match in _TAG_OPEN.finditer(text, 0, closing[-1])] if closing else []
    return text[opening[-1] : closing[-1]] if opening else None


def _last_tag(text: str) -> str | None:
    """Return what the last closed tag in lower case holds; a tag that is never closed says nothing."""
    if "<answer>" not in text:
        return None
    _, opening, content = text.rpartition("</answer>")[0].rpartition("<answer>")
    return content if opening else ""


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = collections.deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def _hash(text: str) -> str | None:
    _, mark, rest = text.rpartition("####")
    return rest.partition("\n")[0] if mark else None


def _phrase(text: str) -> str | None:
    """Return what follows the last phrase such as `the answer is`, up to the end of the sentence."""
    match = _last_match(_PHRASE, text)
    if match is None:
        return None
    rest = text[match.end() : match.end() + _LONGEST_PHRASE].lstrip()
    formulas = _formulas(rest)
    if not formulas or formulas[0][0] != 0:
        end = _SENTENCE_END.search(rest)
        sentence = rest[: end.start()] if end else rest
        return _SAYING.split(sentence)[-1]
    last = 0
    while last + 1 < len(formulas) and _connects(rest, formulas[last][1], formulas[last + 1][0]):
        last += 1
    percent = "\\%" if re.match(r" ?(?:\\?%|percent\b)", rest[formulas[last][1] :]) else ""
    return ", ".join(content for _, _, content in formulas[: last + 1]) + percent


def _formula(text: str) -> str | None:
    """Return the last formula, if no number follows it, of a text with prose or of nothing but formulas."""
    spans = _formulas(text)
    if not spans or _DIGIT.search(text, spans[-1][1]):
        return None
    ends = [0, *(end for _, end, _ in spans)]
    starts = [*(start for start, _, _ in spans), len(text)]
    outside = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    is_prose = any(_PROSE.search(part) for part in outside)
    return _joined(text, spans) if is_prose or not any(part.strip(" \n\t.,;[]") for part in outside) else None


def _last_number(text: str) -> str | None:
    match = _last_match(_NUMBER, text)
    return match[0] if match else None


def _text_after_hash(text: str) -> str | None:
    _, mark, rest = text.rpartition("####")
    return rest if mark else None


def _last_line(text: str) -> str | None:
    return text.rstrip().rpartition("\n")[2] or None


def _after_keyword(text: str) -> str | None:
    """Return the words after the only word `answer`."""
    words = text.split()
    return " ".join(words[words.index("answer") + 1 :]) if words.count("answer") == 1 else None


FINDERS: Mapping[str, Callable[[str], str | None]] = {
    # Of a user's policy (`ExtractionForm`): made for answers of mathematics in free text.
    "boxed": _boxed,
    "answer_tag": _answer_tag,
    "hash": _hash,
    "phrase": _phrase,
    "formula": _formula,
    "last_number": _last_number,
    "last_line": _last_line,
    "whole": str,
    # Of puzzles, whose prompt says where the answer must stand.
    "last_tag": _last_tag,
    "last_box": _last_box,
    "text_after_hash": _text_after_hash,
    "after_keyword": _after_keyword,
}
"""Name -> what finds an answer of this form in a text. It returns None where the form is not in the text."""
STATED = ("last_tag", "last_box", "text_after_hash", "last_line")
"""Where the short answer of a puzzle stands."""
STATED_WHOLE = ("last_tag", "last_box", "whole")
"""Where an answer of several lines stands."""
