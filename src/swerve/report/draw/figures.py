"""Figures as PNG and PDF files, for papers and slides: how they are written, and the shapes that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.files import atomic_path
from swerve.estimates import Estimate
from swerve.report.draw.curves import UNIT_TITLES, Chart
from swerve.report.draw.panels import Bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b62a8", "#c4510a", "#16805d", "#6b7280", "#7c3aad", "#a8125e", "#7a6400", "#00788c")
GREY = "#6b7280"
_PALE = "#b6bcc6"
_MARKERS = ("o", "s", "^", "x", "D", "v", "P", "*")
_LINES = ("-", "--", ":", "-.")
_MANY_STEPS = 60
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
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
    "pdf.fonttype": 42,
    "svg.hashsalt": "swerve",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure that can be drawn, with the name of its files and its size in inches."""

    name: str
    draw: Callable[[Figure], None]
    size: tuple[float, float] = (6.0, 3.4)
    dpi: int = 160
    style: tuple[tuple[Any, Any], ...] = ()
    """What differs from the style of all figures."""


def write_figures(drawings: Iterable[Drawing], directory: Path) -> tuple[Path, ...]:
    """Write every figure as `.png` and `.pdf`.

    Raises:
        DiskFullError: no room.
    """
    # The object interface with its own canvas: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    for drawing in drawings:
        with rc_context({**_STYLE, **dict(drawing.style)}):
            figure = Figure(figsize=drawing.size, dpi=drawing.dpi, layout="constrained")
            FigureCanvasAgg(figure)
            drawing.draw(figure)
            for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None, "ModDate": None})):
                path = directory / f"{drawing.name}{suffix}"
                with atomic_path(path) as temporary:
                    figure.savefig(temporary, format=suffix[1:], metadata=metadata)
                paths.append(path)
    return tuple(paths)


def escape_mathtext(text: str) -> str:
    r"""Return `text` so that matplotlib draws it as it stands instead of reading formulas in it.

    >>> escape_mathtext("$x$")
    '\\$x\\$'
    """
    return text.replace("$", r"\$")


def chart_drawing(chart: Chart) -> Drawing:
    """Return the figure of a chart of the page: lines with bands over steps."""
    return Drawing(name=chart.id, draw=partial(_draw_chart, chart=chart))


def _draw_chart(figure: Figure, chart: Chart) -> None:
    axes = figure.add_subplot()
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
            marker=_MARKERS[index % 3],
            markersize=markersize,
            linestyle=_LINES[index % 3],
            label=escape_mathtext(curve.name),
        )
    axes.set_title(escape_mathtext(chart.title))
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(UNIT_TITLES[chart.unit])
    if chart.unit == "share":
        axes.set_ylim(0, 1.02)
    elif chart.unit in ("nats", "rate", "per_1000_words"):
        axes.set_ylim(bottom=0)
    _draw_stages(axes, chart)
    if len(chart.curves) > 1:
        axes.legend()


def _draw_stages(axes: Axes, chart: Chart) -> None:
    low = axes.get_xlim()[0]
    for stage in chart.stages:
        if low < stage.end < max(chart.steps):
            axes.axvline(stage.end, color="#9ca3af", linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
            axes.annotate(
                f"{escape_mathtext(stage.name)} ends",
                (stage.end, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(2, -2),
                textcoords="offset points",
                rotation=90,
                va="top",
                fontsize=7,
                color=GREY,
            )


def dose_drawing(name: str, charts: Sequence[Chart]) -> Drawing:
    """Return the figure of charts over fractions of tokens side by side: lines with bars, between two levels."""
    return Drawing(name=name, draw=partial(_draw_doses, charts=charts), size=(5.0 * len(charts) + 1.0, 3.9))


def _draw_doses(figure: Figure, charts: Sequence[Chart]) -> None:
    grid = figure.subplots(1, len(charts), sharey=True, squeeze=False)[0]
    for axes, chart in zip(grid, charts, strict=True):
        _draw_dose(axes, chart)
    grid[0].set_ylabel("accuracy")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))


def _draw_dose(axes: Axes, chart: Chart) -> None:
    for index, curve in enumerate(chart.curves):
        known = [(100 * x, point) for x, point in zip(chart.steps, curve.points, strict=True) if point is not None]
        if known:
            error_bars(
                axes,
                [x for x, _ in known],
                [point for _, point in known],
                across=False,
                color=COLOURS[index % len(COLOURS)],
                fmt=_MARKERS[index % len(_MARKERS)],
                linestyle=_LINES[index % len(_LINES)],
                markersize=4,
                capsize=2,
                linewidth=1.3,
                elinewidth=0.8,
                label=escape_mathtext(curve.name),
            )
    for level in chart.levels:
        axes.axhline(level.value.mean, color=GREY, linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
        axes.annotate(
            escape_mathtext(level.name),
            (1.0, level.value.mean),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=GREY,
        )
    axes.set_ylim(0, 1.04)
    axes.set_xlabel("tokens taken (%)")
    axes.set_title(escape_mathtext(chart.title))


def error_bars(
    axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], *, across: bool, **look: Any
) -> None:
    """Draw estimates with their intervals; `across`: the estimates are on the x axis."""
    means = [one.mean for one in estimates]
    errors = [
        [max(0.0, one.mean - one.low) for one in estimates],
        [max(0.0, one.high - one.mean) for one in estimates],
    ]
    style: dict[str, Any] = {"fmt": "o", "color": COLOURS[0], "markersize": 5, "capsize": 3, "linewidth": 1.5, **look}
    if across:
        axes.errorbar(means, places, xerr=errors, **style)
    else:
        axes.errorbar(places, means, yerr=errors, **style)


def named_rows(axes: Axes, names: Sequence[str]) -> list[int]:
    """Name the rows of a figure with its estimates on the x axis, the first one on top."""
    rows = list(range(len(names)))
    axes.set_yticks(rows, [escape_mathtext(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return rows


def estimate_rows(figure: Figure, estimates: Sequence[tuple[str, Estimate]]) -> Axes:
    """Draw named estimates with their intervals, a row for each."""
    axes = figure.add_subplot()
    rows = named_rows(axes, [name for name, _ in estimates])
    error_bars(axes, rows, [one for _, one in estimates], across=True)
    return axes


def paired_bars(figure: Figure, bars: Sequence[Bar], *, names: tuple[str, str], upright: bool) -> Axes:
    """Draw two bars for each thing; `upright`: from the x axis upwards, in the order of time."""
    axes = figure.add_subplot()
    shift, width = (0.2, 0.38) if upright else (0.19, 0.36)
    places, labels = list(range(len(bars))), [escape_mathtext(bar.name) for bar in bars]
    values = [bar.first for bar in bars], [bar.second for bar in bars]
    for sign, colour, name, found in zip((-1, 1), (COLOURS[1], _PALE), names, values, strict=True):
        draw = axes.bar if upright else axes.barh
        draw([place + sign * shift for place in places], found, width, color=colour, label=name)
    if upright:
        axes.set_xticks(places, labels)
    else:
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
    axes.grid(axis="x" if upright else "y", visible=False)
    return axes
