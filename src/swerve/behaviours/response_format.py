r"""Split a response into thinking, answer and `\boxed{}`; check its format and whether its thinking is real."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from swerve.behaviours.text_measures import split_words
from swerve.problems.knights.grade_k_and_k import has_right_format
from swerve.types import Problem

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
    """What comes after the thinking; the whole text if it has no thinking."""
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
      format rule of Logic-RL (arXiv:2502.14768); what is outside the tags does not matter.
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
    return has_right_format(text)


def asked_format(problem: Problem) -> ResponseFormat | None:
    """Return the format that a prompt asks for, by the marks that stand in it."""
    asked = "\n".join(content for _, content in problem.messages)
    if "<answer>" in asked:
        return "think_answer" if "<think>" in asked else "answer_tag"
    return "boxed" if "\\boxed" in asked else None


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


DummyThinking = Literal["empty", "filler", "short", "off_question"]
MIN_WORDS = 5
"""Thinking of fewer words is short."""

_MIN_QUESTION_WORDS = 3
_MAX_REPEATED_WORDS = 2
# Words of the placeholders that models copy from prompts: "reasoning process here", "let me think".
_FILLER = frozenset(
    split_words(
        """a about an answer carefully final first go here hmm i i'll is it let let's me my need now of ok okay on
        process problem question reasoning should so solution some step step-by-step steps the then there think
        thinking this thought thoughts time to um use well will with your"""
    )
)
_FUNCTION_WORDS = frozenset(
    split_words(
        """about after all also and any are been but can could did does each every following for from given had has
        have her here him his how into its let may more most must not one only other our out over per same shall
        she should some such than that the their them then there these they this those too two under was way
        were what when where which while who whom whose why will with would you your"""
    )
)


def content_words(text: str) -> frozenset[str]:
    """Return the words that say what a text is about: numbers, and words of three letters or more but function words.

    >>> sorted(content_words("What is the sum of 12 and 7?"))
    ['12', '7', 'sum']
    """
    return frozenset(
        word
        for word in split_words(text)
        if any(character.isdigit() for character in word) or (len(word) > 2 and word not in _FUNCTION_WORDS)
    )


def dummy_thinking(thinking: str, question: str | None = None) -> DummyThinking | None:
    """Return why a thinking region is no thinking, or None where nothing speaks against it.

    The first that holds: `empty`, no letter and no digit; `filler`, only words of the stock placeholders ("reasoning
    process here"), or five words and more of which no more than two differ; `short`, fewer than five words;
    `off_question`, none of the question's content words (`content_words`) occurs, of a question that has three or more.

    Wrongly flagged are trivial problems whose whole solution is `2 + 2`, and thinking in another language than the
    question. Nonsense that names one word of the question is not found.

    >>> dummy_thinking(" ... "), dummy_thinking("The reasoning process here."), dummy_thinking("Zoe lies, so Bob does")
    ('empty', 'filler', None)
    >>> dummy_thinking("the weather will be fine today again", "What is the sum of 12 and 7?")
    'off_question'
    """
    # From nothing at all to something about another question.
    words = split_words(thinking)
    if not words:
        return "empty"
    distinct = set(words)
    if distinct <= _FILLER or (len(words) >= MIN_WORDS and len(distinct) <= _MAX_REPEATED_WORDS):
        return "filler"
    if len(words) < MIN_WORDS:
        return "short"
    asked = frozenset[str]() if question is None else content_words(question)
    if len(asked) >= _MIN_QUESTION_WORDS and not asked & distinct:
        return "off_question"
    return None
