"""What a family of generated problems offers to training, evaluation and the probe."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from hashlib import sha1
from typing import Literal, Protocol

from swerve.errors import ConfigError
from swerve.types import Problem, StepMark

__all__ = ["ProblemFamily", "SolvedFamily", "Split", "distinct_problems", "is_heldout", "problem_id"]

Split = Literal["train", "heldout"]

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


class SolvedFamily:
    """What families share whose problems have at most a written solution: no vocabulary and no step checker."""

    words: tuple[str, ...] = ()
    checks_steps = False

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


def distinct_problems(draw: Callable[[], Problem | None], count: int, *, advice: Mapping[str, str]) -> list[Problem]:
    """Return `count` problems with different ids from a source that may repeat itself or (None) find nothing.

    Raises:
        ConfigError: 1,000 draws in a row gave nothing new; `advice` names the setting (`setting`) and what
            to do (`fix`).
    """
    found: dict[str, Problem] = {}
    fruitless = 0
    while len(found) < count:
        problem = draw()
        new = problem is not None and problem.id not in found
        fruitless = 0 if new else fruitless + 1
        if problem is not None and new:
            found[problem.id] = problem
        if fruitless == _MAX_FRUITLESS_DRAWS:
            raise ConfigError(
                f"found only {len(found)} distinct problems for {advice['setting']}={count}; {advice['fix']}"
            )
    return list(found.values())
