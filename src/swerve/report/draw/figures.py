"""Figures for papers: rows of numbers drawn as wide as a column or as the text of a page, and their files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

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
HUE, GREY, PALE = COLOURS[0], "#7d766d", "#cfc9c0"
FONT = "DejaVu Sans"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
_DPI = 300
_TEXT = 7.0
"""Size of all text, in points."""
_LETTER = 0.062
"""Width of a letter of that size, in inches."""
_LINE = 0.145
_MAX_LABEL = 60
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

    draw: Callable[[Axes, float], None]
    """Draws it; given the width of the panel in inches."""
    height: Callable[[float], float]
    """In inches with its labels, by its width."""
    title: str = ""
    is_wide: bool = False
    """Whether it takes the whole width of a figure."""
    is_aligned: bool = True
    """Whether its left end is that of the panels above and below."""
    names: tuple[str, ...] = ()
    """Of its rows, which panels beside each other share."""
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
    """Return the figure of rows: a panel for each of their plots."""
    return Drawing(name=rows.id, title=rows.title, panels=tuple(rows_panels(rows)), records=rows.kept.records)


def rows_panels(rows: Rows) -> Iterator[Panel]:
    """Yield a panel for each plot of rows in which something was measured."""
    kept = rows.kept
    for plot in kept.plots:
        yield _dots_panel(kept, plot) if isinstance(plot, Dots) else curves_panel(kept, plot)

    # At a single checkpoint what would be curves are dots, a row for each.
    for plot in rows.plots if len(kept.rows) == 1 else ():
        names = (
            [name for name in kept.columns if name in (plot.columns or kept.columns)]
            if isinstance(plot, Curves)
            else []
        )
        if names:
            place = str(kept.rows[0][0])
            turned = tuple((name, kept.column(name)[0]) for name in names)
            one = Rows(id=rows.id, title=rows.title, columns={place: kept.columns[names[0]]}, rows=turned)
            yield _dots_panel(one, Dots(column=place, greys=plot.greys))


def draw(panels: Sequence[Panel], axes: Sequence[Axes], width: float) -> None:
    """Draw panels on as many axes, each so many inches wide."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        for panel, own in zip(panels, axes, strict=True):
            panel.draw(own, width)
            _set_legend(own, panel, width)


def draw_figure(drawing: Drawing, make: Callable[..., Figure], look: Look = DEFAULT_LOOK) -> tuple[Axes, ...]:
    """Draw a figure and return its panels; `make` makes a matplotlib figure, given size, resolution and layout."""
    from matplotlib import rc_context

    # Panels stand below each other in a column, else side by side; a legend and a title make room for themselves.
    inches, grid = WIDTHS[look.width], _grid(drawing.panels, is_narrow=look.width == "column")
    heights = [max(_height(panel, inches / len(line)) for panel in line) for line in grid]
    title = _wrapped(drawing.title, inches, is_bold=True) if look.has_titles else ""
    room = 0.17 * (1 + title.count("\n")) if title else 0.0
    with rc_context(_STYLE):
        figure = make(figsize=(inches, sum(heights) + room), dpi=_DPI, layout="constrained")
        if title:
            figure.suptitle(title, x=0.008, ha="left")
        panels = []
        for line, axes in zip(grid, _lines_of_axes(figure, grid, heights), strict=True):
            draw(line, axes, inches / len(line))
            for one, left, right in zip(axes[1:], line, line[1:], strict=False):
                one.tick_params(labelleft=not right.names or left.names != right.names)
            panels += axes
    return tuple(panels)


def _kind(line: Sequence[Panel]) -> tuple[int, bool, bool]:
    """Return what lines of panels have in common that are aligned with each other."""
    return len(line), line[0].is_aligned, any(panel.names for panel in line)


def _lines_of_axes(figure: Figure, grid: Sequence[Sequence[Panel]], heights: Sequence[float]) -> list[list[Axes]]:
    """Return axes for each line of panels; neighbours of one kind are aligned with each other."""
    blocks = [list(block) for _, block in groupby(range(len(grid)), lambda row: _kind(grid[row]))]
    sizes = [[heights[row] for row in block] for block in blocks]
    outer = figure.add_gridspec(len(blocks), 1, height_ratios=list(map(sum, sizes)))
    lines = []
    for place, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        columns = len(grid[block[0]])
        inner = outer[place].subgridspec(len(block), columns, height_ratios=size)
        lines += [[figure.add_subplot(inner[row, column]) for column in range(columns)] for row in range(len(block))]
    return lines


