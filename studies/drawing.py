"""What the studies' figures share: files, curves with intervals, marked levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from studies.pages import Record

plt.switch_backend("agg")
SELECTOR_COLORS = {"js": "tab:blue", "logprob_drop": "tab:green", "entropy": "tab:orange", "random": "tab:gray"}
"""What chooses the tokens to swap -> the colour of its curve."""


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG, the same bytes each time, and close it."""
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def draw_swaps(axis: Any, curves: dict[str, list[Record]], value: str, ends: tuple[Record, Record]) -> None:
    """Draw an outcome against the percentage of swapped tokens: a curve per selector, and levels at none and all.

    Args:
        axis: where to draw.
        curves: selector -> points.
        value: the points' field of the outcome, an estimate.
        ends: the outcomes without swaps and with all tokens swapped.
    """
    for estimate, label, color in zip(ends, ("no swaps", "all"), ("black", "tab:red"), strict=True):
        axis.axhline(estimate["mean"], color=color, linestyle=":", linewidth=1)
        axis.text(1.01, estimate["mean"], label, color=color, va="center", transform=axis.get_yaxis_transform())
    for selector, points in curves.items():
        y = [point[value]["mean"] for point in points]
        axis.errorbar(
            [100 * point["share_swapped"] for point in points],
            y,
            yerr=[
                [middle - point[value]["low"] for middle, point in zip(y, points, strict=True)],
                [point[value]["high"] - middle for middle, point in zip(y, points, strict=True)],
            ],
            color=SELECTOR_COLORS[selector],
            marker="o",
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=selector,
        )
    axis.grid(alpha=0.3)


def scale_swaps(axis: Any, *, threshold: float, ticks: tuple[float, ...], end: float) -> None:
    """Scale an axis of percentages by their logarithm above a threshold."""
    axis.set_xscale("symlog", linthresh=threshold, linscale=0.3)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xlim(0, end)


def add_shared_legend(figure: Any, axis: Any, height: float) -> None:
    """Put the legend of one panel above the whole figure."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, height), frameon=False)
