"""Everything a probe needs to know, wherever its models and rollouts come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swerve.artifacts.probe_summary import Compared
from swerve.artifacts.responses import Response
from swerve.config import ProbeConfig, RolloutConfig, RuntimeConfig
from swerve.models.sources import ModelSource
from swerve.rewards.checks import has_grader
from swerve.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What to compare, on which rollouts, how, and where the results go."""

    settings: ProbeConfig
    runtime: RuntimeConfig
    seed: int
    confidence: float
    """Level of all intervals."""
    max_new_tokens: int
    """Longest completion of the causal tests, in tokens."""
    reference: ModelSource
    checkpoints: tuple[ModelSource, ...]
    """By step."""
    final: str
    """Label of the checkpoint that the headline metrics and the causal tests are about; one of `checkpoints`."""
    steps: Mapping[str, int]
    """Global step of every model, by label; their order, where that is not known."""
    baseline: ModelSource | None
    """What the reference is compared with: how it differs was there before."""
    sequences: tuple[Response, ...]
    """Those of the headline population first."""
    population: str
    """Name of the headline population."""
    path: Path
    """Directory of the tables."""
    compared: Compared
    """First entries of the summary: labels, counts of problems and how they were selected."""
    prompts: Sequence[Prompt] = ()
    """Problems that cross-sampling answers."""
    signals: Sequence[Mapping[str, Any]] = ()
    """What training recorded of the sequences of population `training`: rows of `signals.parquet`."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """The engine that continues rollouts in the causal tests."""
    keep_statistics: bool = False
    """Keep the statistics of the tokens and the results of causal tests when the probe is complete."""
    notes: tuple[str, ...] = field(default=())
    """Caveats that the way the rollouts were found calls for."""

    @property
    def models(self) -> tuple[ModelSource, ...]:
        """Every model of the plan once: reference, checkpoints, baseline."""
        given = (self.reference, *self.checkpoints, *([self.baseline] if self.baseline else []))
        return tuple({one.label: one for one in given}.values())

    @property
    def states_path(self) -> Path:
        """Directory of hidden states, statistics and results of causal tests while they are needed."""
        return self.path / "states"

    @property
    def headline(self) -> tuple[Response, ...]:
        """The sequences of the headline population; without any nothing is measured, by no process."""
        return tuple(one for one in self.sequences if one.population == self.population)

    @property
    def has_verifier(self) -> bool:
        """Whether completions of the headline population can be graded: what the causal tests need."""
        return bool(self.headline) and all(has_grader(one.problem) for one in self.headline)
