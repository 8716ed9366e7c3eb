"""Figures of what the probe finds in the demo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from studies.demo.findings import DIRECTIONS
from studies.drawing import draw_panels, swap_rows
from studies.pages import Record, of_kind
from swerve.report.rows import Rows


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the effect of swaps, of every seed."""
    draw_panels(folder / "probe-dose.png", _tables(of_kind(records, "wider")))


def _tables(probes: Sequence[Record]) -> Iterator[Rows]:
    """Yield accuracy by the share of swapped tokens: two directions for each seed."""
    for probe in probes:
        for way in probe["cross_sampling"]["directions"]:
            title = f"{DIRECTIONS[way['direction']].capitalize()} (seed {probe['seed']})"
            curves = {curve["selector"]: curve["points"] for curve in way["selectors"]}
            yield swap_rows(title, curves, "accuracy", (way["base"], way["other"]), outcome="accuracy")
