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
HUE, GREY = COLOURS[0], "#7d766d"
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

    draw: Callable[[Axes, float], Sequence[Any]]
    """Draws it, given the width of the panel in inches; returns what the names of `key` stand for."""
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
        names = [name for name in kept.columns if isinstance(plot, Curves) and name in (plot.columns or kept.columns)]
        if names:
            turned = Rows(
                id=rows.id,
                title=rows.title,
                columns={str(kept.rows[0][0]): kept.columns[names[0]]},
                rows=tuple((name, *kept.column(name)) for name in names),
            )
            yield _dots_panel(turned, Dots(column=str(kept.rows[0][0]), greys=plot.greys))


def draw(panel: Panel, axes: Axes, width: float) -> None:
    """Draw a panel that is so many inches wide, with title and legend above it, where they cover nothing."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        handles, room = panel.draw(axes, width), _room(panel, width)
        title = _wrapped(panel.title, room, is_bold=True)
        if not panel.key:
            axes.set_title(title)
            return
        labels = [label_text(name, limit=int((room - 0.3) / _LETTER)) for name in panel.key]
        axes.legend(
            handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_key_columns(panel.key, room),
            title=title or None, title_fontproperties={"weight": "bold", "size": _TEXT}, alignment="left",
            borderaxespad=0.2, columnspacing=1.2, borderpad=0.1, labelspacing=0.3,
        )  # fmt: skip


def draw_figure(drawing: Drawing, make: Callable[..., Figure], look: Look = DEFAULT_LOOK) -> tuple[Axes, ...]:
    """Draw a figure and return its panels; `make` makes a matplotlib figure, given size, resolution and layout."""
    from matplotlib import rc_context

    # Panels stand below each other in a column, else side by side; neighbouring lines of one kind are aligned.
    inches = WIDTHS[look.width]
    lines = _lines(drawing.panels, is_narrow=look.width == "column")
    blocks = [list(block) for _, block in groupby(lines, _kind)]
    heights = [[max(_height(panel, inches / len(line)) for panel in line) for line in block] for block in blocks]
    title = _wrapped(drawing.title, inches, is_bold=True) if look.has_titles else ""
    room = 0.17 * (1 + title.count("\n")) if title else 0.0
    panels: list[Axes] = []
    with rc_context(_STYLE):
        figure = make(figsize=(inches, sum(map(sum, heights)) + room), dpi=_DPI, layout="constrained")
        if title:
            figure.suptitle(title, x=0.008, ha="left")
        outer = figure.add_gridspec(len(blocks), 1, height_ratios=list(map(sum, heights)))
        for place, (block, sizes) in enumerate(zip(blocks, heights, strict=True)):
            inner = outer[place].subgridspec(len(block), len(block[0]), height_ratios=sizes)
            for line, own in zip(block, inner.subplots(squeeze=False), strict=True):
                for panel, axes in zip(line, own, strict=True):
                    draw(panel, axes, inches / len(line))
                    if panel is not line[0] and panel.names == line[0].names != ():
                        axes.tick_params(labelleft=False)
                panels.extend(own)
    return tuple(panels)


def _kind(line: Sequence[Panel]) -> tuple[int, bool, list[tuple[str, ...]]]:
    """Return what lines of panels have in common that are aligned with each other."""
    return len(line), line[0].is_aligned, [panel.names for panel in line]


def lay_out(drawing: Drawing, look: Look = DEFAULT_LOOK) -> Figure:
    """Return a figure whose panels and labels have their places."""
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
            figure.dpi = _DPI  # which writing PDF and SVG changes
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


def _lines(panels: Sequence[Panel], *, is_narrow: bool) -> list[list[Panel]]:
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


def _axis_title(rows: Rows, columns: Sequence[str], unit: Unit) -> str:
    """Return what an axis counts; where there is a legend, that names the columns."""
    if len(columns) > 1:
        return "percent" if unit.axis == "%" else unit.axis or rows.title
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


def _draw_dots(axes: Axes, width: float, *, rows: Rows, plot: Dots) -> Sequence[Any]:
    """Draw the dots of a column with their intervals, the first row on top."""
    names, unit = [str(row[0]) for row in rows.rows], rows.columns[plot.column]
    columns = {plot.column: -0.14, plot.null: 0.14} if plot.null else {plot.column: 0.0}
    handles = []
    for column, shift in columns.items():
        bars = []
        for place, (name, cell) in enumerate(zip(names, rows.column(column), strict=True)):
            if _is_number(cell):
                look = {"color": GREY, "marker": "s"} if column == plot.null or name in plot.greys else {}
                bars.append(_draw_bar(axes, place + shift, cell, unit, **look))
        handles.append(bars[0])
    axes.set_yticks(range(len(names)), [_wrapped(name, _name_width(width)) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    # All rows have one axis, with a line where no effect, or chance, is.
    band = [] if plot.at is None else [plot.at - plot.margin, plot.at + plot.margin]
    ticks = axis_ticks(unit, [cell for column in columns for cell in rows.column(column)], at=band)
    span, low = ticks[-1] - ticks[0], ticks[0]
    texts = [((tick - low) / span, tick_text(unit, tick)) for tick in ticks]
    shown = _spaced(texts, _room(_dots_panel(rows, plot), width))
    axes.set_xticks([unit.scale * (low + span * place) for place in shown], list(shown.values()))
    axes.set_xlim(*_limits(ticks, unit))
    if plot.at is not None:
        axes.axvline(plot.at * unit.scale, color=GREY, linewidth=0.8, zorder=0)
        axes.axvspan(band[0] * unit.scale, band[1] * unit.scale, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    set_labels(axes, width, x=_axis_title(rows, list(columns), unit))
    return handles


def _draw_bar(axes: Axes, place: float, cell: Estimate | float, unit: Unit, **look: Any) -> Any:
    """Draw a number with its interval, and return it."""
    mean, low, high = (unit.scale * end for end in _ends(cell))
    style: dict[str, Any] = {"color": HUE, "marker": "o", "markersize": 3.5, "elinewidth": 1.2, "linestyle": "none"}
    errors = [[max(0.0, mean - low)], [max(0.0, high - mean)]]
    return axes.errorbar(mean, place, xerr=errors, **{**style, **look})


def _ends(cell: Estimate | float) -> tuple[float, float, float]:
    return (cell.mean, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, cell, cell)


def curves_panel(rows: Rows, plot: Curves) -> Panel:
    """Return the panel of columns along the rows."""
    names = (*(plot.columns or rows.columns), *plot.levels)
    rows, plot = rows.along(plot)
    draw = partial(_draw_curves, rows=rows, plot=plot)
    return Panel(draw=draw, height=lambda width: min(2.1, max(1.65, 0.4 * width)), key=names if len(names) > 1 else ())


def _draw_curves(axes: Axes, width: float, *, rows: Rows, plot: Curves) -> Sequence[Any]:
    """Draw columns along the rows: lines with bands, and grey levels to read them against."""
    columns = plot.columns or tuple(rows.columns)
    unit, colours = rows.columns[columns[0]], iter(COLOURS * len(columns))
    handles: list[Any] = []
    for index, name in enumerate(columns):
        cells = zip(plot.places, rows.column(name), strict=True)
        known = [(x, _ends(y)) for x, y in thinned([(x, y) for x, y in cells if _is_number(y)])]
        x, (mean, low, high) = [x for x, _ in known], ([unit.scale * y[end] for _, y in known] for end in range(3))
        colour = GREY if name in plot.greys else next(colours)
        look: dict[str, Any] = {"color": colour, "linestyle": LINES[index % len(LINES)]}
        marker = MARKERS[index % len(MARKERS)] if len(known) <= MANY else None
        handles += axes.plot(x, mean, marker=marker, **look)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for index, level in enumerate(plot.levels.values()):
        dashes = (0, ((2, 3), (6, 2))[index % 2])
        handles.append(axes.axhline(level.mean * unit.scale, color=GREY, linewidth=0.9, linestyle=dashes))
        axes.axhspan(level.low * unit.scale, level.high * unit.scale, color=GREY, alpha=0.1, linewidth=0)

    ticks = axis_ticks(unit, [*(cell for name in columns for cell in rows.column(name)), *plot.levels.values()])
    axes.set_yticks([tick * unit.scale for tick in ticks], [tick_text(unit, tick) for tick in ticks])
    axes.set_ylim(*_limits(ticks, unit))
    steps = _spaced([(place, place_text(x)) for place, x in axis_steps(plot)], 0.75 * width)
    axes.set_xticks(list(steps), list(steps.values()))
    axes.set_xlim(-0.03, 1.03)
    ends: dict[float, list[str]] = {}
    for place, name in plot.inner_ends:
        axes.axvline(place, color=GREY, linewidth=0.7, linestyle=(0, (2, 3)), zorder=0)
        near = next((other for other in ends if abs(place - other) < 1.0 / width), place)
        ends.setdefault(near, []).append(label_text(name, limit=16))
    for place, names in ends.items():
        axes.text(
            place, 0.99, f" {', '.join(names)} {'ends' if len(names) == 1 else 'end'} ", color=GREY, va="top",
            ha="left" if place < 0.5 else "right", transform=axes.get_xaxis_transform(),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    set_labels(axes, width, x=plot.x_title, y=_axis_title(rows, columns, unit))
    return handles
