"""Figures as PNG, PDF, SVG and CSV files: how they are written, and the shapes that they share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.files import atomic_path, write_text
from swerve.estimates import Estimate
from swerve.formats.text_tables import csv_text
from swerve.report.draw.curves import UNIT_TITLES, Chart
from swerve.report.draw.panels import Bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b62a8", "#c4510a", "#16805d", "#6b7280", "#7c3aad", "#a8125e", "#7a6400", "#00788c")
GREY = "#6b7280"
FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None},
    "svg": {"Date": None},
}
"""File formats, with the metadata that would make two files of the same figure differ."""
FONT = "DejaVu Sans"
MARKERS = ("o", "s", "^", "x", "D", "v", "P", "*")
_PALE = "#b6bcc6"
_LINES = ("-", "--", ":", "-.")
_MANY_STEPS = 60
_MAX_LABEL = 60
_MAX_NAME = 28
"""Of a name in a legend."""
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "font.family": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "axes.axisbelow": True,
    "axes.edgecolor": "#9ca3af",
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "pdf.fonttype": 42,
    "svg.hashsalt": "swerve",
}

Row = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure that can be drawn: its numbers, the name of its files and its size in inches."""

    name: str
    draw: Callable[..., None]
    """Draws it on the axes of its panels."""
    rows: tuple[Row, ...] = ()
    """What is drawn, with the numbers as the artifacts have them; the columns of the CSV are the keys."""
    panels: str = "A"
    """Layout of the panels, a letter each, rows of them separated by semicolons."""
    heights: tuple[float, ...] | None = None
    """Of the rows of panels, relative to each other."""
    size: tuple[float, float] = (6.0, 3.4)
    dpi: int = 160
    style: tuple[tuple[Any, Any], ...] = ()
    """What differs from the style of all figures."""


def draw_panels(drawing: Drawing, make: Callable[..., Figure], axes: Axes | None = None) -> tuple[Axes, ...]:
    """Draw a figure and return its panels.

    Args:
        drawing: the figure.
        make: makes a matplotlib figure; given its size, resolution and layout.
        axes: where to draw a figure of one panel instead.
    """
    from matplotlib import rc_context

    with rc_context({**_STYLE, **dict(drawing.style)}):
        if axes is None:
            figure = make(figsize=drawing.size, dpi=drawing.dpi, layout="constrained")
            mosaic = figure.subplot_mosaic(drawing.panels, height_ratios=drawing.heights)
            panels = tuple(mosaic[key] for key in sorted(mosaic))
        else:
            panels = (axes,)
        drawing.draw(*panels)
    return panels


def write_figures(drawings: Iterable[Drawing], directory: Path, formats: Iterable[str] = FORMATS) -> tuple[Path, ...]:
    """Write every figure in these formats, and its numbers as `.csv` where it has any; the same bytes every time.

    Raises:
        DiskFullError: no room.
    """
    # The object interface with its own canvas: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvases = {"png": FigureCanvasAgg, "pdf": FigureCanvasPdf, "svg": FigureCanvasSVG}
    paths, chosen = [], tuple(formats)
    for drawing in drawings:
        panels = draw_panels(drawing, Figure)
        figure = figure_of(panels[0])
        FigureCanvasAgg(figure)
        with rc_context(_STYLE):
            # Panels and labels are placed once; `savefig` would do so for each format, and draw each twice.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            for suffix in chosen:
                path = directory / f"{drawing.name}.{suffix}"
                figure.dpi = drawing.dpi
                with atomic_path(path) as temporary:
                    write = getattr(canvases[suffix](figure), f"print_{suffix}")
                    write(temporary, metadata=FORMATS[suffix])
                paths.append(path)
        if drawing.rows:
            paths.append(directory / f"{drawing.name}.csv")
            write_text(paths[-1], csv_text(drawing.rows))
    return tuple(paths)


