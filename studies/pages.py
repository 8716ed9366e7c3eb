"""Tables and numbers in markdown, and the places of a page that generated text fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swerve import estimates, text

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""Where places are sought."""
Record = Mapping[str, Any]
Estimate = Mapping[str, float]
"""A mean (or share) with the ends of its interval, low and high."""
Column = tuple[str, "str | Callable[[Record], str]"]
"""Head of a column, and its cell: a path into the row's record and a format, or a function of the record."""


def percent(value: Estimate | float | None, digits: int = 1) -> str:
    """Show a fraction in percent, with its interval if it has one; 0 and 100 only where it is that."""
    if isinstance(value, Mapping):
        return text.percent_interval(_estimate(value))
    return "-" if value is None else f"{text.rounded(100 * value, digits, 0, 100)}%"


def points(value: Estimate | float | None) -> str:
    """Show a difference of fractions in percentage points, with its sign and with its interval if it has one."""
    if isinstance(value, Mapping):
        return text.points_interval(_estimate(value))
    return "-" if value is None else text.points(value)


def number(value: Estimate | float | None, digits: int = 3) -> str:
    """Show a number, with its interval if it has one; 0 and 1 only where it is that."""
    if isinstance(value, Mapping):
        return text.number_interval(_estimate(value))
    return "-" if value is None else text.rounded(value, digits, 0, 1)


def change(value: Estimate | None) -> str:
    """Show a difference with its sign and its interval."""
    return "-" if value is None else text.signed_interval(_estimate(value))


def size(value: Estimate | float | None) -> str:
    """Show a number that may be tiny, such as a divergence, to two or three significant digits."""
    if isinstance(value, Mapping):
        return text.number_interval(_estimate(value))
    return "-" if value is None else text.number(value, 2)


def _estimate(value: Estimate) -> estimates.Estimate:
    mean = value["mean"] if "mean" in value else value["share"]
    return estimates.Estimate(mean=mean, low=value["low"], high=value["high"])


def code(text: str, longest: int | None = None) -> str:
    """Show text of a model as code within a cell of a table, cut off where it is too long."""
    text = " ".join(text.split())
    text = text if longest is None or len(text) <= longest else f"{text[: longest - 4]} ..."
    return f"`{text.replace('|', chr(92) + '|').replace('`', chr(39))}`"


def fenced(lines: Iterable[str]) -> str:
    """Show lines as they were printed."""
    return "\n".join(["```text", *lines, "```"])


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "": lambda value: "-" if value is None else str(value),
    "words": lambda value: str(value).replace("_", " "),
    "code": lambda value: f"`{value}`",
    "thousands": "{:,}".format,
    "points": points,
    "size": size,
    "d": lambda value: "-" if value is None else text.rounded(value, 1, signed=True),
    "p": lambda value: "-" if value is None else text.p_value(value),
    **{f"percent{digits}": partial(percent, digits=digits) for digits in (0, 2)},
    **{f"number{digits}": partial(number, digits=digits) for digits in (0, 1, 2)},
    "percent": percent,
    "number": number,
}
"""Format of a cell -> how it shows a value."""


def value_at(record: Record, path: str) -> Any:
    """Return the value at a dotted path; None where a part of it is None.

    >>> value_at({"a": {"b": 1}, "c": None}, "a.b"), value_at({"c": None}, "c.d")
    (1, None)
    """
    value: Any = record
    for key in path.split("."):
        value = None if value is None else value[key]
    return value


def shown(record: Record, cell: str | Callable[[Record], str]) -> str:
    """Return a cell: `PATH`, `PATH:FORMAT` or a function of the record.

    >>> shown({"swap": {"success": 0.25}}, "swap.success:percent0")
    '25%'
    """
    if callable(cell):
        return cell(record)
    path, _, form = cell.partition(":")
    return _FORMATS[form](value_at(record, path))


def entries(records: Iterable[Record], path: str) -> list[dict[str, Any]]:
    """Return the entries of a list within each record, each with what its record says beside it.

    >>> entries([{"seed": 0, "rows": [{"auc": 1}]}, {"seed": 1, "rows": None}], "rows")
    [{'seed': 0, 'rows': [{'auc': 1}], 'auc': 1}]
    """
    return [{**record, **entry} for record in records for entry in value_at(record, path) or ()]


def first(records: Iterable[Record], **values: Any) -> Any:
    """Return the first record with these values; None if there is none."""
    return next((record for record in records if all(record[key] == values[key] for key in values)), None)


def of_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """Return the records of a kind, by seed."""
    return sorted((record for record in records if record["kind"] == kind), key=lambda record: record.get("seed", 0))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty if it has no rows."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) if rows else ""


def table_of(records: Iterable[Record], *columns: Column) -> str:
    """Return a table with a row for each record; empty if there is none.

    >>> print(table_of([{"seed": 0, "auc": 0.91}], ("seed", "seed"), ("AUC", "auc:number2")))
    | seed | AUC |
    |---|---|
    | 0 | 0.91 |
    """
    return table([head for head, _ in columns], [[shown(record, cell) for _, cell in columns] for record in records])


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

    def in_lines(match: re.Match[str]) -> str:
        return f"{match[1]}\n{texts[match[2]]}\n\n{match[4]}" if match[2] in texts else match[0]

    def in_sentence(match: re.Match[str]) -> str:
        return f"{match[1]}{texts[match[2]]}{match[4]}" if match[2] in texts else match[0]

    return _FIGURE.sub(in_sentence, _TABLE.sub(in_lines, page))


def fill_pages(tables: Mapping[str, str], numbers: Mapping[str, str], pages: Sequence[Path] = PAGES) -> None:
    """Put tables and numbers into their places, wherever these are.

    Raises:
        ValueError: a table has no place.
    """
    known = set()
    for path in pages:
        page = path.read_text(encoding="utf-8")
        new = filled(page, {**tables, **numbers})
        known |= set(places(page))
        if new != page:
            path.write_text(new, encoding="utf-8")
    if lost := sorted(set(tables) - known):
        raise ValueError(f"no page has a place for '{lost[0]}': put <!-- {lost[0]} --> and <!-- /{lost[0]} -->")
