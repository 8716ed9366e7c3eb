"""Graders that compare text: the words of an answer, or the letter of a multiple choice."""

from __future__ import annotations

import re
from collections.abc import Iterable

from swerve.grading.answers import FINDERS, find_answer, said_in
from swerve.grading.grader import graded
from swerve.grading.maths.answer import choice_label, names_more_choices, without_text_commands
from swerve.grading.sentences import SENTENCES
from swerve.grading.thinking import final_text
from swerve.types import Problem, Reward

_LETTER = re.compile(
    r"(?<![\w'])(?![AI] (?!(?:is|was|and|or|because|since|as|with|not|but|in|on|by)\b)[a-z])([A-Z])(?![\w'])"
)
"""A capital that stands alone, but for the words `A dog` and `I think`."""
_DENIED = re.compile(
    r"\b(?i:not|rul(?:es?|ed|ing) out|eliminat(?:es?|ed|ing)|rather than|instead of|except)"
    r" (?:option |choice )?\(?[A-Z]\b\)?"
)
_LETTERS_ONLY = re.compile(r"(?:(?:either|both|or|and)\b|[A-Z()\s,;/&|.])+")
_PLACEHOLDER = re.compile(r"\s*(?:proof|not ?found|n/a|nan|null)?[\s.]*", re.IGNORECASE)
_LONGEST = 1000
"""Characters of an answer, or of a last line, that are looked at."""
_AROUND = ".,;:!?*_`'\"$()[]{}"
"""Marks around a word that are no part of it."""
_FEWEST_MISREAD, _LEAST_MISREAD = 2, 0.05
"""Answers judged wrong that end with the right one: as many, and this share of the wrong ones, are told."""
_NEGATION = re.compile(r"\b(?:not|neither|nor|except|never|cannot)\b|n't\b", re.IGNORECASE)


def can_be_met(grader: str, golds: Iterable[str]) -> bool:
    """Return whether some answer can be right: a choice is a letter, and data sets write `proof` where none is known.

    Args:
        grader: `choice`, `math` or `math_verify`; of others every gold answer can be met.
        golds: the gold answer and its alternatives.

    >>> can_be_met("choice", ["2"]), can_be_met("choice", ["(B)"]), can_be_met("math", ["proof"])
    (False, True, False)
    """
    if grader == "choice":
        return any(_choice(gold) is not None for gold in golds)
    is_maths = grader in ("math", "math_verify")
    return not is_maths or any(not _PLACEHOLDER.fullmatch(gold) for gold in golds)


class Misread:
    """Answers that were judged wrong and yet end with the right one, word for word: another grader may be meant."""

    def __init__(self) -> None:
        """Begin with no answer."""
        self._graders: dict[str, int] = {}
        self._num_wrong = 0

    def add(self, problem: Problem, text: str | None) -> None:
        """Count an answer that was judged wrong."""
        self._num_wrong += 1
        if any(_ends_with(text or "", gold) for gold in (problem.answer, *problem.alternatives)):
            grader = problem.grader or problem.family
            self._graders[grader] = self._graders.get(grader, 0) + 1

    def merge(self, other: Misread) -> None:
        """Count what another has counted."""
        self._num_wrong += other._num_wrong
        for grader, num in other._graders.items():
            self._graders[grader] = self._graders.get(grader, 0) + num

    @property
    def note(self) -> str | None:
        """A sentence where they are several and no rare ones; else None."""
        num = sum(self._graders.values())
        if num < _FEWEST_MISREAD or num < _LEAST_MISREAD * self._num_wrong:
            return None
        return (
            f"{num} of the {self._num_wrong} answers judged wrong end with their gold answer, word for word: if "
            f"{' and '.join(self._graders)} is not the grader that is meant, name another task."
        )


def _ends_with(text: str, answer: str) -> bool:
    """Return whether the last words of a text are those of an answer.

    >>> [_ends_with(text, "5 0 4") for text in ("so answer 5 0 4.", "5 0 **4**", "15 0 4", "5 0 4 is it")]
    [True, True, False, False]
    """
    wanted = [word.strip(_AROUND) for word in answer.split()]
    last = [word.strip(_AROUND) for word in text[-2 * len(answer) - _LONGEST :].split()[-len(wanted) :]]
    return bool(any(wanted)) and last == wanted


