"""What was measured, written once: rows of numbers that become a table, a plot, a figure for papers and a CSV file."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from swerve.artifacts.comparison import Measure
from swerve.estimates import Estimate, SkewedMean
from swerve.text import (
    count,
    number,
    number_interval,
    p_value,
    percent,
    percent_interval,
    points,
    points_interval,
    signed,
    signed_interval,
)

NOTHING = "\N{EN DASH}"
"""In a cell of a table that has none of the numbers of its column."""
Cell = Estimate | float | int | str | None
"""A measured number, with its interval or without; a text; None where nothing was measured."""
Plain = TypeVar("Plain")


def mean_of(cell: Estimate | Plain) -> float | Plain:
    """Return a number without its interval; anything else as it is."""
    return cell.mean if isinstance(cell, Estimate) else cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How the numbers of a column are written, and between which bounds they lie."""

    axis: str
    """What stands at an axis."""
    value: Callable[[float | None], str]
    interval: Callable[[Estimate | None], str]
    low: float = -math.inf
    high: float = math.inf
    scale: float = 1.0
    """What numbers are multiplied by on an axis: 100 for percent."""

    def bounded(self, cell: Cell) -> Cell:
        """Return an estimate with its interval inside of the bounds; anything else as it is."""
        if not isinstance(cell, Estimate) or self.low <= cell.low <= cell.high <= self.high:
            return cell
        return replace(cell, low=max(self.low, cell.low), high=min(self.high, cell.high))

    def text(self, cell: Cell) -> str:
        """Return a cell as tables have it.

        >>> SHARE.text(Estimate(mean=0.5, low=0.25, high=0.75)), SHARE.text(0.5), COUNT.text(12000), SHARE.text(None)
        ('50% (25 to 75)', '50.0%', '12,000', 'not measured')
        """
        if isinstance(cell, str):
            return cell
        if isinstance(cell, SkewedMean):
            if not cell.reliable and cell.median is not None:
                return f"median {self.interval(cell.median)}"
            cell = cell.scaled(1.0)  # its mean and interval alone
        return self.interval(cell) if isinstance(cell, Estimate) else self.value(cell)


SHARE = Unit(axis="%", value=percent, interval=percent_interval, low=0, high=1, scale=100)
POINTS = Unit(
    axis="percentage points",
    value=points,
    interval=points_interval,
    low=-1,
    high=1,
    scale=100,
)
NUMBER = Unit(axis="", value=number, interval=number_interval)
SIGNED = Unit(axis="", value=signed, interval=signed_interval)
COUNT = Unit(axis="", value=count, interval=number_interval, low=0)
P_VALUE = Unit(axis="p", value=p_value, interval=number_interval, low=0, high=1)
TEXT = NUMBER
"""Of a column of texts."""
NATS = replace(NUMBER, axis="nats per token", low=0)
JS = replace(NATS, high=math.log(2))
NATS_CHANGE = replace(SIGNED, axis="nats per token")
AUC = replace(NUMBER, axis="area under the ROC curve", low=0, high=1)
CORRELATION = replace(SIGNED, axis="rank correlation", low=-1, high=1)
TOKENS = replace(NUMBER, axis="tokens", low=0)
REWARD = replace(NUMBER, axis="mean reward")
PER_1000 = replace(NUMBER, axis="per 1,000 tokens", low=0)


def divergence_unit(name: str) -> Unit:
    """Return the unit of a divergence: Jensen and Shannon's has a bound."""
    return JS if name == "js" else NATS


def measure_unit(measure: Measure) -> Unit:
    """Return how a measure of responses or of a run is written."""
    low, high = measure.bounds
    axis = "" if measure.unit in ("count", "cosine") else measure.unit
    return replace(SHARE if measure.unit == "share" else replace(NUMBER, axis=axis), low=low, high=high)


def difference_unit(measure: Measure) -> Unit:
    """Return how a difference of two values of a measure is written."""
    low, high = measure.difference_bounds
    axis = measure_unit(measure).axis
    return replace(POINTS if measure.unit == "share" else replace(SIGNED, axis=axis), low=low, high=high)


