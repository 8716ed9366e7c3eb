"""Figures for papers: rows of numbers drawn as wide as a column or as the text of a page, and their files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from swerve.artifacts.files import atomic_path, write_text
from swerve.errors import ConfigError, nearest
from swerve.estimates import Estimate
from swerve.formats.text_tables import csv_text
from swerve.report.draw.svg import MANY, axis_steps, axis_ticks, place_text, thinned, tick_text
from swerve.report.rows import Cell, Curves, Dots, Rows, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

WIDTHS: Mapping[str, float] = {"column": 3.25, "text": 6.75}
"""Of figures, in inches: of a column, and of the text of a page in two columns."""
FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None},
    "svg": {"Date": None},
}
"""File formats, with the metadata that would make two files of the same figure differ."""
COLOURS = ("#b8430f", "#0b62a8", "#16805d", "#7c3aad", "#7a6400", "#a8125e", "#00788c", "#4b4540")
"""The first is the hue of what training did; they differ to any colour vision, and so do markers and lines."""
HUE, GREY, INK = COLOURS[0], "#7d766d", "#1c1a17"
FONT = "DejaVu Sans"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
_DPI = 300
_TEXT = 7.0
"""Size of all text, in points."""
_LETTER = 0.062
"""Width of a letter of that size, in inches."""
_NAME = 1.55
"""Most width of the names of rows, in inches."""
_BOLD = 1.15
"""How much wider bold letters are."""
_STYLE: dict[Any, Any] = {
    "font.size": _TEXT,
    "font.family": FONT,
    "axes.labelsize": _TEXT,
    "axes.titlesize": _TEXT,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "figure.titlesize": _TEXT + 0.5,
    "figure.titleweight": "bold",
    "xtick.labelsize": _TEXT,
    "ytick.labelsize": _TEXT,
    "legend.fontsize": _TEXT,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": "#9d968c",
    "axes.linewidth": 0.6,
    "grid.color": "#e5e1d9",
    "grid.linewidth": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,
    "svg.hashsalt": "swerve",
}

Record = Mapping[str, str | int | float | bool | None]


def check_names(what: str, given: Iterable[str], allowed: Collection[str]) -> None:
    """Check that names are known.

    Raises:
        ConfigError: one is not; the message names the nearest.
    """
    for name in given:
        if name not in allowed:
            raise ConfigError(f"{what}: there is no '{name}'{nearest(name, allowed)} ({', '.join(allowed)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How figures are written.

    Raises:
        ConfigError: there is no such format or width.
    """

    formats: tuple[str, ...] = tuple(FORMATS)
    width: str = "text"
    has_titles: bool = True

    def __post_init__(self) -> None:
        """Check the names."""
        check_names("--format", self.formats, FORMATS)
        check_names("--width", (self.width,), WIDTHS)


DEFAULT_LOOK = Look()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The axes of a figure that one thing is drawn on."""

    draw: Callable[[Axes, float], Sequence[Any]]
    """Draws it, given the width of the panel in inches; returns what the names of `key` stand for."""
    height: Callable[[float], float]
    """In inches with its labels, by its width."""
    title: str = ""
    is_wide: bool = False
    """Whether it takes the whole width of a figure."""
    names: tuple[str, ...] = ()
    """Of its rows; panels below each other with the same ones are aligned."""
    key: tuple[str, ...] = ()
    """What its legend names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure that can be drawn, at any width."""

    name: str
    """Of its files."""
    title: str
    panels: tuple[Panel, ...]
    records: tuple[Record, ...]
    """The numbers as the artifacts have them, a line of the CSV each."""


def rows_drawing(rows: Rows) -> Drawing:
    """Return the figure of rows: a panel for each of their plots in which something was measured."""
    kept = rows.kept
    return Drawing(name=rows.id, title=rows.title, panels=tuple(_rows_panels(rows, kept)), records=kept.records)


def _rows_panels(rows: Rows, kept: Rows) -> Iterator[Panel]:
    """Yield a panel for each plot of rows, given what is kept of them."""
    for plot in kept.plots:
        yield _dots_panel(kept, plot) if isinstance(plot, Dots) else curves_panel(kept, plot)

    # At a single checkpoint what would be curves are dots, a row for each.
    for plot in rows.plots if len(kept.rows) == 1 else ():
        names = [name for name in kept.columns if isinstance(plot, Curves) and name in (plot.columns or kept.columns)]
        if names:
            label = str(kept.rows[0][0])
            cells = tuple((name, *kept.column(name)) for name in names)
            turned = Rows(id=rows.id, title=rows.title, columns={label: kept.columns[names[0]]}, rows=cells)
            yield _dots_panel(turned, Dots(column=label, greys=plot.greys))


def draw(panel: Panel, axes: Axes, width: float) -> None:
    """Draw a panel that is so many inches wide, with title and legend above it, where they cover nothing."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        handles, room = panel.draw(axes, width), _room(panel, width)
        if panel.title or panel.key:
            axes.legend(
                handles[: len(panel.key)], [label_text(name, limit=int((room - 0.3) / _LETTER)) for name in panel.key],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_key_columns(panel.key, room), alignment="left",
                title=wrapped(panel.title, room / _BOLD), title_fontproperties={"weight": "bold", "size": _TEXT},
                borderaxespad=0.2, columnspacing=1.2, borderpad=0.1, labelspacing=0.3,
            )  # fmt: skip


