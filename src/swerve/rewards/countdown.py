"""Does an expression reach the target with the given numbers?"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from swerve.grading.answers import STATED, find_answer
from swerve.grading.arithmetic import Arithmetic, ArithmeticLimitError, ParseError, parse_arithmetic
from swerve.types import Problem, Reward

__all__ = ["grade_countdown"]


class _Asked(NamedTuple):
    numbers: tuple[int, ...]
    target: int
    use_all: bool


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
        asked = _asked(problem)
    except (KeyError, TypeError, ValueError) as error:
        return Reward(value=None, status="error", detail=f"the problem's metadata lacks numbers or target ({error})")
    stated = find_answer(text, STATED)
    if stated is None:
        return Reward(value=None, status="unparsed")
    try:
        found = parse_arithmetic(_without_target(stated, asked.target))
    except ArithmeticLimitError as error:
        return Reward(value=None, status="timeout", extracted=stated, detail=str(error))
    except ParseError:
        found = None
    parts = {"expression": float(found is not None), **_parts(found, asked)}
    return Reward(value=float(all(parts.values())), status="graded", parts=parts, extracted=stated)


def _asked(problem: Problem) -> _Asked:
    metadata = problem.metadata
    numbers = tuple(int(number) for number in metadata["numbers"])
    return _Asked(numbers, int(metadata["target"]), bool(metadata.get("use_all", True)))


def _without_target(stated: str, target: int) -> str:
    if len(stated) > 1 and stated.startswith("$") and stated.endswith("$"):
        stated = stated.strip("$").strip()
    expression, equals, value = stated.rpartition("=")
    return expression if equals and value.strip() == str(target) else stated


def _parts(found: Arithmetic | None, asked: _Asked) -> dict[str, float]:
    if found is None:
        return {"numbers": 0.0, "target": 0.0}
    used, given = Counter(found.numbers), Counter(asked.numbers)
    allowed = used == given if asked.use_all else used <= given
    return {"numbers": float(allowed), "target": float(found.value == asked.target)}
