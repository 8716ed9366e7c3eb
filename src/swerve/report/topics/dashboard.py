"""The main figures on one sheet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from swerve.report.draw.figures import Drawing
from swerve.report.figures import drawings
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import FigureSpec, Topic

_MAIN = (
    "accuracy",
    "mean_kl_progression",
    "spike_density_comparison",
    "category_kl_breakdown",
    "entropy_reduction",
    "causal",
    "baseline_comparison",
    "spikes",
    "recovery",
    "null_spikes",
)
"""Those whose first panel is shown, in order: the first six that were measured."""
_NUM_PANELS = 6


def _drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    measured = drawings(inputs, _MAIN)
    shown = [drawing for name in _MAIN for drawing in measured.get(name, ())][:_NUM_PANELS]
    if len(shown) > 1:
        yield Drawing(
            name="summary_dashboard",
            title="",
            panels=tuple(replace(drawing.panels[0], title=drawing.title) for drawing in shown),
            records=tuple({"figure": drawing.name, **record} for drawing in shown for record in drawing.records),
        )


TOPIC = Topic(
    figures={
        "summary_dashboard": FigureSpec(
            shows="The main figures on one sheet.",
            draw=_drawings,
            needs="swerve eval RUN, or swerve probe RUN",
        )
    }
)
