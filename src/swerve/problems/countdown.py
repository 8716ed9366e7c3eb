"""Countdown: reach a target from given numbers with + - * /."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from swerve.formats.countdown_rows import question
from swerve.grading.answers import STATED, find_answer
from swerve.grading.arithmetic import ArithmeticLimitError, ParseError, parse_arithmetic
from swerve.grading.grader import GraderEntry, graded
from swerve.problems.family import GeneratedFamily, Split, is_heldout, problem_id
from swerve.problems.prompt import PromptConfig, stated_solution, with_prompt
from swerve.problems.task import PromptedTask, TaskKind
from swerve.settings import PositiveInt
from swerve.types import Problem, Reward


class CountdownTask(PromptedTask):
    """Reach a target from the given numbers, each used at most once, with + - * /; many answers are right."""

    kind: Literal["countdown"] = "countdown"
    min_numbers: Annotated[int, Field(ge=2, le=6)] = 3
    """Fewest numbers given."""
    max_numbers: Annotated[int, Field(ge=2, le=6)] = 4
    """Most numbers given."""
    max_value: PositiveInt = 50
    """Largest number given."""
    max_target: PositiveInt = 200
    """Largest target."""
    use_all: bool = True
    """Whether every number must be used."""
    spaced: bool = False
    """Short questions and answers with a space between symbols, for word tokenizers such as the tiny model's."""
    num_train: PositiveInt = 4000
    """Distinct training problems."""
    num_heldout: PositiveInt = 200
    """Distinct held-out problems."""
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _check_numbers(self) -> CountdownTask:
        if self.min_numbers > self.max_numbers:
            raise ValueError(f"min_numbers ({self.min_numbers}) must be at most max_numbers ({self.max_numbers})")
        return self


_SIGNS = ("+", "-", "*", "/", "(", ")", "=")


class _Term(NamedTuple):
    """An expression that is being built: its value, its words, and how its last sign binds (2: as a number does)."""

    value: Fraction
    words: tuple[str, ...]
    binding: int = 2


def _enclosed(term: _Term, least: int) -> tuple[str, ...]:
    return term.words if term.binding >= least else ("(", *term.words, ")")


def _joined(left: _Term, sign: str, right: _Term) -> _Term | None:
    """Return `left sign right` with no more parentheses than it needs; None where it divides by zero."""
    if sign == "+":
        return _Term(left.value + right.value, (*left.words, "+", *right.words), 0)
    if sign == "-":
        return _Term(left.value - right.value, (*left.words, "-", *_enclosed(right, 1)), 0)
    if sign == "*":
        return _Term(left.value * right.value, (*_enclosed(left, 1), "*", *_enclosed(right, 1)), 1)
    if right.value == 0:
        return None
    return _Term(left.value / right.value, (*_enclosed(left, 1), "/", *_enclosed(right, 2)), 1)


def _written(words: Sequence[str]) -> str:
    return " ".join(words).replace("( ", "(").replace(" )", ")")


