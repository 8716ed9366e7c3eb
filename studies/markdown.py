"""Tables and numbers in markdown, and the places of a page that generated text fills."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

Estimate = Mapping[str, float]
"""A mean (or share) with the ends of its interval, low and high."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty if it has no rows."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) if rows else ""


def percent(value: Estimate | float | None, digits: int = 1) -> str:
    """Show a fraction in percent, with its interval if it has one."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{100 * value:.{digits}f}%"
    middle = value["mean"] if "mean" in value else value["share"]
    return f"{100 * middle:.{digits}f}% [{100 * value['low']:.{digits}f}, {100 * value['high']:.{digits}f}]"


def number(value: Estimate | float | None, digits: int = 3) -> str:
    """Show a number, with its interval if it has one."""
    return _shown(value, f".{digits}f", f".{digits}f")


def size(value: Estimate | float | None) -> str:
    """Show a number that may be tiny, such as a divergence, to two or three significant digits."""
    return _shown(value, ".2g", ".3g")


def _shown(value: Estimate | float | None, form: str, interval_form: str) -> str:
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{value:{form}}"
    mean, low, high = (f"{value[name]:{interval_form}}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def code(text: str, longest: int | None = None) -> str:
    """Show text of a model as code within a cell of a table, cut off where it is too long."""
    text = " ".join(text.split())
    text = text if longest is None or len(text) <= longest else f"{text[: longest - 4]} ..."
    return f"`{text.replace('|', chr(92) + '|').replace('`', chr(39))}`"


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with each table between its markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises:
        ValueError: the page has no place for one of them.
    """
    for name, text in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(page):
            raise ValueError(f"the page has no place for '{name}': put <!-- {name} --> and <!-- /{name} -->")
        page = pattern.sub(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page)  # type: ignore[misc]
    return page


def fill_page(path: Path, tables: Mapping[str, str]) -> None:
    """Replace the tables of a page."""
    path.write_text(filled(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
