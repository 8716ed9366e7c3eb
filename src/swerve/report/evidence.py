"""What a sentence of a page was made of: the rows of a table, and how each of its numbers comes from them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.estimates import Estimate
from swerve.statistics import mean_interval, paired_difference, ratio_interval, spearman
from swerve.statistics.clusters import by_cluster
from swerve.statistics.decomposition import GAIN_PARTS, accuracy_parts
from swerve.statistics.intervals import rows_and_columns_interval
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
    "mean of differences": lambda before, after: (after - before).mean(),
    "rises": lambda before, after: (after > before).sum(),
    "falls": lambda before, after: (after < before).sum(),
    "change as a share of the wrong": lambda before, *after: (
        (np.mean(after, axis=0) - before).sum() / (1 - before).sum()
    ),
    "change as a share of the right": lambda before, *after: (before - np.mean(after, axis=0)).sum() / before.sum(),
    "share of the difference": lambda before, between, after: (
        (between.mean() - before.mean()) / (after.mean() - before.mean())
    ),
    "number": len,
    "difference of ratios": lambda part, whole, other, whole_of_other: (
        part.sum() / whole.sum() - other.sum() / whole_of_other.sum()
    ),
    "rank correlation": lambda first, second: rank_correlation(first, second),
    "columns": lambda *columns: len(columns),
    "mean over runs": lambda *runs: np.mean(runs),
    "mean over runs, less that of the first": lambda first, *runs: np.mean(np.array(runs) - first),
    **{f"{part} of the gain": lambda *counts, at=at: gain_part(at, counts).mean for at, part in enumerate(GAIN_PARTS)},
}
"""How a number comes from columns of rows: each takes them as arrays, in the order in which a figure names them."""

INTERVALS: Mapping[str, tuple[str, Callable[..., Estimate | None]]] = {
    "mean": (
        "mean_interval, bounds 0 and 1",
        lambda values, **how: mean_interval(values, bounds=(0.0, 1.0), **how),
    ),
    "ratio of sums": ("ratio_interval", lambda *columns, **how: ratio_interval(*columns, **how)),
    "paired difference of means": (
        "paired_difference, bounds -1 and 1",
        lambda *ends, **how: paired_difference(*ends, bounds=(-1.0, 1.0), **how)[0],
    ),
    "mean of differences": (
        "mean_interval of the differences, bounds -1 and 1",
        lambda before, after, **how: mean_interval(after - before, bounds=(-1.0, 1.0), **how),
    ),
    "rank correlation": ("spearman", lambda *columns, **how: spearman(*columns, **how)),
    "mean over runs, less that of the first": (
        "intervals.rows_and_columns_interval of clusters.by_cluster, bounds -1 and 1",
        lambda first, *runs, clusters, confidence: rows_and_columns_interval(
            by_cluster(np.array(runs) - first, clusters), bounds=(-1.0, 1.0), confidence=confidence
        ),
    ),
    **{
        f"{part} of the gain": (
            "decomposition.accuracy_parts",
            lambda *counts, at=at, clusters, **_: gain_part(at, counts, clusters=clusters),
        )
        for at, part in enumerate(GAIN_PARTS)
    },
}
"""Of a statistic: the function of `swerve.statistics` that makes its interval over problems, and how it is called."""


def gain_part(at: int, counts: Sequence[Array], *, clusters: Any = None) -> Estimate:
    """Return a part of the gain in accuracy with its 95% interval.

    Args:
        at: its place in `GAIN_PARTS`.
        counts: of each problem the answers, of those the finished, of those the read, of those the right; those of the
            model before, and those of the model after.
        clusters: which problems belong together.
    """
    before, after = counts[:4], counts[4:]
    parts, _ = accuracy_parts((before[0], after[0]), before[1:], after[1:], clusters=clusters)
    return parts[at].gain or Estimate(mean=math.nan, low=math.nan, high=math.nan)


def rank_correlation(first: Array, second: Array) -> float:
    """Return the correlation of the ranks, of which equal values share the mean; NaN where one of the two is constant.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 6)
    0.5
    """
    ranks = [np.unique(values, return_inverse=True, return_counts=True)[1:] for values in (first, second)]
    own, other = ((counts.cumsum() - (counts - 1) / 2)[index] for index, counts in ranks)
    if not np.ptp(own) or not np.ptp(other):
        return math.nan
    return float(np.corrcoef(own, other)[0, 1])


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
    end: Literal["", "low", "high"] = ""
    """Which end of its interval over problems this is; empty: the number itself."""
    level: float = 0.95
    """Of that interval."""

    @property
    def how(self) -> str:
        """How it comes from the rows, in words.

        >>> Figure(name="right", statistic="mean", columns=("after",), end="low").how
        'low end of the 95% interval of mean of after (swerve.statistics: mean_interval, bounds 0 and 1)'
        """
        of = f" of {', '.join(self.columns)}" if self.columns else ""
        if not self.end:
            return f"{self.statistic}{of}"
        made = f"swerve.statistics: {INTERVALS[self.statistic][0]}"
        return f"{self.end} end of the {self.level:.0%} interval of {self.statistic}{of} ({made})"


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
    """The raw values. `rollout` numbers a rollout of the page's list and `token` a place in it: they are links. `group`
    says which rows count as one in intervals; without it those of one `problem` do."""
    filter: str = ""
    """Which rows of these files, in words."""
    unit: str = "problem"
    """What one row is."""
    figures: tuple[Figure, ...] = ()
    """Numbers of the sentence."""
    command: str = ""
    """Lines of Python that make the rows."""
    place: str = "beside the run's folder or where it is in runs/"
    """Where these lines are run."""
    note: str = ""
    """What the sentence has that the rows do not give, such as intervals."""
    opens: str = ""
    """A row opens what the page holds (`Page.held`) under this and its first cell."""

    @property
    def num(self) -> int:
        """How many rows there are."""
        return max((len(column) for column in self.columns.values()), default=0)

    @property
    def num_shown(self) -> int:
        """How many of them are inside the page."""
        return min(self.num, max(1, MAX_CELLS // max(1, len(self.columns))))

    def value(self, figure: Figure) -> float:
        """Compute a number of the sentence from the rows; NaN where no row counts, or a column is not there."""
        if figure.statistic == "rows":
            return float(self.num)
        if not self.columns.keys() >= {*figure.columns}:
            return math.nan
        table = np.array([self.columns[name] for name in figure.columns], dtype=np.float64)
        known = ~np.isnan(table).any(axis=0)
        table = table[:, known]
        if not table.size:
            return math.nan
        if not figure.end:
            with np.errstate(invalid="ignore", divide="ignore"):  # a share of nothing is NaN
                return float(STATISTICS[figure.statistic](*table))
        problems = np.array(self.columns.get("group", self.columns["problem"]))[known]
        estimate = INTERVALS[figure.statistic][1](*table, clusters=problems, confidence=figure.level)
        return math.nan if estimate is None else float(getattr(estimate, figure.end))

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
        packed = {"num": self.num, "names": list(shown), "columns": list(shown.values())}
        return {**packed, "opens": self.opens} if self.opens else packed


class Sentence(str):
    """A sentence of a page, with what it was made of."""

    __slots__ = ("evidence",)
    evidence: Evidence | None

    def __new__(cls, text: str, evidence: Evidence | None = None) -> Sentence:
        """Return the text with its evidence."""
        sentence = super().__new__(cls, text)
        sentence.evidence = evidence
        return sentence


def with_interval(figure: Figure, write: Callable[[Estimate], str], known: Estimate, level: float) -> list[Figure]:
    """Return a number and both ends of its interval, as a sentence writes the three.

    >>> from swerve.text import percent_interval
    >>> of = Figure(name="right", statistic="mean", columns=("after",))
    >>> parts = with_interval(of, percent_interval, Estimate(mean=0.615, low=0.4, high=0.8), 0.95)
    >>> [part.write(value) for part, value in zip(parts, (0.615, 0.4, 0.8))]
    ['62%', '40', '80']
    """

    def low(value: float) -> str:
        return write(replace(known, low=value)).partition(" (")[2].partition(" to ")[0]

    def high(value: float) -> str:
        return write(replace(known, high=value)).partition(" to ")[2].removesuffix(")")

    return [
        replace(figure, write=digits_of(write, known)),
        replace(figure, name=f"{figure.name}, from", write=low, end="low", level=level),
        replace(figure, name=f"{figure.name}, to", write=high, end="high", level=level),
    ]


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
