"""The phases of an RL stage, read from its metrics, by two definitions: by entropy, and by the length of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from swerve.artifacts.record import Record
from swerve.statistics.shapes import CurveShape, curve_shape

WINDOW = 5
"""Steps of a running mean."""


class Course(Record):
    """The phases of one RL stage by its entropy, in steps of the stage.

    Running means are over the last `WINDOW` steps. Consolidation lies between the end of exploration and the peak.
    """

    stage: str
    exploration_end: int | None
    """First step whose running entropy (`neg_logprob`, nats per token) has fallen by half of what it falls until the
    peak; null where it does not fall."""
    peak: int
    """Step with the highest running mean reward; of several the first."""
    peak_reward: float
    """That mean."""
    collapse: int | None
    """First step at which a collapse was named; null without one."""
    collapse_sign: str | None
    """The metric that showed it."""
    end: int
    """Last step."""

    def described(self) -> str:
        """Return the phases as one line.

        >>> Course(stage="rl", exploration_end=12, peak=40, peak_reward=0.61, collapse=None, collapse_sign=None,
        ...        end=50).described().partition("): ")[2]
        'exploration to step 12, consolidation to step 40, peak 0.61 there, no collapse, end at step 50.'
        """
        first = f"exploration to step {self.exploration_end}"
        if self.exploration_end is None:
            first = f"no fall of entropy before step {self.peak}"
        between = "" if self.exploration_end in (None, self.peak) else f"consolidation to step {self.peak}, "
        collapse = f"collapse from step {self.collapse} ({self.collapse_sign})" if self.collapse else "no collapse"
        return (
            f"Phases of {self.stage} by entropy (exploration: half of its fall to the peak of the reward): {first}, "
            f"{between}peak {self.peak_reward:.3g} there, {collapse}, end at step {self.end}."
        )


_ACCURACIES = {"eval_accuracy": "test accuracy", "accuracy": "training accuracy", "reward": "reward"}
"""What a collapse is seen in, the first that was measured often enough: key of the metrics -> name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPhases:
    """The phases of one RL stage as "Exploring Paths in Probabilistic Graphs" defines them.

    Exploration: the answers become longer. Consolidation: they become shorter again, while the entropy rises all the
    while. Collapse: the accuracy on test problems falls from its peak for good. `curve_shape` tells each from noise;
    `extreme_at` of the shapes is a step of the stage.
    """

    stage: str
    length: CurveShape
    """Of the completion length in training, tokens."""
    entropy: CurveShape | None
    """Of `neg_logprob`, nats per token; None where it was not measured."""
    accuracy: CurveShape
    """Of `accuracy_name`."""
    accuracy_name: str
    end: int
    """Last step."""

    @property
    def exploration_end(self) -> int | None:
        """Step at which the answers are longest; None where they do not become longer."""
        return self.length.extreme_at if self.length.name in ("rises", "up_then_down") else None

    @property
    def consolidates(self) -> bool:
        """Whether the answers become shorter again."""
        return self.length.name == "up_then_down"

    @property
    def collapse(self) -> int | None:
        """Step of the highest accuracy; None where it does not fall from there."""
        return self.accuracy.extreme_at if self.accuracy.name in ("falls", "up_then_down") else None

    def described(self) -> str:
        """Return the phases as one line, with the rule, and the first, highest and last levels."""
        explored = "no exploration" if self.exploration_end is None else f"exploration to step {self.exploration_end}"
        consolidated = f"consolidation to step {self.end}" if self.consolidates else "no consolidation"
        parts = [explored, f"{consolidated} (length {_levels(self.length)})"]
        if self.entropy is not None:
            rises = "rises" if self.entropy.name == "rises" else "does not rise"
            parts.append(f"entropy {rises} all the while ({_levels(self.entropy)})")
        parts.append("no collapse" if self.collapse is None else f"collapse from step {self.collapse}")
        return (
            f"Phases of {self.stage} by length (exploration: it rises; consolidation: it falls again while entropy "
            "rises; collapse: test accuracy falls from its peak for good): "
            f"{', '.join(parts)} ({self.accuracy_name} {_levels(self.accuracy)})."
        )


