"""The phases of an RL stage, read from its metrics. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from swerve.artifacts.record import Record

WINDOW = 5
"""Steps of a running mean."""


class Course(Record):
    """The phases of one RL stage, by steps of the stage.

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
        ...        end=50).described()
        'Course of rl: exploration to step 12, consolidation to step 40, peak 0.61 there, no collapse, end at step 50.'
        """
        explored = "exploration to step" if self.exploration_end is not None else "no fall of entropy before step"
        first = f"{explored} {self.peak if self.exploration_end is None else self.exploration_end}"
        between = "" if self.exploration_end in (None, self.peak) else f"consolidation to step {self.peak}, "
        collapse = f"collapse from step {self.collapse} ({self.collapse_sign})" if self.collapse else "no collapse"
        return (
            f"Course of {self.stage}: {first}, {between}peak {self.peak_reward:.3g} there, {collapse}, "
            f"end at step {self.end}."
        )


def stage_courses(records: Sequence[Mapping[str, Any]]) -> tuple[Course, ...]:
    """Return the course of every stage with rewards that has `WINDOW` steps or more.

    Args:
        records: the lines of metrics.jsonl.

    >>> rewards, entropies = [0.1, 0.2, 0.4, 0.6, 0.8, 0.8, 0.2], [1.0, 0.9, 0.5, 0.3, 0.2, 0.2, 0.1]
    >>> lines = [{"stage": "rl", "stage_step": step, "reward": reward, "neg_logprob": entropy}
    ...          for step, (reward, entropy) in enumerate(zip(rewards, entropies), start=1)]
    >>> found, = stage_courses(lines)
    >>> found.exploration_end, found.peak, round(found.peak_reward, 2), found.end
    (6, 6, 0.56, 7)
    """
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record.get("reward") is not None:
            stages.setdefault(record["stage"], []).append(record)
    return tuple(_course(stage, lines) for stage, lines in stages.items() if len(lines) >= WINDOW)


def _course(stage: str, lines: Sequence[Mapping[str, Any]]) -> Course:
    steps = [int(line["stage_step"]) for line in lines[WINDOW - 1 :]]
    rewards = _running([line["reward"] for line in lines])
    best = max(range(len(rewards)), key=rewards.__getitem__)
    collapsed = next((line for line in lines if line.get("collapse")), None)
    return Course(
        stage=stage,
        exploration_end=_exploration_end(lines, steps, best),
        peak=steps[best],
        peak_reward=rewards[best],
        collapse=None if collapsed is None else int(collapsed["stage_step"]),
        collapse_sign=None if collapsed is None else collapsed["collapse"],
        end=steps[-1],
    )


def _running(values: Sequence[float]) -> list[float]:
    return [fmean(values[stop - WINDOW : stop]) for stop in range(WINDOW, len(values) + 1)]


def _exploration_end(lines: Sequence[Mapping[str, Any]], steps: Sequence[int], best: int) -> int | None:
    """Return the step at which half of the fall of the entropy until the peak is over; None where it does not fall."""
    entropies = [line.get("neg_logprob") for line in lines]
    if any(entropy is None for entropy in entropies):
        return None
    running = _running([float(entropy) for entropy in entropies if entropy is not None])
    lowest = running[best]
    if lowest >= running[0]:
        return None
    half = (running[0] + lowest) / 2
    return next(step for step, entropy in zip(steps, running, strict=True) if entropy <= half)
