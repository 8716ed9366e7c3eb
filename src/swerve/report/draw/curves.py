"""What a chart is: curves with their intervals over checkpoints, steps or shares of tokens, as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swerve.artifacts.evaluation import Evaluation
from swerve.estimates import Estimate

Unit = Literal["share", "rate", "nats", "tokens", "reward", "loss", "per_1000_words", "per_1000_tokens", "difficulty"]
"""What the y axis counts; of a `share` it runs to 100%, of a `rate` as far as the curves do."""

UNIT_TITLES: Mapping[Unit, str] = {
    "share": "fraction",
    "rate": "fraction",
    "nats": "nats per token",
    "tokens": "tokens",
    "reward": "mean reward",
    "loss": "loss",
    "per_1000_words": "per 1,000 words",
    "per_1000_tokens": "spikes per 1,000 tokens",
    "difficulty": "difficulty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart: an interval, or None, at each of the chart's checkpoints."""

    name: str
    points: tuple[Estimate | None, ...]

    @property
    def measured(self) -> bool:
        """Whether there is a point."""
        return any(point is not None for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a stage of training begins and ends, in global steps."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value that curves are to be read against: a horizontal line."""

    name: str
    value: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over checkpoints, or over shares of tokens."""

    id: str
    title: str
    unit: Unit
    labels: tuple[str, ...]
    """The checkpoints, such as `rl-30`."""
    steps: tuple[float, ...]
    """Position of each checkpoint on the x axis, increasing."""
    x_title: str
    x_unit: Literal["step", "share"] = "step"
    curves: tuple[Curve, ...]
    stages: tuple[Stage, ...]
    has_intervals: bool = True
    """Whether the points are estimates with an interval."""
    levels: tuple[Level, ...] = ()
    command: str = "swerve eval RUN"
    """What measures it."""

    @property
    def measured(self) -> bool:
        """Whether there is anything to draw."""
        return any(curve.measured for curve in self.curves)


def stages(evaluations: Sequence[Evaluation]) -> tuple[Stage, ...]:
    """Return the stages of training, as far as evaluated checkpoints tell where they are."""
    ends = {
        evaluation.stage: Stage(
            name=evaluation.stage, start=evaluation.step - evaluation.stage_step, end=evaluation.step
        )
        for evaluation in evaluations
        if evaluation.step
    }
    return tuple(ends.values())


def over_checkpoints(
    evaluations: Sequence[Evaluation],
    curves: Mapping[str, Callable[[Evaluation], Estimate | None]],
    *,
    id: str,
    title: str,
    unit: Unit,
) -> Chart:
    """Return the chart of what evaluations measured, by the name of each curve."""
    drawn = [
        Curve(name=name, points=tuple(read(evaluation) for evaluation in evaluations)) for name, read in curves.items()
    ]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(evaluation.checkpoint for evaluation in evaluations),
        steps=tuple(evaluation.step for evaluation in evaluations),
        x_title="global step",
        # A curve that was never measured (a family without a step checker) has no line and no legend entry.
        curves=tuple(curve for curve in drawn if curve.measured),
        stages=stages(evaluations),
    )
