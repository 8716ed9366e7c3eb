"""What a page is built of, as records that a template prints: tables, interval plots, bars, panels and sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart
from swerve.report.format import NOT_MEASURED

FRACTION_ENDS = ("0%", "50%", "100%")
AUC_ENDS = ("0", "0.5", "1")
CORRELATION_ENDS = ("\N{MINUS SIGN}1", "0", "+1")
POINT_ENDS = ("\N{MINUS SIGN}100", "0", "+100")


class _Rows:
    """A part that is shown if it has a row."""

    __slots__ = ()
    rows: tuple[Any, ...]

    @property
    def measured(self) -> bool:
        """Whether there is a row."""
        return bool(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(_Rows):
    """A table of finished strings; the first column names the row."""

    sort: ClassVar[str] = "table"
    id: str
    caption: str
    note: str = ""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    folded: bool = False
    """Whether the table is shown only on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """One line of an interval plot: positions in percent of the plot's width."""

    name: str
    value: str
    dot: float
    low: float
    high: float
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DotPlot(_Rows):
    """Estimates with their intervals on one axis."""

    sort: ClassVar[str] = "dots"
    caption: str = ""
    rows: tuple[DotRow, ...]
    ends: tuple[str, str, str]
    """What stands at the left end, in the middle and at the right end of the axis."""
    around_zero: bool = False
    """Whether the mark is no effect; else it is chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Two fractions of one thing, in percent of the plot's width."""

    name: str
    first: float
    second: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPlot(_Rows):
    """Pairs of bars; `key` names the first and the second of a pair."""

    sort: ClassVar[str] = "bars"
    rows: tuple[Bar, ...]
    key: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPart:
    """An interactive chart, drawn by the page's script."""

    sort: ClassVar[str] = "chart"
    chart: Chart

    @property
    def measured(self) -> bool:
        """Whether the chart has a point."""
        return self.chart.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What was not measured, and the command that measures it."""

    sort: ClassVar[str] = "absent"
    measured: ClassVar[bool] = True
    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(_Rows):
    """What the names of metrics mean, a line each."""

    sort: ClassVar[str] = "terms"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(_Rows):
    """Texts as they stand, each shown on demand under a line that says what it is."""

    sort: ClassVar[str] = "texts"
    rows: tuple[tuple[str, str], ...]


Part = Table | DotPlot | BarPlot | ChartPart | Absent | Terms | Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A question with what answers it."""

    title: str
    note: str = ""
    parts: tuple[Part, ...]
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page."""

    id: str
    title: str
    short: str
    """The title in the page's navigation."""
    lead: str = ""
    panels: tuple[Panel, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in the order shown."""
        return tuple(part for panel in self.panels for part in panel.parts)


def measured_columns(table: Table) -> Table:
    """Return the table without the columns that were measured in no row; the first column stays.

    >>> table = Table(id="t", caption="", header=("Name", "A", "B"), rows=(("x", "not measured", "1"),))
    >>> measured_columns(table).header
    ('Name', 'B')
    """
    kept = [i for i in range(len(table.header)) if i == 0 or any(row[i] != NOT_MEASURED for row in table.rows)]
    return replace(
        table,
        header=tuple(table.header[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
    )


def panel(title: str, *parts: Part | None, note: str = "", wide: bool = False) -> Panel | None:
    """Return a panel of the parts that were measured; None without any."""
    kept = tuple(part for part in parts if part is not None and part.measured)
    return Panel(title=title, note=note, parts=kept, wide=wide) if kept else None


def section(id: str, title: str, panels: Sequence[Panel | None], *, short: str, lead: str = "") -> Section | None:
    """Return a section of the panels that there are; None without any."""
    kept = tuple(panel for panel in panels if panel is not None)
    return Section(id=id, title=title, short=short, lead=lead, panels=kept) if kept else None


def dot_row(
    name: str, value: str, estimate: Estimate, chance: float | None, *, low: float = 0.0, high: float = 1.0
) -> DotRow:
    """Return a line of an interval plot whose axis runs from `low` to `high`; what lies outside is put on its end.

    >>> row = dot_row("JS", "0.9", Estimate(mean=0.9, low=0.8, high=1.2), 0.5)
    >>> row.dot, row.low, row.high, row.chance
    (90.0, 80.0, 100.0, 50.0)
    """

    def place(at: float) -> float:
        return round(100 * (min(max(at, low), high) - low) / (high - low), 2)

    return DotRow(
        name=name,
        value=value,
        dot=place(estimate.mean),
        low=place(estimate.low),
        high=place(estimate.high),
        chance=None if chance is None else place(chance),
    )
