"""Figure of the false discoveries between two samples of one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from studies.drawing import save
from studies.study import Record


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the rates of rejection, if they were measured."""
    for record in records:
        if record["kind"] == "null_samples":
            _draw_rates(folder / "probe-null.png", record)


def _draw_rates(path: Path, record: Record) -> None:
    """How often each comparison of two samples of one model finds a difference."""
    names = list(record["rates"])
    rates = [record["rates"][name]["rate"] for name in names]
    figure, axis = plt.subplots(figsize=(8.5, 0.32 * len(names) + 1.2))
    middle = [100 * rate["mean"] for rate in rates]
    ends = [
        [100 * (rate["mean"] - rate["low"]) for rate in rates],
        [100 * (rate["high"] - rate["mean"]) for rate in rates],
    ]
    axis.errorbar(middle, range(len(names)), xerr=ends, fmt="o", color="tab:blue", capsize=3, markersize=4)
    axis.axvline(5, color="tab:red", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel("pairs of samples of one model called different, %")
    axis.grid(alpha=0.3)
    figure.tight_layout()
    save(figure, path)
