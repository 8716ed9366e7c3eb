"""The figure of the estimator audit, drawn from its tables: values, biases and gradients by size of the KL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.report.draw.figures import GREY, Drawing, figure_of, grid_of, label_text, write_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, distinguishable with any colour vision; markers and lines differ as well.
_LOOKS: dict[str, dict[str, Any]] = {
    "k1": {"color": "#0072b2", "marker": "o", "linestyle": "-"},
    "k2": {"color": "#b87700", "marker": "s", "linestyle": "-"},
    "k3": {"color": "#009e73", "marker": "^", "linestyle": "-"},
    "k3+": {"color": "#a3407c", "marker": "D", "linestyle": ":", "markerfacecolor": "none", "markersize": 7.0},
    "abs": {"color": "#d55e00", "marker": "v", "linestyle": "--"},
}
_OTHER: dict[str, Any] = {"color": "#4b5563", "marker": "x", "linestyle": "-."}
_FORMATS = ("png", "pdf")
_STYLE = (("lines.markersize", 4.5), ("lines.linewidth", 1.4))
_PERCENT_TICKS = (-100, -10, -1, 0, 1, 10, 100, 1000, 10000, 100000)

Record = Mapping[str, Any]
Point = tuple[float, float]


def write_estimator_figure(audit: Record, directory: Path) -> tuple[Path, ...]:
    """Write `estimators.png` and `estimators.pdf`; remove old ones where the two models do not differ.

    Args:
        audit: content of `estimators.json`.
        directory: where to write.

    Raises:
        DiskFullError: no room.
    """
    groups = [group for group in audit["deciles"] if group["kl_mean"]]
    if not groups:
        for suffix in _FORMATS:
            (directory / f"estimators.{suffix}").unlink(missing_ok=True)
        return ()
    draw = partial(_draw, audit=audit, groups=groups)
    drawing = Drawing(name="estimators", draw=draw, panels=grid_of(6, 3), size=(12.0, 7.2), dpi=150, style=_STYLE)
    return write_figures([drawing], directory, _FORMATS)


def _draw(*panels: Axes, audit: Record, groups: Sequence[Record]) -> None:
    # Values above their bias; for each placement the direction of the gradient above its noise.
    top, bottom, figure = panels[:3], panels[3:], figure_of(panels[0])
    _draw_values(top[0], groups)
    _draw_bias(bottom[0], groups)
    for column, placement in ((1, "loss"), (2, "reward")):
        _draw_cosine(top[column], groups, placement)
        _draw_noise(bottom[column], groups, placement)
    for axes in top:
        axes.set_xticks(range(len(groups)), [""] * len(groups))
    for axes in bottom:
        axes.set_xticks(range(len(groups)), [f"{group['kl_mean']:.0e}" for group in groups], rotation=45)
        axes.set_xlabel("tokens by exact KL: mean of each tenth, nats")
    figure.suptitle(
        label_text(
            f"Estimators of KL(policy || reference): {audit['checkpoint']['name']} against "
            f"{audit['reference']['name']}, {audit['num_tokens']} tokens",
            limit=150,
        ),
        x=0.01,
        ha="left",
        fontsize=11,
    )
    handles, labels = top[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _row(group: Record, table: str, **where: str) -> Record | None:
    rows = (row for row in group[table] if all(row[key] == value for key, value in where.items()))
    return next(rows, None)


def _series(
    groups: Sequence[Record], table: str, read: Callable[[Record, Record], float | None], **where: str
) -> list[Point]:
    """Return (number of the group, figure) where it was measured."""
    points = []
    for number, group in enumerate(groups):
        row = _row(group, table, **where)
        value = None if row is None else read(group, row)
        if value is not None:
            points.append((float(number), value))
    return points


def _names(groups: Sequence[Record]) -> list[str]:
    return [row["estimator"] for row in groups[0]["values"]]


def _plot(axes: Axes, points: Sequence[Point], name: str) -> None:
    if points:
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, **_LOOKS.get(name, _OTHER))


def _ratio(group: Record, row: Record, *, key: str) -> float | None:
    value: float | None = row[key]
    return None if value is None else value / group["kl_mean"]


def _draw_values(axes: Axes, groups: Sequence[Record]) -> None:
    names = _names(groups)
    axes.axhline(1, color="black", linewidth=1.2, label="exact")
    for index, name in enumerate(names):
        shift = 0.14 * (index - (len(names) - 1) / 2)
        means = _series(groups, "values", partial(_ratio, key="mean"), estimator=name)
        sds = dict(_series(groups, "values", partial(_ratio, key="sd"), estimator=name))
        look = {**_LOOKS.get(name, _OTHER), "linestyle": "none", "markersize": 4.0}
        axes.errorbar(
            [x + shift for x, _ in means],
            [y for _, y in means],
            yerr=[sds.get(x, 0.0) for x, _ in means],
            elinewidth=1.3,
            capsize=0,
            label=name,
            **look,
        )
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    axes.set_ylabel("estimate / exact KL")
    axes.set_title("Value: expectation\nand ±1 sd of one sample")


def _draw_bias(axes: Axes, groups: Sequence[Record]) -> None:
    def read(group: Record, row: Record) -> float | None:
        return None if row["relative_bias"] is None else 100 * float(row["relative_bias"])

    axes.axhline(0, color="black", linewidth=1.2)
    for name in _names(groups):
        _plot(axes, _series(groups, "values", read, estimator=name), name)
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    low, high = axes.get_ylim()
    ticks = [tick for tick in _PERCENT_TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:+,}%" if tick else "0" for tick in ticks])
    axes.set_ylabel("bias / exact KL")
    axes.set_title("Bias of the value\nagainst the exact KL")


def _draw_cosine(axes: Axes, groups: Sequence[Record], placement: str) -> None:
    def read(group: Record, row: Record) -> float | None:
        cosine: float | None = row["targets"]["reverse_kl"]["pooled_cosine"]
        return cosine

    axes.axhline(1, color="black", linewidth=1.2)
    axes.axhline(0, color=GREY, linewidth=0.8)
    for name in _names(groups):
        _plot(axes, _series(groups, "gradients", read, estimator=name, placement=placement), name)
    axes.set_ylim(-1.05, 1.08)
    axes.set_ylabel("cosine")
    axes.set_title(f"Expected gradient in the {placement}:\ncosine with the gradient of the KL")
    zero = [row["estimator"] for row in groups[-1]["gradients"] if row["placement"] == placement and row.get("is_zero")]
    if zero:
        text = f"{', '.join(zero)}: zero, no direction"
        axes.text(0.02, 0.03, text, transform=axes.transAxes, color=GREY, fontsize=8)


def _draw_noise(axes: Axes, groups: Sequence[Record], placement: str) -> None:
    def read(group: Record, row: Record) -> float | None:
        noise: float | None = row["variance_to_signal"]
        return noise or None  # a logarithm of 0 cannot be drawn

    drawn = False
    for name in _names(groups):
        points = _series(groups, "gradients", read, estimator=name, placement=placement)
        _plot(axes, points, name)
        drawn = drawn or bool(points)
    if drawn:
        axes.set_yscale("log")
    axes.set_ylabel("variance / squared norm")
    axes.set_title(f"Noise of one sample's gradient\nin the {placement}, against the expected one")
