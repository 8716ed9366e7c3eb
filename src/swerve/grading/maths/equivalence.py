"""Whether an answer's text is the gold answer: as text, as words, as a formula; the cheapest comparison first."""

from __future__ import annotations

import functools
import re

from swerve.grading.answers import gold_answer
from swerve.grading.maths.answer import Answer, is_month, parsed, without_text_commands
from swerve.grading.maths.compare import same_answer
from swerve.grading.maths.lexer import plain_words
from swerve.grading.maths.limits import LIMITS, QUICK_LIMITS, LimitReached, Limits, check_limits
from swerve.grading.maths.rationals import NeedsNumbers
from swerve.grading.maths.shapes import is_unevaluated
from swerve.grading.policies import MathGrading

_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])")
_NAMED_WORD = re.compile(r"^[a-zA-Z] ?= ?(?=\\(?:text|mbox)(?![a-z]))")
_DIVIDES_BY_ZERO = re.compile(r"[^{}]/ ?0(?![0-9.])|\\[dtc]?frac ?(?:\{[^{}]{0,80}\}|[0-9]) ?(?:\{ ?0 ?\}|0)")
_NOT_EVALUATED = re.compile(r"\\(?:sum|prod|i+nt|oint|lim|[bp]?mod|gcd|lcm)(?![a-zA-Z])")
_WRITTEN_OUT = re.compile(r"\\(?:sum|prod)(?![a-zA-Z])")
_FORMULA_SIGNS = re.compile(r"[\\^_=<>{}()\[\]|*+/]|[0-9]!")
_ZERO_GROUP = re.compile(r"[0-9],0[0-9]{2}(?![0-9])")
_OPERATION = re.compile(r"[\^_=<>+|]|[0-9]!")
"""Signs that words do not stand for: `plain_words` takes no notice of them."""
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox) ?\{((?=[^{}]*[a-z]{2})[^{}]*+)\}")
_DECIMAL = re.compile(r"[-+]? ?[0-9]+\.[0-9]+")
_DECIMAL_COMMA = re.compile(r"[-+]? ?[0-9]+(?:,|\{,\})(?![0-9]{3}(?![0-9]))[0-9]+")
_VALUE_WITH_LETTERS = re.compile(r"[-+]? ?[0-9]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_THOUSANDS = re.compile(r"([-+]? ?[0-9,]+(?:\.[0-9]+)?)[kK]")
_ITEM_END = re.compile(r"[,;]\s+")
_DEFAULTS = MathGrading()


@functools.lru_cache(maxsize=1024)
def read_gold(gold: str) -> Answer:
    """Return what the text of a gold answer says (`gold_answer`), read once."""
    return Answer(gold_answer(gold), is_gold=True)


def equivalent(gold: str, answer: str, policy: MathGrading = _DEFAULTS, *, numerically: bool = True) -> bool:
    r"""Return whether an answer is the same as a gold answer, both as plain text or LaTeX.

    Args:
        gold: the gold answer, or a solution or sentence that holds it (`gold_answer`).
        answer: the answer to judge, already extracted.
        policy: what to overlook.
        numerically: whether values may be computed numerically; without, `QUICK_LIMITS` bound all work on the answer.

    Raises:
        LimitReached: the answers are larger than what is compared.
        NeedsNumbers: it takes numerical values, or a sum written out, and they are not allowed.

    >>> equivalent(r"\frac{1}{2}", "0.5"), equivalent("(1, 2)", "(2, 1)")
    (True, False)
    """
    expected, given = read_gold(gold), Answer(answer)
    verdict = same_text(expected, given, LIMITS if numerically else QUICK_LIMITS)
    return same_answers(expected, given, policy, numerically=numerically) if verdict is None else verdict


def same_text(gold: Answer, answer: Answer, limits: Limits = LIMITS) -> bool | None:
    """Return whether two answers are written the same and divide by nothing that is zero; None: they are not."""
    is_same = gold.text.strip() == answer.text.strip()
    if not is_same and len(answer.text) > limits.characters:
        return None
    if not gold.written or not answer.written:
        return False
    return not _DIVIDES_BY_ZERO.search(answer.written) if is_same or _is_same_text(gold, answer) else None


def same_answers(gold: Answer, answer: Answer, policy: MathGrading = _DEFAULTS, *, numerically: bool = True) -> bool:
    """Return whether two answers that are not written the same are the same; see `equivalent`."""
    limits = LIMITS if numerically else QUICK_LIMITS
    check_sizes(answer, limits)
    check_sizes(gold, limits)

    # Choices, times and codes have rules of their own.
    if gold.choice is not None and answer.choice_in_any_case is not None:
        return gold.choice == answer.choice_in_any_case
    if gold.code is not None or answer.code is not None:
        return gold.code == answer.code
    if (gold.is_marked_time or answer.is_marked_time) and gold.times is not None and answer.times is not None:
        return bool(gold.times & answer.times)
    if _same_formula(gold, answer, policy, numerically) or _same_words(gold, answer):
        return True

    # An operation that is not evaluated leaves the question open.
    for each in (answer, gold):
        operation = _NOT_EVALUATED.search(each.plain)
        if operation and (each.grouped is None or is_unevaluated(each.grouped)):
            raise LimitReached(f"{operation[0]} is not evaluated")
    return False


def check_sizes(answer: Answer, limits: Limits) -> None:
    """Refuse an answer that is larger than the limits; quick ones leave a sum that is written out to others."""
    if not answer.is_gold and len(answer.text) > limits.characters:
        raise LimitReached(f"characters: {len(answer.text)} > {limits.characters}")
    check_limits(answer.plain, limits)
    if limits is QUICK_LIMITS and _WRITTEN_OUT.search(answer.plain):
        raise NeedsNumbers


def _is_same_text(gold: Answer, answer: Answer) -> bool:
    """Return whether two texts differ in loose spaces and text commands alone."""
    pairs = [(_TEXT.sub(new, gold.written), _TEXT.sub(new, answer.written)) for new in (r"\g<0>", r"\1")]
    return any(_without_loose_spaces(first) == _without_loose_spaces(second) for first, second in pairs)


def _same_formula(gold: Answer, answer: Answer, policy: MathGrading, numerically: bool) -> bool:
    """Compare as formulas, with `1,234` first as one number, then as two; `1,000` is never two."""
    is_pair = ("," in gold.plain or "," in answer.plain) and not any(
        _ZERO_GROUP.search(each.plain) for each in (gold, answer)
    )
    trees = (answer.grouped, answer.apart)
    if _DECIMAL_COMMA.fullmatch(answer.plain) and _DECIMAL.fullmatch(gold.plain):
        trees = (parsed(answer.plain.replace("{,}", ",").replace(",", "."), thousands=True),) * 2
    elif (in_thousands := _THOUSANDS.fullmatch(answer.plain)) and not any(map(str.isalpha, gold.plain)):
        trees = (parsed(f"{in_thousands[1]} thousand", thousands=True),) * 2
    for gold_tree, tree, ordered in ((gold.grouped, trees[0], False), (gold.apart, trees[1], True))[: 1 + is_pair]:
        if gold_tree is None or tree is None:
            continue
        # `58,500` may be a pair, but never `500, 58`
        if same_answer(gold_tree, tree, policy, numerically=numerically, ordered=ordered):
            return True
    return False


def _same_words(expected: Answer, given: Answer) -> bool:
    gold, answer = expected.plain, given.plain
    if ("=" in gold) != ("=" in answer):
        gold, answer = _NAMED_WORD.sub("", gold), _NAMED_WORD.sub("", answer)
    is_text = (_is_prose(gold) or _is_prose(answer)) and not any(map(_OPERATION.search, (gold, answer)))
    if all(_VALUE_WITH_LETTERS.match(each.plain) and each.grouped for each in (expected, given)):
        return False  # a megawatt is no milliwatt
    words, other_words = plain_words(gold), plain_words(answer)
    if not is_text or words == other_words:
        return is_text
    # The words of a date, or the items of a list, in any order.
    if is_month(words):
        return sorted(words.split()) == sorted(other_words.split())
    return sorted(map(plain_words, _ITEM_END.split(gold))) == sorted(map(plain_words, _ITEM_END.split(answer)))


def _without_loose_spaces(text: str) -> str:
    return _LOOSE_SPACE.sub("", text.replace("\\ ", " "))


def _is_prose(text: str) -> bool:
    """Return whether a text is words, not a formula that could not be read."""
    plain = without_text_commands(text)
    return _LETTERS.search(plain) is not None and _FORMULA_SIGNS.search(plain) is None
