"""The curves as PNG and PDF files, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.files import atomic_path
from swerve.report.charts import Chart, all_charts
from swerve.report.findings import spike_entry
from swerve.report.inputs import ReportInputs
from swerve.report.sections import Bar, bars
from swerve.report.values import Interval, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["STYLE", "escape_mathtext", "write_figures"]

_COLOURS = ("#0b62a8", "#c4510a", "#16805d")
_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", ":")
_GREY = "#6b7280"
_Y_TITLES = {"share": "share", "nats": "nats per token", "tokens": "tokens", "reward": "mean reward"}
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

Draw = Callable[["Axes"], None]


def escape_mathtext(text: str) -> str:
    r"""Return `text` so that matplotlib draws it as it stands instead of reading formulas in it.

    >>> escape_mathtext("$x$")
    '\\$x\\$'
    """
    return text.replace("$", r"\$")


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
    if _spike_points(inputs):
        written += _write(directory / "spikes", partial(_draw_spikes, inputs=inputs))
    if effects := _effects(inputs):
        written += _write(directory / "causal", partial(_draw_effects, effects=effects))
    for path in directory.glob("*.p[nd][gf]"):
        if path not in written:
            path.unlink()
    return tuple(written)


def _write(stem: Path, draw: Draw) -> list[Path]:
    # The object interface with its own canvas: pyplot would keep state and may look for a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    with rc_context(STYLE):
        figure = Figure(figsize=(6.0, 3.4), dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None, "ModDate": None})):
            path = stem.with_suffix(suffix)
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=suffix[1:], metadata=metadata)
            paths.append(path)
    return paths


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for index, curve in enumerate(chart.curves):
        known = [(step, point) for step, point in zip(chart.steps, curve.points, strict=True) if point is not None]
        steps = [step for step, _ in known]
        colour = _COLOURS[index % len(_COLOURS)]
        axes.fill_between(
            steps, [p.low for _, p in known], [p.high for _, p in known], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(
            steps,
            [point.mean for _, point in known],
            color=colour,
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=3.5,
            linestyle=_LINES[index % len(_LINES)],
            label=escape_mathtext(curve.name),
        )
    axes.set_title(escape_mathtext(chart.title))
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(_Y_TITLES[chart.unit])
    if chart.unit == "share":
        axes.set_ylim(0, 1.02)
    elif chart.id == "divergence":
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
                color=_GREY,
            )


def _draw_bars(axes: Axes, shares: tuple[Bar, ...]) -> None:
    rows = list(range(len(shares)))
    axes.barh([r - 0.19 for r in rows], [bar.divergence for bar in shares], 0.36, color=_COLOURS[1], label="divergence")
    axes.barh([r + 0.19 for r in rows], [bar.tokens for bar in shares], 0.36, color="#b6bcc6", label="tokens")
    axes.set_yticks(rows, [escape_mathtext(bar.name) for bar in shares])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share (%)")
    axes.set_title("Where the divergence is: token categories")
    axes.legend(loc="lower right")


def _spike_points(inputs: ReportInputs) -> list[tuple[str, Interval, float | None]]:
    summary = inputs.summary or {}
    points = []
    for label in summary.get("checkpoints") or []:
        entry = spike_entry(summary, label, summary.get("divergence"))
        share = interval(entry.get("top_on_first_wrong")) if entry else None
        if entry is not None and share is not None:
            points.append((str(label), share, entry.get("chance_first_wrong")))
    return points


def _draw_spikes(axes: Axes, inputs: ReportInputs) -> None:
    points = _spike_points(inputs)
    rows = list(range(len(points)))
    _error_bars(axes, rows, [share for _, share, _ in points])
    chances = [chance for _, _, chance in points if chance is not None]
    if chances:
        chance = sum(chances) / len(chances)
        axes.axhline(chance, color=_GREY, linestyle="--", linewidth=1, label=f"chance {100 * chance:.1f}%")
        axes.legend()
    axes.set_xticks(rows, [escape_mathtext(label) for label, _, _ in points])
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of rollouts")
    axes.set_title("Top spike on the first wrong step")


def _error_bars(axes: Axes, rows: list[int], shares: list[Interval]) -> None:
    means = [share.mean for share in shares]
    errors = [
        [max(0.0, share.mean - share.low) for share in shares],
        [max(0.0, share.high - share.mean) for share in shares],
    ]
    axes.errorbar(rows, means, yerr=errors, fmt="o", color=_COLOURS[0], markersize=5, capsize=3, linewidth=1.5)


def _effects(inputs: ReportInputs) -> list[tuple[str, Interval]]:
    causal = (inputs.summary or {}).get("causal") or {}
    names = {"spike": "top spike", "random": "random position"}
    found = [(str(e.get("selection")), interval(e.get("effect"))) for e in causal.get("selections") or []]
    return [(names.get(name, name), effect) for name, effect in found if effect is not None]


def _draw_effects(axes: Axes, effects: list[tuple[str, Interval]]) -> None:
    rows = list(range(len(effects)))
    _error_bars(axes, rows, [effect for _, effect in effects])
    axes.axhline(0, color=_GREY, linewidth=1)
    axes.set_xticks(rows, [escape_mathtext(name) for name, _ in effects])
    axes.set_xlim(-0.6, len(effects) - 0.4)
    axes.set_ylabel("change in success")
    axes.set_title("Effect of the checkpoint's token on the reference's success")
