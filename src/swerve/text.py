"""Numbers, intervals, counts and lists as people read them: `+39.0 (+31.6 to +45.1)`. Free of numpy and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

NOT_MEASURED = "not measured"
_MINUS = "\N{MINUS SIGN}"


class Interval(Protocol):
    """What has a mean and the ends of its interval, such as `estimates.Estimate`."""

    @property
    def mean(self) -> float:
        """The mean, or another statistic."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


def rounded(value: float, decimals: int, *bounds: float, signed: bool = False) -> str:
    """Return a number with so many decimals, and up to two more where it would read as a bound that it is not.

    A zero has no sign, whatever side it was rounded from.

    >>> rounded(99.96, 1, 0, 100), rounded(100.0, 1, 0, 100), rounded(0.004, 1, 0, 100), rounded(-1e-9, 1, 0, 100)
    ('99.96', '100.0', '0.004', '0.0')
    >>> rounded(1234.5, 1, signed=True)
    '+1,234.5'
    """
    places = next((places for places in range(decimals, decimals + 3) if round(value, places) not in bounds), decimals)
    return f"{_sign(round(value, places), signed)}{abs(value):,.{places}f}"


def _sign(value: float, signed: bool) -> str:
    return _MINUS if value < 0 else "+" if signed and value > 0 else ""


def percent(fraction: float | None, unit: str = "%") -> str:
    """Return a fraction in percent with one decimal; with more where it would read as 0% or 100% and is not.

    >>> percent(0.465), percent(0.9996), percent(0.05, " points"), percent(None)
    ('46.5%', '99.96%', '5.0 points', 'not measured')
    """
    return NOT_MEASURED if fraction is None else f"{_hundredths(fraction)}{unit}"


def whole_percent(fraction: float | None) -> str:
    """Return a fraction in whole percent; with decimals where it would read as 0% or 100% and is not.

    >>> whole_percent(0.615), whole_percent(0.9975), whole_percent(0.002), whole_percent(1.0)
    ('62%', '99.8%', '0.2%', '100%')
    """
    return NOT_MEASURED if fraction is None else f"{_hundredths(fraction, 0)}%"


def of_100(share: float) -> str:
    """Return a share, or the size of a difference of shares, as a number of 100.

    >>> of_100(0.084), of_100(-0.12), of_100(0.004)
    ('8', '12', '0.4')
    """
    return rounded(abs(100 * share), 0, 0)


def percent_interval(value: Interval | None, unit: str = "%") -> str:
    """Return a fraction with its interval in percent.

    >>> from swerve.estimates import Estimate
    >>> percent_interval(Estimate(mean=0.465, low=0.417, high=0.514))
    '46.5% (41.7 to 51.4)'
    >>> percent_interval(Estimate(mean=0.333, low=0.142, high=0.602))
    '33% (14 to 60)'
    """
    return _hundredths_interval(value, unit, signed=False)


def percent_as(fraction: float, difference: Interval) -> str:
    """Return a fraction in percent, no finer than the interval of a difference that it is an end of.

    >>> from swerve.estimates import Estimate
    >>> wide = Estimate(mean=0.0, low=-0.2, high=0.2)
    >>> percent_as(0.7188, Estimate(mean=0.04, low=0.01, high=0.07)), percent_as(0.7188, wide)
    ('71.9%', '72%')
    >>> percent_as(0.9999, wide), percent_as(0.9999, Estimate(mean=0.04, low=0.01, high=0.07)), percent_as(1.0, wide)
    ('>99%', '>99.9%', '100%')
    """
    exact = round(fraction, 12)  # a mean that is taken in another order reads the same
    decimals = _decimals(100 * (difference.high - difference.low), most=1)
    step = 10**-decimals
    # What is not quite all, or not quite nothing, is said to be so.
    if 0 < 100 * exact < step / 2:
        return f"<{step:.{decimals}f}%"
    if 100 - step / 2 < 100 * exact < 100:
        return f">{100 - step:.{decimals}f}%"
    return f"{_hundredths(exact, decimals)}%"


def points(fraction: float | None, unit: str = "") -> str:
    r"""Return a difference of fractions in percentage points, with its sign.

    >>> points(0.874), points(0.0), points(-0.004, " points").replace("\N{MINUS SIGN}", "-")
    ('+87.4', '0.0', '-0.4 points')
    """
    return NOT_MEASURED if fraction is None else f"{_hundredths(fraction, signed=True)}{unit}"


def points_interval(value: Interval | None, unit: str = "") -> str:
    """Return a difference of fractions with its interval, in percentage points.

    >>> from swerve.estimates import Estimate
    >>> points_interval(Estimate(mean=0.390, low=0.316, high=0.451), " points")
    '+39.0 points (+31.6 to +45.1)'
    """
    return _hundredths_interval(value, unit, signed=True)


def _hundredths(fraction: float, decimals: int = 1, *, signed: bool = False) -> str:
    return rounded(100 * fraction, decimals, -100, 0, 100, signed=signed)


def _hundredths_interval(value: Interval | None, unit: str, *, signed: bool) -> str:
    if value is None:
        return NOT_MEASURED
    decimals = _decimals(100 * (value.high - value.low), most=1)
    return _interval(value, lambda end: _hundredths(end, decimals, signed=signed), unit)


