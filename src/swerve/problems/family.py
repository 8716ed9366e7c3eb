"""What a family of problems offers to training, evaluation and the probe, and what families share."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import sha1
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from swerve.errors import ConfigError
from swerve.settings import Model
from swerve.types import Problem, StepMark

Split = Literal["train", "heldout"]
TaskT = TypeVar("TaskT", bound=Model)

_HELDOUT_ONE_IN = 6
_MAX_FRUITLESS_DRAWS = 1000


class ProblemFamily(Protocol):
    """Problems for training and evaluation. What goes beyond them is offered where `checks_steps` says so."""

    @property
    def name(self) -> str:
        """The family's name, `Problem.family` of its problems."""

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that questions and traces use; empty: the texts have no fixed vocabulary."""

    @property
    def is_prose(self) -> bool:
        """Whether the texts have no fixed vocabulary."""

    @property
    def checks_steps(self) -> bool:
        """Whether `check` looks at a completion's steps; if not it finds nothing in any text."""

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split; splits are disjoint, whatever the seeds.

        Raises:
            ConfigError: the split has fewer distinct problems than are asked for, or its source cannot be found.
            ArtifactError: its source cannot be read.
        """

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return a supervised completion: a trace with the planted mistake and rare slips, or the written solution.

        Raises:
            ConfigError: the family has none for this problem.
        """

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return a mark for every wrong word of a completion, given the words before it; never raises on any text."""

    def notes(self) -> list[str]:
        """Return a line for everything that a person should know of the problems, such as what was left out.

        Raises:
            ConfigError: a source cannot be found.
            ArtifactError: a source cannot be read.
        """


class SolvedFamily:
    """What families share whose problems have at most a written solution: no vocabulary and no step checker."""

    words: tuple[str, ...] = ()
    checks_steps = False

    @property
    def is_prose(self) -> bool:
        """Whether the texts have no fixed vocabulary."""
        return not self.words

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return the problem's solution.

        Raises:
            ConfigError: it has none.
        """
        if problem.solution is None:
            raise ConfigError(
                f"problem {problem.id!r} of family '{problem.family}' has no written solution to learn from; leave the "
                "sft stage out and start from a trained model, or give solutions with the problems"
            )
        return problem.solution

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return no marks: no step of any text is looked at."""
        return []

    def notes(self) -> list[str]:
        """Return no lines: there is nothing to say of the problems."""
        return []


class GeneratedFamily(SolvedFamily, ABC, Generic[TaskT]):
    """Problems that are drawn at random until there are as many distinct ones as the task asks for."""

    name: ClassVar[str]
    too_few: ClassVar[str]
    """What to do where there are fewer."""

    def __init__(self, task: TaskT) -> None:
        self._task = task

    @abstractmethod
    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems of a split without end; None where a draw is of no use."""

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split.

        Raises:
            ConfigError: there are too few.
        """
        draws = self.draws(split, random.Random(f"{self.name} {split} {seed}"))
        return distinct_problems(draws, getattr(self._task, f"num_{split}"), split=split, too_few=self.too_few)


def is_heldout(key: str) -> bool:
    """Return whether problems with this key (operand pair, structure) are held out: about one key in six is.

    It depends on nothing but the key (the first 32 bits of its SHA-1, modulo 6), so splits drawn under different seeds
    or of different sizes never share a key.

    >>> [is_heldout(key) for key in ("12+34", "12+35", "12+36", "12+37")]
    [True, True, False, False]
    """
    return int.from_bytes(sha1(key.encode(), usedforsecurity=False).digest()[:4], "big") % _HELDOUT_ONE_IN == 0


def problem_id(family: str, question: str) -> str:
    """Return a stable name made from the question: the family and the first 48 bits of its SHA-1.

    >>> problem_id("addition", "1 2 + 3 4 =")
    'addition-632253ade9a0'
    """
    return f"{family}-{sha1(question.encode(), usedforsecurity=False).hexdigest()[:12]}"


def distinct_problems(draws: Iterator[Problem | None], count: int, *, split: Split, too_few: str) -> list[Problem]:
    """Return `count` problems with different ids from a source that may repeat itself or (None) find nothing.

    Raises:
        ConfigError: 1,000 draws in a row gave nothing new; `too_few` says what to do.
    """
    problems: dict[str, Problem] = {}
    fruitless = 0
    while len(problems) < count:
        problem = next(draws)
        new = problem is not None and problem.id not in problems
        fruitless = 0 if new else fruitless + 1
        if problem is not None and new:
            problems[problem.id] = problem
        if fruitless == _MAX_FRUITLESS_DRAWS:
            raise ConfigError(f"found only {len(problems)} distinct problems for task.num_{split}={count}; {too_few}")
    return list(problems.values())
