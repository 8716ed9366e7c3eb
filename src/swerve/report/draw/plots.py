"""What is drawn of rows, on the page and in figures for papers: axes with their ticks, marks, and what names them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from swerve.estimates import Estimate
from swerve.report.rows import Curves, Dots, Rows, Unit, mean_of

MANY, MAX_POINTS = 24, 400
"""Curves of more places have no dots and round numbers along their axis; of more points some are left out."""


_MAX_TICK = 14
"""Characters of a name along an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Where numbers lie between two ends, as their unit has them: in percent, say."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    """Each with its text."""
    title: str
    """What it counts."""

    def place(self, value: float) -> float:
        """Return where a number lies, from 0 to 1; what is beyond an end lies at it."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A number with its interval, as its axis has it; without one both ends are the number."""

    at: float
    """Its place along the other axis, from 0 to 1; of dots the number of its row."""
    mean: float
    low: float
    high: float
    text: str
    """What it says, where it is a dot."""
    is_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Columns of numbers on one axis: lines along another, or dots in rows."""

    axis: Axis
    columns: Mapping[str, Sequence[Mark]]
    levels: Mapping[str, Mark]
    """What all are to be read against, with what is not distinguishable from it."""
    names: Sequence[str] = ()
    """Of the rows of dots."""
    along: Axis = field(default_factory=lambda: Axis(low=0.0, high=1.0, ticks=(), title=""))
    """What lines lie along."""
    ends: Sequence[tuple[float, str]] = ()
    """Where along it stages of training end, and what says so."""
    signs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Where along it papers mark something above the lines."""

    @property
    def key(self) -> tuple[str, ...]:
        """What is drawn, where it is more than one thing."""
        names = (*self.columns, *filter(None, self.levels), *self.signs)
        return names if len(names) > 1 else ()


def drawn(rows: Rows, plot: Dots | Curves) -> Plot:
    """Return what is drawn of rows."""
    if isinstance(plot, Curves):
        return _lines(*rows.along(plot))
    unit = rows.columns[plot.column]
    cells = {name: rows.numbers(name) for name in (plot.column, plot.null) if name}
    lines = {at: line for line, at in enumerate(cells[plot.column])}
    columns = {
        column: [
            _mark(lines[at], cell, unit, unit.text(cell), column == plot.null or rows.rows[at][0] in plot.greys)
            for at, cell in numbers.items()
            if at in lines
        ]
        for column, numbers in cells.items()
    }
    at = () if plot.at is None else (plot.at - plot.margin, plot.at, plot.at + plot.margin)
    level = Estimate(low=at[0], mean=at[1], high=at[2]) if at else None
    return Plot(
        axis=_axis(rows, [*cells], at=at),
        columns=columns,
        levels={} if level is None else {"": _mark(0, level, unit, "", True)},
        names=[str(rows.rows[at][0]) for at in lines],
    )


def _lines(rows: Rows, plot: Curves) -> Plot:
    places, names = plot.places, plot.columns or tuple(rows.columns)
    unit, columns = rows.columns[names[0]], {}
    for name in names:
        cells, is_null = rows.numbers(name), name in plot.greys
        # Nobody reads the texts of a long line.
        texts = {
            at: f"{name}, {rows.rows[at][0]}: {unit.text(cell)}" for at, cell in cells.items() if len(cells) <= MANY
        }
        columns[name] = thinned([_mark(places[at], cells[at], unit, texts.get(at, ""), is_null) for at in cells])
    marked = {
        name: [place for place, x in zip(places, plot.x, strict=True) if x in found]
        for name, found in plot.marks.items()
        if found
    }
    return Plot(
        axis=_axis(rows, names, plot.levels.values()),
        columns=columns,
        levels={name: _mark(0, level, unit, "", True) for name, level in plot.levels.items()},
        along=Axis(
            low=0,
            high=1,
            ticks=axis_steps(plot, [str(row[0]) for row in rows.rows]),
            title=f"{plot.x_title}{', log' * plot.is_log}",
        ),
        ends=[(place, f"{name} ends") for place, name in plot.inner_ends],
        signs=marked,
    )


def _mark(at: float, cell: Estimate | float, unit: Unit, text: str, is_null: bool) -> Mark:
    ends = (cell.mean, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, cell, cell)
    mean, low, high = (unit.scale * end for end in ends)
    return Mark(at=at, mean=mean, low=min(low, mean), high=max(high, mean), text=text, is_null=is_null)


def _axis(rows: Rows, columns: Sequence[str], more: Iterable[Estimate] = (), at: Sequence[float] = ()) -> Axis:
    """Return the axis of some columns and more, which counts what they do; of several a legend has the names."""
    unit = rows.columns[columns[0]]
    title = f"{columns[0]} ({unit.axis})" if unit.axis else columns[0]
    if len(columns) > 1:
        title = "percent" if unit.axis == "%" else unit.axis or rows.title
    cells = [cell for name in columns for cell in rows.numbers(name).values()]
    ticks = [(tick, tick_text(unit, tick)) for tick in axis_ticks(unit, [*cells, *more], at=at)]
    return Axis(low=ticks[0][0], high=ticks[-1][0], ticks=ticks, title=title)


