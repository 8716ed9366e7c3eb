"""Written-out reasoning as a walk: one definition of a family's trace, both written and checked by it.

A walk is a generator that yields, for every word of a trace, a `Slot` (what belongs there, given the words before) and
is sent the word that stands there. Sending it the expected words gives the right trace, sending it mistakes gives a
trace with known mistakes, and sending it the words of any text finds that text's wrong steps.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple

from swerve.types import Problem, StepMark

_WORD = re.compile(r"\S+")


class Slot(NamedTuple):
    """One word of a trace, given the words before it."""

    expected: str
    """The right word."""
    choices: tuple[str, ...] = ()
    """Words after which the trace can still be followed; any other wrong word ends the walk."""
    misread: str | None = None
    """The word that the planted mistake puts here; None where it does not apply."""
    slips: bool = False
    """Whether a random slip can fall here."""
    either: str | None = None
    """Another word that is as right, and stands here as often in supervised traces; None: no other word is."""


Walk = Generator[Slot, str, None]
"""Yields slots, is sent the words that stand in them, and ends with the trace."""


@cache
def slot(
    expected: str,
    choices: tuple[str, ...],
    misread: str | None = None,
    *,
    slips: bool = False,
    either: str | None = None,
) -> Slot:
    """Return the slot of a value: any of `choices` can be followed, `expected` alone is right, or `either` of two."""
    return Slot(expected, choices, misread, slips, either)


@cache
def fixed(word: str) -> Slot:
    """Return the slot of a word of the trace's structure: any other word there ends the walk."""
    return Slot(word)


def _drive(walk: Walk, pick: random.Random | None, mistake_rate: float, slip_rate: float) -> str:
    words = []
    step = next(walk)
    try:
        while True:
            word = step.expected if pick is None else _pick(step, pick, mistake_rate, slip_rate)
            words.append(word)
            step = walk.send(word)
    except StopIteration:
        return " ".join(words)


def _pick(step: Slot, rng: random.Random, mistake_rate: float, slip_rate: float) -> str:
    if step.misread is not None and step.misread != step.expected and rng.random() < mistake_rate:
        return step.misread
    if step.slips and rng.random() < slip_rate:
        return rng.choice([word for word in step.choices if word != step.expected])
    return step.expected if step.either is None else rng.choice((step.expected, step.either))


def write_solution(walk: Walk) -> str:
    """Return the fully right trace, its words joined by single spaces."""
    return _drive(walk, None, 0.0, 0.0)


def write_trace(walk: Walk, rng: random.Random, *, mistake_rate: float, slip_rate: float) -> str:
    """Return a trace with mistakes; the words after a mistake follow from what was written.

    Args:
        walk: a fresh walk of the problem.
        rng: the source of randomness.
        mistake_rate: probability of the planted mistake at each slot where it applies.
        slip_rate: probability of another random choice at each slot that can slip.
    """
    return _drive(walk, rng, mistake_rate, slip_rate)


def find_marks(walk: Walk, text: str) -> list[StepMark]:
    """Return a mark for every word of `text` that is wrong given the words before it, in order.

    A wrong value is marked and followed. A word that breaks the structure is marked and nothing after it is. Words that
    a cut-off text lacks are not marked; the first word after the end of the trace is, with nothing expected there.
    """
    marks = []
    step: Slot | None = next(walk)
    for match in _WORD.finditer(text):
        # The trace has ended, and the text has not.
        if step is None:
            marks.append(StepMark(start=match.start(), end=match.end(), expected=""))
            break
        word = match.group()

        # A wrong value is followed; a word that breaks the structure ends the reading.
        if word not in (step.expected, step.either):
            marks.append(StepMark(start=match.start(), end=match.end(), expected=step.expected))
            if word not in step.choices:
                break
        try:
            step = walk.send(word)
        except StopIteration:
            step = None
    return marks


class WalkedFamily(ABC):
    """A family whose completions are walks; its task has a `mistake_rate` and a `slip_rate`."""

    checks_steps = True
    _task: Any

    @abstractmethod
    def walk(self, problem: Problem) -> Walk:
        """Return a fresh walk of a problem's trace."""

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return a supervised trace: planted mistakes at the task's `mistake_rate`, slips at its `slip_rate`."""
        walk = self.walk(problem)
        return write_trace(walk, rng, mistake_rate=self._task.mistake_rate, slip_rate=self._task.slip_rate)

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return a mark for every wrong word of a completion, given the words before it."""
        return find_marks(self.walk(problem), text)
