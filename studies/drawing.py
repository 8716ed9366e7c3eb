"""What the studies' figures share: files, and an outcome against the share of swapped tokens as reports draw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from studies.pages import Record
from swerve.estimates import Estimate
from swerve.report.draw.figures import Drawing, lay_out, rows_drawing
from swerve.report.names import SELECTORS
from swerve.report.rows import SHARE, Curves, Rows
from swerve.text import percent

plt.switch_backend("agg")
SCORES = {**SELECTORS, "entropy": "Entropy"}
"""What chooses the tokens to swap, as legends have it."""


def save(figure: Any, path: Path, dpi: int = 110) -> None:
    """Write a figure as PNG, the same bytes each time, and close it."""
    figure.savefig(path, dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def swap_rows(
    title: str, curves: Mapping[str, Sequence[Record]], value: str, ends: tuple[Record, Record], *, outcome: str
) -> Rows:
    """Return an outcome by the share of swapped tokens: a column for each score that chooses them.

    Args:
        title: of the panel.
        curves: score -> points.
        value: the points' field of the outcome, an estimate.
        ends: the outcomes without swaps and with all tokens swapped.
        outcome: what it is.
    """
    points = {(name, point["share_swapped"]): Estimate(**point[value]) for name in curves for point in curves[name]}
    shares = sorted({share for _, share in points})
    none, every = (Estimate(**end) for end in ends)
    plot = Curves(
        x=tuple(100 * share for share in shares),
        x_title="% of the tokens swapped",
        is_log=True,
        levels={"no swaps": none, "all": every},
        greys=(SELECTORS["random"],),
    )
    return Rows(
        id="swaps",
        title=title,
        columns={SCORES[name]: replace(SHARE, axis=f"{outcome}, %") for name in curves},
        rows=tuple((percent(share), *(points.get((name, share)) for name in curves)) for share in shares),
        plots=(plot,),
    )


def draw_panels(path: Path, tables: Iterable[Rows]) -> None:
    """Draw a panel for each table; the first has the legend of all."""
    panels = [replace(panel, title=rows.title) for rows in tables for panel in rows_drawing(rows).panels]
    others = (replace(panel, key=()) for panel in panels[1:])
    save(lay_out(Drawing(name=path.stem, title="", panels=(panels[0], *others), records=())), path, dpi=200)
