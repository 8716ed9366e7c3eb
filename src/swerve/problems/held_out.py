"""What is held out of learning: texts that are compared with a task's held-out problems before anything learns them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from swerve.errors import ConfigError
from swerve.problems.family import ProblemFamily
from swerve.types import Problem

_GRAM = 13
"""Words in a row that a text shares with a question only by holding a part of it (GPT-3, arXiv:2005.14165, C)."""
_SHORTEST_QUOTED = 5
"""Words of the shortest question that is looked for within a longer text."""
_MARKS = "\"'`*.,;:?!()[]{}$\u201c\u201d\u2018\u2019"
"""Around a word; operators and signs belong to it."""
_TEMPLATE_MARK = re.compile(r"<[^<>\s]+>|\[/?INST\]")
"""What a chat template puts next to a question, such as `<|im_end|>`."""


def question_key(question: str) -> str:
    """Return what two writings of one question share: the text without letter case and differences of white space.

    >>> question_key("What  is 1 + 1? ") == question_key("what is 1 + 1?")
    True
    """
    return " ".join(question.split()).casefold()


class HeldOut:
    """The questions that are held out, and which texts hold one.

    >>> problem = Problem(id="p", family="f", question="How many legs have 3 cats?", answer="12")
    >>> held_out = HeldOut([problem])
    >>> held_out.asked_in("Q: how many legs  have 3 cats? Answer in a box."), held_out.asked_in("How many legs have 3?")
    (True, False)
    """

    def __init__(self, problems: Sequence[Problem] = (), learned: Sequence[Problem] = ()) -> None:
        """Keep the questions.

        Args:
            problems: the held-out ones.
            learned: training problems: what their questions have in common with held-out ones marks none of them.
        """
        self._questions = list(dict.fromkeys(text for problem in problems for text in _asked(problem)))
        self._keys = {question_key(text) for text in self._questions}
        self._learned = learned

    def __bool__(self) -> bool:
        """Whether anything is held out."""
        return bool(self._questions)

    def asked_in(self, text: str) -> bool:
        """Return whether a text that is asked is a held-out question, as a whole, as a line or among other words."""
        if question_key(text) in self._keys or any(question_key(line) in self._keys for line in text.splitlines()):
            return True
        words = _words(text)
        return any(
            words[start : start + len(question)] == question
            for start in range(len(words) - _SHORTEST_QUOTED + 1)
            for question in self._quotable.get(tuple(words[start : start + _SHORTEST_QUOTED]), ())
        )

    def found_in(self, text: str) -> bool:
        """Return whether a plain text holds a held-out question or 13 words of one that no training question has."""
        words = _words(text)
        return self.asked_in(text) or any(gram in self._grams for gram in _grams(words))

    @cached_property
    def _quotable(self) -> dict[tuple[str, ...], list[list[str]]]:
        """The words of the questions that are long enough, by the first of them."""
        questions: dict[tuple[str, ...], list[list[str]]] = {}
        for words in map(_words, self._questions):
            if len(words) >= _SHORTEST_QUOTED:
                questions.setdefault(tuple(words[:_SHORTEST_QUOTED]), []).append(words)
        return questions

    @cached_property
    def _grams(self) -> frozenset[tuple[str, ...]]:
        held, learned = (
            frozenset(gram for text in texts for gram in _grams(_words(text)))
            for texts in (self._questions, [text for problem in self._learned for text in _asked(problem)])
        )
        return held - learned


def held_out_of(family: ProblemFamily, *, seed: int, keep: bool) -> HeldOut:
    """Return what a task holds out under the seed of its problems; nothing with `keep`, or where it holds out none."""
    if keep:
        return HeldOut()
    try:
        return HeldOut(family.problems("heldout", seed=seed), family.problems("train", seed=seed))
    except ConfigError:
        return HeldOut()


def _asked(problem: Problem) -> Iterator[str]:
    """Yield the question, and it as the prompt format asks it."""
    yield problem.question
    yield from (text for role, text in problem.messages[-1:] if role == "user")


def _words(text: str) -> list[str]:
    return [word for part in _TEMPLATE_MARK.sub(" ", text).casefold().split() if (word := part.strip(_MARKS) or part)]


def _grams(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(words[start : start + _GRAM]) for start in range(len(words) - _GRAM + 1))
