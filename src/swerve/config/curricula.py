"""Which problems a stage draws, and in which order."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from swerve.settings import Model, PositiveInt, Probability, Share, Words
from swerve.types import Problem


class StageFilter(Model):
    """Which training problems a stage or phase draws from; every condition must hold."""

    min_difficulty: float | None = None
    """Lowest difficulty; with a bound, problems without a difficulty are left out."""
    max_difficulty: float | None = None
    """Highest difficulty."""
    kinds: Words = ()
    """Kinds as evaluation names them; none: all."""

    def admits(self, problem: Problem) -> bool:
        """Whether a problem fulfils every condition."""
        low, high, difficulty = self.min_difficulty, self.max_difficulty, problem.difficulty
        if self.kinds and problem.kind not in self.kinds:
            return False
        if low is None and high is None:
            return True
        return difficulty is not None and (low is None or low <= difficulty) and (high is None or difficulty <= high)

    @model_validator(mode="after")
    def _check_bounds(self) -> StageFilter:
        low, high = self.min_difficulty, self.max_difficulty
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_difficulty ({low:g}) is above max_difficulty ({high:g}): no problem is in between")
        return self


class ShuffledCurriculum(Model):
    """Endless passes over all problems, each pass in another order."""

    kind: Literal["shuffled"] = "shuffled"


class DifficultyCurriculum(Model):
    """Easy problems first: the pool grows from the easiest ones to all, by the task's difficulty."""

    kind: Literal["difficulty"] = "difficulty"
    start_share: Share = 0.25
    """Share of the problems, the easiest ones, that the first step draws from."""
    ramp_steps: PositiveInt | None = None
    """Steps until the pool holds all problems; null: half of the stage."""


class SuccessRateCurriculum(Model):
    """Prefers problems that recent samples solved sometimes over those solved always or never."""

    kind: Literal["success_rate"] = "success_rate"
    target: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Success rate that is drawn most often; every problem is credited with one try at it beforehand."""
    exploration: Probability = 0.1
    """Share of the draws spread evenly over all problems."""
    memory: Probability = 0.5
    """Weight of earlier tries when a problem is tried again: 0 counts the last only, 1 counts all alike."""


OrderedCurriculum = Annotated[ShuffledCurriculum | DifficultyCurriculum, Field(discriminator="kind")]
"""Curricula that need no record of what was solved."""
Curriculum = Annotated[ShuffledCurriculum | DifficultyCurriculum | SuccessRateCurriculum, Field(discriminator="kind")]
