"""What reasoning-gym's scorers say of an answer: right from a threshold on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from swerve.errors import MissingExtraError
from swerve.grading.arithmetic import ArithmeticLimitError
from swerve.grading.stated_answer import find_stated_answer
from swerve.problems.reasoning_gym.expressions import ExpressionLimitError
from swerve.problems.reasoning_gym.scorers import OWN_SCORERS, UnreadableItemError
from swerve.types import Problem, Reward

__all__ = ["decode_entry", "grade_reasoning_gym", "prepare_for_problem"]

_THRESHOLD = 1.0
_ROUNDING = 1e-9
_DIGIT_LIMIT = "for integer string conversion"

# What scorers raise on answers that have not the form they read.
_UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_LIMITS = (ArithmeticLimitError, ExpressionLimitError, RecursionError)


def grade_reasoning_gym(problem: Problem, text: str) -> Reward:
    r"""Return 1 if the score of a completion's answer reaches the threshold, else 0; the part `score` is the score.

    The answer stands in `<answer>` or `\boxed{}`, else it is all that follows the last `</think>`, without the white
    space around it. The entry is rebuilt from the problem's metadata. An answer on which the scorer fails has not the
    form asked for: its score is 0, and the detail says what the scorer raised. A score above 1 is a fault of a scorer
    and counts as wrong. Other scorers than the package's own judge the data sets of `OWN_SCORERS`. Call it in a process
    that can be killed: some scorers take any time on some answers.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
        MemoryError: the process has no memory left; it should be replaced.
    """
    answer = find_stated_answer(text, whole=True)
    if answer is None:
        return Reward(value=None, status="unparsed")
    metadata = problem.metadata
    entry = {"question": problem.question, **decode_entry(metadata["entry"])}
    dataset = _dataset(problem)
    try:
        score, detail = _score(dataset, metadata["dataset"], answer, entry)
    except _LIMITS as error:
        return _failed("timeout", answer, str(error) or type(error).__name__)
    except UnreadableItemError as error:
        return _failed("error", answer, str(error))
    if not math.isfinite(score):
        return _failed("error", answer, f"the scorer of the data set returned {score}")
    threshold = problem.grading.get("threshold", _THRESHOLD)
    return Reward(
        value=float(threshold <= score <= 1.0 + _ROUNDING),
        status="graded",
        parts={"score": score},
        extracted=answer,
        detail=detail,
    )


def _score(dataset: Any, name: str, answer: str, entry: dict[str, Any]) -> tuple[float, str | None]:
    """Return the score, and what the scorer raised on the answer if it did."""
    own = OWN_SCORERS.get(name)
    try:
        score = own(dataset, answer, entry) if own else dataset.score_answer(answer, entry)
    except _LIMITS:
        raise
    except _UNREADABLE as error:
        if _DIGIT_LIMIT in str(error):
            raise ArithmeticLimitError("a number of too many digits") from error
        return 0.0, f"the answer has not the form that is read: {type(error).__name__}: {str(error)[:200]}"
    return float(score), None


def _failed(status: Literal["timeout", "error"], answer: str, detail: str) -> Reward:
    return Reward(value=None, status=status, extracted=answer, detail=detail)


def prepare_for_problem(problem: Problem) -> None:
    """Load the package and the problem's data set; the graders' processes do so outside an answer's budget of time.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
    """
    _dataset(problem)


def _dataset(problem: Problem) -> Any:
    """Return the data set whose scorer judges; its items are never made here."""
    metadata = problem.metadata
    return _create(metadata["dataset"], json.dumps(metadata.get("options", {}), sort_keys=True))


@lru_cache(maxsize=16)
def _create(name: str, options: str) -> Any:
    try:
        from reasoning_gym import create_dataset
    except ImportError:
        raise MissingExtraError("reasoning-gym", "reasoning-gym", "the task reasoning_gym") from None
    return create_dataset(name, **json.loads(options), seed=0, size=1)


def decode_entry(value: Any) -> Any:
    """Return the value that `swerve.problems.reasoning_gym.encode_entry` made JSON of.

    >>> decode_entry({"board": {"$tuple": [1, 2]}, "peg": {"$dict": [[1, "a"]]}})
    {'board': (1, 2), 'peg': {1: 'a'}}
    """
    if isinstance(value, list):
        return [decode_entry(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        (tag, content), *_ = value.items()
        if tag == "$tuple":
            return tuple(decode_entry(item) for item in content)
        if tag == "$set":
            return {decode_entry(item) for item in content}
        if tag == "$dict":
            return {decode_entry(key): decode_entry(item) for key, item in content}
    return {key: decode_entry(item) for key, item in value.items()}
