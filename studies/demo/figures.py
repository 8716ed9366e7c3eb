"""Figures of what the probe finds in the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from studies.demo.findings import DIRECTIONS
from studies.drawing import add_shared_legend, draw_swaps, save, scale_swaps
from studies.pages import Record, of_kind


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the effect of swaps and of forced tokens, of every seed."""
    probes = of_kind(records, "wider")
    _draw_dose(folder / "probe-dose.png", probes)
    _draw_causal(folder / "probe-causal.png", probes)


def _draw_dose(path: Path, probes: Sequence[Record]) -> None:
    """Accuracy against the fraction of swapped tokens: a column per direction, a row per seed."""
    figure, axes = plt.subplots(len(probes), 2, figsize=(10, 3.2 * len(probes)), sharey=True, squeeze=False)
    for row, probe in enumerate(probes):
        for column, way in enumerate(probe["cross_sampling"]["directions"]):
            axis = axes[row, column]
            curves = {curve["selector"]: curve["points"] for curve in way["selectors"]}
            draw_swaps(axis, curves, "accuracy", (way["base"], way["other"]))
            scale_swaps(axis, threshold=0.2, ticks=(0, 0.2, 0.5, 1, 2, 5, 10), end=13)
            axis.set_title(f"{DIRECTIONS[way['direction']]} (seed {probe['seed']})", fontsize=9)
        axes[row, 0].set_ylabel("accuracy")
    for axis in axes[-1]:
        axis.set_xlabel("tokens swapped, %")
    add_shared_legend(figure, axes[0, 0], 1.02)
    figure.tight_layout()
    save(figure, path)


def _draw_causal(path: Path, probes: Sequence[Record]) -> None:
    """Success with each arm's token, by kind of position and seed."""
    figure, axes = plt.subplots(1, len(probes), figsize=(3.4 * len(probes) + 1, 3.6), sharey=True, squeeze=False)
    arms = {"reference": "rollout's own token", "checkpoint": "checkpoint's token", "alternative": "another token"}
    colors = ("tab:gray", "tab:green", "tab:orange")
    for axis, probe in zip(axes[0], probes, strict=True):
        rows = probe["causal"]["selections"]
        for index, ((arm, label), color) in enumerate(zip(arms.items(), colors, strict=True)):
            x = [place + 0.26 * (index - 1) for place in range(len(rows))]
            axis.bar(x, [row[arm]["success"] for row in rows], width=0.25, color=color, label=label)
        for place, row in enumerate(rows):
            effect, base = row["effect"], row["reference"]["success"]
            if effect is None:  # both models have the same token everywhere
                continue
            ends = [[effect["mean"] - effect["low"]], [effect["high"] - effect["mean"]]]
            axis.errorbar([place], [base + effect["mean"]], yerr=ends, color="black", capsize=3, linewidth=1)
        axis.set_xticks(range(len(rows)), [row["selection"] for row in rows])
        axis.set_title(f"seed {probe['seed']}", fontsize=10)
        axis.grid(alpha=0.3, axis="y")
    axes[0, 0].set_ylabel("right continuations")
    axes[0, -1].legend(fontsize=8)
    figure.tight_layout()
    save(figure, path)