class Countdown(GeneratedFamily[CountdownTask]):
    """Numbers and a target that at least one expression of them reaches; many do, and all of them are right.

    A problem is made from its own solution: numbers are drawn, then joined at random, with every value on the way a
    whole number from 1 to `max_target`. With `spaced` the question is short and a space stands between all signs, as in
    the question `19 36 55 7 = 65` with the answer `55 + 36 - 19 - 7`.

    Held out: by the numbers, whatever their order, and the target. Kind and difficulty: how many numbers are given.
    Metadata: `numbers`, `target`, `use_all`.
    """

    name = "countdown"
    too_few = "lower it or raise task.max_numbers, max_value or max_target"

    def __init__(self, task: CountdownTask) -> None:
        super().__init__(task)
        largest = max(task.max_value, task.max_target)
        self.words = (*map(str, range(1, largest + 1)), *_SIGNS) if task.spaced else ()

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems; None where numbers cannot be joined, or are of the other split."""
        while True:
            yield self._draw(split, rng)

    def _draw(self, split: Split, rng: random.Random) -> Problem | None:
        size = rng.randint(self._task.min_numbers, self._task.max_numbers)
        numbers = [rng.randint(1, self._task.max_value) for _ in range(size)]
        used = size if self._task.use_all else rng.randint(2, size)
        solution = _random_expression(numbers[:used], self._task.max_target, rng)
        if solution is None:
            return None
        target = int(solution.value)
        if not self._task.use_all and target in numbers:
            return None
        asked = rng.sample(numbers, size)
        if is_heldout(_key(asked, target)) != (split == "heldout"):
            return None
        return self.problem(asked, target, solution.words)

    def problem(self, numbers: Sequence[int], target: int, solution: Sequence[str]) -> Problem:
        """Return the problem of numbers in this order, and the words of one right answer.

        >>> Countdown(CountdownTask()).problem([3, 5, 2], 16, ["(", "3", "+", "5", ")", "*", "2"]).answer
        '(3 + 5) * 2'
        """
        task = self._task
        answer = " ".join(solution) if task.spaced else _written(solution)
        problem = Problem(
            id=problem_id(self.name, _key(numbers, target)),
            family=self.name,
            question=self._question(numbers, target),
            answer=answer,
            solution=stated_solution(answer, task.prompt),
            kind=f"{len(numbers)} numbers",
            difficulty=float(len(numbers)),
            metadata={"numbers": list(numbers), "target": target, "use_all": task.use_all},
        )
        return with_prompt(problem, task.prompt)

    def _question(self, numbers: Sequence[int], target: int) -> str:
        if self._task.spaced:
            return f"{' '.join(map(str, numbers))} = {target}"
        return question(numbers, target, use_all=self._task.use_all)


def _key(numbers: Sequence[int], target: int) -> str:
    return f"{' '.join(map(str, sorted(numbers)))} = {target}"


def _random_expression(numbers: Sequence[int], max_target: int, rng: random.Random) -> _Term | None:
    """Join numbers at random, every value on the way a whole number from 1 to `max_target`; None where none fits."""
    terms = [_Term(Fraction(number), (str(number),)) for number in numbers]
    while len(terms) > 1:
        left, right = (terms.pop(rng.randrange(len(terms))) for _ in range(2))
        joined = (_joined(left, sign, right) for sign in "+-*/")
        fitting = [term for term in joined if term and term.value.denominator == 1 and 1 <= term.value <= max_target]
        if not fitting:
            return None
        terms.append(rng.choice(fitting))
    return terms[0]


def grade_countdown(problem: Problem, text: str) -> Reward:
    r"""Return 1 if a completion states an expression with the target's value from the numbers given, else 0.

    Of the stated answer (`swerve.grading.answers.STATED`) dollar signs around it and one `= target` after it are left
    out; the rest must be arithmetic (`swerve.grading.arithmetic`), computed exactly. Every given number may be used
    once (metadata `use_all`: must be) and no other number. The parts say whether it is arithmetic, whether the numbers
    are right and whether the value is. An expression beyond the parser's limits is a timeout. Never raises on any text.

    >>> problem = Problem(id="p", family="countdown", question="?", answer="(8 + 2) * 3",
    ...     metadata={"numbers": [2, 3, 8], "target": 30, "use_all": True})
    >>> grade_countdown(problem, r"\boxed{3 \times (2 + 8) = 30}").value
    1.0
    >>> grade_countdown(problem, "30").value
    0.0
    """
    try:
        numbers = [int(number) for number in problem.metadata["numbers"]]
        target, use_all = int(problem.metadata["target"]), bool(problem.metadata.get("use_all", True))
    except (KeyError, TypeError, ValueError) as error:
        return Reward(value=None, status="error", detail=f"the problem's metadata lacks numbers or target ({error})")

    # The stated expression, without `= target` after it.
    stated = find_answer(text, STATED)
    if stated is None:
        return Reward(value=None, status="unparsed")
    try:
        expression = parse_arithmetic(_without_target(stated, target))
    except ArithmeticLimitError as error:
        return Reward(value=None, status="timeout", extracted=stated, detail=str(error))
    except ParseError:
        expression = None

    # Which numbers it uses, and what it is worth.
    parts = dict.fromkeys(("expression", "numbers", "target"), 0.0)
    if expression is not None:
        used, given = Counter(expression.numbers), Counter(numbers)
        is_allowed = used == given if use_all else used <= given
        parts = {"expression": 1.0, "numbers": float(is_allowed), "target": float(expression.value == target)}
    return graded(all(parts.values()), stated, parts)


def _without_target(stated: str, target: int) -> str:
    if len(stated) > 1 and stated.startswith("$") and stated.endswith("$"):
        stated = stated.strip("$").strip()
    expression, equals, value = stated.rpartition("=")
    return expression if equals and value.strip() == str(target) else stated


TASK = TaskKind(CountdownTask, Countdown, GraderEntry(module=__name__, function="grade_countdown", needs_gold=False))