def draw_figure(drawing: Drawing, make: Callable[..., Figure], look: Look = DEFAULT_LOOK) -> tuple[Axes, ...]:
    """Draw a figure and return its panels; `make` makes a matplotlib figure, given size, resolution and layout."""
    from matplotlib import rc_context

    # Panels stand below each other in a column, else side by side; neighbouring lines of one kind are aligned.
    inches = WIDTHS[look.width]
    lines = _lines(drawing.panels, is_narrow=look.width == "column")
    blocks = [list(block) for _, block in groupby(lines, lambda line: [panel.names for panel in line])]
    heights = [[max(_height(panel, inches / len(line)) for panel in line) for line in block] for block in blocks]
    totals = list(map(sum, heights))
    title = wrapped(drawing.title if look.has_titles else "", inches / _BOLD)
    room = 0.17 * len(title.splitlines())

    # matplotlib finds the places of the panels in their blocks.
    panels: list[Axes] = []
    with rc_context(_STYLE):
        figure = make(figsize=(inches, sum(totals) + room), dpi=_DPI, layout="constrained")
        if title:
            figure.suptitle(title, x=0.008, ha="left")
        grid = figure.add_gridspec(len(blocks), 1, height_ratios=totals)
        for place, block in enumerate(blocks):
            inner = grid[place].subgridspec(len(block), len(block[0]), height_ratios=heights[place])
            for line, own in zip(block, inner.subplots(squeeze=False), strict=True):
                for panel, axes in zip(line, own, strict=True):
                    draw(panel, axes, inches / len(line))
                panels.extend(own)
    return tuple(panels)


def lay_out(drawing: Drawing, look: Look = DEFAULT_LOOK) -> Figure:
    """Return a figure whose panels and labels have their places, once for all formats."""
    # The object interface: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = figure_of(draw_figure(drawing, Figure, look)[0])
    with rc_context(_STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def write_figures(drawings: Iterable[Drawing], directory: Path, look: Look = DEFAULT_LOOK) -> tuple[Path, ...]:
    """Write every figure, and its numbers as `.csv`, of one without panels these alone; the same bytes every time.

    Raises:
        DiskFullError: no room.
    """
    from matplotlib import rc_context

    paths = []
    for drawing in drawings:
        figures = [lay_out(drawing, look)] if drawing.panels else []
        for figure, suffix in product(figures, look.formats):
            paths.append(directory / f"{drawing.name}.{suffix}")
            with atomic_path(paths[-1]) as temporary, rc_context(_STYLE):
                figure.savefig(temporary, format=suffix, metadata=FORMATS[suffix])
        paths.append(directory / f"{drawing.name}.csv")
        write_text(paths[-1], csv_text(drawing.records))
    return tuple(paths)


def figure_of(axes: Axes) -> Figure:
    """Return the figure that a panel is of."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def label_text(text: str, *, limit: int = 60, letters: int = 1000, font: str = FONT) -> str:
    r"""Return `text` as matplotlib can draw it: not read as a formula, its middle left out if it is long.

    Control characters are escaped as Python does, and a character that the font lacks (Chinese, most emoji) is a box.

    Args:
        text: what to draw.
        limit: its characters.
        letters: characters of a line.
        font: in which it is drawn.

    >>> label_text("$x$\n"), label_text("na\u00efve \u6570"), label_text("abcdef", limit=4)
    ('\\$x\\$\\n', 'naïve □', 'ab…f')
    """
    shown = "".join(
        repr(character)[1:-1] if not character.isprintable()
        else character if ord(character) in _glyphs(font) else "\N{WHITE SQUARE}"
        for character in text
    )  # fmt: skip
    if len(shown) > limit:
        tail = (limit - 1) // 2
        shown = f"{shown[: limit - 1 - tail]}…{shown[len(shown) - tail :]}"
    return "\n".join(textwrap.wrap(shown, letters, break_on_hyphens=False)).replace("$", r"\$")


def wrapped(text: str, width: float) -> str:
    """Return a text on lines that are at most so many inches wide, about three at most."""
    letters = max(8, int(width / _LETTER))
    return label_text(text, limit=3 * letters - 12, letters=letters)


def colour_map() -> Colormap:
    """Return the shades from nothing to the highest divergence: of one hue, from white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("divergence", ["#ffffff", "#f6bc98", HUE, "#5a1c04"])


@cache
def _glyphs(font: str) -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(font)).get_charmap())