def lay_out(drawing: Drawing, look: Look = DEFAULT_LOOK) -> Figure:
    """Return a figure whose panels and labels have their places, without the numbers of ticks that would touch."""
    # The object interface with its own canvas: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = figure_of(draw_figure(drawing, Figure, look)[0])
    FigureCanvasAgg(figure)
    with rc_context(_STYLE):
        # Placed once; `savefig` would do so for each format, and draw each twice.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            last = None
            for label in axis.get_ticklabels():
                box = label.get_window_extent().expanded(1.1, 1.0)
                if last is not None and box.overlaps(last):
                    label.set_visible(False)
                elif label.get_text():
                    last = box
    return figure


def write_figures(drawings: Iterable[Drawing], directory: Path, look: Look = DEFAULT_LOOK) -> tuple[Path, ...]:
    """Write every figure, and its numbers as `.csv`; the same bytes every time.

    Raises:
        DiskFullError: no room.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvases = {"png": FigureCanvasAgg, "pdf": FigureCanvasPdf, "svg": FigureCanvasSVG}
    paths = []
    for drawing in drawings:
        figure = lay_out(drawing, look)
        for suffix in look.formats:
            path = directory / f"{drawing.name}.{suffix}"
            figure.dpi = _DPI
            with atomic_path(path) as temporary, rc_context(_STYLE):
                write = getattr(canvases[suffix](figure), f"print_{suffix}")
                write(temporary, metadata=FORMATS[suffix])
            paths.append(path)
        paths.append(directory / f"{drawing.name}.csv")
        write_text(paths[-1], csv_text(drawing.records))
    return tuple(paths)


def figure_of(axes: Axes) -> Figure:
    """Return the figure that a panel is of."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def label_text(text: str, *, limit: int = _MAX_LABEL, font: str = FONT) -> str:
    r"""Return `text` as matplotlib can draw it on one line: not read as a formula, its middle left out if it is long.

    Control characters are escaped as Python does, and a character that the font lacks (Chinese, most emoji) is a box.

    >>> label_text("$x$\n"), label_text("na\u00efve \u6570"), label_text("abcdef", limit=4)
    ('\\$x\\$\\n', 'naïve □', 'ab…f')
    """
    shown = []
    for character in _cut(text, 4 * limit):
        if not character.isprintable():
            shown.append(repr(character)[1:-1])
        else:
            shown.append(character if ord(character) in _glyphs(font) else "\N{WHITE SQUARE}")
    return _cut("".join(shown), limit).replace("$", r"\$")


def set_labels(axes: Axes, width: float, *, x: str = "", y: str = "") -> None:
    """Name the axes of a panel, on several lines where a name is long."""
    axes.set_xlabel(_wrapped(x, 0.75 * width))
    axes.set_ylabel(_wrapped(y, 1.5))


def _name_width(width: float) -> float:
    return min(0.48 * width, 2.2)


def _cut(text: str, limit: int) -> str:
    tail = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def _wrapped(text: str, width: float, *, is_bold: bool = False) -> str:
    """Return a text on lines that are at most so many inches wide, three at most."""
    letters = max(8, int(width / (_LETTER * (1.15 if is_bold else 1))))
    lines = textwrap.wrap(_cut(text, 3 * letters - 12), letters, break_on_hyphens=False)
    return "\n".join(label_text(line, limit=2 * letters) for line in lines)


