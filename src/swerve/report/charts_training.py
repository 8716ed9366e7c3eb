"""The curves of training step by step, as the metrics have them: reward, failures, behaviours and the curriculum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from swerve.report.curves import Chart, Curve, Stage, Unit, stages
from swerve.report.inputs import ReportInputs
from swerve.report.values import Interval, finite, quoted

__all__ = ["training_charts"]

Record = Mapping[str, Any]
Shown = Literal["measured", "occurs", "varies"]
"""When a curve is worth drawing: always, unless it is 0 throughout, unless it is the same throughout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    name: str
    read: Callable[[Record], float | None]
    shown: Shown = "measured"


def _figure(key: str) -> Callable[[Record], float | None]:
    return lambda record: finite(record.get(key))


def _share(key: str) -> Callable[[Record], float | None]:
    """Return how to read a number of completions as a share of the step's completions."""

    def read(record: Record) -> float | None:
        number, total = finite(record.get(key)), finite(record.get("num_completions"))
        return number / total if number is not None and total else None

    return read


_CHARTS: tuple[tuple[str, str, Unit, tuple[_Line, ...]], ...] = (
    (
        "training-reward",
        "Reward in training",
        "reward",
        (_Line(name="Mean of the step's rollouts", read=_figure("reward")),),
    ),
    (
        "training-entropy",
        "Surprise of sampled tokens in training",
        "nats",
        (_Line(name="Mean of the step's rollouts", read=_figure("neg_logprob")),),
    ),
    (
        "training-failures",
        "Rollouts without a verdict in training",
        "rate",
        (
            _Line(name="No answer found", read=_share("num_unparsed"), shown="occurs"),
            _Line(name="Limit reached", read=_share("num_timeouts"), shown="occurs"),
            _Line(name="Grader failed", read=_share("num_errors"), shown="occurs"),
        ),
    ),
    (
        "training-responses",
        "Form of the rollouts in training",
        "share",
        (
            _Line(name="In the format asked for", read=_figure("format_rate")),
            _Line(name="Dummy thinking", read=_figure("dummy_thinking_share"), shown="occurs"),
            _Line(name="Repeated 4-grams", read=_figure("repeated_4gram_share"), shown="occurs"),
            _Line(name="Truncated", read=_figure("truncated_share"), shown="occurs"),
        ),
    ),
    (
        "training-reflections",
        "Reflection in training",
        "per_1000_words",
        (
            _Line(
                name=f"Phrases such as {quoted('wait')}",
                read=_figure("reflections_per_1000_words"),
                shown="occurs",
            ),
        ),
    ),
    (
        "training-difficulty",
        "Difficulty of the problems drawn",
        "difficulty",
        (_Line(name="Mean of the step's problems", read=_figure("mean_difficulty"), shown="varies"),),
    ),
    (
        "training-pool",
        "Problems drawn from",
        "share",
        (_Line(name="Share of the training problems", read=_figure("pool_share"), shown="varies"),),
    ),
)


def training_charts(inputs: ReportInputs) -> Iterator[Chart]:
    """Yield a chart for each group of figures that was measured and says something.

    A figure of what should not occur, such as a failure, is left out where it is 0 at every step, and one of the
    curriculum where it never changes.
    """
    shown = tuple(stages(inputs.evaluations))
    for id, title, unit, lines in _CHARTS:
        chart = _chart(inputs.metrics, lines, id=id, title=title, unit=unit, shown=shown)
        if chart.measured:
            yield chart


def _chart(
    metrics: tuple[Record, ...], lines: tuple[_Line, ...], *, id: str, title: str, unit: Unit, shown: tuple[Stage, ...]
) -> Chart:
    kept = [line for line in lines if _worth_drawing([line.read(record) for record in metrics], line.shown)]
    # Stages without any of the figures would only widen the axis.
    measured = {record["stage"] for record in metrics if any(line.read(record) is not None for line in kept)}
    records = [record for record in metrics if record["stage"] in measured]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(f"{record['stage']}-{record['stage_step']}" for record in records),
        steps=tuple(record["step"] for record in records),
        x_title="global step",
        curves=tuple(
            Curve(name=line.name, points=tuple(_point(line.read(record)) for record in records)) for line in kept
        ),
        stages=shown,
        has_intervals=False,
    )


def _worth_drawing(values: list[float | None], shown: Shown) -> bool:
    known = [value for value in values if value is not None]
    if shown == "occurs":
        return any(known)
    if shown == "varies":
        return len(set(known)) > 1
    return bool(known)


def _point(value: float | None) -> Interval | None:
    """Return a measured figure without an interval."""
    return None if value is None else Interval(mean=value, low=value, high=value)
