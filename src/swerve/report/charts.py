"""The curves of a run as plain numbers: drawn by the page and, from the same records, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from swerve.report.inputs import ReportInputs
from swerve.report.values import DIVERGENCE_NAMES, Interval, interval

__all__ = ["Chart", "Curve", "Stage", "all_charts"]

Unit = Literal["share", "nats", "tokens", "reward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart: an interval, or None, at each of the chart's checkpoints."""

    name: str
    points: tuple[Interval | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a stage of training begins and ends, in global steps."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over checkpoints."""

    id: str
    title: str
    unit: Unit
    labels: tuple[str, ...]
    """The checkpoints, such as `rl-30`."""
    steps: tuple[int, ...]
    """Position of each checkpoint on the x axis."""
    x_title: str
    curves: tuple[Curve, ...]
    stages: tuple[Stage, ...]
    has_intervals: bool = True
    """Whether the points are estimates with an interval."""

    @property
    def measured(self) -> bool:
        """Whether there is anything to draw."""
        return any(point is not None for curve in self.curves for point in curve.points)


def all_charts(inputs: ReportInputs) -> tuple[Chart, ...]:
    """Return the charts of the page, in order; one whose figures are missing has no points."""
    accuracy = {"accuracy": "Greedy accuracy", "mean_reward": "Sampled reward", "trace_right": "Fully right traces"}
    return (
        _evaluation_chart(inputs, id="accuracy", title="Accuracy on held-out problems", unit="share", keys=accuracy),
        _divergence_chart(inputs),
        _evaluation_chart(
            inputs, id="entropy", title="Token entropy", unit="nats", keys={"entropy": "Mean entropy of a token"}
        ),
        _evaluation_chart(
            inputs, id="length", title="Response length", unit="tokens", keys={"num_tokens": "Mean length"}
        ),
        *_training_charts(inputs),
    )


def _training_charts(inputs: ReportInputs) -> Iterator[Chart]:
    """Yield the curves of the stages that sample, step by step, as the metrics have them."""
    records = [record for record in inputs.metrics if record.get("reward") is not None]
    if not records:
        return
    charts: Sequence[tuple[str, str, Unit, str]] = (
        ("training-reward", "Reward in training", "reward", "reward"),
        ("training-entropy", "Surprise of sampled tokens in training", "nats", "neg_logprob"),
    )
    for id, title, unit, key in charts:
        yield Chart(
            id=id,
            title=title,
            unit=unit,
            labels=tuple(f"{record['stage']}-{record['stage_step']}" for record in records),
            steps=tuple(record["step"] for record in records),
            x_title="global step",
            curves=(
                Curve(name="Mean of the step's rollouts", points=tuple(_point(record.get(key)) for record in records)),
            ),
            stages=tuple(_stages(inputs.evaluations)),
            has_intervals=False,
        )


def _point(value: float | None) -> Interval | None:
    """Return a measured figure without an interval."""
    return None if value is None else Interval(mean=value, low=value, high=value)


def _stages(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Stage]:
    ends: dict[str, Stage] = {}
    for entry in evaluations:
        name, step, stage_step = entry.get("stage"), entry["step"], entry.get("stage_step")
        if isinstance(name, str) and isinstance(stage_step, int):
            ends[name] = Stage(name=name, start=step - stage_step, end=step)
    yield from ends.values()


def _evaluation_chart(
    inputs: ReportInputs,
    *,
    id: str,
    title: str,
    unit: Unit,
    keys: Mapping[str, str],
) -> Chart:
    entries = inputs.evaluations
    curves = [
        Curve(name=name, points=tuple(interval(entry.get(key)) for entry in entries)) for key, name in keys.items()
    ]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(entry["checkpoint"] for entry in entries),
        steps=tuple(entry["step"] for entry in entries),
        x_title="global step",
        # A curve that was never measured (a family without a step checker) has no line and no legend entry.
        curves=tuple(curve for curve in curves if any(point is not None for point in curve.points)),
        stages=tuple(_stages(entries)),
    )


def _own_step(label: str) -> int:
    match = re.search(r"(\d+)$", label)
    return int(match.group(1)) if match else 0


def _divergence_chart(inputs: ReportInputs) -> Chart:
    entries = [] if inputs.summary is None else list(inputs.summary.get("divergences") or [])
    labels = tuple(str(entry["checkpoint"]) for entry in entries)
    steps = [inputs.step(label) for label in labels]
    known = [step for step in steps if step is not None]
    is_global = len(known) == len(steps)
    own = [_own_step(label) for label in labels]
    rows = sorted(zip(known if is_global else own, labels, entries, strict=True), key=lambda row: row[0])
    return Chart(
        id="divergence",
        title="Divergence from the reference on its wrong rollouts",
        unit="nats",
        labels=tuple(label for _, label, _ in rows),
        steps=tuple(step for step, _, _ in rows),
        x_title="global step" if is_global else "step of the stage",
        curves=tuple(
            Curve(name=name, points=tuple(interval(entry.get(key)) for _, _, entry in rows))
            for key, name in DIVERGENCE_NAMES.items()
        ),
        stages=tuple(_stages(inputs.evaluations)) if is_global else (),
    )
