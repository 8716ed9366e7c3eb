"""Tables and numbers in markdown, and the places of a page that generated text fills."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from swerve.estimates import rounded

Estimate = Mapping[str, float]
"""A mean (or share) with the ends of its interval, low and high."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty if it has no rows."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) if rows else ""


def percent(value: Estimate | float | None, digits: int = 1) -> str:
    """Show a fraction in percent, with its interval if it has one; 0 and 100 only where it is that."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{_hundredths(value, digits)}%"
    middle = value["mean"] if "mean" in value else value["share"]
    mean, low, high = (_hundredths(one, digits) for one in (middle, value["low"], value["high"]))
    return f"{mean}% [{low}, {high}]"


def _hundredths(fraction: float, digits: int) -> str:
    return rounded(100 * fraction, digits, 0, 100)


def points(value: Estimate | float | None) -> str:
    """Show a difference of fractions in percentage points, with its sign and with its interval if it has one."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        text = _hundredths(value, 1)
        return text if text.startswith("-") or float(text) == 0 else f"+{text}"
    mean, low, high = (points(value[name]) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def number(value: Estimate | float | None, digits: int = 3) -> str:
    """Show a number, with its interval if it has one; 0 and 1 only where it is that."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return rounded(value, digits, 0, 1)
    mean, low, high = (rounded(value[name], digits, 0, 1) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def size(value: Estimate | float | None) -> str:
    """Show a number that may be tiny, such as a divergence, to two or three significant digits."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    mean, low, high = (f"{value[name]:.3g}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def code(text: str, longest: int | None = None) -> str:
    """Show text of a model as code within a cell of a table, cut off where it is too long."""
    text = " ".join(text.split())
    text = text if longest is None or len(text) <= longest else f"{text[: longest - 4]} ..."
    return f"`{text.replace('|', chr(92) + '|').replace('`', chr(39))}`"


_TABLE = re.compile(r"(<!-- ([^>/][^>]*) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- ([^>/][^>]*) -->)((?:[^<\n]|<(?!!))+)(<!-- / -->)")


def places(page: str) -> list[str]:
    """Return the names of the places of a page, of tables and of figures."""
    return [match[2] for pattern in (_TABLE, _FIGURE) for match in pattern.finditer(page)]


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with each text in its places, of which it may have none.

    A table stands between lines `<!-- NAME -->` and `<!-- /NAME -->`, a figure within a sentence between
    `<!-- NAME -->` and `<!-- / -->`.
    """

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{texts[match[2]]}\n\n{match[4]}" if match[2] in texts else match[0]

    def figure(match: re.Match[str]) -> str:
        return f"{match[1]}{texts[match[2]]}{match[4]}" if match[2] in texts else match[0]

    return _FIGURE.sub(figure, _TABLE.sub(table, page))


def fill_page(path: Path, texts: Mapping[str, str]) -> list[str]:
    """Put texts into the places of a page; return the names of its places."""
    page = path.read_text(encoding="utf-8")
    path.write_text(filled(page, texts), encoding="utf-8")
    return places(page)