def number(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number with the given number of significant digits.

    >>> number(0.0120), number(0.0000001234), number(57.0), number(1234.5), number(None)
    ('0.0120', '1.23e-7', '57.0', '1,234', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3:
        mantissa, exponent = f"{size:.{digits - 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{size:#.{digits}g}".removesuffix(".") if size < 10**digits - 0.5 else f"{size:,.0f}"
    return f"{_sign(value, signed)}{text}"


def number_interval(value: Interval | None) -> str:
    """Return a number with its interval.

    >>> from swerve.estimates import Estimate
    >>> number_interval(Estimate(mean=0.012, low=0.011, high=0.013))
    '0.0120 (0.0110 to 0.0130)'
    >>> number_interval(Estimate(mean=251.3, low=243.1, high=259.7))
    '251 (243 to 260)'
    >>> number_interval(Estimate(mean=4e-4, low=0, high=8e-4))
    '4.0e-4 (0 to 8.0e-4)'
    """
    return _number_interval(value, signed=False)


def signed(value: float | None) -> str:
    """Return a difference with its sign.

    >>> signed(0.012), signed(None)
    ('+0.0120', 'not measured')
    """
    return number(value, signed=True)


def signed_interval(value: Interval | None) -> str:
    r"""Return a difference with its interval, signs included.

    >>> from swerve.estimates import Estimate
    >>> signed_interval(Estimate(mean=0.012, low=-0.011, high=0.035)).replace("\N{MINUS SIGN}", "-")
    '+0.012 (-0.011 to +0.035)'
    """
    return _number_interval(value, signed=True)


def _number_interval(value: Interval | None, *, signed: bool) -> str:
    if value is None:
        return NOT_MEASURED
    # Of the mean at most three digits; what is all small has an exponent.
    size = max(abs(value.mean), abs(value.low), abs(value.high))
    decimals = _decimals(value.high - value.low, most=2 - _exponent(value.mean or size, digits=3))
    if size < 1e-3:
        return _interval(value, lambda end: number(end, decimals + _exponent(size, digits=2) + 1, signed=signed))
    bounds = (-1, 0, 1) if size <= 1 else (0,)  # where 1 is no bound, 0.9999 is 1.00
    return _interval(value, lambda end: rounded(end, decimals, *bounds, signed=signed) if end else "0")


def _exponent(value: float, digits: int) -> int:
    """Return the power of ten of a number's first digit, once it is rounded to so many; of 0 and infinity 0."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2] or 0)


def _decimals(width: float, most: int) -> int:
    """Return how many decimals two digits of half an interval's width need, at most so many."""
    return max(0, min(most, 1 - _exponent(width / 2, digits=2)) if width else most)


def _interval(value: Interval, write: Callable[[float], str], unit: str = "") -> str:
    return f"{write(value.mean)}{unit} ({write(value.low)} to {write(value.high)})"


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


def count(value: float | None) -> str:
    """Return a whole number with thousands separators.

    >>> count(16000), count(None)
    ('16,000', 'not measured')
    """
    return NOT_MEASURED if value is None else f"{round(value):,}"


def gigabytes(size: float) -> str:
    """Return a number of bytes in GB, with two digits.

    >>> gigabytes(123_456_789), gigabytes(31_400_000_000)
    ('0.12', '31')
    """
    value = size / 1e9
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def counted(number: int, noun: str) -> str:
    """Return a number of things, in words.

    >>> counted(1, "token"), counted(1200, "token")
    ('1 token', '1,200 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def quoted(text: str) -> str:
    """Return a text in quotation marks, as sentences have it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"


def sentence_case(text: str) -> str:
    """Return a text with its first letter in upper case.

    >>> sentence_case("KL term of training"), sentence_case("greedy accuracy")
    ('KL term of training', 'Greedy accuracy')
    """
    return text[:1].upper() + text[1:]


def judged_words(graders: Iterable[str], num_cut_off: int = 0, total: int = 0) -> str:
    """Return which graders judged some answers, and that most of these were cut off, to stand behind a result.

    >>> judged_words(["math", "exact"]), judged_words([])
    ('; graded by math and exact', '')
    >>> judged_words(["math"], 18, 24), judged_words([], 12, 24)
    ('; graded by math; 18 of 24 answers were cut off: raise max_new_tokens', '')
    """
    names = " and ".join(dict.fromkeys(graders))
    said = f"; graded by {names}" if names else ""
    if num_cut_off <= total / 2:
        return said
    return f"{said}; {num_cut_off:,} of {counted(total, 'answer')} were cut off: raise max_new_tokens"


def text_before(text: str, start: int, end: int) -> str:
    """Return the end of the text before the token at `start` to `end`, 28 characters at most, as on the page.

    >>> text_before("1 + 2 = 3", 7, 9)
    '1 + 2 ='
    """
    spaces = len(text[start:end]) - len(text[start:end].lstrip(" "))
    before = text[: start + (spaces if spaces < end - start else 0)]
    return before[-_CONTEXT:].strip()


_CONTEXT = 28
"""Characters before a token that its row has."""