def numbers(value: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as cells of a CSV; empty ones where it was not measured.

    >>> numbers(Estimate(mean=0.5, low=0.25, high=0.75))
    {'mean': 0.5, 'low': 0.25, 'high': 0.75}
    """
    return {key: None if value is None else getattr(value, key) for key in ("mean", "low", "high")}


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


def _cut(text: str, limit: int) -> str:
    tail = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


@cache
def _glyphs(font: str) -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(font)).get_charmap())


def figure_of(axes: Axes) -> Figure:
    """Return the figure that a panel is of."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _width(axes: Axes) -> float:
    """Return the width of a panel in inches, before room is made for legends."""
    return float(axes.get_position().width * figure_of(axes).get_size_inches()[0])


def _wrapped(text: str, width: int, *, limit: int) -> str:
    return "\n".join(map(label_text, textwrap.wrap(_cut(text, limit), width, break_on_hyphens=False)))


def set_title(axes: Axes, text: str, *, pad: float | None = None) -> None:
    """Set the title over a panel, on several lines where it is long; `pad`: points below it."""
    width = max(24, int(12 * _width(axes)))
    axes.set_title(_wrapped(text, width, limit=5 * width // 2), pad=pad)


def name_ticks(
    axes: Axes, names: Sequence[str], places: Sequence[float] | None = None, *, beside: float = 1.0
) -> Sequence[float]:
    """Name places on the x axis (0, 1, 2, ... by default), obliquely where the names are long; return the places.

    `beside` is the width of a legend that takes room, in inches.
    """
    ticks = range(len(names)) if places is None else places
    shown = [label_text(name, limit=24) for name in names]
    is_long = 0.085 * sum(map(len, shown)) > _width(axes) - beside
    axes.set_xticks(list(ticks), shown, rotation=35 if is_long else 0, ha="right" if is_long else "center")
    if is_long:
        for tick in axes.get_xticklabels():
            tick.set_rotation_mode("anchor")
    return ticks


def legend_beside(axes: Axes) -> None:
    """Put the legend to the right of a panel, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def shades(num: int) -> list[Any]:
    """Return colours from light to dark for things in an order, such as checkpoints."""
    from matplotlib import colormaps

    return [colormaps["Blues"](1.0 if num == 1 else 0.35 + 0.65 * index / (num - 1)) for index in range(num)]


def grid_of(num: int, columns: int) -> str:
    """Return the layout of panels in rows of so many.

    >>> grid_of(5, 2)
    'AB;CD;E.'
    """
    letters = [chr(ord("A") + index) for index in range(num)]
    rows = ["".join(letters[start : start + columns]).ljust(columns, ".") for start in range(0, num, columns)]
    return ";".join(rows)


def chart_drawing(chart: Chart, rows: Iterable[Row] | None = None) -> Drawing:
    """Return the figure of a chart: lines with bands over steps; `rows` are its numbers if they are not the curves'."""
    return Drawing(
        name=chart.id, draw=partial(draw_chart, chart=chart), rows=chart_rows(chart) if rows is None else tuple(rows)
    )


def chart_rows(chart: Chart) -> tuple[Row, ...]:
    """Return the points of a chart's curves, and its levels."""
    rows: list[Row] = []
    x = chart.x_title.replace(" ", "_")
    for curve in chart.curves:
        for label, step, point in zip(chart.labels, chart.steps, curve.points, strict=True):
            if point is not None:
                place: Row = {} if chart.x_unit == "share" else {"checkpoint": label}
                place = place if x in place else {**place, x: step}
                value = numbers(point) if chart.has_intervals else {"value": point.mean}
                rows.append({"curve": curve.name, **place, **value})
    return (*rows, *({"curve": level.name, **numbers(level.value)} for level in chart.levels))


def draw_chart(axes: Axes, *, chart: Chart) -> None:
    """Draw a chart on a panel: lines, or a row for each curve where there is a single step."""
    if len(chart.steps) == 1:
        points = [(curve.name, curve.points[0]) for curve in chart.curves]
        points += [(level.name, level.value) for level in chart.levels]
        estimate_rows(axes, [(name, point) for name, point in points if point is not None])
        if all(point is None or point.low >= 0 for _, point in points):
            axes.set_xlim(left=0)
        axes.set_xlabel(UNIT_TITLES[chart.unit])
        set_title(axes, f"{chart.title}: {chart.labels[0]}")
        return
    # Points that are close together would hide the line.
    markersize = 3.5 if len(chart.steps) <= _MANY_STEPS else 0.0
    for index, curve in enumerate(chart.curves):
        known = [(step, point) for step, point in zip(chart.steps, curve.points, strict=True) if point is not None]
        steps = [step for step, _ in known]
        colour = COLOURS[index % len(COLOURS)]
        axes.fill_between(
            steps, [p.low for _, p in known], [p.high for _, p in known], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(
            steps,
            [point.mean for _, point in known],
            color=colour,
            marker=MARKERS[index % len(MARKERS)],
            markersize=markersize,
            linestyle=_LINES[index % len(_LINES)],
            label=label_text(curve.name, limit=_MAX_NAME),
        )
    set_title(axes, chart.title, pad=15.0 if chart.stages else None)
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(UNIT_TITLES[chart.unit])
    _draw_levels(axes, chart)
    values = [point.low for curve in chart.curves for point in curve.points if point is not None]
    if chart.unit == "share":
        axes.set_ylim(0, 1.02)
    elif chart.unit in ("nats", "rate", "per_1000_words", "per_1000_tokens") and min(values, default=0.0) >= 0:
        axes.set_ylim(bottom=0)
    if chart.x_title == "checkpoint":
        name_ticks(axes, chart.labels, chart.steps)
    _draw_stages(axes, chart)
    if len(chart.curves) + len(chart.levels) > 1:
        legend_beside(axes)


def _draw_levels(axes: Axes, chart: Chart) -> None:
    for index, level in enumerate(chart.levels):
        name, dashes = label_text(level.name, limit=_MAX_NAME), (0, ((2, 3), (6, 2))[index % 2])
        axes.axhline(level.value.mean, color=GREY, linewidth=0.9, linestyle=dashes, zorder=0, label=name)
        axes.axhspan(level.value.low, level.value.high, color=GREY, alpha=0.08, linewidth=0, zorder=0)


def _draw_stages(axes: Axes, chart: Chart) -> None:
    """Mark where stages end; the names of ends that are close together stand side by side above the panel."""
    low, high = axes.get_xlim()
    ends: dict[float, list[str]] = {}
    for stage in chart.stages:
        if low < stage.end < max(chart.steps):
            axes.axvline(stage.end, color="#9ca3af", linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
            near = next((end for end in ends if abs(stage.end - end) < (high - low) / 6), stage.end)
            ends.setdefault(near, []).append(label_text(stage.name, limit=16))
    for end, names in ends.items():
        axes.annotate(
            f"{', '.join(names)} {'ends' if len(names) == 1 else 'end'}",
            (end, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="left" if end - low < (high - low) / 8 else "center",
            fontsize=7,
            color=GREY,
        )


def dose_drawing(name: str, charts: Sequence[Chart]) -> Drawing:
    """Return the figure of charts over fractions of tokens side by side: lines with bars, between two levels."""
    return Drawing(
        name=name,
        draw=partial(_draw_doses, charts=charts),
        rows=tuple({"direction": chart.title, **row} for chart in charts for row in chart_rows(chart)),
        panels=grid_of(len(charts), len(charts)),
        size=(5.0 * len(charts) + 1.0, 3.6),
    )


def _draw_doses(*panels: Axes, charts: Sequence[Chart]) -> None:
    for axes, chart in zip(panels, charts, strict=True):
        _draw_dose(axes, chart)
        legend_beside(axes)
    panels[0].set_ylabel("accuracy")


def _draw_dose(axes: Axes, chart: Chart) -> None:
    # Each selector is a line over the share of swapped tokens.
    for index, curve in enumerate(chart.curves):
        known = [(100 * x, point) for x, point in zip(chart.steps, curve.points, strict=True) if point is not None]
        if known:
            error_bars(
                axes,
                [x for x, _ in known],
                [point for _, point in known],
                across=False,
                color=COLOURS[index % len(COLOURS)],
                fmt=MARKERS[index % len(MARKERS)],
                linestyle=_LINES[index % len(_LINES)],
                markersize=4,
                capsize=2,
                linewidth=1.3,
                elinewidth=0.8,
                label=label_text(curve.name, limit=_MAX_NAME),
            )
    _draw_levels(axes, chart)
    axes.set_ylim(0, 1.04)
    axes.set_xlabel("tokens taken (%)")
    set_title(axes, chart.title)


def error_bars(
    axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], *, across: bool, **look: Any
) -> None:
    """Draw estimates with their intervals; `across`: the estimates are on the x axis."""
    means = [estimate.mean for estimate in estimates]
    errors = [
        [max(0.0, estimate.mean - estimate.low) for estimate in estimates],
        [max(0.0, estimate.high - estimate.mean) for estimate in estimates],
    ]
    style: dict[str, Any] = {"fmt": "o", "color": COLOURS[0], "markersize": 5, "capsize": 3, "linewidth": 1.5, **look}
    if across:
        axes.errorbar(means, places, xerr=errors, **style)
    else:
        axes.errorbar(places, means, yerr=errors, **style)


def named_rows(axes: Axes, names: Sequence[str]) -> list[int]:
    """Name the rows of a figure with its estimates on the x axis, the first one on top."""
    rows = list(range(len(names)))
    axes.set_yticks(rows, [_wrapped(name, 34, limit=54) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return rows


def estimate_rows(axes: Axes, estimates: Sequence[tuple[str, Estimate]]) -> None:
    """Draw named estimates with their intervals, a row for each."""
    rows = named_rows(axes, [name for name, _ in estimates])
    error_bars(axes, rows, [estimate for _, estimate in estimates], across=True)


def side_by_side(
    axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[Estimate | None]], *, colours: Sequence[Any]
) -> None:
    """Draw a point with its interval for each series in each group, the groups along the x axis."""
    name_ticks(axes, groups, beside=0.5 + 0.065 * min(_MAX_NAME, max(map(len, series), default=0)))
    width = 0.7 / max(1, len(series))
    for index, ((name, estimates), colour) in enumerate(zip(series.items(), colours, strict=False)):
        shift = (index - (len(series) - 1) / 2) * width
        known = [(place + shift, estimate) for place, estimate in enumerate(estimates) if estimate is not None]
        places, values = [place for place, _ in known], [estimate for _, estimate in known]
        look = {"color": colour, "fmt": MARKERS[index % len(MARKERS)], "markersize": 4, "capsize": 2}
        error_bars(axes, places, values, across=False, label=label_text(name, limit=_MAX_NAME), **look)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(axis="x", visible=False)
    if len(series) > 1:
        legend_beside(axes)


def paired_bars(axes: Axes, bars: Sequence[Bar], *, names: tuple[str, str]) -> None:
    """Draw two bars upwards for each thing, in the order of time."""
    places = name_ticks(axes, [bar.name for bar in bars])
    values = [bar.first for bar in bars], [bar.second for bar in bars]
    for sign, colour, name, lengths in zip((-1, 1), (COLOURS[1], _PALE), names, values, strict=True):
        axes.bar([place + sign * 0.2 for place in places], lengths, 0.38, color=colour, label=name)
    axes.grid(axis="x", visible=False)
