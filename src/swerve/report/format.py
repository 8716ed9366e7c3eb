"""Numbers as people read them, and the words for how two of them compare; what was not measured is never a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from swerve.artifacts.probe_claims import NULL_NAMES, DivergenceClaim
from swerve.estimates import Estimate, SkewedMean, rounded

NOT_MEASURED = "not measured"
SAME = "not distinguishable from"


def _interval(value: Estimate | None, write: Callable[[float], str], sign: str = "") -> str:
    """Return an estimate with its interval, a sign such as that of percent after the mean."""
    if value is None:
        return NOT_MEASURED
    return f"{write(value.mean)}{sign} ({write(value.low)} to {write(value.high)})"


def _percent(fraction: float) -> str:
    """Return a fraction in percent without the percent sign."""
    return rounded(100 * fraction, 1, -100, 0, 100).replace("-", "\N{MINUS SIGN}")


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage with one decimal; with more where it would read as 0% or 100% and is not.

    >>> percent(0.465), percent(0.9996), percent(None)
    ('46.5%', '99.96%', 'not measured')
    """
    return NOT_MEASURED if fraction is None else f"{_percent(fraction)}%"


def percent_interval(value: Estimate | None) -> str:
    """Return a fraction with its interval.

    >>> percent_interval(Estimate(mean=0.465, low=-0.0, high=0.514))
    '46.5% (0.0 to 51.4)'
    """
    return _interval(value, _percent, "%")