def _lines(panels: Sequence[Panel], *, is_narrow: bool) -> list[list[Panel]]:
    """Return the panels by line: one in a column, else two."""
    num = 1 if is_narrow else 2
    lines: list[list[Panel]] = []
    for panel in panels:
        if not lines or len(lines[-1]) == num or panel.is_wide or lines[-1][0].is_wide:
            lines.append([])
        lines[-1].append(panel)
    return lines


def _room(panel: Panel, width: float) -> float:
    """Return how wide title and legend above a panel may be, which begin right of what stands at its y axis."""
    return width - (_NAME + 0.1 if panel.names else 0.6)


def _height(panel: Panel, width: float) -> float:
    room = _room(panel, width)
    num_lines = len(wrapped(panel.title, room / _BOLD).splitlines())
    num_lines += math.ceil(len(panel.key) / _key_columns(panel.key, room))
    return panel.height(width) + 0.145 * num_lines


def _key_columns(names: Sequence[str], room: float) -> int:
    """Return how many names a line of a legend has, each behind its sign."""
    return max(1, int((room + 0.11) / (_LETTER * max(map(len, names), default=0) + 0.38)))


def _spaced(ticks: Iterable[tuple[float, str]], inches: float) -> dict[float, str]:
    """Return the ticks of an axis of some length that do not touch, by their place from 0 to 1.

    >>> _spaced([(0.0, "0"), (0.1, "0.01"), (1.0, "0.1")], 1.0)
    {0.0: '0', 1.0: '0.1'}
    """
    shown: dict[float, str] = {}
    for place, text in ticks:
        if not shown or (place - max(shown)) * inches > _LETTER * (len(text) + 1.5):
            shown[place] = text
    return shown


def _is_number(cell: Cell) -> TypeGuard[Estimate | float]:
    return isinstance(cell, Estimate | float | int)


def _scaled(cell: Estimate | float, unit: Unit) -> list[float]:
    """Return a number as an axis has it, then the ends of its interval."""
    ends = (cell.mean, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, cell, cell)
    return [unit.scale * end for end in ends]


def _axis_title(rows: Rows, columns: Sequence[str], unit: Unit) -> str:
    """Return what an axis counts; where there is a legend, that names the columns."""
    if len(columns) > 1:
        return "percent" if unit.axis == "%" else unit.axis or rows.title
    return f"{columns[0]} ({unit.axis})" if unit.axis else columns[0]


def _set_axis(axes: Axes, which: str, unit: Unit, cells: Sequence[Cell], at: Sequence[float] = ()) -> None:
    """Give an axis the range of some cells, with room for a dot; matplotlib chooses its ticks."""
    ticks = axis_ticks(unit, cells, at=at)
    low, high = unit.scale * ticks[0], unit.scale * ticks[-1]
    room = 0.03 * (high - low)
    axes.set(**{f"{which}lim": (low - room, high + room)})
    getattr(axes, f"{which}axis").set_major_formatter(lambda value, _: tick_text(unit, value / unit.scale))


def _dots_panel(rows: Rows, plot: Dots) -> Panel:
    """Return the panel of a column: a named row for each number, what it is to be read against in grey below it."""
    cells = zip(rows.rows, rows.column(plot.column), strict=True)
    rows = replace(rows, rows=tuple(row for row, cell in cells if _is_number(cell)))
    names = tuple(str(row[0]) for row in rows.rows)

    num_lines = max(len(wrapped(name, _NAME).splitlines()) for name in names)
    height = 0.45 + (0.08 + 0.13 * num_lines) * len(names)
    key = (plot.column, plot.null) if plot.null else ()
    return Panel(draw=partial(_draw_dots, rows=rows, plot=plot), height=lambda _: height, names=names, key=key)


