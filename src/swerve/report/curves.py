"""What a chart is: curves with their intervals over checkpoints, steps or shares of tokens, as plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from swerve.report.values import Interval

__all__ = ["UNIT_TITLES", "Chart", "Curve", "Level", "Stage", "Unit", "stages"]

Unit = Literal["share", "rate", "nats", "tokens", "reward", "per_1000_words", "difficulty"]
"""What the y axis counts; of a `share` it runs to 100%, of a `rate` as far as the curves do."""

UNIT_TITLES: Mapping[Unit, str] = {
    "share": "share",
    "rate": "share",
    "nats": "nats per token",
    "tokens": "tokens",
    "reward": "mean reward",
    "per_1000_words": "per 1,000 words",
    "difficulty": "difficulty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart: an interval, or None, at each of the chart's checkpoints."""

    name: str
    points: tuple[Interval | None, ...]

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
    """A figure that curves are to be read against: a horizontal line."""

    name: str
    value: Interval


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

    @property
    def measured(self) -> bool:
        """Whether there is anything to draw."""
        return any(curve.measured for curve in self.curves)


def stages(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Stage]:
    """Yield the stages of training, as far as evaluated checkpoints tell where they are."""
    ends: dict[str, Stage] = {}
    for entry in evaluations:
        name, step, stage_step = entry.get("stage"), entry["step"], entry.get("stage_step")
        if isinstance(name, str) and isinstance(stage_step, int):
            ends[name] = Stage(name=name, start=step - stage_step, end=step)
    yield from ends.values()
