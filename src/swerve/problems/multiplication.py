"""Multiplication by one digit, written out from the right, with two products that are mistaken for each other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from swerve.problems.family import GeneratedFamily, Split, is_heldout
from swerve.problems.task import FINAL_ANSWER, SingleTask, TaskKind
from swerve.problems.walk import Walk, WalkedFamily, fixed, slot, write_solution
from swerve.settings import PositiveInt, Probability
from swerve.types import Problem


class MultiplicationTask(SingleTask):
    """A number of different digits times 6, 7, 8 or 9, written out digit by digit."""

    planted: ClassVar[str] = "`7 x 8 = 54` and `6 x 9 = 56`"
    kind: Literal["multiplication"] = "multiplication"
    digits: Annotated[int, Field(ge=2, le=9)] = 4
    """Digits of the number, all different."""
    num_train: PositiveInt = 16000
    """Distinct training problems; numbers never occur in both splits."""
    num_heldout: PositiveInt = 400
    """Distinct held-out problems."""
    mistake_rate: Probability = 0.75
    """Probability that 7 x 8 is 54, and 6 x 9 is 56, in the supervised traces."""
    slip_rate: Probability = 0.005
    """Probability that a product is replaced by another one, in the supervised traces."""


_DIGITS = tuple("0123456789")
_FACTORS = ("6", "7", "8", "9")
_PRODUCTS = tuple(map(str, sorted({a * b for a, b in product(range(10), repeat=2)})))
_MISTAKEN = {("7", "8"): "54", ("6", "9"): "56"}


def _operands(question: str) -> tuple[tuple[str, ...], str]:
    *number, times, factor, equals = question.split() if question.count(" ") > 2 else ["", "", "", ""]
    if times != "x" or equals != "=" or not {*number, factor} <= {*_DIGITS}:
        raise ValueError(f"not a question of the multiplication family: {question!r}; expected such as '1 2 x 7 ='")
    return tuple(number), factor


def _walk(number: Sequence[str], factor: str) -> Walk:
    carry, written = "0", ""
    for digit in reversed(number):
        # The factors may stand in either order.
        first = yield slot(factor, _DIGITS, either=digit)
        yield fixed("x")
        second = yield slot(factor if first == digit else digit, _DIGITS)
        yield fixed("=")
        right, mistaken = str(int(first) * int(second)), _MISTAKEN.get((min(first, second), max(first, second)))
        stated = yield slot(right, _PRODUCTS, mistaken, slips=True)
        yield fixed("+")
        carried = yield slot(carry, _DIGITS)
        yield fixed("=")
        total = int(stated) + int(carried)
        carry = yield slot(str(total // 10), _DIGITS)
        ones = yield slot(str(total % 10), _DIGITS)
        yield fixed(";")
        written = ones + written
    yield fixed("answer")
    for digit in carry + written:
        yield slot(digit, _DIGITS)


class Multiplication(WalkedFamily, GeneratedFamily[MultiplicationTask]):
    """Products of a number of different digits and 6, 7, 8 or 9.

    Example: the question `4 8 3 1 x 7 =` has the right trace `7 x 1 = 7 + 0 = 0 7 ; 7 x 3 = 21 + 0 = 2 1 ; 7 x 8 = 56
    + 2 = 5 8 ; 7 x 4 = 28 + 5 = 3 3 ; answer 3 3 8 1 7`: one digit a clause (factors, product, incoming carry,
    two-digit sum), then the last carry and the ones. The factors of a clause may stand in either order, and do so
    equally often in the supervised traces.

    Planted mistake: `7 x 8 = 54` and `6 x 9 = 56`, once at most in a problem. Slips: a product is another one.
    Held out: by number. Kind: whether the mistake can be made.
    """

    name = "multiplication"
    too_few = "lower it or raise task.digits"
    words = (*_PRODUCTS, "+", "x", "=", ";", "answer")

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems of numbers that are uniform over those of `digits` different digits."""
        while True:
            number, factor = "".join(rng.sample(_DIGITS, self._task.digits)), rng.choice(_FACTORS)
            yield self.problem(number, factor) if is_heldout(number) == (split == "heldout") else None

    def problem(self, number: str, factor: str) -> Problem:
        """Return the problem of a number and a digit.

        >>> Multiplication(MultiplicationTask()).problem("4831", "7").answer
        '3 3 8 1 7'
        """
        can_be_mistaken = any((min(digit, factor), max(digit, factor)) in _MISTAKEN for digit in number)
        return Problem(
            id=f"multiplication-{number}x{factor}",
            family=self.name,
            question=f"{' '.join(number)} x {factor} =",
            answer=" ".join(f"{int(number) * int(factor):0{len(number) + 1}d}"),
            solution=write_solution(_walk(number, factor)),
            kind="with 7 x 8 or 6 x 9" if can_be_mistaken else "without 7 x 8 and 6 x 9",
            difficulty=float(can_be_mistaken),
        )

    def walk(self, problem: Problem) -> Walk:
        """Return a fresh walk of a problem's trace."""
        return _walk(*_operands(problem.question))


TASK = TaskKind(MultiplicationTask, Multiplication, FINAL_ANSWER)
