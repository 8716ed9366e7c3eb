"""Figures for papers: rows of numbers drawn as wide as a column or as the text of a page, and their files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.files import atomic_path, write_text
from swerve.errors import ConfigError, nearest
from swerve.formats.text_tables import csv_text
from swerve.notebook import GREY, HUE, INK
from swerve.report.draw.plots import MANY, Axis, Plot, drawn, shortened, spaced
from swerve.report.rows import Curves, Dots, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

WIDTHS: Mapping[str, float] = {"column": 3.25, "text": 6.75}
"""Of figures, in inches: of a column, and of the text of a page in two columns."""
PAGE, MOST_IN_COLUMN = 9.0, 4
"""Height of the text of a page, in inches; figures of more panels than that are as wide as the text."""
FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None},
    "svg": {"Date": None},
}
"""File formats, with the metadata that would make two files of the same figure differ."""
COLOURS = (HUE, "#5a1c04", "#e57a3e")
"""Shades of what training did, as the page has them; they differ to any colour vision, and so do markers and lines."""
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
_ABOVE = 0.14
"""Height of what stands above the axes of a panel, in inches: the ends of stages."""
_BOLD = 1.15
"""How much wider bold letters are."""
_STYLE = Path(__file__).parents[1] / "assets" / "figures.mplstyle"

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
    slack: float = 0.0
    """By how many inches it may be lower, where a page is full."""
    above: float = 0.0
    """Inches between its axes and its legend."""
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
    yield from (plot_panel(drawn(kept, plot)) for plot in kept.plots)

    # At a single checkpoint what would be curves are dots, a row for each.
    for plot in rows.plots if len(kept.rows) == 1 else ():
        names = [name for name in kept.columns if isinstance(plot, Curves) and name in (plot.columns or kept.columns)]
        if names:
            label = str(kept.rows[0][0])
            cells = tuple((name, *kept.column(name)) for name in names)
            turned = Rows(id=rows.id, title=rows.title, columns={label: kept.columns[names[0]]}, rows=cells)
            yield plot_panel(drawn(turned, Dots(column=label, greys=plot.greys)))


def draw(panel: Panel, axes: Axes, width: float) -> None:
    """Draw a panel that is so many inches wide, with title and legend above it, where they cover nothing."""
    from matplotlib.style import context

    with context(_STYLE):
        handles, room = panel.draw(axes, width), _room(panel, width)
        if panel.title or panel.key:
            axes.legend(
                handles[: len(panel.key)], [label_text(name, limit=int((room - 0.3) / _LETTER)) for name in panel.key],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_key_columns(panel.key, room), alignment="left",
                title=wrapped(panel.title, room / _BOLD), title_fontproperties={"weight": "bold", "size": _TEXT},
                borderaxespad=0.2 + 72 * panel.above / _TEXT, columnspacing=1.2, borderpad=0.1, labelspacing=0.3,
            )  # fmt: skip


def draw_figure(drawing: Drawing, make: Callable[..., Figure], look: Look = DEFAULT_LOOK) -> tuple[Axes, ...]:
    """Draw a figure and return its panels; `make` makes a matplotlib figure, given size, resolution and layout."""
    from matplotlib.style import context

    # Neighbouring lines of one kind are aligned.
    inches = WIDTHS["text" if len(drawing.panels) > MOST_IN_COLUMN else look.width]
    title = wrapped(drawing.title if look.has_titles else "", inches / _BOLD)
    room = 0.17 * len(title.splitlines())
    lines = _lines(drawing.panels, inches, PAGE - room)
    blocks = [list(block) for _, block in groupby(lines, lambda line: [panel.names for panel in line[0]])]
    heights = [[height for _, height in block] for block in blocks]
    totals = list(map(sum, heights))

    # matplotlib finds the places of the panels in their blocks.
    panels: list[Axes] = []
    with context(_STYLE):
        figure = make(figsize=(inches, sum(totals) + room), dpi=_DPI, layout="constrained")
        if title:
            figure.suptitle(title, x=0.008, ha="left")
        grid = figure.add_gridspec(len(blocks), 1, height_ratios=totals)
        for place, block in enumerate(blocks):
            inner = grid[place].subgridspec(len(block), len(block[0][0]), height_ratios=heights[place])
            for (line, _), own in zip(block, inner.subplots(squeeze=False), strict=True):
                for panel, axes in zip(line, own, strict=True):
                    draw(panel, axes, inches / len(line))
                panels.extend(own)
    return tuple(panels)


def lay_out(drawing: Drawing, look: Look = DEFAULT_LOOK) -> Figure:
    """Return a figure whose panels and labels have their places, once for all formats."""
    # The object interface: pyplot would keep state and may look for a display.
    from matplotlib.figure import Figure
    from matplotlib.style import context

    figure = figure_of(draw_figure(drawing, Figure, look)[0])
    with context(_STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def write_figures(drawings: Iterable[Drawing], directory: Path, look: Look = DEFAULT_LOOK) -> tuple[Path, ...]:
    """Write every figure, and its numbers as `.csv`, of one without panels these alone; the same bytes every time.

    Raises:
        DiskFullError: no room.
    """
    from matplotlib.style import context

    paths = []
    for drawing in drawings:
        figures = [lay_out(drawing, look)] if drawing.panels else []
        for figure, suffix in product(figures, look.formats):
            paths.append(directory / f"{drawing.name}.{suffix}")
            with atomic_path(paths[-1]) as temporary, context(_STYLE):
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
    return "\n".join(textwrap.wrap(shortened(shown, limit), letters, break_on_hyphens=False)).replace("$", r"\$")


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


def _lines(panels: Sequence[Panel], inches: float, most: float) -> list[tuple[list[Panel], float]]:
    """Return the panels by line, with its height: lines are lower where all would be higher than a page.

    In a column panels stand below each other, else side by side, by three where a page is full.
    """
    for num in (1,) if inches == WIDTHS["column"] else (2, 3):
        lines: list[list[Panel]] = []
        for panel in panels:
            last = lines[-1] if lines else []
            is_full = len(last) >= (2 if num > 2 and any(one.names for one in (*last, panel)) else num)
            if not last or is_full or panel.is_wide or last[0].is_wide:
                lines.append([])
            lines[-1].append(panel)
        heights = [[(_height(panel, inches / len(line)), panel.slack) for panel in line] for line in lines]
        high = [max(height for height, _ in line) for line in heights]
        if sum(high) <= most:
            break
    low = [max(height - slack for height, slack in line) for line in heights]
    share = min(1.0, max(0.0, sum(high) - most) / ((sum(high) - sum(low)) or 1.0))
    return [(line, top - share * (top - least)) for line, top, least in zip(lines, high, low, strict=True)]


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


def _set_axis(axes: Axes, which: str, axis: Axis, ticks: Mapping[float, str]) -> None:
    """Give an axis ticks, and its ends with room for a dot."""
    room = 0.03 * (axis.high - axis.low)
    texts = {f"{which}ticks": [*ticks], f"{which}ticklabels": [*ticks.values()]}
    axes.set(**texts, **{f"{which}lim": (axis.low - room, axis.high + room)})


def plot_panel(plot: Plot) -> Panel:
    """Return the panel of a plot: dots in rows, each with its name, or lines."""
    names, above = tuple(plot.names), _ABOVE if plot.ends else 0.0
    num_lines = max((len(wrapped(name, _NAME).splitlines()) for name in names), default=0)
    height = 0.45 + (0.08 + 0.13 * num_lines) * len(names) if names else 1.65 + above
    return Panel(
        draw=partial(_draw_dots if names else _draw_curves, plot=plot),
        height=lambda _: height,
        slack=0.0 if names else 0.55,
        above=above,
        is_wide=bool(plot.signs),
        names=names,
        key=plot.key,
    )


def _draw_dots(axes: Axes, width: float, *, plot: Plot) -> Sequence[Any]:
    """Draw dots with their intervals, the first row on top, what each is to be read against in grey below it."""
    handles = []
    shifts = (-0.14, 0.14) if plot.key else (0.0,)
    for marks, shift in zip(plot.columns.values(), shifts, strict=True):
        bars = [
            axes.errorbar(
                mark.mean, mark.at + shift, xerr=[[mark.mean - mark.low], [mark.high - mark.mean]],
                fmt="s" if mark.is_null else "o", color=GREY if mark.is_null else HUE, markersize=3.5, elinewidth=1.2,
            )
            for mark in marks
        ]  # fmt: skip
        handles += bars[:1]
    axes.set_yticks(range(len(plot.names)), [wrapped(name, _NAME) for name in plot.names])
    axes.set_ylim(len(plot.names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)

    # All rows have one axis, with a line where no effect, or chance, is.
    letters = (width - _NAME) / _LETTER
    _set_axis(axes, "x", plot.axis, spaced(plot.axis.ticks, letters / (plot.axis.high - plot.axis.low)))
    for level in plot.levels.values():
        axes.axvline(level.mean, color=GREY, linewidth=0.8, zorder=0)
        axes.axvspan(level.low, level.high, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    axes.set_xlabel(wrapped(plot.axis.title, 0.75 * width))
    return handles


def _draw_curves(axes: Axes, width: float, *, plot: Plot) -> Sequence[Any]:
    """Draw lines with their bands, and grey levels to read them against."""
    handles: list[Any] = []
    # Lines differ by shade, dashes and markers; levels across are grey, signs stand at the top.
    for marks, *look in zip(plot.columns.values(), cycle(COLOURS), cycle(LINES), cycle(MARKERS), strict=False):
        colour, line, sign = look
        colour = GREY if any(mark.is_null for mark in marks) else colour
        x, mean, low, high = ([getattr(mark, name) for mark in marks] for name in ("at", "mean", "low", "high"))
        handles += axes.plot(x, mean, color=colour, linestyle=line, marker=sign if len(marks) <= MANY else None)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for level, dashes in zip(plot.levels.values(), cycle(((0, (2, 3)), (0, (6, 2)))), strict=False):
        handles.append(axes.axhline(level.mean, color=GREY, linewidth=0.9, linestyle=dashes))
        axes.axhspan(level.low, level.high, color=GREY, alpha=0.1, linewidth=0)
    above = axes.get_xaxis_transform()
    for places, sign, y in zip(plot.signs.values(), "vx", (0.97, 0.88), strict=False):
        handles += axes.plot(places, [y] * len(places), sign, color=INK, transform=above)

    # Both axes, and above them where stages end inside of the panel.
    letters = 0.75 * width / _LETTER
    _set_axis(axes, "y", plot.axis, dict(plot.axis.ticks))
    _set_axis(axes, "x", plot.along, spaced(plot.along.ticks, letters))
    axes.set(ylabel=wrapped(plot.axis.title, 1.5), xlabel=wrapped(plot.along.title, 0.75 * width))
    ends = {place: label_text(text, limit=21) for place, text in plot.ends}
    axes.vlines([*ends], 0, 1, transform=above, color=GREY, linewidth=0.7, linestyle=":", zorder=0)
    for place, text in spaced(ends.items(), letters).items():
        axes.text(place, 1.02, text, color=GREY, va="bottom", ha="center", transform=above)
    return handles
