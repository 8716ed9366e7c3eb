"""Figure of the planted name's way into stories, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from studies.drawing import SELECTOR_COLORS, add_shared_legend, draw_swaps, save, scale_swaps
from studies.pages import Record

_DIRECTIONS = {
    "stories_dose_into_reference": "changed model's tokens into the pretrained model's stories",
    "stories_dose_into_changed": "pretrained model's tokens into the changed model's stories",
}


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the effect of swapped tokens, if both directions were measured."""
    kinds = {one["kind"]: one for one in records}
    if set(_DIRECTIONS) <= set(kinds):
        _draw_dose(folder / "probe-stories-dose.png", [kinds[name] for name in _DIRECTIONS])


def _draw_dose(path: Path, records: Sequence[Record]) -> None:
    """Fraction of stories with the new name against the fraction of swapped tokens, both ways."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for axis, record in zip(axes, records, strict=True):
        none, all_swapped = record["points"][:2]
        curves = {name: [point for point in record["points"] if point["selector"] == name] for name in SELECTOR_COLORS}
        draw_swaps(axis, curves, "with_new", (none["with_new"], all_swapped["with_new"]))
        scale_swaps(axis, threshold=0.5, ticks=(0, 0.5, 1, 2, 5, 10), end=14)
        axis.set_title(_DIRECTIONS[record["kind"]], fontsize=9)
        axis.set_xlabel("tokens swapped, %")
    axes[0].set_ylabel(f"stories with {records[0]['new']}")
    add_shared_legend(figure, axes[0], 1.07)
    figure.tight_layout()
    save(figure, path)