def given_beginning(problem: Problem, text: str) -> str:
    """Return what a completion's prompt had of the answer already, unless the text repeats it.

    That is what the chat template's prompt ended with (but for a thought that it closes again), and the
    problem's prefix. Where the template is not known, as in other people's files, a text that has only the end of its
    thinking was begun with `<think>`.

    >>> asked = {"id": "p", "family": "k_and_k", "question": "...", "answer": "..."}
    >>> [given_beginning(Problem(**asked, begun=begun), "so </think> 4") for begun in (None, "")]
    ['<think>', '']
    """
    given = (problem.begun or "").rpartition("</think>")[2]
    if problem.prefix.strip() not in given:
        given += problem.prefix
    if not given.strip() and problem.begun is None and "</think>" in text and "<think>" not in text:
        return "<think>"
    return "" if text.lstrip().startswith(given.strip()) else given


def grade_exact(problem: Problem, text: str) -> Reward:
    """Return 1 if the text is the gold answer or an alternative, word for word, else 0; never raises.

    The answer is what the last `<answer>` tag holds, else all that follows the last `</think>`; only white space may
    differ. An empty one is `unparsed`.

    >>> problem = Problem(id="p", family="table", question="Capital of France?", answer="Paris", grader="exact")
    >>> grade_exact(problem, "<think>...</think> <answer> Paris</answer>").value, grade_exact(problem, "paris").value
    (1.0, 0.0)
    """
    answer = find_answer(text, ("answer_tag", "whole"))
    if answer is None:
        return Reward(value=None, status="unparsed")
    golds = {" ".join(gold.split()) for gold in (problem.answer, *problem.alternatives)}
    return graded(" ".join(answer.split()) in golds, answer)


def grade_choice(problem: Problem, text: str) -> Reward:
    r"""Return 1 if the text chooses the gold answer's letter, else 0; never raises.

    The answer is found and read as an answer of mathematics is (`auto`); of a text in which nothing is found so, the
    last line or the last sentence counts. The choice is the first single capital letter there, or the label that it
    begins with. A list of letters, also of joined boxes, is the choice of all of them, and right only if it is the gold
    answer. Where the letter follows a negation, or another choice follows it in other words, nothing was chosen:
    `unparsed`.

    >>> problem = Problem(id="p", family="table", question="...", answer="C", grader="choice")
    >>> grade_choice(problem, r"It is \boxed{\text{(C)}}.").value
    1.0
    >>> grade_choice(problem, "The answer is B, not C.").value
    0.0
    >>> grade_choice(problem, r"\boxed{B} or \boxed{C}").value
    0.0
    """
    # A mark's content decides; of what is no mark, such as a number, the end of the text may still name a letter.
    said = final_text(text) or ""
    choice = _choice((FINDERS["auto"](said) or "")[:_LONGEST])
    if choice is None:
        last = said.rstrip().rpartition("\n")[2][-_LONGEST:]
        choice = _label(last) or _label(said_in(SENTENCES.split(last)[-1]) or "")
    if choice is None:
        return Reward(value=None, status="unparsed")
    golds = {_choice(gold) for gold in (problem.answer, *problem.alternatives)}
    return graded(choice in golds, choice)


def grade_final_answer(problem: Problem, text: str) -> Reward:
    """Return 1 if the words after the only `answer` of a completion are the gold answer's words, else 0.

    A text without exactly one `answer`, or with nothing after it, has no value and the status `unparsed`. Never raises.

    >>> problem = Problem(id="p", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
    >>> grade_final_answer(problem, "2 + 4 + 0 = 0 6 ... answer 0 4 6").value
    1.0
    >>> grade_final_answer(problem, "answer 0 4 6 answer 0 4 7").status
    'unparsed'
    """
    answer = find_answer(text, ("after_keyword",), after_thinking=False)
    if answer is None:
        return Reward(value=None, status="unparsed")
    return graded(answer.split() == problem.answer.split(), answer)


def _choice(answer: str) -> str | None:
    """Return the letter that an answer names first; the letters of a mere list of letters are all named."""
    plain = _plain(answer)
    first = _LETTER.search(plain)
    if first is None:
        return _label(plain)
    if _LETTERS_ONLY.fullmatch(plain):
        return ", ".join(dict.fromkeys(_LETTER.findall(plain)))
    is_open = _NEGATION.search(plain, 0, first.start()) or names_more_choices(plain, first.end())
    return None if is_open else str(first[1])


def _label(line: str) -> str | None:
    return choice_label(_plain(line), any_case=True)


def _plain(text: str) -> str:
    return _DENIED.sub(" ", without_text_commands(text).replace("*", " ")).strip(" \"'_")