def _levels(shape: CurveShape) -> str:
    return f"{shape.first:.3g}, {shape.extreme:.3g}, {shape.last:.3g}"


def path_phases(records: Sequence[Mapping[str, Any]]) -> tuple[PathPhases, ...]:
    """Return the phases by length of every stage with rewards that has eight steps or more.

    Args:
        records: the lines of metrics.jsonl.
    """
    phases = []
    for stage, lines in _by_stage(records).items():
        length = _shape_of(lines, "completion_length")
        accuracies = ((name, _shape_of(lines, key)) for key, name in _ACCURACIES.items())
        name, accuracy = next(((name, shape) for name, shape in accuracies if shape), ("", None))
        if length is not None and accuracy is not None:
            entropy, end = _shape_of(lines, "neg_logprob"), int(lines[-1]["stage_step"])
            phases.append(
                PathPhases(stage=stage, length=length, entropy=entropy, accuracy=accuracy, accuracy_name=name, end=end)
            )
    return tuple(phases)


def _shape_of(lines: Sequence[Mapping[str, Any]], key: str) -> CurveShape | None:
    """Return the shape of a metric's curve over the steps that have it."""
    measured = [line for line in lines if line.get(key) is not None]
    shape = curve_shape([line[key] for line in measured])
    return shape and replace(shape, extreme_at=int(measured[shape.extreme_at]["stage_step"]))


def _by_stage(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the lines of each stage that has rewards."""
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record.get("reward") is not None:
            stages.setdefault(record["stage"], []).append(record)
    return stages


def stage_courses(records: Sequence[Mapping[str, Any]]) -> tuple[Course, ...]:
    """Return the phases by entropy of every stage with rewards that has `WINDOW` steps or more.

    Args:
        records: the lines of metrics.jsonl.

    >>> rewards, entropies = [0.1, 0.2, 0.4, 0.6, 0.8, 0.8, 0.2], [1.0, 0.9, 0.5, 0.3, 0.2, 0.2, 0.1]
    >>> lines = [{"stage": "rl", "stage_step": step, "reward": reward, "neg_logprob": entropy}
    ...          for step, (reward, entropy) in enumerate(zip(rewards, entropies), start=1)]
    >>> found, = stage_courses(lines)
    >>> found.exploration_end, found.peak, round(found.peak_reward, 2), found.end
    (6, 6, 0.56, 7)
    """
    courses = []
    for stage, lines in _by_stage(records).items():
        if len(lines) < WINDOW:
            continue
        steps = [int(line["stage_step"]) for line in lines[WINDOW - 1 :]]
        rewards = _running(lines, "reward")
        best = max(range(len(rewards)), key=rewards.__getitem__)

        # Exploration ends where half of the fall of the entropy until the peak is over, if it falls and is known.
        end = None
        if all(line.get("neg_logprob") is not None for line in lines):
            entropies = _running(lines, "neg_logprob")
            half = (entropies[0] + entropies[best]) / 2
            if entropies[best] < entropies[0]:
                end = next(step for step, entropy in zip(steps, entropies, strict=True) if entropy <= half)
        collapsed = next((line for line in lines if line.get("collapse")), None)
        courses.append(
            Course(
                stage=stage,
                exploration_end=end,
                peak=steps[best],
                peak_reward=rewards[best],
                collapse=None if collapsed is None else int(collapsed["stage_step"]),
                collapse_sign=None if collapsed is None else collapsed["collapse"],
                end=steps[-1],
            )
        )
    return tuple(courses)


def _running(lines: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    values = [float(line[key]) for line in lines]
    return [fmean(values[stop - WINDOW : stop]) for stop in range(WINDOW, len(values) + 1)]
