"""The figures of a run or a probe, drawn on matplotlib axes; `swerve report --figures` writes the same as files.

Every function takes a run (its path, its name under `runs/`, or a `Run`), or what `read_inputs` read of it.
matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from swerve.artifacts.run import RunDirectory, find_run
from swerve.artifacts.study import Study, find_study, read_study
from swerve.errors import ArtifactError
from swerve.report.draw.figures import draw_panels
from swerve.report.figures import figure_specs
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
    "reward",
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
    """Draws a figure of one panel, on `ax` or on axes of its own; `problem` chooses that of a figure about one."""

    def __call__(self, source: Source, ax: Axes | None = None, *, problem: str | None = None) -> Axes:
        """Draw the figure; return its axes."""


class SheetFunction(Protocol):
    """Draws a figure of several panels; `problem` chooses that of a figure about one."""

    def __call__(self, source: Source, *, problem: str | None = None) -> tuple[Axes, ...]:
        """Draw the figure; return the axes of its panels."""


def _draw(name: str, source: Source, ax: Axes | None, problem: str | None) -> tuple[Axes, ...]:
    from matplotlib import pyplot

    inputs = source if isinstance(source, ReportInputs) else read_inputs(find_run(source))
    if problem is not None:
        inputs = replace(inputs, problems=(problem,))
    spec = figure_specs()[name]
    drawing = next(iter(spec.draw(inputs)), None)
    if drawing is None:
        needs = spec.needs if isinstance(source, ReportInputs) else spec.needs.replace("RUN", find_run(source).quoted)
        raise ArtifactError(f"{inputs.run_name} has no data for {name}; it needs: {needs}")
    return draw_panels(drawing, pyplot.figure, ax)


_Function = TypeVar("_Function", PlotFunction, SheetFunction)


def _named(draw: _Function, name: str) -> _Function:
    """Return a function under the name of its figure, with a line of documentation."""
    function: Any = draw
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Draw the figure `{name}` of a run (path, name or `Run`), or of one `problem`; return its axes."
    return draw


def _plot(name: str) -> PlotFunction:
    def draw(source: Source, ax: Axes | None = None, *, problem: str | None = None) -> Axes:
        return _draw(name, source, ax, problem)[0]

    return _named(draw, name)


def _sheet(name: str) -> SheetFunction:
    def draw(source: Source, *, problem: str | None = None) -> tuple[Axes, ...]:
        return _draw(name, source, None, problem)

    return _named(draw, name)


accuracy = _plot("accuracy")
accuracy_by_difficulty = _plot("accuracy_by_difficulty")
baseline_comparison = _plot("baseline_comparison")
case_study = _sheet("case_study")
category_kl_breakdown = _plot("category_kl_breakdown")
causal = _plot("causal")
dose_response = _sheet("dose_response")
entropy = _plot("entropy")
entropy_reduction = _plot("entropy_reduction")
length = _plot("length")
line_plot_with_spikes = _plot("line_plot_with_spikes")
mean_kl_progression = _plot("mean_kl_progression")
null_spikes = _plot("null_spikes")
onset = _plot("onset")
pairs = _plot("pairs")
recovery = _plot("recovery")
reward = _plot("reward")
sampling = _plot("sampling")
spike_density_comparison = _plot("spike_density_comparison")
spikes = _plot("spikes")
summary_dashboard = _sheet("summary_dashboard")
token_heat_map = _plot("token_heat_map")
training_curves = _sheet("training_curves")


def study_comparison(source: str | Path | Study, ax: Axes | None = None) -> Axes:
    """Draw the differences of a study's variants from its baseline, over seeds and over problems.

    Args:
        source: the study's directory, its name under `runs/studies/`, or its record.
        ax: where to draw; None: on axes of its own.

    Raises:
        ArtifactError: there is no study, or nothing in it can be compared yet.
    """
    from matplotlib import pyplot

    from swerve.report.study import study_drawings

    study = source if isinstance(source, Study) else read_study(find_study(source) or Path(source))
    drawing = next((drawing for drawing in study_drawings(study) if drawing.name == "study_comparison"), None)
    if drawing is None:
        raise ArtifactError(f"the study {study.name} has no two variants with an evaluation to compare")
    return draw_panels(drawing, pyplot.figure, ax)[0]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