def nice_ticks(low: float, high: float, *, num: int = 4) -> list[float]:
    """Return round numbers that span a range, at most about `num` steps apart.

    >>> nice_ticks(0, 0.93), nice_ticks(-0.21, 0.6)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [-0.25, 0.0, 0.25, 0.5, 0.75])
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / num))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * num >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{step * index:.12g}") for index in range(first, max(last, first + 1) + 1)]


def axis_ticks(unit: Unit, cells: Iterable[Estimate | float], *, at: Sequence[float] = ()) -> list[float]:
    """Return the ticks of the axis that some cells lie on, as it has them, inside the bounds of their unit.

    >>> from swerve.report.rows import JS, SHARE
    >>> axis_ticks(SHARE, [Estimate(mean=0.01, low=0.0, high=1.0), 0.02])  # an interval of everything needs no room
    [0.0, 0.5, 1.0, 1.5, 2.0]
    >>> axis_ticks(JS, [0.68])
    [0.0, 0.2, 0.4, 0.6, 0.693...]
    """
    ends = list(at) or ([0.0] if unit.low == 0 else [])
    for cell in cells:
        ends.append(mean_of(cell))
        if isinstance(cell, Estimate) and (cell.low, cell.high) != (unit.low, unit.high):
            ends += [cell.low, cell.high]
    ends = [unit.scale * end for end in ends if math.isfinite(end)] or [0.0, 1.0]
    low, high, bound = min(ends), max(ends), unit.scale * unit.high
    ticks = [tick for tick in nice_ticks(low, high) if unit.scale * unit.low - 1e-9 <= tick <= bound + 1e-9]
    if ticks and high > ticks[-1] + 1e-9:  # up to a bound that is no round number
        ticks.append(bound)
    return ticks if len(ticks) > 1 else [low - 1, high]


def tick_text(unit: Unit, tick: float) -> str:
    """Return the number at a tick."""
    sign = "+" if unit.low < 0 < tick and math.isfinite(unit.low) else ""
    return f"{sign}{tick:.4g}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}")


def place_text(value: float) -> str:
    """Return the name of a place along an axis, such as a step.

    >>> place_text(12000), place_text(0.01234)
    ('12,000', '0.012')
    """
    return (f"{value:,.0f}" if value == int(value) else f"{value:.2g}").replace("-", "\N{MINUS SIGN}")


def axis_steps(plot: Curves, names: Sequence[str] = ()) -> list[tuple[float, str]]:
    """Return what can stand along the axis: each place, from 0 to 1, with its step; round steps where there are many.

    Places that are only an order have the names of their rows.

    >>> axis_steps(Curves(x=tuple(range(1, 102))))
    [(0.24, '25'), (0.49, '50'), (0.74, '75'), (0.99, '100')]
    >>> axis_steps(Curves(x=(1, 2), is_order=True), ["step-10", "final"])
    [(0.0, 'step-10'), (1.0, 'final')]
    """
    if plot.is_order:
        return [(place, shortened(name, _MAX_TICK)) for place, name in zip(plot.places, names, strict=True)]
    if len(plot.x) <= MANY or plot.is_log:
        return list(zip(plot.places, map(place_text, plot.x), strict=True))
    first, last = plot.x[0], plot.x[-1]
    ticks = (tick for tick in nice_ticks(first, last) if first <= tick <= last)
    return [((tick - first) / (last - first), place_text(tick)) for tick in ticks]


def spaced(texts: Iterable[tuple[float, str]], letters: float) -> dict[float, str]:
    """Return the texts that do not touch along an axis, of which a unit is as long as so many letters.

    >>> spaced([(0, "0"), (1, "0.01"), (10, "0.1")], 1.6)
    {0: '0', 10: '0.1'}
    """
    shown: dict[float, str] = {}
    end = -math.inf
    for place, text in texts:
        if place * letters - len(text) / 2 > end:
            shown[place] = text
            end = place * letters + len(text) / 2 + 1.5
    return shown


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many characters, its middle left out if it has more.

    >>> shortened("abcdef", 4)
    'ab…f'
    """
    tail = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def thinned(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Return some hundred marks of many thousand: of each stretch the lowest and the highest, so no spike is lost."""
    size = -(-2 * len(marks) // MAX_POINTS)
    kept = list[Mark]()
    for start in range(0, len(marks), size or 1):
        stretch = sorted(marks[start : start + size], key=attrgetter("mean"))
        kept += sorted({stretch[0], stretch[-1]}, key=attrgetter("at"))
    return kept if len(marks) > MAX_POINTS else marks
