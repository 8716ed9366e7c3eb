"""The figures of a run or a probe, drawn on matplotlib axes; `swerve report --figures` writes the same as files.

Every function takes a run (its path, its name under `runs/`, or a `Run`), or what `read_inputs` read of it, and
returns the axes of its panels. matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from swerve.artifacts.run import RunDirectory, find_run
from swerve.artifacts.study import Study, find_study, read_study
from swerve.errors import ArtifactError, ConfigError
from swerve.report.draw.figures import Drawing, draw, draw_figure, figure_of
from swerve.report.figures import drawings, figure_specs
from swerve.report.read import ReportInputs, read_inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "accuracy",
    "accuracy_by_difficulty",
    "baseline_comparison",
    "case_study",
    "category_kl_breakdown",
    "causal",
    "dose_response",
    "entropy",
    "entropy_reduction",
    "length",
    "line_plot_with_spikes",
    "mean_kl_progression",
    "null_spikes",
    "onset",
    "pairs",
    "recovery",
    "sampling",
    "spike_density_comparison",
    "spikes",
    "study_comparison",
    "summary_dashboard",
    "token_heat_map",
    "training_curves",
]

Source = str | Path | RunDirectory | ReportInputs


class PlotFunction(Protocol):
    """Draws a figure on `ax`, which is as many axes as it has panels, or on axes of its own; `problem` chooses one."""

    def __call__(
        self, source: Source, ax: Axes | Sequence[Axes] | None = None, *, problem: str | None = None
    ) -> tuple[Axes, ...]:
        """Draw the figure; return its axes."""


def _draw(drawing: Drawing, ax: Axes | Sequence[Axes] | None) -> tuple[Axes, ...]:
    """Draw a figure on axes of a user's, or on those of a new figure."""
    if ax is None:
        from matplotlib import pyplot

        return draw_figure(drawing, pyplot.figure)
    axes = tuple(ax) if isinstance(ax, Iterable) else (ax,)
    if len(axes) != len(drawing.panels):
        raise ConfigError(f"{drawing.name} has {len(drawing.panels)} panels; {len(axes)} axes were given")
    for panel, own in zip(drawing.panels, axes, strict=True):
        draw(panel, own, own.get_position().width * figure_of(own).get_size_inches()[0])
    if len(axes) == 1:
        axes[0].set_title(drawing.title)
    return axes


def _plot(name: str) -> PlotFunction:
    """Return the function of a figure."""

    def plot(
        source: Source, ax: Axes | Sequence[Axes] | None = None, *, problem: str | None = None
    ) -> tuple[Axes, ...]:
        inputs = source if isinstance(source, ReportInputs) else read_inputs(find_run(source))
        if problem is not None:
            inputs = replace(inputs, problems=(problem,))
        measured = drawings(inputs, (name,)).get(name)
        if measured is None:
            run = "RUN" if isinstance(source, ReportInputs) else find_run(source).quoted
            needs = figure_specs()[name].needs.replace("RUN", run)
            raise ArtifactError(f"{inputs.run_name} has no data for {name}; it needs: {needs}")
        return _draw(measured[0], ax)

    plot.__name__ = plot.__qualname__ = name
    plot.__doc__ = (
        f"Draw the figure `{name}` of a run (path, name or `Run`), or of one `problem`; return the axes of its panels."
    )
    return plot


accuracy: PlotFunction
accuracy_by_difficulty: PlotFunction
baseline_comparison: PlotFunction
case_study: PlotFunction
category_kl_breakdown: PlotFunction
causal: PlotFunction
dose_response: PlotFunction
entropy: PlotFunction
entropy_reduction: PlotFunction
length: PlotFunction
line_plot_with_spikes: PlotFunction
mean_kl_progression: PlotFunction
null_spikes: PlotFunction
onset: PlotFunction
pairs: PlotFunction
recovery: PlotFunction
sampling: PlotFunction
spike_density_comparison: PlotFunction
spikes: PlotFunction
summary_dashboard: PlotFunction
token_heat_map: PlotFunction
training_curves: PlotFunction

for _name in figure_specs():
    globals()[_name] = _plot(_name)


def study_comparison(source: str | Path | Study, ax: Axes | Sequence[Axes] | None = None) -> tuple[Axes, ...]:
    """Draw the differences of a study's variants from its baseline, with the intervals that its verdicts rest on.

    Args:
        source: the study's directory, its name under `runs/studies/`, or its record.
        ax: where to draw; None: on axes of its own.

    Raises:
        ArtifactError: there is no study, or nothing in it can be compared yet.
    """
    from swerve.report.study import study_drawings

    study = source if isinstance(source, Study) else read_study(find_study(source) or Path(source))
    drawing = study_drawings(study).get("study_comparison")
    if drawing is None:
        raise ArtifactError(f"the study {study.name} has no two variants with an evaluation to compare")
    return _draw(drawing, ax)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