def changed(measure: Measure, value: Cell) -> str:
    """Return a difference of two values of a measure with its interval; its unit if the title does not have it.

    >>> changed(Measure(title="accuracy", unit="share"), Estimate(mean=0.1, low=0.05, high=0.15))
    '+10.0 points (+5.0 to +15.0)'
    >>> changed(Measure(title="length", unit="tokens"), 2.5)
    '+2.50 tokens'
    """
    unit = difference_unit(measure)
    number, bracket, ends = unit.text(value).partition(" (")
    name = "" if unit.axis in measure.title else f" {unit.axis.removeprefix('percentage ')}"
    return f"{number}{name}{bracket}{ends}"


def value_as(measure: Measure, difference: Cell, value: float) -> str:
    """Return a value of a measure no finer than the interval of its difference; without one in whole percents.

    >>> accuracy = Measure(title="accuracy", unit="share")
    >>> value_as(accuracy, Estimate(mean=0.1, low=-0.02, high=0.22), 0.603), value_as(accuracy, None, 0.908)
    ('60%', '91%')
    """
    return _as_fine(measure_unit(measure), difference, value)


def change_as(measure: Measure, difference: Cell, value: float) -> str:
    """Return the difference itself as `changed` writes it, without interval and unit."""
    unit = difference_unit(measure)
    return _as_fine(unit, difference, value) if isinstance(difference, Estimate) else unit.value(value)


def _as_fine(unit: Unit, difference: Cell, value: float) -> str:
    if isinstance(difference, Estimate):
        low, high = difference.low - difference.mean, difference.high - difference.mean
    elif unit.scale == SHARE.scale:
        low, high = -0.1, 0.1  # as wide as leaves whole percents
    else:
        return unit.value(value)
    return unit.interval(Estimate(mean=value, low=value + low, high=value + high)).partition(" (")[0]


