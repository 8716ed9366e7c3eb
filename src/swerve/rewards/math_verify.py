"""The verdict of the library math-verify, for comparison with runs that were rewarded by it.

It accepts some wrong answers: it rounds to six decimals and stops reading where it does not understand (`f'(x)` is
`f(x)`, `7 = 5` is 5). The grader `math` is the one to train with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swerve.grading.policies import MathGrading
from swerve.rewards.maths import extract_answer
from swerve.rewards.maths.limits import LimitReached, check_limits
from swerve.types import Problem, Reward

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["grade_math_verify"]


def grade_math_verify(problem: Problem, text: str) -> Reward:
    r"""Return whether `math_verify.verify(parse(gold), parse(answer))` holds, as 1 or 0; needs a worker process.

    The answer is found by the policy `extraction` of `problem.grading`, as for the grader `math`; the other policies do
    not apply. math-verify's own time limits are off: they need the main thread's alarm, and let some answers run for
    minutes. Limits of size come first (`timeout`), the worker's limits of CPU time and memory do the rest.

    >>> problem = Problem(id="p", family="math_verify", question="?", answer=r"\frac{1}{2}")
    >>> grade_math_verify(problem, r"\boxed{0.5}").value
    1.0
    """
    policy = MathGrading.model_validate(dict(problem.grading), strict=False)
    answer = extract_answer(text, policy)
    if answer is None:
        return Reward(value=None, status="unparsed")
    try:
        value = float(any(_verdicts(problem, answer)))
    except LimitReached as limit:
        return Reward(value=None, status="timeout", extracted=answer, detail=str(limit))
    return Reward(value=value, status="graded", parts={"answer": value}, extracted=answer)


def _verdicts(problem: Problem, answer: str) -> Iterator[bool]:
    from math_verify import parse, verify

    check_limits(answer)
    limits: dict[str, Any] = {"parsing_timeout": None, "raise_on_error": True}
    given = parse(f"${answer}$", **limits)
    for gold in (problem.answer, *problem.alternatives):
        check_limits(gold)
        yield bool(verify(parse(f"${gold}$", **limits), given, timeout_seconds=None, raise_on_error=True))
