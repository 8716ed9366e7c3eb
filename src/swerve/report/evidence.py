"""What a sentence of a page was made of: the rows of a table, and how each of its numbers comes from them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.estimates import Estimate
from swerve.text import count

MAX_CELLS = 16_000
"""Most cells of one table inside a page; the first rows of a larger one, and its command has them all."""
_DIGITS = 7
"""Of a number inside a page: those that single precision has."""

Value = float | int | str | None
Array = NDArray[np.float64]

STATISTICS: Mapping[str, Callable[..., float]] = {
    "rows": lambda: math.nan,  # of no column: their number
    "sum": np.sum,
    "mean": np.mean,
    "median": np.median,
    "least": np.min,
    "most": np.max,
    "ratio of sums": lambda parts, wholes: parts.sum() / wholes.sum(),
    "per 1,000": lambda parts, wholes: 1000 * parts.sum() / wholes.sum(),
    "paired difference of means": lambda before, after: (after - before).mean(),
    "rises": lambda before, after: (after > before).sum(),
    "falls": lambda before, after: (after < before).sum(),
    "share of the difference": lambda before, between, after: (
        (between.mean() - before.mean()) / (after.mean() - before.mean())
    ),
}
"""How a number comes from columns of rows: each takes them as arrays, in the order in which a figure names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of a sentence, and how it comes from the rows."""

    name: str
    """What it is, a few words."""
    statistic: str
    """A key of `STATISTICS`."""
    columns: tuple[str, ...] = ()
    """Those that it is of; rows in which one of them is empty do not count."""
    write: Callable[[float], str] = count
    """How the sentence writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The rows behind a sentence.

    >>> both = {"problem": ["p1", "p2", "p3", "p4"], "before": [0, 0, 1, None], "after": [1, 0, 1, 1]}
    >>> gain = Figure(name="gain", statistic="rises", columns=("before", "after"))
    >>> evidence = Evidence(id="accuracy", table="eval/step_000080.parquet", columns=both, figures=(gain,))
    >>> evidence.num, evidence.value(gain), evidence.texts
    (4, 1.0, {'gain': '1'})
    >>> [figure.name for figure in evidence.missing_in("**1** of 4 became right.")]
    []
    >>> [figure.name for figure in evidence.missing_in("12 became right.")]
    ['gain']
    """

    id: str
    """Of the rows, as an anchor and a file are called; sentences made of the same rows share it."""
    table: str
    """Files that the rows are from."""
    columns: Mapping[str, Sequence[Value]]
    """The raw values. `rollout` numbers a rollout of the page's list and `token` a place in it: they are links."""
    filter: str = ""
    """Which rows of these files, in words."""
    unit: str = "problem"
    """What one row is."""
    figures: tuple[Figure, ...] = ()
    """Numbers of the sentence."""
    command: str = ""
    """Lines of Python that make the rows."""
    note: str = ""
    """What the sentence has that the rows do not give, such as intervals."""

    @property
    def num(self) -> int:
        """How many rows there are."""
        return max((len(column) for column in self.columns.values()), default=0)

    @property
    def num_shown(self) -> int:
        """How many of them are inside the page."""
        return min(self.num, max(1, MAX_CELLS // max(1, len(self.columns))))

    def value(self, figure: Figure) -> float:
        """Compute a number of the sentence from the rows; NaN where no row counts."""
        if figure.statistic == "rows":
            return float(self.num)
        table = np.array([self.columns[name] for name in figure.columns], dtype=np.float64)
        table = table[:, ~np.isnan(table).any(axis=0)]
        return float(STATISTICS[figure.statistic](*table)) if table.size else math.nan

    @property
    def texts(self) -> Mapping[str, str]:
        """Each number as the sentence has to write it, by its name."""
        values = ((figure, self.value(figure)) for figure in self.figures)
        return {figure.name: figure.write(value) if math.isfinite(value) else "none" for figure, value in values}

    def missing_in(self, text: str) -> list[Figure]:
        """Return the numbers that the rows give and a sentence does not have."""
        texts = self.texts
        return [figure for figure in self.figures if not _has_number(text, texts[figure.name])]

    @property
    def packed(self) -> Mapping[str, Any]:
        """The rows as the page's scripts read them."""
        shown = {name: [_short(value) for value in column[: self.num_shown]] for name, column in self.columns.items()}
        return {"num": self.num, "names": list(shown), "columns": list(shown.values())}


class Sentence(str):
    """A sentence of a page, with what it was made of."""

    __slots__ = ("evidence",)
    evidence: Evidence | None

    def __new__(cls, text: str, evidence: Evidence | None = None) -> Sentence:
        """Return the text with its evidence."""
        sentence = super().__new__(cls, text)
        sentence.evidence = evidence
        return sentence


def digits_of(write: Callable[[Estimate], str], known: Estimate) -> Callable[[float], str]:
    """Return how a mean is written that stands before its interval: with the digits that the interval supports.

    >>> from swerve.text import percent_interval
    >>> digits_of(percent_interval, Estimate(mean=0.615, low=0.4, high=0.8))(0.615)
    '62%'
    """
    return lambda value: write(replace(known, mean=value)).partition(" (")[0]


def evidence_of(*said: object) -> Iterable[Evidence]:
    """Yield the evidence of sentences that have any."""
    for each in said:
        evidence = getattr(each, "evidence", None)
        if isinstance(evidence, Evidence):
            yield evidence


def _has_number(text: str, wanted: str) -> bool:
    """Return whether a number stands in a text, and not as a part of another.

    >>> _has_number("61% of 200", "61%"), _has_number("61% of 200", "1%"), _has_number("by 1,200", "200")
    (True, False, False)
    """
    return re.search(rf"(?<![\d.,]){re.escape(wanted)}(?![\d%]|[.,]\d)", text) is not None


def _short(value: Value) -> Value:
    """Return a number with the digits that count, and none that is not finite."""
    if value is None or isinstance(value, str | int):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() else short
