"""The grader of mathematics: extraction, limits, comparison, in the cheapest order that decides."""

from __future__ import annotations

import functools
import json
import re

from swerve.grading.policies import MathGrading
from swerve.rewards.maths.clock import clock_times, is_marked
from swerve.rewards.maths.compare import NeedsNumbers, same_answer
from swerve.rewards.maths.expressions import Node
from swerve.rewards.maths.extract import extract_answer
from swerve.rewards.maths.limits import LIMITS, LimitReached, check_limits
from swerve.rewards.maths.normalise import normalise, plain_words
from swerve.rewards.maths.parser import parse
from swerve.rewards.maths.shapes import is_unevaluated
from swerve.rewards.maths.tokens import NotParsed
from swerve.types import Problem, Reward

__all__ = ["equivalent", "grade_math", "quick_math"]

_LONGEST_TEXT = 4_000_000
_CHOICE = re.compile(r"\(?([A-Z])(?:\)|[.:](?= |$)|$)")
_MORE_CHOICES = re.compile(
    r"[ ,;:/|&]*(?:(?:or|and|nor|not|but) +)+\(?[A-Z](?![\w'])|[ ,;:/|&]*\(?[A-Z](?![\w'])(?! [a-z])"
    r"|.*(?:\([A-Z]\)|(?<![\w'])[A-Z][.):](?= |$))"
)
"""After the letter of a choice: another one, in a list, after a word such as `or`, or as a label."""
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])")
_REASON = re.compile(r",? \(?(?:because|since)\b.*$", re.DOTALL)
_DIVIDES_BY_ZERO = re.compile(r"[^{}]/ ?0(?![0-9.])|\\[dtc]?frac ?(?:\{[^{}]{0,80}\}|[0-9]) ?(?:\{ ?0 ?\}|0)")
_NOT_EVALUATED = re.compile(r"\\(?:sum|prod|i+nt|oint|lim|[bp]?mod|gcd|lcm)(?![a-zA-Z])")
_FORMULA_SIGNS = re.compile(r"[\\^_=<>{}()\[\]|*+/]|[0-9]!")
_ZERO_GROUP = re.compile(r"[0-9],0[0-9]{2}(?![0-9])")
_OPERATION = re.compile(r"[\^_=<>+|]|[0-9]!")
"""Signs that words do not stand for: `plain_words` takes no notice of them."""
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox) ?\{([^{}]*[a-z]{2}[^{}]*)\}")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|rm|bf)(?![a-z])|[{}$]")
_DECIMAL = re.compile(r"[-+]? ?[0-9]+\.[0-9]+")
_DECIMAL_COMMA = re.compile(r"[-+]? ?[0-9]+(?:,|\{,\})(?![0-9]{3}(?![0-9]))[0-9]+")
_VALUE_WITH_LETTERS = re.compile(r"[-+]? ?[0-9]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def grade_math(problem: Problem, text: str) -> Reward:
    r"""Return 1 if the answer in a text is the gold answer or one of its alternatives, else 0; never raises.

    `problem.grading` holds the policies that differ from `MathGrading`'s. A text without an answer is `unparsed`;
    an answer past a limit of size is `timeout`, unless it is the gold answer's own text. It may take
    seconds on answers that are made to take long, so it belongs into a worker process that can be killed.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> grade_math(problem, r"<think>...</think> It is \boxed{0.5}.").value
    1.0
    >>> grade_math(problem, r"It is 0.5.").status
    'unparsed'
    """
    reward = _grade(problem, text, numerically=True)
    assert reward is not None
    return reward


def quick_math(problem: Problem, text: str) -> Reward | None:
    r"""Return `grade_math`'s reward where steps of linear time decide, else None; never raises.

    >>> problem = Problem(id="p", family="math", question="1/3 + 1/6?", answer=r"\frac{1}{2}")
    >>> quick_math(problem, r"\boxed{1/3}").value
    0.0
    >>> quick_math(problem, r"\boxed{\sin 30^\circ}") is None
    True
    """
    return _grade(problem, text, numerically=False)


def equivalent(gold: str, answer: str, policy: MathGrading) -> bool:
    r"""Return whether an answer is the same as a gold answer, both as plain text or LaTeX.

    Args:
        gold: the gold answer.
        answer: the answer to judge, already extracted.
        policy: what to overlook.

    Raises:
        LimitReached: the answers are larger than what is compared.

    >>> equivalent(r"\frac{1}{2}", "0.5", MathGrading()), equivalent("(1, 2)", "(2, 1)", MathGrading())
    (True, False)
    """
    return _equivalent(gold, answer, policy, numerically=True)


def _grade(problem: Problem, text: str, *, numerically: bool) -> Reward | None:
    if len(text) > _LONGEST_TEXT:
        return Reward(value=None, status="timeout", detail=f"characters of the text: {len(text)} > {_LONGEST_TEXT}")
    policy = _policy(json.dumps(dict(problem.grading), sort_keys=True))
    answer = extract_answer(text, policy)
    if answer is None:
        return Reward(value=None, status="unparsed")
    try:
        golds = (problem.answer, *problem.alternatives)
        right = any(_equivalent(gold, answer, policy, numerically=numerically) for gold in golds)
    except NeedsNumbers:
        return None
    except RecursionError:
        limited = Reward(value=None, status="timeout", extracted=answer, detail="depth of a formula")
        return limited if numerically else None
    except LimitReached as limit:
        return Reward(value=None, status="timeout", extracted=answer, detail=str(limit))
    value = float(right)
    return Reward(value=value, status="graded", parts={"answer": value}, extracted=answer)


@functools.lru_cache(maxsize=64)
def _policy(grading: str) -> MathGrading:
    return MathGrading.model_validate_json(grading)


def _equivalent(gold: str, answer: str, policy: MathGrading, *, numerically: bool) -> bool:
    if len(answer) > LIMITS.characters and answer != gold:
        raise LimitReached(f"characters: {len(answer)} > {LIMITS.characters}")
    gold_text, answer_text = _normalised_gold(gold), _REASON.sub("", normalise(answer))
    if not answer_text or not gold_text:
        return False
    if _is_same_text(gold_text, answer_text):
        return not _DIVIDES_BY_ZERO.search(answer_text)
    check_limits(answer_text)
    check_limits(gold_text)
    verdict = _same_choice(gold_text, answer_text)
    if verdict is None:
        verdict = _same_time(gold_text, answer_text)
    if verdict is not None:
        return verdict
    if _same_formula(gold_text, answer_text, policy, numerically) or _same_words(gold_text, answer_text):
        return True
    for text in (answer_text, gold_text):
        operation = _NOT_EVALUATED.search(text)
        if operation and _is_not_evaluated(text):
            raise LimitReached(f"{operation[0]} is not evaluated")
    return False


def _is_not_evaluated(text: str) -> bool:
    tree = _parsed(text, thousands=True)
    return tree is None or is_unevaluated(tree)


def _is_same_text(gold: str, answer: str) -> bool:
    first, second = _without_loose_spaces(gold), _without_loose_spaces(answer)
    return first == second or _without_loose_spaces(_TEXT.sub(r"\1", gold)) == _without_loose_spaces(
        _TEXT.sub(r"\1", answer)
    )


def _same_choice(gold: str, answer: str) -> bool | None:
    choice = _choice(gold)
    given = _choice(answer, any_case=True) if choice is not None else None
    return None if given is None else choice == given


def _same_time(gold: str, answer: str) -> bool | None:
    """Compare times of the day, where one side says a.m. or p.m."""
    if not is_marked(gold) and not is_marked(answer):
        return None
    times, given = clock_times(gold), clock_times(answer)
    return None if times is None or given is None else bool(times & given)


def _same_formula(gold: str, answer: str, policy: MathGrading, numerically: bool) -> bool:
    """Compare as formulas, with `1,234` first as one number, then as two; `1,000` is never two."""
    is_pair = ("," in gold or "," in answer) and not any(map(_ZERO_GROUP.search, (gold, answer)))
    if _DECIMAL_COMMA.fullmatch(answer) and _DECIMAL.fullmatch(gold):
        answer = answer.replace("{,}", ",").replace(",", ".")
    for thousands in (True, False) if is_pair else (True,):
        if not thousands:  # `58,500` may be a pair, but `500, 58` is none of its readings
            policy = policy.model_copy(update={"order": "same"})
        gold_tree, tree = _parsed(gold, thousands), _parsed(answer, thousands)
        if gold_tree is not None and tree is not None and same_answer(gold_tree, tree, policy, numerically=numerically):
            return True
    return False


def _same_words(gold: str, answer: str) -> bool:
    is_text = (_is_prose(gold) or _is_prose(answer)) and not any(map(_OPERATION.search, (gold, answer)))
    if all(_VALUE_WITH_LETTERS.match(text) and _parsed(text, thousands=True) for text in (gold, answer)):
        return False  # a megawatt is no milliwatt
    return is_text and plain_words(gold) == plain_words(answer)


@functools.lru_cache(maxsize=1024)
def _normalised_gold(gold: str) -> str:
    return normalise(gold)


def _without_loose_spaces(text: str) -> str:
    return _LOOSE_SPACE.sub("", text.replace("\\ ", " "))


def _choice(text: str, any_case: bool = False) -> str | None:
    r"""Return the letter of a multiple choice, such as that of `(C)`, `C`, `\text{(C)}` or `(C) 12`, not `C or D`."""
    plain = _without_text_commands(text)
    match = _CHOICE.match(plain.upper() if any_case and len(plain) <= 3 else plain)
    return match[1] if match and not _MORE_CHOICES.match(plain, match.end()) else None


def _without_text_commands(text: str) -> str:
    """Return a text without LaTeX's text commands."""
    return _TEXT_COMMAND.sub(" ", text).strip()


def _parsed(text: str, thousands: bool) -> Node | None:
    try:
        return parse(text, thousands=thousands)
    except NotParsed:
        return None


def _is_prose(text: str) -> bool:
    """Return whether a text is words, not a formula that could not be read."""
    plain = _without_text_commands(text)
    return _LETTERS.search(plain) is not None and _FORMULA_SIGNS.search(plain) is None
