"""Graders of mathematics: the answer of a text is compared with the gold answers."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from swerve.grading.answers import find_answer
from swerve.grading.grader import graded
from swerve.grading.maths.answer import Answer
from swerve.grading.maths.equivalence import read_gold, same_answers, same_text
from swerve.grading.maths.limits import LIMITS, QUICK_LIMITS, LimitReached, check_limits
from swerve.grading.maths.rationals import NeedsNumbers
from swerve.grading.policies import MathGrading
from swerve.grading.reading import steps
from swerve.grading.sentences import is_open
from swerve.types import Problem, Reward

_LONGEST_TEXT = 4_000_000
_LONGEST_QUICK_GOLD = 4000
_MOST_QUICK_GOLDS = 4


def grade_math(problem: Problem, text: str) -> Reward:
    r"""Return 1 if the answer in a text is the gold answer or one of its alternatives, else 0; never raises.

    `problem.grading` holds the policies that differ from those of `MathGrading`. A text without an answer is
    `unparsed`; an answer past a limit of size is `timeout`, unless it is the gold answer's own text. It may take
    seconds on answers that are made to take long, so it belongs into a worker process that can be killed.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> grade_math(problem, r"<think>...</think> It is \boxed{0.5}.").value
    1.0
    >>> grade_math(problem, "I do not know.").status
    'unparsed'
    """
    reward = _grade(problem, text, numerically=True)
    assert reward is not None
    return reward


def quick_math(problem: Problem, text: str) -> Reward | None:
    r"""Return `grade_math`'s reward where cheap steps decide, else None; never raises.

    Finding the answer takes time linear in the text's length. An answer and golds within `QUICK_LIMITS` (exponents to
    64, numbers of 256 bits, ...) are compared without numerical values; all others are left to `grade_math`.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> quick_math(problem, r"\boxed{1/3}").value
    0.0
    >>> quick_math(problem, r"\boxed{\sin 30^\circ}") is None
    True
    """
    return _grade(problem, text, numerically=False)


def _grade(problem: Problem, text: str, *, numerically: bool) -> Reward | None:
    if len(text) > _LONGEST_TEXT:
        return Reward(value=None, status="timeout", detail=f"characters of the text: {len(text)} > {_LONGEST_TEXT}")
    policy = _policy(json.dumps(dict(problem.grading), sort_keys=True))
    found = find_answer(text, policy.extraction, after_thinking=policy.thinking == "after")
    if found is None:
        return Reward(value=None, status="unparsed")
    golds = (problem.answer, *problem.alternatives)
    if not numerically and (len(golds) > _MOST_QUICK_GOLDS or max(map(len, golds)) > _LONGEST_QUICK_GOLD):
        return None
    if text.strip() in map(str.strip, golds):
        golds = (found, *golds)  # a whole solution, or whatever else the same forms read in the same way

    # What is written as the gold answer is right at any step; else the last step is what the text says.
    expected, limits = [read_gold(gold) for gold in golds], LIMITS if numerically else QUICK_LIMITS
    answer = Answer(found)
    try:
        for answer in steps(found, limits):
            verdicts = [same_text(gold, answer, limits) for gold in expected]
            if True in verdicts:
                return graded(True, answer.text)
        asked = [gold for gold, verdict in zip(expected, verdicts, strict=True) if verdict is None]
        right = any(same_answers(gold, answer, policy, numerically=numerically) for gold in asked)
    except NeedsNumbers:
        return None
    except (LimitReached, RecursionError) as limit:
        detail = str(limit) if isinstance(limit, LimitReached) else "depth of a formula"
        return Reward(value=None, status="timeout", extracted=answer.text, detail=detail) if numerically else None
    return graded(right, answer.text)


@functools.lru_cache(maxsize=64)
def _policy(grading: str) -> MathGrading:
    return MathGrading.model_validate_json(grading)


def grade_math_verify(problem: Problem, text: str) -> Reward:
    r"""Return whether `math_verify.verify(parse(gold), parse(answer))` holds, as 1 or 0; needs a worker process.

    It is for comparison with runs that were rewarded by this library, which accepts some wrong answers: it rounds to
    six decimals and stops reading where it does not understand (`f'(x)` is `f(x)`, `7 = 5` is 5). `grade_math` is the
    one to train with.

    The answer is found by the policy `extraction` of `problem.grading`, as for the grader `math`; the other policies do
    not apply. math-verify's own time limits are off: they need the main thread's alarm, and let some answers run for
    minutes. Limits of size come first (`timeout`), the worker's limits of CPU time and memory do the rest.

    >>> problem = Problem(id="p", family="math_verify", question="?", answer=r"\frac{1}{2}")
    >>> grade_math_verify(problem, r"\boxed{0.5}").value
    1.0
    """
    policy = _policy(json.dumps(dict(problem.grading), sort_keys=True))
    found = find_answer(text, policy.extraction, after_thinking=policy.thinking == "after")
    if found is None:
        return Reward(value=None, status="unparsed")
    answer = found
    try:
        *_, answer = (step.text for step in steps(found))
        if is_open(answer):
            return graded(False, answer)  # the library would take a number of it all the same
        return graded(any(_verdicts(problem, answer)), answer)
    except LimitReached as limit:
        return Reward(value=None, status="timeout", extracted=answer, detail=str(limit))


def _verdicts(problem: Problem, answer: str) -> Iterator[bool]:
    from math_verify import parse, verify

    check_limits(answer)
    limits: dict[str, Any] = {"parsing_timeout": None, "raise_on_error": True}
    given = parse(f"${answer}$", **limits)
    for gold in (problem.answer, *problem.alternatives):
        check_limits(gold)
        yield bool(verify(parse(f"${gold}$", **limits), given, timeout_seconds=None, raise_on_error=True))
