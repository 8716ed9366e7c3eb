"""What the probe found, as figures: spikes, recovery of wrong steps, null pair, onsets, swaps and dose-response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from swerve.report.charts import dose_charts
from swerve.report.curves import Chart
from swerve.report.layout import Bar
from swerve.report.names import METHODS, SELECTORS, divergence_name
from swerve.report.sections_causal import causal_policies, effects
from swerve.report.sections_spikes import null_rate, spike_entry
from swerve.report.sections_training import onset_bars
from swerve.report.values import Interval, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "Draw", "escape_mathtext", "probe_figures"]

Draw = Callable[["Figure"], None]
Summary = Mapping[str, Any]
COLOURS = ("#0b62a8", "#c4510a", "#16805d", "#6b7280", "#7c3aad", "#a8125e", "#7a6400", "#00788c")
GREY = "#6b7280"
_MARKERS = ("o", "s", "^", "x", "D", "v", "P", "*")
_LINES = ("-", "--", ":", "-.")
_NORMAL = (6.0, 3.4)


def escape_mathtext(text: str) -> str:
    r"""Return `text` so that matplotlib draws it as it stands instead of reading formulas in it.

    >>> escape_mathtext("$x$")
    '\\$x\\$'
    """
    return text.replace("$", r"\$")


def probe_figures(summary: Summary | None) -> dict[str, tuple[Draw, tuple[float, float]]]:
    """Return how to draw each figure whose numbers were measured, and its size in inches, by file name."""
    found: dict[str, tuple[Draw, tuple[float, float]]] = {}
    if summary is None:
        return found
    if points := _spike_points(summary):
        found["spikes"] = partial(_draw_spikes, points=points), _NORMAL
    if swaps := _effects(summary):
        found["causal"] = partial(_draw_effects, swaps=swaps), (7.0, 1.3 + 0.3 * len(swaps))
    if areas := _areas(summary):
        found["recovery"] = partial(_draw_areas, areas=areas, summary=summary), (6.0, 1.2 + 0.26 * len(areas))
    if rates := _null_rates(summary):
        found["null_spikes"] = partial(_draw_null, rates=rates, summary=summary), (6.0, 1.3 + 0.36 * len(rates))
    if rows := onset_bars(summary):
        found["onset"] = partial(_draw_onset, rows=rows), _NORMAL
    if doses := tuple(chart for chart in dose_charts(summary) if chart.measured):
        found["dose_response"] = partial(_draw_doses, charts=doses), (5.0 * len(doses) + 1.0, 3.9)
    return found


def _error_bars(axes: Axes, places: Sequence[float], shares: Sequence[Interval], *, across: bool, **look: Any) -> None:
    """Draw estimates with their intervals; `across`: the estimates are on the x axis."""
    means = [share.mean for share in shares]
    errors = [
        [max(0.0, share.mean - share.low) for share in shares],
        [max(0.0, share.high - share.mean) for share in shares],
    ]
    style: dict[str, Any] = {"fmt": "o", "color": COLOURS[0], "markersize": 5, "capsize": 3, "linewidth": 1.5, **look}
    if across:
        axes.errorbar(means, places, xerr=errors, **style)
    else:
        axes.errorbar(places, means, yerr=errors, **style)


def _spike_points(summary: Summary) -> list[tuple[str, Interval, float | None]]:
    points = []
    for label in summary.get("checkpoints") or []:
        entry = spike_entry(summary, label, summary.get("divergence"))
        share = interval(entry.get("top_on_first_wrong")) if entry else None
        if entry is not None and share is not None:
            points.append((str(label), share, entry.get("chance_first_wrong")))
    return points


def _draw_spikes(figure: Figure, points: list[tuple[str, Interval, float | None]]) -> None:
    axes = figure.add_subplot()
    rows = list(range(len(points)))
    _error_bars(axes, rows, [share for _, share, _ in points], across=False)
    chances = [chance for _, _, chance in points if chance is not None]
    if chances:
        chance = sum(chances) / len(chances)
        axes.axhline(chance, color=GREY, linestyle="--", linewidth=1, label=f"chance {100 * chance:.1f}%")
        axes.legend()
    axes.set_xticks(rows, [escape_mathtext(label) for label, _, _ in points])
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of rollouts")
    axes.set_title("Top spike on the first wrong step")


def _named_rows(axes: Axes, names: Sequence[str]) -> list[int]:
    """Name the rows of a figure with its estimates on the x axis, the first one on top."""
    rows = list(range(len(names)))
    axes.set_yticks(rows, [escape_mathtext(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return rows


def _effects(summary: Summary) -> list[tuple[str, Interval]]:
    policies = causal_policies(summary)
    found = []
    for policy, selections, _ in policies:
        model = summary.get("final" if policy == "checkpoint" else "reference")
        by = f" ({model} continues)" if len(policies) > 1 else ""
        found += [(f"{name}{by}", effect) for name, effect in effects(selections, summary)]
    return found


def _draw_effects(figure: Figure, swaps: list[tuple[str, Interval]]) -> None:
    axes = figure.add_subplot()
    rows = _named_rows(axes, [name for name, _ in swaps])
    _error_bars(axes, rows, [effect for _, effect in swaps], across=True)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_xlabel("change in success")
    axes.set_title("Effect of a forced token on success")


def _areas(summary: Summary) -> list[tuple[str, Interval]]:
    entries = (summary.get("recovery") or {}).get("selectors") or []
    found = [(str(one.get("selector")), interval(one.get("auc"))) for one in entries]
    return [(SELECTORS.get(name, name), area) for name, area in found if area is not None]


def _draw_areas(figure: Figure, areas: list[tuple[str, Interval]], summary: Summary) -> None:
    axes = figure.add_subplot()
    rows = _named_rows(axes, [name for name, _ in areas])
    _error_bars(axes, rows, [area for _, area in areas], across=True)
    axes.axvline(0.5, color=GREY, linestyle="--", linewidth=1, label="chance")
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("area under the ROC curve")
    axes.set_title(escape_mathtext(f"Known wrong steps at {summary.get('final')}, ranked by score"))
    axes.legend(loc="upper left", bbox_to_anchor=(0.06, 1.0))


def _null_rates(summary: Summary) -> list[tuple[str, Interval, float | None]]:
    """Return each rule's spikes per 1,000 tokens in the null pair, and those at the final checkpoint."""
    recovery, divergence = summary.get("recovery") or {}, summary.get("divergence", "js")
    num_tokens = recovery.get("num_tokens")
    real = {
        one.get("method"): 1000 * one["num_spikes"] / num_tokens
        for one in recovery.get("spikes") or []
        if one.get("divergence") == divergence and num_tokens
    }
    rates = [
        (method, name, interval((null_rate(summary, divergence, method) or {}).get("per_1000_tokens")))
        for method, name in METHODS.items()
    ]
    return [(name, rate, real.get(method)) for method, name, rate in rates if rate is not None]


