"""Figures of what the probe finds in the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from studies.demo.findings import DIRECTIONS
from studies.drawing import add_shared_legend, draw_swaps, save, scale_swaps
from studies.pages import Record, of_kind


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the effect of swaps, of every seed."""
    _draw_dose(folder / "probe-dose.png", of_kind(records, "wider"))


def _draw_dose(path: Path, probes: Sequence[Record]) -> None:
    """Accuracy against the fraction of swapped tokens: a column per direction, a row per seed."""
    figure, axes = plt.subplots(len(probes), 2, figsize=(10, 2.6 * len(probes)), sharey=True, squeeze=False)
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