def against(measure: Measure, after: float, before: float, difference: Cell) -> str:
    """Return two values of a measure with its unit; see `value_as`.

    >>> against(Measure(title="length", unit="tokens"), 57.25, 59.0, None)
    '57.2 against 59.0 tokens'
    """
    axis = measure_unit(measure).axis
    name = "" if axis in ("%", "") or axis in measure.title else f" {axis}"
    return f"{value_as(measure, difference, after)} against {value_as(measure, difference, before)}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A plot of one column: a dot with its interval for each row, all on one axis."""

    column: str
    null: str = ""
    """Column that each row is to be read against, drawn in grey beside it."""
    at: float | None = None
    """Where no effect, or chance, is: a line across all rows."""
    margin: float = 0.0
    """How far from there nothing that matters is: a band."""
    greys: tuple[str, ...] = ()
    """Names of the rows that are nulls themselves."""

    def kept(self, places: Sequence[int], names: Sequence[str]) -> tuple[Dots, ...]:
        """Return the plot of some rows and columns; nothing without its own column."""
        null = self.null if self.null in names else ""
        return (replace(self, null=null),) if self.column in names else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A plot of columns over the rows, which lie along an axis."""

    x: tuple[float, ...]
    """Place of each row, increasing."""
    x_title: str = "RL step"
    columns: tuple[str, ...] = ()
    """Which columns are drawn; all by default."""
    is_order: bool = False
    """Whether places are no more than an order: names of rows stand along the axis."""
    is_log: bool = False
    """Whether places above 0 lie on a logarithmic axis."""
    levels: Mapping[str, Estimate] = field(default_factory=dict)
    """What the curves are to be read against: lines across."""
    ends: Mapping[str, float] = field(default_factory=dict)
    """Where stages of training end."""
    marks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Places that figures for papers mark above the curves."""
    greys: tuple[str, ...] = ()
    """Columns that are nulls."""

    @property
    def places(self) -> tuple[float, ...]:
        """Where the rows lie along the axis, from 0 to 1.

        >>> Curves(x=(0, 1, 10, 100), is_log=True).places
        (0.0, 0.333..., 0.666..., 1.0)
        """
        values = [*self.x]
        num = sum(value <= 0 for value in values)
        if self.is_log and num < len(values):
            # On a logarithmic axis 0 and what is below it lie in steps left of the first place above.
            above = [math.log(value) for value in values[num:]]
            step = (above[-1] - above[0]) / max(1, len(above) - 1)
            values = [*(above[0] - step * (num - index) for index in range(num)), *above]
        span = (values[-1] - values[0] if values else 0.0) or 1.0
        return tuple((value - values[0]) / span for value in values)

    @property
    def inner_ends(self) -> list[tuple[float, str]]:
        """Where along the axis, from 0 to 1, stages end between its ends; with their names."""
        inside = ((name, end) for name, end in self.ends.items() if self.x[0] < end < self.x[-1])
        return [(self.places[bisect_left(self.x, end)], name) for name, end in inside]

    def kept(self, places: Sequence[int], names: Sequence[str]) -> tuple[Curves, ...]:
        """Return the plot of some rows and columns; nothing of fewer than two rows, or of nulls alone."""
        columns = tuple(name for name in self.columns or names if name in names)
        if len(places) < 2 or not {*columns} - {*self.greys}:
            return ()
        return (replace(self, x=tuple(self.x[at] for at in places), columns=columns),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table of measured numbers, and how it is drawn.

    >>> rows = Rows(id="a", title="Accuracy", columns={"Greedy": SHARE}, rows=(("rl-80", 0.5), ("rl-90", None)))
    >>> rows.texts
    (('rl-80', '50.0%'), ('rl-90', '\u2013'))
    >>> rows.records[0]
    {'name': 'rl-80', 'greedy': 0.5}
    """

    id: str
    """Name of its table, its plot and its files."""
    title: str
    columns: Mapping[str, Unit]
    rows: tuple[tuple[Cell, ...], ...]
    """Each with its name first, then a cell for each column; an empty text where a column does not apply."""
    first: str = ""
    """Heading of the names."""
    note: str = ""
    plots: tuple[Dots | Curves, ...] = ()
    """Side by side; two where columns lie on other scales."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Name of a row -> address of the page that it has."""
    has_table: bool = True
    """False where a plot says all: curves of every step of training."""

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return any(cell is not None for row in self.rows for cell in row[1:])

    @property
    def kept(self) -> Rows:
        """The same without rows and columns of which nothing was measured, and with intervals inside of their bounds.

        Curves that nothing changes along, or that are twins of another, become a line in the note.

        >>> rows = (("a", 59, 0.1, 0.1), ("b", 59, 0.2, 0.2), ("c", 59, 0.3, 0.3))
        >>> columns = {"Length": COUNT, "Right": SHARE, "Traces right": SHARE}
        >>> kept = Rows(id="a", title="", columns=columns, rows=rows, plots=(Curves(x=(1, 2, 3)),)).kept
        >>> kept.note, kept.texts[0]
        ('Throughout: length 59; traces right as right.', ('a', '10.0%'))
        """
        # What was measured of each column, at the rows of which anything was.
        measured = [any(cell is not None for cell in row[1:]) for row in self.rows]
        places = [at for at, is_measured in enumerate(measured) if is_measured]
        cells = {
            name: tuple(unit.bounded(self.rows[at][index]) for at in places)
            for index, (name, unit) in enumerate(self.columns.items(), start=1)
        }
        cells = {name: column for name, column in cells.items() if any(cell not in (None, "") for cell in column)}
        # What does not change is said in the note.
        same = self._same(cells) if len(places) > 1 else {}
        cells = {name: column for name, column in cells.items() if name not in same}
        said = f"Throughout: {'; '.join(same.values())}." if same else ""
        return replace(
            self,
            columns={name: self.columns[name] for name in cells},
            rows=tuple((self.rows[at][0], *row) for at, *row in zip(places, *cells.values(), strict=True)),
            note=f"{self.note.strip()} {said}".strip(),
            plots=tuple(kept for plot in self.plots for kept in plot.kept(places, tuple(cells))),
            has_table=self.has_table and bool(cells),
        )

    def _same(self, cells: Mapping[str, Sequence[Cell]]) -> Mapping[str, str]:
        """Return what is said of the curves along which nothing changes, and of those that are as another one."""
        said: dict[str, str] = {}
        twins: dict[Sequence[Cell], str] = {}
        for plot in self.plots:
            # A flat curve beside a level, or a null that changes, does say something.
            if not isinstance(plot, Curves) or plot.levels:
                continue
            names = [name for name in plot.columns or self.columns if name in cells]
            known = {name: {cell for cell in cells[name] if cell is not None} for name in names}
            # What reads the same everywhere is the same to a reader.
            read = {name: {self.columns[name].text(mean_of(cell)) for cell in known[name]} for name in names}
            is_all_flat = all(len(texts) == 1 for texts in read.values())
            for name in names:
                lower = name if name[:2].isupper() else f"{name[:1].lower()}{name[1:]}"
                if len(read[name]) == 1 and (is_all_flat or not plot.greys):
                    (text,) = read[name] if len(known[name]) > 1 else map(self.columns[name].text, known[name])
                    said[name] = f"{lower} {text}"
                elif name not in plot.greys:
                    twin = twins.setdefault(tuple(map(mean_of, cells[name])), lower)
                    if twin != lower:
                        said[name] = f"{lower} as {twin}"
        return said

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of a column."""
        index = 1 + list(self.columns).index(name)
        return tuple(row[index] for row in self.rows)

    def numbers(self, name: str) -> dict[int, Estimate | float]:
        """Return what was measured of a column, by the place of the row."""
        return {at: cell for at, cell in enumerate(self.column(name)) if isinstance(cell, Estimate | float | int)}

    def along(self, plot: Curves) -> tuple[Rows, Curves]:
        """Return the rows from the first to the last at which a curve of a plot was measured, and the plot of them.

        >>> rows = Rows(id="a", title="", columns={"KL": NATS}, rows=(("sft-1", None), ("rl-1", 0.1), ("rl-2", 0.2)))
        >>> rows.along(Curves(x=(-1, 1, 2)))[1].x
        (1, 2)
        """
        known = [at for name in plot.columns or self.columns for at in self.numbers(name)]
        places = slice(min(known, default=0), max(known, default=0) + 1)
        return replace(self, rows=self.rows[places]), replace(plot, x=plot.x[places])

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as a table shows them."""
        units = self.columns.values()
        return tuple(
            (
                str(name),
                *(NOTHING if cell is None else unit.text(cell) for unit, cell in zip(units, cells, strict=True)),
            )
            for name, *cells in self.rows
        )

    @property
    def text_table(self) -> list[list[str]]:
        """The table for a terminal, Markdown and LaTeX: the heading first, and nothing where nothing was measured.

        >>> rows = Rows(id="a", title="", columns={"Greedy": SHARE, "p": P_VALUE}, rows=(("rl-80", 0.5, None),))
        >>> rows.text_table
        [['', 'Greedy'], ['rl-80', '50.0%']]
        """
        rows = self.kept
        texts = (["" if text == NOTHING else text for text in row] for row in rows.texts)
        return [[rows.first, *rows.columns], *texts]

    @property
    def records(self) -> tuple[Mapping[str, float | str | None], ...]:
        """The rows as a CSV file has them, an estimate with the ends of its interval."""
        table: dict[str, Sequence[float | str | None]] = {
            _slug(self.first) or "name": [str(row[0]) for row in self.rows]
        }
        axes = {(_slug(plot.x_title), plot.x) for plot in self.plots if isinstance(plot, Curves)}
        table |= axes if len(axes) == 1 else ()
        for name, unit in self.columns.items():
            slug = _slug(f"{name} points" if unit.axis == POINTS.axis else name)
            cells = self.column(name)
            table[slug] = [_written(mean_of(cell), unit) for cell in cells]
            if any(isinstance(cell, Estimate) for cell in cells):
                for end in ("low", "high"):
                    ends = [getattr(cell, end) if isinstance(cell, Estimate) else None for cell in cells]
                    table[f"{slug}_{end}"] = [_written(value, unit) for value in ends]
        return tuple(dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True))


def _written(value: float | str | None, unit: Unit) -> float | str | None:
    """Return a number as a file has it: a difference of shares in points, as everywhere.

    >>> _written(0.07, POINTS), _written(1, POINTS), _written(0.07, SHARE)
    (7.0, 100.0, 0.07)
    """
    if unit.axis != POINTS.axis or not isinstance(value, float | int):
        return value
    return float(f"{value * unit.scale:.12g}")


def _slug(name: str) -> str:
    """Return a heading as the name of a column in a file.

    >>> _slug("Good, of divergence"), _slug("AUC")
    ('good_of_divergence', 'auc')
    """
    return "_".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
