r"""Where the answer stands in a text, and what it says there. Every form takes linear time on any text.

A text ends at the mark of a model's end, and what stands in thinking marks is no answer; a text that is still thinking
has given none. The forms of `AUTO` are tried in their order, and the first that holds something is taken. What it holds
may be a label, a sentence or marks again (`<answer> The answer is \boxed{34} feet. </answer>`), and is read further by
the same forms (`swerve.grading.reading`).

The rules for what is ambiguous:

- boxes: the last closed box counts. Boxes before it that are joined to it only by spaces, commas, semicolons, `and` or
  `or` belong to the answer, which is then their list: a text cannot be right by naming several answers.
- tags, `####`, phrases, formulas and numbers: the last one that holds something counts; of a value that is taken back
  (`The answer is 41. Wait, it is 42.`), what comes after.
- a sentence states the number that it begins with, or else its last one; none where it names several, or leaves it open
  (`34 or 35`, `not 34`, `at least 34`).

Puzzles say where the answer must stand; for them the last tag or box alone counts, and one that is never closed or
holds nothing is an answer that says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from swerve.grading.marks import (
    ASKED,
    BOX,
    LONGEST_NAME,
    PHRASE,
    after_hashes,
    answer_tag,
    are_joined,
    boxed,
    formula_spans,
    held,
    joined_spans,
    last_box,
    last_match,
    last_tag,
    leaves_open,
    outside,
)
from swerve.grading.sentences import (
    DIGIT,
    NUMBER,
    OPEN,
    is_part_of_ratio,
    makes_another_value,
    stated_value,
    unit_after,
)
from swerve.grading.thinking import final_text

_EMPHASISED = re.compile(
    r"(?<![\w*)\]}\\])(?:(\*\*|__|`|(?<![0-9] )\*)(?=\S)([^*`\n]{1,200}?)(?<=\S)\1|_([\w .,'-]{1,40})_)(?![\w*(])"
)
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,200})\1")
_TAKEN_BACK = re.compile(
    r"\b(?:wait|actually|correction|sorry|oops|scratch that|hold on|I mean|on second thought|mistake"
    r"|(?:that|this|it) (?:is|was) (?:wrong|incorrect|not right))\b|\bno\b(?=[,.!:;])",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"\b(?:(?:wrong|incorrect|mistaken?|error|scratch that|correction)\b|(?:it|that) (?:cannot|can't) be\b[.!])",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(
    r"\W*(?:yes|ok(?:ay)?|right|correct|fine|good|sure|true|so|it|that|this|here)\b.{0,20}", re.IGNORECASE
)
"""Words after a pause that leave the answer as it is."""
_YES_OR_NO = re.compile(r"\s*(?:yes|no|true|false)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(
    r"(?<!\\)[.!?](?=\s|$|\*|\")|\n|<\||</|(?<![\w)\]}])\*\*|\*\*(?![\w(])"
    r"|,? \(?(?:because|since|which|so|as(?! (?:many|much))|hence|although|though|whereas)\b",
    re.IGNORECASE,
)
_LONGEST_PHRASE = 1000
_COMMAND = re.compile(r"\\(?:begin|end) ?\{[a-z*]{1,20}\}|\\[a-zA-Z]+")
_PRICES = re.compile(r"[0-9.,]+ (?:an? )?[a-z]{3,}")
"""Between two dollar signs that are no formula: `$18 a day and $20`."""
_WORD = re.compile(r"(?<![a-zA-Z])(?!(?:sin|cos|tan|log|exp|sqrt|and)(?![a-zA-Z]))[a-zA-Z]{3,}")
_MOST_WORDS = 4
"""Of three letters or more, in an answer without a sentence around it."""
_LONGEST_BARE = 4000
_NAME = "[ $]{0,4}[a-zA-Z][_{}0-9a-z]{0,6} ?"
_VALUE = r"[^\n=]{1,80}\n?"
_LINES = re.compile(rf"\$*\\begin\{{.*|{_NAME}=(?:(?>{_VALUE}{_NAME}(?==))=){{1,8}}{_VALUE}", re.DOTALL)
"""Of several lines: an environment, or equations for names."""
_SENTENCE = re.compile(
    r"\b(?:is|are|was|it|the|thus|therefore|hence|so|get|gives?|here|answer|solution|we|equals?"
    r"|first|then|next|now|there|have|has|total)\b|[a-zA-Z]{2} ?:(?=\s)",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"\b(?:I|[Ww]e|[Ll]et|[Ss]orry|know|[Hh]mm+|[Ww]ait|[Oo]k(?:ay)?)\b")
"""Words of a text that says something other than an answer, such as `I do not know`."""
_BEFORE_FORMULAS = re.compile(r"(?:\b(?:is|are|be|equals?|get|have|obtain|namely)|[:=])[ \t\n]*$", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:not?|never|none|except|unless|if|when|where|such|for|with|neither|nor|but)\b", re.IGNORECASE
)
_SAYING = re.compile(r"\b(?:is|are|equals|was|(?:should|must|would|will|has to) be)\b", re.IGNORECASE)
_BEFORE_WORDS = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally),? +|(?:it|that)(?:'s| is) +|my (?:answer|choice) is +"
    r"|I (?:think|believe)(?: that)? +"
    r"|I(?:'d| would|'ll| will)? (?:choose|pick|select|say|go with) +|(?:option|choice|answer) +(?=\(?[A-Z]\b))+",
    re.IGNORECASE,
)
"""Before the words that a sentence states."""
_NEXT_SENTENCE = re.compile(r"(?<=[a-z)][.!?]) +(?=[A-Z])")
_RIGHT = re.compile(r"\s*(?:the )?(?:correct|right|final)?\s?(?:answer|option|choice|one)?[.!]*\s*", re.IGNORECASE)


def find_answer(text: str, finders: Sequence[str], *, after_thinking: bool = True) -> str | None:
    r"""Return the answer that stands in a text in one of these forms, stripped of white space; None without one.

    Args:
        text: what the model wrote.
        finders: names in `FINDERS`, tried in order; the first whose form is in the text decides.
        after_thinking: whether only what follows the last thinking is looked at; nothing of a text that still thinks.

    >>> find_answer(r"<think>\boxed{4}</think> So \boxed{\frac{1}{2}}.", ["boxed"])
    '\\frac{1}{2}'
    >>> find_answer(r"either \boxed{5} or \boxed{7}", ["boxed"]), find_answer(r"\boxed{5} or \boxed{7}", STATED)
    ('5 or 7', '7')
    >>> find_answer("so 3 + 4 = 7\n#### 7<|im_end|>", ["boxed", "hash"])
    '7'
    """
    said = final_text(text, after_thinking=after_thinking)
    if said is None:
        return None

    # The first form that is in the text decides, also where it holds nothing.
    for name in finders:
        answer = FINDERS[name](said)
        if answer is not None:
            return answer.strip() or None
    return None


def said_in(text: str) -> str | None:
    """Return what a label or a sentence says, by the first form of `AUTO` that finds something else than all of it.

    >>> said_in("The tallest tree is 34 feet."), said_in("It is 34 or 35 feet.")
    ('34 feet', None)
    """
    further = (find(text) for find in AUTO.values())
    return next((step.strip() for step in further if step is not None and step.strip() != text), None)


def gold_answer(gold: str) -> str:
    r"""Return what the text of a gold answer says, which may be a whole solution or a sentence around the answer.

    That is what its box holds, or stands after `####`; of a sentence, the formulas that it ends with (`The roots are
    $2$ and $3$.`), unless it states a condition. Everything else is the answer itself.

    >>> gold_answer(r"Since $a = 2$, it is $\boxed{a + 1 = 3}$."), gold_answer("The roots are $2$ and $3$.")
    ('a + 1 = 3', '2, 3')
    >>> gold_answer("all $n$ with $n > 2$")
    'all $n$ with $n > 2$'
    """
    text = gold.rpartition("</think>")[2]

    # A mark says where the answer is.
    for find in (boxed, answer_tag, after_hashes):
        marked = find(text)
        if marked is not None:
            return marked.strip()

    # Of a sentence, the formulas that it ends with; a condition is part of the answer.
    formulas = formula_spans(text)
    around = outside(text, formulas)
    prose = " ".join(around)
    if not _SENTENCE.search(prose) or _CONDITION.search(prose):
        return gold
    if not formulas or around[-1].strip(" .*\n"):
        stated = _phrase(text)
        return stated.strip() if stated is not None and DIGIT.search(stated) else gold

    # The last formulas that follow one another are one answer, where the words before them state it.
    first = len(formulas) - 1
    while first and are_joined(text, formulas[first - 1][1], formulas[first][0]):
        first -= 1
    is_stated = _BEFORE_FORMULAS.search(around[first][-40:])
    return joined_spans(text, formulas[first:]) or gold if is_stated else gold


def states_more(text: str) -> bool:
    r"""Return whether a text has a verb, a label with a colon, or the mark of an answer, so that it is read further.

    >>> states_more("It is 5."), states_more("Total cost: 5"), states_more(r"\boxed{5}"), states_more("5 apples")
    (True, True, True, False)
    """
    return _SENTENCE.search(text) is not None or BOX.search(text) is not None


def _phrase(text: str) -> str | None:
    """Return what the last phrase such as `the answer is` says, or what is said after it was taken back.

    None without one, or where it continues as a sentence without a value.
    """
    text = _EMPHASISED.sub(_plain, text)
    match = last_match(PHRASE, text)
    if match is None or leaves_open(text, match.start()):
        return None

    # What is said after the answer was taken back counts instead.
    later = _said_later(text[match.end() :])
    if later is not None:
        return later

    # Without a formula right behind the phrase, the rest of the sentence is the answer; a question states none.
    rest = text[match.end() : match.end() + _LONGEST_PHRASE].lstrip().removeprefix("}").lstrip()
    if quoted := _QUOTED.match(rest):
        return quoted[2]
    formulas = formula_spans(rest)
    if not formulas or formulas[0][0] != 0:
        end = _SENTENCE_END.search(rest)
        whole = rest[: end.start()] if end else rest
        stated = _SAYING.split(whole)[-1]
        if leaves_open(whole, len(whole) - len(stated)):
            return None
        sentence = stated.strip(" *_`")
        is_short = len(_words(sentence)) <= _MOST_WORDS or stated_value(sentence)
        return held(sentence) if is_short and not (end and end[0] == "?") else None

    # Formulas that follow one another are one answer, with the unit behind them.
    last = 0
    while last + 1 < len(formulas) and are_joined(rest, formulas[last][1], formulas[last + 1][0]):
        last += 1
    behind = formulas[last][1]
    if makes_another_value(rest, behind) or is_part_of_ratio(rest, behind):
        return rest
    return ", ".join(content for _, _, content in formulas[: last + 1]) + unit_after(rest, behind)


def _plain(match: re.Match[str]) -> str:
    """Return what stands in marks of emphasis; an answer with its phrase in them ends there, but for its unit."""
    inner = match[2] or match[3]
    phrase = last_match(PHRASE, inner)
    is_whole = phrase is not None and inner[phrase.end() :].strip() and not unit_after(match.string, match.end())
    return f"{inner}\n" if is_whole else inner


def _said_later(text: str) -> str | None:
    """Return what is said after a value was taken back, empty if nothing is; None where it was not."""
    last = last_match(_TAKEN_BACK, text)
    if last is None or not any(map(str.isalnum, text[: last.start()])):
        return None
    rest = text[last.end() :].lstrip(" ,.:;")
    for name, find in AUTO.items():
        later = find(rest)
        if later is not None and (DIGIT.search(later) or (name != "bare" or _is_instead(later, text, rest, last[0]))):
            return later.strip(" .")
    return "" if _WRONG.search(text) else None


def _is_instead(words: str, text: str, rest: str, mark: str) -> bool:
    """Return whether words after a pause are an answer instead of the words before it, never instead of a number."""
    if DIGIT.search(text[:LONGEST_NAME]) or (mark.casefold() == "mistake" and not _SAYING.search(rest)):
        return False
    return _YES_OR_NO.match(text) is not None or _CONFIRMS.fullmatch(words) is None


def _formula(text: str) -> str | None:
    """Return the last formula, if no number follows it, of a text with prose or of nothing but formulas."""
    spans = formula_spans(text)
    if not spans or DIGIT.search(text, spans[-1][1]) or _PRICES.match(spans[-1][2]):
        return None
    around = " ".join(outside(text, spans))
    has_words = DIGIT.search(spans[-1][2]) and _WORD.search(around)
    stands_alone = has_words or _SENTENCE.search(around) or not around.strip(" \n\t.,;[]")
    return held(joined_spans(text, spans)) if stands_alone and not OPEN.search(around) else None


def _bare(text: str) -> str | None:
    r"""Return a text of one line, or one environment, in which there is no sentence.

    >>> _bare("x = 3, y = 4"), _bare("So it is 4."), _bare("neither")
    ('x = 3, y = 4', None, 'neither')
    """
    plain = text.strip()
    if not plain or len(plain) > _LONGEST_BARE or ("\n" in plain and not _LINES.fullmatch(plain)):
        return None
    if DIGIT.search(plain):
        is_answer = len(_words(plain)) <= _MOST_WORDS and not _SENTENCE.search(plain)
        return held(plain) if is_answer else None

    # Of words, what the last sentence states; it is one that concludes where others stand before it.
    *before, last = _NEXT_SENTENCE.split(_EMPHASISED.sub(_plain, plain).strip())
    lead = _BEFORE_WORDS.match(last)
    words = last[lead.end() :] if lead else last
    if len(_words(words)) > _MOST_WORDS or _SPEAKER.search(words) or ASKED.search(words) or "?" in words:
        return None
    *subject, said = _SAYING.split(words)
    return None if before and not lead else held(subject[-1] if subject and _RIGHT.fullmatch(said) else said)


def _words(text: str) -> list[str]:
    """Return the plain words of a text, without commands and names of functions."""
    return _WORD.findall(_COMMAND.sub(" ", text))


def _auto(text: str) -> str | None:
    answers = (find(text) for find in AUTO.values())
    return next((answer for answer in answers if answer is not None), None)


def _last_number(text: str) -> str | None:
    match = last_match(NUMBER, text)
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


AUTO: Mapping[str, Callable[[str], str | None]] = {
    "boxed": boxed,
    "answer_tag": answer_tag,
    "hash": after_hashes,
    "phrase": _phrase,
    "bare": _bare,
    "formula": _formula,
    "value": stated_value,
}
"""The forms that `auto` tries, in this order."""
FINDERS: Mapping[str, Callable[[str], str | None]] = {
    # Of a user's policy (`ExtractionForm`): made for answers of mathematics in free text.
    "boxed": boxed,
    "answer_tag": answer_tag,
    "hash": after_hashes,
    "phrase": _phrase,
    "formula": _formula,
    "last_number": _last_number,
    "last_line": _last_line,
    "whole": str,
    "auto": _auto,
    # Of puzzles, whose prompt says where the answer must stand.
    "last_tag": last_tag,
    "last_box": last_box,
    "text_after_hash": _text_after_hash,
    "after_keyword": _after_keyword,
}
"""Name -> what finds an answer of this form in a text. It returns None where the form is not in the text."""
STATED = ("last_tag", "last_box", "text_after_hash", "last_line")
"""Where the short answer of a puzzle stands."""
STATED_WHOLE = ("last_tag", "last_box", "whole")
"""Where an answer of several lines stands."""
