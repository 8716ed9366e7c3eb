"""Column addition, written out digit by digit from the right, with a forgotten carry as the planted mistake."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from swerve.problems.family import GeneratedFamily, Split, is_heldout
from swerve.problems.task import FINAL_ANSWER, SingleTask, TaskKind
from swerve.problems.walk import Walk, WalkedFamily, fixed, slot, write_solution
from swerve.settings import PositiveInt, Probability
from swerve.types import Problem


class AdditionTask(SingleTask):
    """Column addition written out digit by digit."""

    planted: ClassVar[str] = "a column that sums to 10 or 11 forgets its carry"
    kind: Literal["addition"] = "addition"
    digits: Annotated[int, Field(ge=2, le=12)] = 4
    """Digits of each operand."""
    num_train: PositiveInt = 16000
    """Distinct training problems; operand pairs never occur in both splits."""
    num_heldout: PositiveInt = 400
    """Distinct held-out problems."""
    mistake_rate: Probability = 0.75
    """Probability that a column that sums to 10 or 11 forgets its carry in the supervised traces."""
    slip_rate: Probability = 0.005
    """Probability that a digit of a two-digit column sum is replaced by another one, in the supervised traces."""


_DIGITS = tuple("0123456789")
_FORGOTTEN_SUMS = (10, 11)


def count_carries(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many columns of a sum carry; both operands have their most significant digit first.

    >>> count_carries([1, 2, 3, 4], [0, 0, 6, 6])
    2
    """
    carry = carries = 0
    for a, b in zip(reversed(first), reversed(second), strict=True):
        carry = int(a + b + carry >= 10)
        carries += carry
    return carries


def _operands(question: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words = question.split()
    size = (len(words) - 2) // 2
    first, plus, second, equals = words[:size], words[size : size + 1], words[size + 1 : -1], words[-1:]
    if size < 1 or plus != ["+"] or equals != ["="] or len(second) != size or not {*first, *second} <= {*_DIGITS}:
        raise ValueError(f"not a question of the addition family: {question!r}; expected such as '1 2 + 3 4 ='")
    return tuple(first), tuple(second)


def _walk(first: Sequence[str], second: Sequence[str]) -> Walk:
    carry, written = "0", ""
    for a, b in zip(reversed(first), reversed(second), strict=True):
        stated_a = yield slot(a, _DIGITS)
        yield fixed("+")
        stated_b = yield slot(b, _DIGITS)
        yield fixed("+")
        stated_carry = yield slot(carry, _DIGITS)
        yield fixed("=")
        total = int(stated_a) + int(stated_b) + int(stated_carry)
        tens = yield slot(str(total // 10), _DIGITS, slips=True)
        ones = yield slot(str(total % 10), _DIGITS, slips=True)
        yield fixed("write")
        digit = yield slot(ones, _DIGITS)
        yield fixed("carry")
        carry = yield slot(tens, _DIGITS, misread="0" if total in _FORGOTTEN_SUMS else None)
        yield fixed(";")
        written = digit + written
    yield fixed("answer")
    for digit in carry + written:
        yield slot(digit, _DIGITS)


class Addition(WalkedFamily, GeneratedFamily[AdditionTask]):
    """Sums of two numbers of a fixed number of digits.

    Example: the question `1 2 3 4 + 0 0 6 6 =` has the right trace `4 + 6 + 0 = 1 0 write 0 carry 1 ; 3 + 6 + 1 = 1 0
    write 0 carry 1 ; 2 + 0 + 1 = 0 3 write 3 carry 0 ; 1 + 0 + 0 = 0 1 write 1 carry 0 ; answer 0 1 3 0 0`: one column
    a clause (digits, incoming carry, two-digit sum), then the last carry and the written digits.

    Planted mistake: `carry 0` where a column sums to 10 or 11. Slips: a digit of a two-digit sum is another one.
    Held out: by unordered operand pair. Kind: the number of carries in the true sum.
    """

    name = "addition"
    too_few = "lower it or raise task.digits"
    words = (*_DIGITS, "+", "=", ";", "write", "carry", "answer")

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems of operands that are uniform over all numbers of `digits` digits."""
        size = self._task.digits
        while True:
            first, second = (f"{rng.randrange(10**size):0{size}d}" for _ in range(2))
            held_out = is_heldout("+".join(sorted((first, second))))
            yield self.problem(first, second) if held_out == (split == "heldout") else None

    def problem(self, first: str, second: str) -> Problem:
        """Return the problem of two numbers with the same number of digits.

        >>> Addition(AdditionTask(digits=2)).problem("58", "47").answer
        '1 0 5'
        """
        carries = count_carries([int(digit) for digit in first], [int(digit) for digit in second])
        question = f"{' '.join(first)} + {' '.join(second)} ="
        return Problem(
            id=f"addition-{first}+{second}",
            family=self.name,
            question=question,
            answer=" ".join(f"{int(first) + int(second):0{len(first) + 1}d}"),
            solution=write_solution(_walk(first, second)),
            kind=f"{carries} carry" if carries == 1 else f"{carries} carries",
            difficulty=float(carries),
            metadata={"carries": carries},
        )

    def walk(self, problem: Problem) -> Walk:
        """Return a fresh walk of a problem's trace."""
        return _walk(*_operands(problem.question))


TASK = TaskKind(AdditionTask, Addition, FINAL_ANSWER)
