"""The curves as PNG and PDF files, for papers and slides."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.files import atomic_path
from swerve.report.charts import all_charts
from swerve.report.curves import UNIT_TITLES, Chart
from swerve.report.figures_probe import COLOURS, GREY, Draw, escape_mathtext, probe_figures
from swerve.report.inputs import ReportInputs
from swerve.report.layout import Bar
from swerve.report.sections_where import bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["STYLE", "escape_mathtext", "write_figures"]

_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", ":")
_MANY_STEPS = 60
STYLE: dict[Any, Any] = {
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


def write_figures(inputs: ReportInputs, directory: Path) -> tuple[Path, ...]:
    """Write every figure whose numbers were measured as `.png` and `.pdf`; remove those of an earlier report.

    Raises:
        DiskFullError: no room.
    """
    written: list[Path] = []
    for chart in all_charts(inputs):
        if chart.measured:
            written += _write(directory / chart.id, partial(_draw_chart, chart=chart))
    if shares := bars(inputs.summary):
        written += _write(directory / "categories", partial(_draw_bars, shares=shares))
    for name, (draw, size) in probe_figures(inputs.summary).items():
        written += _write(directory / name, draw, size=size)
    for path in directory.glob("*.p[nd][gf]"):
        if path not in written:
            path.unlink()
    return tuple(written)


def _write(stem: Path, draw: Draw, *, size: tuple[float, float] = (6.0, 3.4)) -> list[Path]:
    # The object interface with its own canvas: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    with rc_context(STYLE):
        figure = Figure(figsize=size, dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None, "ModDate": None})):
            path = stem.with_suffix(suffix)
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=suffix[1:], metadata=metadata)
            paths.append(path)
    return paths


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
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=markersize,
            linestyle=_LINES[index % len(_LINES)],
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


def _draw_bars(figure: Figure, shares: tuple[Bar, ...]) -> None:
    axes = figure.add_subplot()
    rows = list(range(len(shares)))
    axes.barh([r - 0.19 for r in rows], [bar.first for bar in shares], 0.36, color=COLOURS[1], label="divergence")
    axes.barh([r + 0.19 for r in rows], [bar.second for bar in shares], 0.36, color="#b6bcc6", label="tokens")
    axes.set_yticks(rows, [escape_mathtext(bar.name) for bar in shares])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share (%)")
    axes.set_title("Where the divergence is: token categories")
    axes.legend(loc="lower right")
