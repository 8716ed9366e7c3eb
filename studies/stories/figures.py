"""Figure of the planted name's way into stories, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from studies.drawing import draw_panels, swap_rows
from studies.pages import Record
from swerve.report.names import SELECTORS
from swerve.report.rows import Rows

_DIRECTIONS = {
    "stories_dose_into_reference": "Changed model's tokens into the pretrained model's stories",
    "stories_dose_into_changed": "Pretrained model's tokens into the changed model's stories",
}


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the effect of swapped tokens, if both directions were measured."""
    kinds = {record["kind"]: record for record in records}
    if set(_DIRECTIONS) <= set(kinds):
        draw_panels(folder / "probe-stories-dose.png", _tables([kinds[name] for name in _DIRECTIONS]))


def _tables(records: Sequence[Record]) -> Iterator[Rows]:
    """Yield the share of stories with the new name by the share of swapped tokens, both ways."""
    for record in records:
        none, every, *points = record["points"]
        curves = {name: [point for point in points if point["selector"] == name] for name in SELECTORS}
        curves = {name: own for name, own in curves.items() if own}
        ends = none["with_new"], every["with_new"]
        outcome = f"stories with {record['new']}"
        yield swap_rows(_DIRECTIONS[record["kind"]], curves, "with_new", ends, outcome=outcome)
