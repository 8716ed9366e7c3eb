"""Sequences of constant difference modulo a number: a toy that a tiny model learns in minutes."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from swerve.errors import ConfigError
from swerve.grading.grader import GraderEntry, graded
from swerve.problems.family import SolvedFamily, Split, is_heldout
from swerve.problems.prompt import PromptConfig, with_prompt
from swerve.problems.task import PromptedTask, TaskKind
from swerve.problems.walk import Walk, WalkedFamily, slot
from swerve.settings import PositiveInt, Probability
from swerve.types import Problem, Reward


class ArithmeticSequenceTask(PromptedTask):
    """Continue a sequence of constant difference modulo a number: a toy that a tiny model learns in minutes."""

    planted: ClassVar[str] = "a term that wraps around is one too high"
    kind: Literal["arithmetic_sequence"] = "arithmetic_sequence"
    max_number: Annotated[int, Field(ge=2, le=1000)] = 9
    """Terms are taken modulo this."""
    num_terms: PositiveInt = 8
    """Most terms asked for."""
    restate: bool = False
    """Begin the answer with the two given terms, so that each term follows the two it is made from."""
    num_train: PositiveInt = 400
    """Distinct training problems."""
    num_heldout: PositiveInt = 80
    """Distinct held-out problems."""
    mistake_rate: Probability = 0.0
    """Share of wrapped terms that are one too high in the supervised traces."""
    slip_rate: Probability = 0.0
    """Share of terms replaced by a random one in the supervised traces; later terms follow from it."""
    prompt: PromptConfig = PromptConfig()


_QUESTION = re.compile(r"\s*(\d+)\s*,\s*(\d+)\s*:\s*(\d+)\s*,\s*(\d+)\s*", re.ASCII)


def next_terms(question: str) -> list[int]:
    """Return the terms that a question `first,second:modulus,count` asks for; spaces are left out.

    Raises:
        ValueError: the question has another form, or its modulus is 0.

    >>> next_terms("8,3:9,4")
    [7, 2, 6, 1]
    """
    match = _QUESTION.fullmatch(question)
    if match is None or int(match[3]) == 0:
        raise ValueError(f"not a question of the arithmetic_sequence family: {question!r}; expected such as '8,3:9,4'")
    first, second, modulus, count = map(int, match.groups())
    return [(second + (second - first) * step) % modulus for step in range(1, count + 1)]


class ArithmeticSequence(WalkedFamily, SolvedFamily):
    """Two terms, a modulus and a count: the question `8 , 3 : 9 , 4` asks for the next 4 terms modulo 9, `7 2 6 1`.

    The questions are those of verl's end-to-end test (`8,3:9,4`) with spaces: every number is one word. The completion
    is the terms alone, and each of them follows from the two before it, which is how `check` finds wrong ones. With
    `task.restate` it begins with the two given terms: `8 3 7 2 6 1`.

    Planted mistake of the supervised traces: a term that wraps around, below 0 or above the modulus, is one too high.
    Slips: a random term. What follows a wrong term follows from it.

    Held out: by the first two terms. Kind and difficulty: how many terms are asked for.
    """

    name = "arithmetic_sequence"

    def __init__(self, task: ArithmeticSequenceTask) -> None:
        if task.prompt.format != "plain":
            raise ConfigError(
                f"task.prompt.format {task.prompt.format} cannot be used with arithmetic_sequence, whose completions "
                "are the terms alone; use plain"
            )
        self._task = task
        self.words = (*map(str, range(max(task.max_number, task.num_terms) + 1)), ",", ":")

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split, drawn from all pairs of terms and all counts up to `num_terms`.

        Raises:
            ConfigError: there are too few of them.
        """
        task = self._task
        wanted = task.num_train if split == "train" else task.num_heldout
        cases = [
            (first, second, count)
            for first, second in product(range(task.max_number), repeat=2)
            if is_heldout(f"{first},{second}:{task.max_number}") == (split == "heldout")
            for count in range(1, task.num_terms + 1)
        ]
        if wanted > len(cases):
            raise ConfigError(
                f"there are only {len(cases)} distinct problems for task.num_{split}={wanted}; lower it or raise "
                "task.max_number or task.num_terms"
            )
        drawn = random.Random(f"arithmetic_sequence {split} {seed}").sample(cases, wanted)
        return [self.problem(*case) for case in drawn]

    def problem(self, first: int, second: int, count: int) -> Problem:
        """Return the problem of two terms that asks for the next `count`.

        >>> ArithmeticSequence(ArithmeticSequenceTask()).problem(8, 3, 4).answer
        '7 2 6 1'
        """
        modulus = self._task.max_number
        question = f"{first} , {second} : {modulus} , {count}"
        asked = {"first": first, "second": second, "modulus": modulus, "num_terms": count}

        # The two given terms begin the answer where the task asks for them.
        given = [first, second] if self._task.restate else []
        answer = " ".join(map(str, [*given, *next_terms(question)]))
        problem = Problem(
            id=f"{self.name}-{question.replace(' ', '')}",
            family=self.name,
            question=question,
            answer=answer,
            solution=answer,
            kind="1 term" if count == 1 else f"{count} terms",
            difficulty=float(count),
            metadata={**asked, "restate": self._task.restate},
        )
        return with_prompt(problem, self._task.prompt)

    def walk(self, problem: Problem) -> Walk:
        """Walk through a problem's terms."""
        metadata = problem.metadata
        before, last, modulus = metadata["first"], metadata["second"], metadata["modulus"]
        choices = tuple(map(str, range(modulus)))
        if metadata["restate"]:
            before = int((yield slot(str(before), choices)))
            last = int((yield slot(str(last), choices)))
        for _ in range(metadata["num_terms"]):
            wraps, term = divmod(2 * last - before, modulus)
            misread = str((term + 1) % modulus) if wraps else None
            stated = yield slot(str(term), choices, misread, slips=True)
            before, last = last, int(stated)


def grade_arithmetic_sequence(problem: Problem, text: str) -> Reward:
    """Return 1 if a completion is exactly the terms of the problem's answer, else 0; never raises on any text.

    Terms are separated by white space or commas and compared as they are written. An empty completion is unparsed. The
    part `terms` is the share of the answer's terms that are right before the first wrong one.

    >>> problem = Problem(id="p", family="arithmetic_sequence", question="8 , 3 : 9 , 4", answer="7 2 6 1")
    >>> grade_arithmetic_sequence(problem, "7,2,6,1").value
    1.0
    >>> grade_arithmetic_sequence(problem, "7 2 5 1").parts
    {'terms': 0.5}
    """
    given = text.replace(",", " ").split()
    if not given:
        return Reward(value=None, status="unparsed")
    wanted = problem.answer.split()
    right = 0
    while right < min(len(given), len(wanted)) and given[right] == wanted[right]:
        right += 1
    return graded(given == wanted, " ".join(given), {"terms": right / len(wanted) if wanted else 0.0})


TASK = TaskKind(
    ArithmeticSequenceTask, ArithmeticSequence, GraderEntry(module=__name__, function="grade_arithmetic_sequence")
)