def _draw_dots(axes: Axes, width: float, *, rows: Rows, plot: Dots) -> Sequence[Any]:
    """Draw the dots of a column with their intervals, the first row on top."""
    unit, handles = rows.columns[plot.column], {}
    shifts = {plot.column: -0.14, plot.null: 0.14} if plot.null else {plot.column: 0.0}
    for column, shift in shifts.items():
        for place, cell in enumerate(rows.column(column)):
            if _is_number(cell):
                mean, low, high = _scaled(cell, unit)
                is_null = column == plot.null or rows.rows[place][0] in plot.greys
                handles[column] = axes.errorbar(
                    mean, place + shift, xerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]],
                    fmt="s" if is_null else "o", color=GREY if is_null else HUE, markersize=3.5, elinewidth=1.2,
                )  # fmt: skip
    axes.set_yticks(range(len(rows.rows)), [wrapped(str(row[0]), _NAME) for row in rows.rows])
    axes.set_ylim(len(rows.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    # All rows have one axis, with a line where no effect, or chance, is.
    band = [] if plot.at is None else [plot.at - plot.margin, plot.at + plot.margin]
    _set_axis(axes, "x", unit, [cell for column in shifts for cell in rows.column(column)], band)
    if plot.at is not None:
        axes.axvline(plot.at * unit.scale, color=GREY, linewidth=0.8, zorder=0)
        axes.axvspan(*(end * unit.scale for end in band), color=GREY, alpha=0.15, linewidth=0, zorder=0)
    axes.set_xlabel(wrapped(_axis_title(rows, list(shifts), unit), 0.75 * width))
    return list(handles.values())


def curves_panel(rows: Rows, plot: Curves) -> Panel:
    """Return the panel of columns along the rows."""
    marks = {name: places for name, places in plot.marks.items() if places}
    rows, plot = rows.along(replace(plot, marks=marks))
    names = (*(plot.columns or rows.columns), *plot.levels, *marks)
    return Panel(
        draw=partial(_draw_curves, rows=rows, plot=plot),
        height=lambda _: 1.65,
        key=names if len(names) > 1 else (),
        is_wide=bool(marks),
    )


def _draw_curves(axes: Axes, width: float, *, rows: Rows, plot: Curves) -> Sequence[Any]:
    """Draw columns along the rows: lines with bands, and grey levels to read them against."""
    columns = plot.columns or tuple(rows.columns)
    unit, colours = rows.columns[columns[0]], iter(COLOURS * len(columns))
    handles: list[Any] = []
    # Lines differ by colour, dashes and markers; levels across are grey, marks stand at the top.
    for name, line, marker in zip(columns, cycle(LINES), cycle(MARKERS), strict=False):
        cells = zip(plot.places, rows.column(name), strict=True)
        known = thinned([(x, cell) for x, cell in cells if _is_number(cell)])
        x, ends = [x for x, _ in known], np.array([_scaled(cell, unit) for _, cell in known]).reshape(-1, 3)
        colour, dots = GREY if name in plot.greys else next(colours), marker if len(known) <= MANY else None
        handles += axes.plot(x, ends[:, 0], color=colour, linestyle=line, marker=dots)
        axes.fill_between(x, ends[:, 1], ends[:, 2], color=colour, alpha=0.15, linewidth=0)
    for level, dashes in zip(plot.levels.values(), cycle(((0, (2, 3)), (0, (6, 2)))), strict=False):
        mean, low, high = _scaled(level, unit)
        handles.append(axes.axhline(mean, color=GREY, linewidth=0.9, linestyle=dashes))
        axes.axhspan(low, high, color=GREY, alpha=0.1, linewidth=0)
    for marked, sign, y in zip(plot.marks.values(), "vx", (0.97, 0.88), strict=False):
        x = [place for place, step in zip(plot.places, plot.x, strict=True) if step in marked]
        handles += axes.plot(x, [y] * len(x), sign, color=INK, transform=axes.get_xaxis_transform())

    # The axis holds all curves and levels.
    _set_axis(axes, "y", unit, [*(cell for name in columns for cell in rows.column(name)), *plot.levels.values()])
    _draw_steps(axes, width, plot)
    axes.set_ylabel(wrapped(_axis_title(rows, columns, unit), 1.5))
    return handles


def _draw_steps(axes: Axes, width: float, plot: Curves) -> None:
    """Draw steps along the axis where there is room; the ends of stages inside of the panel."""
    steps = _spaced([(place, place_text(x)) for place, x in axis_steps(plot)], 0.75 * width)
    axes.set_xticks(list(steps), list(steps.values()))
    axes.set_xlim(-0.03, 1.03)
    ends = [(place, f" {label_text(name, limit=16)} ends ") for place, name in plot.inner_ends]
    axes.vlines(
        [place for place, _ in ends], 0, 1, transform=axes.get_xaxis_transform(), color=GREY, linewidth=0.7,
        linestyle=":", zorder=0,
    )  # fmt: skip
    for place, text in _spaced(ends, 0.75 * width).items():
        axes.text(
            place, 0.99, text, color=GREY, va="top", ha="left" if place < 0.5 else "right",
            transform=axes.get_xaxis_transform(), bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    axes.set_xlabel(wrapped(plot.x_title, 0.75 * width))
