"""What a stage is given, and what it offers the loop."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from transformers import PreTrainedModel

from swerve.artifacts.run import RunDirectory
from swerve.config import Config
from swerve.problems import ProblemFamily
from swerve.progress import Progress
from swerve.rollout import Engine, SamplingParams
from swerve.seeds import derive_seed
from swerve.train.learner import Learner
from swerve.types import Problem
from swerve.world import World

__all__ = ["Figures", "StageContext", "StageRunner"]

Figures = Mapping[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """Everything a stage works with."""

    config: Config
    run: RunDirectory
    world: World
    family: ProblemFamily
    problems: Sequence[Problem]
    """Training problems."""
    learner: Learner
    engine: Engine
    stop_ids: tuple[int, ...]
    first_step: int
    """Global step before the stage's first update."""
    resumed: bool
    """Whether the stage goes on from a checkpoint inside it."""
    progress: Progress
    records: list[Mapping[str, Any]]
    """This stage's lines of the metrics so far; it grows as the stage goes on."""
    stage_start: Callable[[], PreTrainedModel]
    """Loads the policy that the stage began with."""
    raise_if_interrupted: Callable[[], None]
    """Raises InterruptedRunError if a signal asked for a stop: for work before the stage's first update."""

    def seed(self, *path: str | int) -> int:
        """Return the seed of a named stream of this run."""
        return derive_seed(self.config.seed, *path)

    def learning_rate_factor(self) -> float:
        """Return what the learning rate is multiplied by: less after each return to an earlier checkpoint."""
        factors = [record["lr_factor"] for record in self.records if "lr_factor" in record]
        return float(factors[-1]) if factors else 1.0

    def draw(self, stage: str, start: int, count: int) -> list[Problem]:
        """Return problems number `start` to `start + count` of the stage's endless shuffled passes over all."""
        num = len(self.problems)
        return [
            self.problems[_shuffled(num, self.seed(stage, "epoch", index // num))[index % num]]
            for index in range(start, start + count)
        ]

    def sampling(self, *, num_samples: int, temperature: float) -> SamplingParams:
        """Return sampling parameters with the run's length limit and stop tokens."""
        return SamplingParams(
            num_samples=num_samples,
            max_new_tokens=self.config.max_new_tokens,
            temperature=temperature,
            stop_ids=self.stop_ids,
        )


@lru_cache(maxsize=4)
def _shuffled(num: int, seed: int) -> tuple[int, ...]:
    order = list(range(num))
    random.Random(seed).shuffle(order)
    return tuple(order)


class StageRunner(Protocol):
    """One stage, ready to make its updates."""

    def step(self, index: int) -> Figures:
        """Make the update with 0-based number `index` of the stage; return what to log (None: not measured)."""
        ...
