"""Dashboard: the main figures of a run on one sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swerve.report.draw.figures import Drawing, grid_of
from swerve.report.read import ReportInputs
from swerve.report.topics import topics
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAIN = (
    "mean_kl_progression",
    "spike_density_comparison",
    "category_kl_breakdown",
    "entropy_reduction",
    "accuracy",
    "causal",
    "baseline_comparison",
    "spikes",
    "recovery",
    "null_spikes",
)
"""Those of one panel, in order: the first six that were measured are drawn."""
_NUM_PANELS = 6


def _drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    specs = {name: spec for topic in topics() for name, spec in topic.figures.items()}
    drawings = [drawing for name in _MAIN for drawing in specs[name].draw(inputs)][:_NUM_PANELS]
    if len(drawings) > 1:
        columns = min(3, len(drawings))
        yield Drawing(
            name="summary_dashboard",
            draw=partial(_draw, drawings=drawings),
            rows=tuple({"figure": drawing.name, **row} for drawing in drawings for row in drawing.rows),
            panels=grid_of(len(drawings), columns),
            size=(5.6 * columns, 3.4 if len(drawings) <= columns else 6.8),
        )


def _draw(*panels: Axes, drawings: Sequence[Drawing]) -> None:
    for axes, drawing in zip(panels, drawings, strict=True):
        drawing.draw(axes)


TOPIC = Topic(
    figures={
        "summary_dashboard": FigureSpec(
            shows="The main figures on one sheet.",
            draw=_drawings,
            needs="swerve eval RUN, or swerve probe RUN",
        )
    }
)