def _draw_null(figure: Figure, rates: list[tuple[str, Interval, float | None]], summary: Summary) -> None:
    axes = figure.add_subplot()
    rows = _named_rows(axes, [name for name, _, _ in rates])
    real = [(row, value) for row, (_, _, value) in zip(rows, rates, strict=True) if value is not None]
    label = escape_mathtext(f"{summary.get('final')} against {summary.get('reference')}")
    # A little below the null pair's, so that equal numbers can both be seen.
    axes.plot(
        [value for _, value in real], [row + 0.17 for row, _ in real], "s", color=COLOURS[1], markersize=5, label=label
    )
    nulls = [rate for _, rate, _ in rates]
    _error_bars(axes, [row - 0.17 for row in rows], nulls, across=True, label="one model run twice")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(left=-0.08)
    ticks = [0, 1, 10, 100, 1000]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(right=max([20.0, *(rate.high for _, rate, _ in rates), *(value for _, value in real)]) * 1.6)
    axes.set_xlabel("spikes per 1,000 tokens")
    axes.set_title(escape_mathtext(f"Spikes where nothing changed ({divergence_name(summary)})"))
    figure.legend(loc="outside lower center", ncols=2)


def _draw_onset(figure: Figure, rows: tuple[Bar, ...]) -> None:
    axes = figure.add_subplot()
    places = list(range(len(rows)))
    for shift, colour, label, values in (
        (-0.2, COLOURS[1], "wrong steps", [bar.first for bar in rows]),
        (0.2, "#b6bcc6", "other tokens", [bar.second for bar in rows]),
    ):
        axes.bar([place + shift for place in places], values, 0.38, color=colour, label=label)
    axes.set_xticks(places, [escape_mathtext(bar.name) for bar in rows])
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("share of those that moved (%)")
    axes.set_title("When tokens left the reference for good")
    axes.legend()


def _draw_doses(figure: Figure, charts: tuple[Chart, ...]) -> None:
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
            _error_bars(
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
