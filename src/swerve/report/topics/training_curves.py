"""Training curves: the metrics of every step, and what calls for caution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swerve.artifacts.metrics import StepMetrics
from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart, Curve, Stage, Unit
from swerve.report.draw.figures import Drawing, chart_rows, draw_chart, grid_of
from swerve.report.format import count, number, percent, quoted
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEAN = "Mean of the step's rollouts"
_CHARTS: tuple[tuple[str, str, Unit, Mapping[str, str]], ...] = (
    ("training-reward", "Reward in training", "reward", {_MEAN: "reward"}),
    ("training-validation", "Validation loss in training", "nats", {"Mean per token": "val_loss"}),
    ("training-entropy", "Surprise of sampled tokens in training", "nats", {_MEAN: "neg_logprob"}),
    (
        "training-failures",
        "Rollouts without a verdict in training",
        "rate",
        {"No answer found": "num_unanswered", "Limit reached": "num_timeouts", "Grader failed": "num_errors"},
    ),
    (
        "training-responses",
        "Form of the rollouts in training",
        "share",
        {
            "In the format asked for": "format_rate",
            "Dummy thinking": "dummy_thinking_share",
            "Repeated 4-grams": "repeated_4gram_share",
            "Truncated": "truncated_share",
        },
    ),
    (
        "training-reflections",
        "Reflection in training",
        "per_1000_words",
        {f"Phrases such as {quoted('wait')}": "reflections_per_1000_words"},
    ),
    (
        "training-difficulty",
        "Difficulty of the problems drawn",
        "difficulty",
        {"Mean of the step's problems": "mean_difficulty"},
    ),
    (
        "training-mismatch",
        "Log-probabilities of sampler against trainer",
        "nats",
        {"Mean": "logprob_gap", "First quarter": "logprob_gap_q1", "Last quarter": "logprob_gap_q4"},
    ),
    ("training-pool", "Problems drawn from", "share", {"Fraction of the training problems": "pool_share"}),
)
"""Id, title, unit, and the metric of each curve."""
_ALWAYS = ("reward", "neg_logprob", "format_rate", "val_loss")
_AT_SOME_STEPS = ("training-validation",)
"""Charts of what is not measured at every step: the others are left out, so that the curve has no gaps."""
_IF_VARYING = ("mean_difficulty", "pool_share")
_ROUNDING = 1e-3
"""Nats per token; sampler and trainer that differ by less are not drawn."""


def _charts(inputs: ReportInputs) -> Iterator[Chart]:
    """Yield a chart for each group of metrics that was measured and says something.

    A metric of what should not occur, such as a failure, is left out where it is 0 at every step, one of the
    curriculum where it never changes, and the difference of sampler and trainer where it is rounding.
    """
    for id, title, unit, metrics in _CHARTS:
        chart = _chart(inputs, metrics, id=id, title=title, unit=unit)
        if chart.measured:
            yield chart


def _chart(inputs: ReportInputs, metrics: Mapping[str, str], *, id: str, title: str, unit: Unit) -> Chart:
    read = {name: [_value(step, key) for step in inputs.metrics] for name, key in metrics.items()}
    kept = {name: values for name, values in read.items() if _worth_drawing(values, metrics[name])}
    # Stages without any of the metrics would only widen the axis.
    is_known = [any(value is not None for value in row) for row in zip(*kept.values(), strict=True)]
    measured = {step.stage for step, known in zip(inputs.metrics, is_known, strict=False) if known}
    shown = [
        (at, step)
        for at, step in enumerate(inputs.metrics)
        if step.stage in measured and (is_known[at] or id not in _AT_SOME_STEPS)
    ]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(f"{step.stage}-{step.stage_step}" for _, step in shown),
        steps=tuple(step.step for _, step in shown),
        x_title="global step",
        curves=tuple(
            Curve(name=name, points=tuple(_point(values[at]) for at, _ in shown)) for name, values in kept.items()
        ),
        stages=_stages(inputs.metrics),
        has_intervals=False,
    )


def _stages(metrics: Sequence[StepMetrics]) -> tuple[Stage, ...]:
    """Return where the stages are, and within a stage its phases."""
    stages: dict[str, Stage] = {}
    for metric in metrics:
        name = metric.stage if metric.phase is None else f"{metric.stage}, phase {metric.phase}"
        stages[name] = Stage(
            name=name, start=stages[name].start if name in stages else metric.step - 1, end=metric.step
        )
    return tuple(stages.values())


def _value(step: StepMetrics, key: str) -> float | None:
    """Return a metric; a number of completions as a fraction of the step's completions."""
    value: float | None = getattr(step, key)
    return step.fraction(value) if key.startswith("num_") else value


def _worth_drawing(values: list[float | None], key: str) -> bool:
    known = [value for value in values if value is not None]
    if key in _IF_VARYING:
        return len(set(known)) > 1
    if key.startswith("logprob_gap"):
        return any(value > _ROUNDING for value in known)
    return bool(known) if key in _ALWAYS else any(known)


def _point(value: float | None) -> Estimate | None:
    """Return a measured value without an interval."""
    return None if value is None else Estimate(mean=value, low=value, high=value)


def _caution(inputs: ReportInputs) -> Iterator[str]:
    if inputs.summary is not None and not inputs.summary.reliable:
        yield "The probe had too few rollouts for its metrics to be relied upon."
    yield from _collapses(inputs)
    yield _ungraded(inputs)
    for step in inputs.metrics:
        if step.stopped_error_share is not None:
            yield (
                f"Stage {step.stage} stopped at its step {count(step.stage_step)}, as "
                f"{percent(step.stopped_error_share)} of its last completions could not be graded."
            )
        if step.stopped_logprob_gap is not None:
            yield (
                f"Stage {step.stage} stopped at its step {count(step.stage_step)}, as the log-probabilities of sampler "
                f"and trainer differed by {number(step.stopped_logprob_gap)} nats per token."
            )


def _collapses(inputs: ReportInputs) -> Iterator[str]:
    """Say where training was found to have collapsed, and what followed."""
    for step in inputs.metrics:
        if step.collapse is not None:
            message = step.collapse_message or step.collapse
            yield f"Stage {step.stage} collapsed at its step {count(step.stage_step)}: {message}."


def _ungraded(inputs: ReportInputs) -> str:
    """Say for how many completions the grader could not judge the answer."""
    statuses: Counter[str] = Counter()
    for evaluation in inputs.evaluations:
        statuses.update(evaluation.statuses)
    if not statuses["timeout"] and not statuses["error"]:
        return ""
    return (
        f"In the evaluations, {count(statuses['timeout'])} of {count(statuses.total())} completions reached a "
        f"limit of the grader and {count(statuses['error'])} made it fail; they count as wrong."
    )


def _drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    if charts := list(_charts(inputs)):
        columns = min(2, len(charts))
        yield Drawing(
            name="training_curves",
            draw=partial(_draw_curves, charts=charts),
            rows=tuple({"metric": chart.title, **row} for chart in charts for row in chart_rows(chart)),
            panels=grid_of(len(charts), columns),
            size=(6.0 * columns, 2.6 * math.ceil(len(charts) / columns)),
        )


def _draw_curves(*panels: Axes, charts: Sequence[Chart]) -> None:
    for axes, chart in zip(panels, charts, strict=True):
        draw_chart(axes, chart=chart)


TOPIC = Topic(
    sentences={"Caution": _caution},
    charts=_charts,
    figures={
        "training_curves": FigureSpec(
            shows="The metrics of every step of training.", draw=_drawings, needs="swerve train"
        )
    },
)
