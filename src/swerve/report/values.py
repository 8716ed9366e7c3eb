"""Numbers of artifacts as people read them; a figure that was not measured is never a number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DIVERGENCE_NAMES",
    "NOT_MEASURED",
    "Interval",
    "count",
    "finite",
    "interval",
    "number",
    "number_interval",
    "p_value",
    "percent",
    "percent_interval",
    "points",
    "points_interval",
    "quoted",
    "signed_interval",
]

NOT_MEASURED = "not measured"
DIVERGENCE_NAMES = {"kl_forward": "Forward KL", "kl_reverse": "Reverse KL", "js": "JS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval."""

    mean: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        """Whether the two intervals share a point."""
        return self.low <= other.high and other.low <= self.high


def finite(value: Any) -> float | None:
    """Return a measured number; None for what is missing, no number, or not finite.

    >>> finite(2), finite(None), finite(float("nan")), finite(True)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def interval(value: Any) -> Interval | None:
    """Return the interval of an artifact's `{"mean" or "share", "low", "high"}`, or None where a part is missing.

    >>> interval({"share": 0.5, "low": 0.25, "high": 0.75})
    Interval(mean=0.5, low=0.25, high=0.75)
    >>> interval({"mean": None, "low": None, "high": None}) is None
    True
    """
    if not isinstance(value, Mapping):
        return None
    mean = finite(value.get("mean", value.get("share")))
    low, high = finite(value.get("low")), finite(value.get("high"))
    if mean is None or low is None or high is None:
        return None
    return Interval(mean=mean, low=low, high=high)


def _percent(share: float) -> str:
    """Return a share in percent without the sign; a zero has no sign, whatever side it was rounded from."""
    text = f"{100 * share:.1f}"
    if text.strip("-") == "0.0":
        return "0.0"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(value: Any) -> str:
    """Return a share as a percentage with one decimal.

    >>> percent(0.465), percent(None)
    ('46.5%', 'not measured')
    """
    share = finite(value)
    return NOT_MEASURED if share is None else f"{_percent(share)}%"


def percent_interval(value: Interval | None) -> str:
    """Return a share with its interval.

    >>> percent_interval(Interval(mean=0.465, low=-0.0, high=0.514))
    '46.5% (0.0 to 51.4)'
    """
    if value is None:
        return NOT_MEASURED
    return f"{_percent(value.mean)}% ({_percent(value.low)} to {_percent(value.high)})"


def number(value: Any, digits: int = 3) -> str:
    """Return a figure with the given number of significant digits.

    >>> number(0.0120), number(0.0000001234), number(57.0), number(None)
    ('0.0120', '1.23e-7', '57.0', 'not measured')
    """
    figure = finite(value)
    if figure is None:
        return NOT_MEASURED
    if figure == 0:
        return "0"
    if abs(figure) < 1e-3:
        mantissa, exponent = f"{figure:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{figure:#.{digits}g}".removesuffix(".") if abs(figure) < 10**digits else f"{figure:,.0f}"


def number_interval(value: Interval | None, digits: int = 3) -> str:
    """Return a figure with its interval.

    >>> number_interval(Interval(mean=0.012, low=0.011, high=0.013))
    '0.0120 (0.0110 to 0.0130)'
    """
    if value is None:
        return NOT_MEASURED
    return " ".join((_real(value.mean, digits), f"({_real(value.low, digits)} to {_real(value.high, digits)})"))


def _real(figure: float, digits: int, *, plus: bool = False) -> str:
    """Return a figure with a typographic minus sign, and with a plus sign where one is asked for."""
    sign = "\N{MINUS SIGN}" if figure < 0 else "+" if plus and figure > 0 else ""
    return f"{sign}{number(abs(figure), digits)}"


def signed_interval(value: Interval | None, digits: int = 3) -> str:
    r"""Return a difference with its interval, signs included.

    >>> signed_interval(Interval(mean=0.012, low=-0.011, high=0.035)).replace("\N{MINUS SIGN}", "-")
    '+0.0120 (-0.0110 to +0.0350)'
    """
    if value is None:
        return NOT_MEASURED
    mean, low, high = (_real(figure, digits, plus=True) for figure in (value.mean, value.low, value.high))
    return f"{mean} ({low} to {high})"


def p_value(value: Any) -> str:
    """Return a p-value with two significant digits; below 0.001 only that it is.

    >>> p_value(0.0123), p_value(2e-66), p_value(1.0), p_value(None)
    ('0.012', '<0.001', '1.0', 'not measured')
    """
    figure = finite(value)
    if figure is None:
        return NOT_MEASURED
    return "<0.001" if figure < 0.001 else f"{figure:#.2g}"


def points(share: float) -> str:
    r"""Return a difference of shares in percentage points, with its sign.

    >>> points(0.874), points(0.0), points(-0.004).replace("\N{MINUS SIGN}", "-")
    ('+87.4', '0.0', '-0.4')
    """
    text = _percent(share)
    return text if text == "0.0" or share < 0 else f"+{text}"


def points_interval(value: Interval | None) -> str:
    """Return a difference of shares with its interval, in percentage points.

    >>> points_interval(Interval(mean=0.874, low=0.825, high=0.916))
    '+87.4 (+82.5 to +91.6)'
    """
    return NOT_MEASURED if value is None else f"{points(value.mean)} ({points(value.low)} to {points(value.high)})"


def count(value: Any) -> str:
    """Return a whole number with thousands separators.

    >>> count(16000), count(None)
    ('16,000', 'not measured')
    """
    figure = finite(value)
    return NOT_MEASURED if figure is None else f"{round(figure):,}"


def quoted(text: str) -> str:
    """Return a text in quotation marks, as sentences have it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"
