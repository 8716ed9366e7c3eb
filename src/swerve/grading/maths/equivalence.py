"""Whether an answer's text is the gold answer: as text, as words, as a formula; the cheapest comparison first."""

from __future__ import annotations

import functools
import re

from swerve.grading.answers import gold_answer
from swerve.grading.maths.compare import same_answer
from swerve.grading.maths.expressions import Node, NotParsed
from swerve.grading.maths.lexer import normalise, plain_words
from swerve.grading.maths.limits import LIMITS, QUICK_LIMITS, LimitReached, Limits, check_limits
from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import NeedsNumbers
from swerve.grading.maths.shapes import is_unevaluated
from swerve.grading.policies import MathGrading

_CHOICE = re.compile(r"(?:(?:option|choice|letter|answer) ?:? ?)?\(?([A-Z])(?:\)|[.:](?= |$)|$)", re.IGNORECASE)
_MORE_CHOICES = re.compile(
    r"[ ,;:/|&]*(?:(?:or|and|nor|not|but) +)+\(?[A-Z](?![\w'])|[ ,;:/|&]*\(?[A-Z](?![\w'])(?! [a-z])"
    r"|.*(?:\([A-Z]\)|(?<![\w'])[A-Z][.):](?= |$))"
)
"""After the letter of a choice: another one, in a list, after a word such as `or`, or as a label."""
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])")
_REASON = re.compile(r",? \(?(?:because|since)\b.*$", re.DOTALL)
_ARROW = re.compile(r"\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![a-zA-Z])")
_PROBABILITY = re.compile(
    r"^(?:\\Pr ?\([^()]{0,80}\)|P ?\([^()]{0,80}(?:[=<>|]|\\(?:mid|le|ge|leq|geq|cap|cup)(?![a-z]))[^()]{0,80}\)) ?="
)
_NAMED_WORD = re.compile(r"^[a-zA-Z] ?= ?(?=\\(?:text|mbox)(?![a-z]))")
_DIVIDES_BY_ZERO = re.compile(r"[^{}]/ ?0(?![0-9.])|\\[dtc]?frac ?(?:\{[^{}]{0,80}\}|[0-9]) ?(?:\{ ?0 ?\}|0)")
_NOT_EVALUATED = re.compile(r"\\(?:sum|prod|i+nt|oint|lim|[bp]?mod|gcd|lcm)(?![a-zA-Z])")
_WRITTEN_OUT = re.compile(r"\\(?:sum|prod)(?![a-zA-Z])")
_FORMULA_SIGNS = re.compile(r"[\\^_=<>{}()\[\]|*+/]|[0-9]!")
_ZERO_GROUP = re.compile(r"[0-9],0[0-9]{2}(?![0-9])")
_OPERATION = re.compile(r"[\^_=<>+|]|[0-9]!")
"""Signs that words do not stand for: `plain_words` takes no notice of them."""
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox) ?\{((?=[^{}]*[a-z]{2})[^{}]*+)\}")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|rm|bf)(?![a-z])|[{}$]")
_DECIMAL = re.compile(r"[-+]? ?[0-9]+\.[0-9]+")
_DECIMAL_COMMA = re.compile(r"[-+]? ?[0-9]+(?:,|\{,\})(?![0-9]{3}(?![0-9]))[0-9]+")
_VALUE_WITH_LETTERS = re.compile(r"[-+]? ?[0-9]")
_LETTER = re.compile(r"[a-zA-Z]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_THOUSANDS = re.compile(r"([-+]? ?[0-9,]+(?:\.[0-9]+)?)[kK]")
_ITEM_END = re.compile(r"[,;]\s+")
_MONTH = re.compile(r"\b(?:jan|febr)uary|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber\b")
_TIME = re.compile(r"([0-9]{1,2})(?: ?: ?([0-9]{2}))?(?: ?: ?([0-9]{2}))? ?(?:([AaPp])\.? ?[Mm]\.?)?")
_CLOCK_NOISE = re.compile(r"\\(?:text|mbox|textrm|mathrm)(?![a-z])|\\[!,;: ]|[{}$]")
_HALF_DAY = 12 * 3600
_DEFAULTS = MathGrading()


@functools.lru_cache(maxsize=1024)
def _normalised_gold(gold: str) -> str:
    return normalise(gold_answer(gold))


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
    # What is written the same is the same, unless it divides by zero.
    limits = LIMITS if numerically else QUICK_LIMITS
    if len(answer) > limits.characters and answer != gold:
        raise LimitReached(f"characters: {len(answer)} > {limits.characters}")
    gold_text, answer_text = _normalised_gold(gold), _REASON.sub("", normalise(answer))
    if not answer_text or not gold_text:
        return False
    if gold.strip() == answer.strip() or _is_same_text(gold_text, answer_text):
        return not _DIVIDES_BY_ZERO.search(answer_text)

    # The last step of the answer is compared; `P(...) =` is a name.
    _check_sizes(answer_text, limits)
    _check_sizes(gold_text, limits)
    if not _ARROW.search(gold_text):
        answer_text = _last_step(answer_text)
    gold_text, answer_text = (_PROBABILITY.sub("P =", text) for text in (gold_text, answer_text))

    # Choices and times have rules of their own.
    choice = _choice(gold_text)
    given = _choice(answer_text, any_case=True) if choice is not None else None
    verdict = _same_time(gold_text, answer_text) if given is None else choice == given
    if verdict is not None:
        return verdict
    if _same_formula(gold_text, answer_text, policy, numerically) or _same_words(gold_text, answer_text):
        return True

    # An operation that is not evaluated leaves the question open.
    for text in (answer_text, gold_text):
        operation = _NOT_EVALUATED.search(text)
        tree = _parsed(text, thousands=True) if operation else None
        if operation and (tree is None or is_unevaluated(tree)):
            raise LimitReached(f"{operation[0]} is not evaluated")
    return False


def _check_sizes(text: str, limits: Limits) -> None:
    check_limits(text, limits)
    if limits is QUICK_LIMITS and _WRITTEN_OUT.search(text):
        raise NeedsNumbers


def _last_step(text: str) -> str:
    r"""Return what a derivation ends with.

    >>> _last_step(r"2x = 14 \implies x = 7"), _last_step(r"p \implies q")
    ('x = 7', 'p \\implies q')
    """
    before, arrow, last = text, None, text
    for arrow in _ARROW.finditer(text):
        before, last = text[: arrow.start()], text[arrow.end() :].strip()
    return last if arrow is not None and "=" in before else text


def _is_same_text(gold: str, answer: str) -> bool:
    """Return whether two texts differ in loose spaces and text commands alone."""
    pairs = ((gold, answer), (_TEXT.sub(r"\1", gold), _TEXT.sub(r"\1", answer)))
    return any(_without_loose_spaces(first) == _without_loose_spaces(second) for first, second in pairs)


def _same_time(gold: str, answer: str) -> bool | None:
    """Compare times of the day, where one side says a.m. or p.m."""
    if not _is_marked(gold) and not _is_marked(answer):
        return None
    times, given = _clock_times(gold), _clock_times(answer)
    return None if times is None or given is None else bool(times & given)


def _clock_times(text: str) -> frozenset[int] | None:
    """Return the seconds after midnight that a time can mean; two without a.m. or p.m. None: it is no time of the day.

    >>> sorted(_clock_times("8:34 p.m.")), sorted(_clock_times("08:34")), _clock_times("8")
    ([74040], [30840, 74040], None)
    """
    plain = " ".join(_CLOCK_NOISE.sub(" ", text).split()).replace(" :", ":").replace(": ", ":")
    match = _TIME.fullmatch(plain.strip(" ."))
    if match is None or (match[2] is None and match[4] is None):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59 or (match[4] and not 1 <= hours <= 12):
        return None
    time = hours * 3600 + minutes * 60 + seconds
    if match[4]:
        return frozenset({time % _HALF_DAY + _HALF_DAY * (match[4] in "Pp")})
    return frozenset({time}) if hours > 12 else frozenset({time % _HALF_DAY, time % _HALF_DAY + _HALF_DAY})


def _is_marked(text: str) -> bool:
    """Return whether a text says a.m. or p.m.

    >>> _is_marked("4 pm"), _is_marked("4:30")
    (True, False)
    """
    return re.search(r"[AaPp]\.? ?[Mm]\b", text) is not None


def _same_formula(gold: str, answer: str, policy: MathGrading, numerically: bool) -> bool:
    """Compare as formulas, with `1,234` first as one number, then as two; `1,000` is never two."""
    is_pair = ("," in gold or "," in answer) and not any(map(_ZERO_GROUP.search, (gold, answer)))
    if _DECIMAL_COMMA.fullmatch(answer) and _DECIMAL.fullmatch(gold):
        answer = answer.replace("{,}", ",").replace(",", ".")
    if (in_thousands := _THOUSANDS.fullmatch(answer)) and not _LETTER.search(gold):
        answer = f"{in_thousands[1]} thousand"
    for thousands in (True, False) if is_pair else (True,):
        gold_tree, tree = _parsed(gold, thousands), _parsed(answer, thousands)
        if gold_tree is None or tree is None:
            continue
        # `58,500` may be a pair, but never `500, 58`
        if same_answer(gold_tree, tree, policy, numerically=numerically, ordered=not thousands):
            return True
    return False


def _same_words(gold: str, answer: str) -> bool:
    if ("=" in gold) != ("=" in answer):
        gold, answer = _NAMED_WORD.sub("", gold), _NAMED_WORD.sub("", answer)
    is_text = (_is_prose(gold) or _is_prose(answer)) and not any(map(_OPERATION.search, (gold, answer)))
    if all(_VALUE_WITH_LETTERS.match(text) and _parsed(text, thousands=True) for text in (gold, answer)):
        return False  # a megawatt is no milliwatt
    words, given = plain_words(gold), plain_words(answer)
    if not is_text or words == given:
        return is_text
    # The words of a date, or the items of a list, in any order.
    if _MONTH.search(words) is not None:
        return sorted(words.split()) == sorted(given.split())
    return sorted(map(plain_words, _ITEM_END.split(gold))) == sorted(map(plain_words, _ITEM_END.split(answer)))


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