def joined_digits(text: str | None, question: str | None) -> str | None:
    """Join the digits in a text of a problem that spells its numbers; other texts stay.

    >>> joined_digits("0 1 4 9 1", "8 2 5 0 + 3 2 4 1 ="), joined_digits("1 2", "Which two?")
    ('01491', '1 2')
    """
    pieces = (question or "").split()
    is_spelled = len(pieces) > 2 and max(map(len, pieces)) == 1
    return re.sub(r"(?<=\d) (?=\d)", "", text) if text and is_spelled else text


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with the given number of significant digits.

    >>> number(0.0120), number(0.0000001234), number(57.0), number(None)
    ('0.0120', '1.23e-7', '57.0', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:#.{digits}g}".removesuffix(".") if abs(value) < 10**digits else f"{value:,.0f}"


def number_interval(value: Estimate | None) -> str:
    """Return a number with its interval; of many small and few large values first what no rare tail can move.

    >>> number_interval(Estimate(mean=0.012, low=0.011, high=0.013))
    '0.0120 (0.0110 to 0.0130)'
    >>> median, above = Estimate(mean=0.001, low=0.0, high=0.002), Estimate(mean=0.1, low=0.05, high=0.2)
    >>> number_interval(SkewedMean(mean=0.2, low=0.1, high=0.9, reliable=False, median=median, above=above))
    'median 0.00100 (0 to 0.00200), above 0 in 10.0% (5.0 to 20.0) of problems, mean 0.200 (0.100 to 0.900), not...'
    """
    text = _interval(value, _real)
    if not isinstance(value, SkewedMean) or (value.reliable and value.above is None):
        return text
    parts = [f"mean {text}", *([] if value.reliable else ["not reliable"])]
    if value.above is not None:
        parts.insert(0, f"above {number(value.threshold, 1)} in {percent_interval(value.above)} of problems")
    if value.median is not None:
        parts.insert(0, f"median {_interval(value.median, _real)}")
    return ", ".join(parts)


def _real(value: float, plus: str = "") -> str:
    """Return a number with a typographic minus sign, and with a plus sign where one is asked for."""
    sign = "\N{MINUS SIGN}" if value < 0 else plus if value > 0 else ""
    return f"{sign}{number(abs(value))}"


def signed(value: float | None) -> str:
    """Return a difference with its sign.

    >>> signed(0.012), signed(None)
    ('+0.0120', 'not measured')
    """
    return NOT_MEASURED if value is None else _real(value, "+")


def signed_interval(value: Estimate | None) -> str:
    r"""Return a difference with its interval, signs included.

    >>> signed_interval(Estimate(mean=0.012, low=-0.011, high=0.035)).replace("\N{MINUS SIGN}", "-")
    '+0.0120 (-0.0110 to +0.0350)'
    """
    return _interval(value, signed)


def p_value(value: float | None) -> str:
    """Return a p-value with two significant digits; below 0.001 only that it is.

    >>> p_value(0.0123), p_value(2e-66), p_value(1.0), p_value(None)
    ('0.012', '<0.001', '1.0', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    return "<0.001" if value < 0.001 else f"{value:#.2g}"


def p_words(value: float | None) -> str:
    """Return a p-value as a sentence has it.

    >>> p_words(1e-9), p_words(0.04)
    ('p < 0.001', 'p = 0.040')
    """
    text = p_value(value)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def points(fraction: float | None) -> str:
    r"""Return a difference of fractions in percentage points, with its sign.

    >>> points(0.874), points(0.0), points(-0.004).replace("\N{MINUS SIGN}", "-")
    ('+87.4', '0.0', '-0.4')
    """
    text = NOT_MEASURED if fraction is None else _percent(fraction)
    return text if fraction is None or fraction < 0 or text == "0.0" else f"+{text}"


def points_interval(value: Estimate | None) -> str:
    """Return a difference of fractions with its interval, in percentage points.

    >>> points_interval(Estimate(mean=0.874, low=0.825, high=0.916))
    '+87.4 (+82.5 to +91.6)'
    """
    return _interval(value, points)


def claim_words(claim: DivergenceClaim) -> str:
    """Return a figure about where the divergence falls, which of its nulls it is above and below, and what those are.

    >>> from swerve.artifacts.probe_claims import NullFigure
    >>> chance = NullFigure(null="chance", value=0.04, difference=Estimate(mean=0.86, low=0.8, high=0.9))
    >>> rate = Estimate(mean=0.9, low=0.85, high=0.94)
    >>> claim_words(DivergenceClaim(figure="top", of="first_wrong", estimate=rate, nulls=(chance,)))
    '90.0% (85.0 to 94.0), more than chance (4.0%)'
    """
    text, interval = (number, number_interval) if claim.figure == "auc" else (percent, percent_interval)
    parts = [interval(claim.estimate)]
    for side, word in ((1, "more than"), (-1, "less than"), (0, SAME)):
        nulls = [null for null in claim.nulls if null.side == side]
        if nulls:
            parts.append(f"{word} {listed([f'{NULL_NAMES[null.null]} ({text(null.value)})' for null in nulls])}")
    return ", ".join(parts)


def count(value: float | None) -> str:
    """Return a whole number with thousands separators.

    >>> count(16000), count(None)
    ('16,000', 'not measured')
    """
    return NOT_MEASURED if value is None else f"{round(value):,}"


def quoted(text: str) -> str:
    """Return a text in quotation marks, as sentences have it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"


def sentence_case(text: str) -> str:
    """Return a text with its first letter in upper case.

    >>> sentence_case("KL term of training"), sentence_case("greedy accuracy")
    ('KL term of training', 'Greedy accuracy')
    """
    return text[:1].upper() + text[1:]


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def compared(value: Estimate, level: float, *, above: str = "above", below: str = "below") -> str:
    """Return the word for where an estimate lies, of which a level inside its interval is not distinguishable.

    Two estimates from the same problems are compared by the interval of their paired difference, with 0.

    >>> value = Estimate(mean=0.5, low=0.4, high=0.6)
    >>> compared(value, 0.3), compared(value, 0.9, below="less than"), compared(value, 0.45)
    ('above', 'less than', 'not distinguishable from')
    """
    if not value.excludes(level):
        return SAME
    return above if value.mean > level else below


def change(before: Estimate, after: Estimate, difference: Estimate | None, *, at: tuple[str, str]) -> str:
    """Return what a fraction did between two checkpoints, as the end of a sentence.

    >>> change(Estimate(mean=0.5, low=0.4, high=0.6), Estimate(mean=0.9, low=0.8, high=1),
    ...        Estimate(mean=0.4, low=0.25, high=0.5), at=("sft-5", "rl-80"))
    'rose from 50.0% (40.0 to 60.0) at sft-5 to 90.0% (80.0 to 100.0) at rl-80, by +40.0 (+25.0 to +50.0) points.'
    """
    first, last = f"{percent_interval(before)} at {at[0]}", f"{percent_interval(after)} at {at[1]}"
    if difference is None:
        return f"was {first} and {last}; their difference was not measured."
    by = f"{points_interval(difference)} points"
    if not difference.excludes(0):
        return f"was {first} and {last}, a difference of {by}, so no change is shown."
    return f"{'rose' if difference.mean > 0 else 'fell'} from {first} to {last}, by {by}."