def colour_map() -> Colormap:
    """Return the shades from nothing to the highest divergence: of one hue, from white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("divergence", ["#ffffff", "#f6bc98", HUE, "#5a1c04"])


@cache
def _glyphs(font: str) -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(font)).get_charmap())


def _grid(panels: Sequence[Panel], *, is_narrow: bool) -> list[list[Panel]]:
    """Return the panels by line: one in a column, else two, or three that share the names of their rows."""
    lines: list[list[Panel]] = []
    for panel in panels:
        line = lines[-1] if lines else []
        shares = bool(panel.names) and all(other.names == panel.names for other in line)
        has_room = len(line) < (3 if shares else 2) and not any(other.is_wide for other in (*line, panel))
        if line and has_room and not is_narrow:
            line.append(panel)
        else:
            lines.append([panel])
    return lines


def _room(panel: Panel, width: float) -> float:
    """Return how wide title and legend above a panel may be, which begin right of what stands at its y axis."""
    names = (_LETTER * len(name) for name in panel.names)
    return width - 0.1 - (min(_name_width(width), max(names)) if panel.names else 0.5)


def _height(panel: Panel, width: float) -> float:
    room = _room(panel, width)
    num_lines = math.ceil(len(panel.key) / _key_columns(panel.key, room)) if panel.key else 0
    num_lines += 1 + _wrapped(panel.title, room, is_bold=True).count("\n") if panel.title else 0
    return panel.height(width) + _LINE * num_lines


def _key_columns(names: Sequence[str], room: float) -> int:
    each = _LETTER * min(room / _LETTER, max(len(label_text(name)) for name in names)) + 0.38
    return max(1, min(len(names), int((room + 0.11) / each)))


def _key_name(name: str) -> str:
    """Return a name that a legend does not leave out, as it does those that begin with an underscore."""
    return label_text(f" {name}" if name.startswith("_") else name)


def _set_legend(axes: Axes, panel: Panel, width: float) -> None:
    """Put title and legend above a panel, where they cover nothing."""
    room = _room(panel, width)
    title = _wrapped(panel.title, room, is_bold=True)
    if not panel.key:
        axes.set_title(title)
        return
    handles, _ = axes.get_legend_handles_labels()
    limit = int((room - 0.3) / _LETTER)
    axes.legend(
        handles, [label_text(name, limit=limit) for name in panel.key], loc="lower left", bbox_to_anchor=(0.0, 1.0),
        ncols=_key_columns(panel.key, room), title=title or None, alignment="left", borderaxespad=0.2,
        title_fontproperties={"weight": "bold", "size": _TEXT}, columnspacing=1.2, borderpad=0.1, labelspacing=0.3,
    )  # fmt: skip


def _is_number(cell: Cell) -> TypeGuard[Estimate | float]:
    return isinstance(cell, Estimate | float | int)


def _axis_title(columns: Sequence[str], unit: Unit) -> str:
    """Return what an axis counts; where there is a legend, that names the columns."""
    if len(columns) > 1 and unit.axis:
        return "percent" if unit.axis == "%" else unit.axis
    return f"{columns[0]} ({unit.axis})" if unit.axis else columns[0]


def _limits(ticks: Sequence[float], unit: Unit) -> tuple[float, float]:
    """Return the ends of an axis: those of its ticks with room for a dot."""
    low, high = ticks[0] * unit.scale, ticks[-1] * unit.scale
    return low - 0.03 * (high - low), high + 0.03 * (high - low)


def _dots_panel(rows: Rows, plot: Dots) -> Panel:
    """Return the panel of a column: a named row for each number, what it is to be read against in grey below it."""
    columns = [plot.column, plot.null] if plot.null else [plot.column]
    places = [place for place, cell in enumerate(rows.column(plot.column)) if _is_number(cell)]
    names = tuple(str(rows.rows[place][0]) for place in places)

    def height(width: float) -> float:
        num_lines = max(_wrapped(name, _name_width(width)).count("\n") + 1 for name in names)
        return 0.45 + (0.08 + 0.13 * num_lines) * len(names)

    draw = partial(_draw_dots, rows=replace(rows, rows=tuple(rows.rows[place] for place in places)), plot=plot)
    return Panel(draw=draw, height=height, names=names, key=tuple(columns) if plot.null else ())


def _draw_dots(axes: Axes, width: float, *, rows: Rows, plot: Dots) -> None:
    """Draw the dots of a column with their intervals, the first row on top."""
    names, unit = [str(row[0]) for row in rows.rows], rows.columns[plot.column]
    columns = {plot.column: -0.14, plot.null: 0.14} if plot.null else {plot.column: 0.0}
    for column, shift in columns.items():
        known = [(place, cell) for place, cell in enumerate(rows.column(column)) if _is_number(cell)]
        for place, cell in known:
            is_null = column == plot.null or names[place] in plot.greys
            mean, low, high = (unit.scale * end for end in _ends(cell))
            axes.errorbar(
                    mean, place + shift, xerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]], markersize=3.5,
                    elinewidth=1.2, linestyle="none", color=GREY if is_null else HUE, marker="s" if is_null else "o",
                    label=_key_name(column) if place == known[0][0] else None,
                )  # fmt: skip
    axes.set_yticks(range(len(names)), [_wrapped(name, _name_width(width)) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    # All rows have one axis, with a line where no effect, or chance, is.
    band = [] if plot.at is None else [plot.at - plot.margin, plot.at + plot.margin]
    ticks = axis_ticks(unit, [cell for column in columns for cell in rows.column(column)], at=band)
    axes.set_xticks([tick * unit.scale for tick in ticks], [tick_text(unit, tick) for tick in ticks])
    axes.set_xlim(*_limits(ticks, unit))
    if plot.at is not None:
        axes.axvline(plot.at * unit.scale, color=GREY, linewidth=0.8, zorder=0)
        axes.axvspan(band[0] * unit.scale, band[1] * unit.scale, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    set_labels(axes, width, x=_axis_title(list(columns), unit))


def _ends(cell: Estimate | float) -> tuple[float, float, float]:
    return (cell.mean, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, cell, cell)


def curves_panel(rows: Rows, plot: Curves) -> Panel:
    """Return the panel of columns along the rows."""
    names = (*(plot.columns or rows.columns), *plot.levels)
    rows, plot = rows.along(plot)
    draw = partial(_draw_curves, rows=rows, plot=plot)
    return Panel(draw=draw, height=lambda width: min(2.1, max(1.65, 0.4 * width)), key=names if len(names) > 1 else ())


def _draw_curves(axes: Axes, width: float, *, rows: Rows, plot: Curves) -> None:
    """Draw columns along the rows: lines with bands, and grey levels to read them against."""
    columns = plot.columns or tuple(rows.columns)
    unit, colours = rows.columns[columns[0]], iter(COLOURS * len(columns))
    for index, name in enumerate(columns):
        cells = zip(plot.places, rows.column(name), strict=True)
        known = [(x, _ends(y)) for x, y in thinned([(x, y) for x, y in cells if _is_number(y)])]
        x, (mean, low, high) = [x for x, _ in known], ([unit.scale * y[end] for _, y in known] for end in range(3))
        colour = GREY if name in plot.greys else next(colours)
        axes.plot(
            x, mean, color=colour, linestyle=LINES[index % len(LINES)],
            label=_key_name(name) if len(columns) + len(plot.levels) > 1 else None,
            marker=MARKERS[index % len(MARKERS)] if len(known) <= MANY else None,
        )  # fmt: skip
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for index, (name, level) in enumerate(plot.levels.items()):
        dashes = (0, ((2, 3), (6, 2))[index % 2])
        axes.axhline(level.mean * unit.scale, color=GREY, linewidth=0.9, linestyle=dashes, label=_key_name(name))
        axes.axhspan(level.low * unit.scale, level.high * unit.scale, color=GREY, alpha=0.1, linewidth=0)

    ticks = axis_ticks(unit, [*(cell for name in columns for cell in rows.column(name)), *plot.levels.values()])
    axes.set_yticks([tick * unit.scale for tick in ticks], [tick_text(unit, tick) for tick in ticks])
    axes.set_ylim(*_limits(ticks, unit))
    _set_steps(axes, plot, width)
    set_labels(axes, width, x=plot.x_title, y=_axis_title(columns, unit))


def _set_steps(axes: Axes, plot: Curves, width: float) -> None:
    """Name the places along the axis that there is room for, and where stages of training end."""
    ticks: dict[float, str] = {}
    for place, x in axis_steps(plot):
        text = place_text(x)
        if not ticks or (place - max(ticks)) * 0.75 * width > _LETTER * (len(text) + 1.5):
            ticks[place] = text
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(-0.03, 1.03)
    _name_ends(axes, plot, width)


def _name_ends(axes: Axes, plot: Curves, width: float) -> None:
    """Draw a line where a stage of training ends; the names of those that are close together stand at one of them."""
    named: dict[float, list[str]] = {}
    for name, end in plot.ends.items():
        if plot.x[0] < end < plot.x[-1]:
            place = next(place for place, x in zip(plot.places, plot.x, strict=True) if x >= end)
            axes.axvline(place, color=GREY, linewidth=0.7, linestyle=(0, (2, 3)), zorder=0)
            near = next((other for other in named if abs(place - other) < 1.0 / width), place)
            named.setdefault(near, []).append(label_text(name, limit=16))
    for place, names in named.items():
        text = f" {', '.join(names)} {'ends' if len(names) == 1 else 'end'} "
        axes.text(
            place, 0.99, text, transform=axes.get_xaxis_transform(), color=GREY, va="top",
            ha="left" if place < 0.5 else "right", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
