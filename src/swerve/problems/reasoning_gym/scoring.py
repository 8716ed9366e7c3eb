"""The grader of reasoning-gym: the package's scorers, and our own where those run code or accept wrong answers."""

from __future__ import annotations

import cmath
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from swerve.errors import MissingExtraError
from swerve.grading.answers import STATED_WHOLE, find_answer
from swerve.grading.arithmetic import ArithmeticLimitError, ParseError, parse_arithmetic, read_expression
from swerve.grading.grader import graded
from swerve.types import Problem, Reward

_THRESHOLD = 1.0
_ROUNDING = 1e-9
_DIGIT_LIMIT = "for integer string conversion"

# What scorers raise on answers that have not the form they read.
_UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_LIMITS = (ArithmeticLimitError, RecursionError)


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
    answer = find_answer(text, STATED_WHOLE)
    if answer is None:
        return Reward(value=None, status="unparsed")

    # The item is rebuilt, and the data set's scorer (or ours) judges the answer.
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

    # A score above 1 is a fault of the scorer.
    threshold = problem.grading.get("threshold", _THRESHOLD)
    return replace(graded(threshold <= score <= 1.0 + _ROUNDING, answer, {"score": score}), detail=detail)


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


Scorer = Callable[[Any, str, Mapping[str, Any]], float]
"""(data set, answer, entry) to a score from 0 to 1; 1 is right. ValueError: the answer has not the form asked for."""

_COIN_TOLERANCE = 1e-4
_COIN_RELATIVE = 1e-2
_NUMBER = re.compile(r"-?[0-9][0-9,]{0,60}(?:\.[0-9]{1,60})?")
_RATIO = re.compile(r"\+?[0-9]{0,30}(?:\.[0-9]{0,30})?(?:/[0-9]{1,30})?")
_PROBE_POINTS = ((37, 100), (121, 100))
_PLAINLY_NOT_ZERO = 1e-6


class UnreadableItemError(Exception):
    """An item's own text cannot be read, so that no answer to it can be judged."""


def _countdown(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    metadata = entry["metadata"]
    try:
        expression = parse_arithmetic(answer)
    except ArithmeticLimitError:
        raise
    except ParseError:
        return 0.01
    # puzzle24 has no target: it is always 24
    right = sorted(expression.numbers) == sorted(metadata["numbers"]) and expression.value == metadata.get("target", 24)
    return 1.0 if right else 0.05


def _rows(board: Any) -> str:
    return "\n".join(" ".join(str(cell) for cell in row) for row in board)


def _exact_or(write: Callable[[Any], str], value: float) -> Scorer:
    """Return a scorer that gives 1 to the item's text, and a lower value to a list that is written as it."""

    def score(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
        wanted = entry["metadata"].get("valid_answers", [entry["answer"].strip()])
        if answer in wanted:
            return 1.0
        written = write(json.loads(answer.replace("'", '"')))  # either kind of quotes
        return value if written in wanted else 0.0

    return score


def _polynomial_multiplication(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    # The product must be written out: the factors as they were asked for are another expression.
    variables = entry["metadata"]["variables"]
    return float(read_expression(answer, variables) == _read_item(entry["answer"], variables))


def _integration(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    import sympy

    metadata = entry["metadata"]
    variable = metadata["variable"]
    derivative = sympy.diff(read_expression(answer, (variable,)), sympy.Symbol(variable))
    difference = derivative - _read_item(metadata["integrand"], (variable,))
    return 0.0 if _plainly_not_zero(difference) else float(sympy.simplify(difference) == 0)


def _read_item(text: str, variables: Collection[str]) -> Any:
    try:
        return read_expression(text, variables)
    except ParseError as error:
        raise UnreadableItemError(f"the item's own expression {text[:100]!r} cannot be read: {error}") from error


def _plainly_not_zero(difference: Any) -> bool:
    """Whether the value at a point is away from 0, which is found much faster than by simplifying."""
    import sympy

    for numerator, denominator in _PROBE_POINTS:
        point = sympy.Rational(numerator, denominator)
        value = difference.evalf(15, subs=dict.fromkeys(difference.free_symbols, point))
        if value.is_number and value.is_finite and abs(value) > _PLAINLY_NOT_ZERO:
            return True
    return False


def _bitwise_arithmetic(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    if len(answer) > 200:
        raise ValueError("the number is too long")
    return float(int(answer, 0) == int(entry["answer"], 0))


def _number_sorting(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    given, wanted = (json.loads(text.replace("'", '"')) for text in (answer, entry["answer"]))
    if not isinstance(given, list) or len(given) != len(wanted):
        return 0.0
    return float([float(number) for number in given] == [float(number) for number in wanted])


def _complex_arithmetic(dataset: Any, answer: str, entry: Mapping[str, Any]) -> float:
    given = dataset.parse_string_to_complex(answer)
    if given is None or not cmath.isfinite(given):
        return 0.0
    return math.exp(-abs(given - complex(*entry["metadata"]["result"])))


def _coin_flip(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    if not _RATIO.fullmatch(answer):
        raise ValueError("neither a decimal nor a ratio")
    above, _, below = answer.partition("/")
    difference = abs(Fraction(above) / Fraction(below or 1) - Fraction(entry["answer"]))
    return float(difference <= _COIN_TOLERANCE and difference <= _COIN_RELATIVE * Fraction(entry["answer"]))


def _gsm_symbolic(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    numbers = {Fraction(number.replace(",", "")) for number in _NUMBER.findall(answer)}
    return float(numbers == {Fraction(entry["answer"].replace(",", ""))})


def _same_word(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    return float(answer.lower() == entry["answer"].strip().lower())


def _word_sorting(_: Any, answer: str, entry: Mapping[str, Any]) -> float:
    words, wanted = [word.strip() for word in answer.split(",")], entry["metadata"]["sorted_words"]
    if words == wanted:
        return 1.0
    return 0.2 if sorted(words) == sorted(wanted) else 0.0


OWN_SCORERS: Mapping[str, Scorer] = MappingProxyType(
    {
        # Those of the package run the answer as Python code (eval, or sympy's parse_expr).
        "binary_matrix": _exact_or(_rows, 0.1),
        "countdown": _countdown,
        "intermediate_integration": _integration,
        "n_queens": _exact_or(_rows, 0.5),
        "polynomial_multiplication": _polynomial_multiplication,
        "puzzle24": _countdown,
        "simple_integration": _integration,
        "spiral_matrix": _exact_or(lambda items: " ".join(map(str, items)), 0.1),
        "string_insertion": _exact_or("".join, 0.1),
        # Those of the package run the item's own text as code, which the graders' processes refuse.
        "bitwise_arithmetic": _bitwise_arithmetic,
        "number_sorting": _number_sorting,
        # Those of the package give 1.0 to wrong answers.
        "coin_flip": _coin_flip,
        "complex_arithmetic": _complex_arithmetic,
        "game_of_life_halting": _same_word,
        "gsm_symbolic": _gsm_symbolic,
        "spell_backward": _same_word,
        "word_sorting": _word_sorting,
    }
)
