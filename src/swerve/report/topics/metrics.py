"""Metrics: training step by step, and what calls for caution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from swerve.artifacts.metrics import StepMetrics
from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart, Curve, Unit, stages
from swerve.report.format import count, percent, quoted
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import Topic

Shown = Literal["measured", "occurs", "varies"]
"""When a curve is worth drawing: always, unless it is 0 throughout, unless it is the same throughout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    name: str
    read: Callable[[StepMetrics], float | None]
    shown: Shown = "measured"


def _fraction(name: str) -> Callable[[StepMetrics], float | None]:
    """Return how to read a number of completions as a fraction of the step's completions."""
    return lambda step: step.fraction(getattr(step, name))


_CHARTS: tuple[tuple[str, str, Unit, tuple[_Line, ...]], ...] = (
    (
        "training-reward",
        "Reward in training",
        "reward",
        (_Line(name="Mean of the step's rollouts", read=attrgetter("reward")),),
    ),
    (
        "training-entropy",
        "Surprise of sampled tokens in training",
        "nats",
        (_Line(name="Mean of the step's rollouts", read=attrgetter("neg_logprob")),),
    ),
    (
        "training-failures",
        "Rollouts without a verdict in training",
        "rate",
        (
            _Line(name="No answer found", read=_fraction("num_unparsed"), shown="occurs"),
            _Line(name="Limit reached", read=_fraction("num_timeouts"), shown="occurs"),
            _Line(name="Grader failed", read=_fraction("num_errors"), shown="occurs"),
        ),
    ),
    (
        "training-responses",
        "Form of the rollouts in training",
        "share",
        (
            _Line(name="In the format asked for", read=attrgetter("format_rate")),
            _Line(name="Dummy thinking", read=attrgetter("dummy_thinking_share"), shown="occurs"),
            _Line(name="Repeated 4-grams", read=attrgetter("repeated_4gram_share"), shown="occurs"),
            _Line(name="Truncated", read=attrgetter("truncated_share"), shown="occurs"),
        ),
    ),
    (
        "training-reflections",
        "Reflection in training",
        "per_1000_words",
        (
            _Line(
                name=f"Phrases such as {quoted('wait')}",
                read=attrgetter("reflections_per_1000_words"),
                shown="occurs",
            ),
        ),
    ),
    (
        "training-difficulty",
        "Difficulty of the problems drawn",
        "difficulty",
        (_Line(name="Mean of the step's problems", read=attrgetter("mean_difficulty"), shown="varies"),),
    ),
    (
        "training-pool",
        "Problems drawn from",
        "share",
        (_Line(name="Fraction of the training problems", read=attrgetter("pool_share"), shown="varies"),),
    ),
)


def _charts(inputs: ReportInputs) -> Iterator[Chart]:
    """Yield a chart for each group of metrics that was measured and says something.

    A metric of what should not occur, such as a failure, is left out where it is 0 at every step, and one of the
    curriculum where it never changes.
    """
    for id, title, unit, lines in _CHARTS:
        chart = _chart(inputs, lines, id=id, title=title, unit=unit)
        if chart.measured:
            yield chart


def _chart(inputs: ReportInputs, lines: tuple[_Line, ...], *, id: str, title: str, unit: Unit) -> Chart:
    kept = [line for line in lines if _worth_drawing([line.read(step) for step in inputs.metrics], line.shown)]
    # Stages without any of the metrics would only widen the axis.
    measured = {step.stage for step in inputs.metrics if any(line.read(step) is not None for line in kept)}
    steps = [step for step in inputs.metrics if step.stage in measured]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(f"{step.stage}-{step.stage_step}" for step in steps),
        steps=tuple(step.step for step in steps),
        x_title="global step",
        curves=tuple(Curve(name=line.name, points=tuple(_point(line.read(step)) for step in steps)) for line in kept),
        stages=stages(inputs.evaluations),
        has_intervals=False,
    )


def _worth_drawing(values: list[float | None], shown: Shown) -> bool:
    known = [value for value in values if value is not None]
    if shown == "occurs":
        return any(known)
    if shown == "varies":
        return len(set(known)) > 1
    return bool(known)


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


def _collapses(inputs: ReportInputs) -> Iterator[str]:
    """Say where training was found to have collapsed, and what followed."""
    for step in inputs.metrics:
        if step.collapse is not None:
            back = step.rolled_back_to
            after = "" if back is None else f" Training went back to the weights of step {count(back)} of the stage."
            message = step.collapse_message or step.collapse
            yield f"Stage {step.stage} collapsed at its step {count(step.stage_step)}: {message}.{after}"


def _ungraded(inputs: ReportInputs) -> str:
    """Say for how many completions the grader could not judge the answer."""
    statuses: Counter[str] = Counter()
    for one in inputs.evaluations:
        statuses.update(one.statuses)
    if not statuses["timeout"] and not statuses["error"]:
        return ""
    return (
        f"In the evaluations, {count(statuses['timeout'])} of {count(statuses.total())} completions reached a "
        f"limit of the grader and {count(statuses['error'])} made it fail; they count as wrong."
    )


TOPIC = Topic(sentences={"Caution": _caution}, charts=_charts)
