"""What a stage is given, and what it offers the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.run import RunDirectory
from swerve.batch import TokenSequence
from swerve.config.curricula import SuccessRateCurriculum
from swerve.config.recipe import Config
from swerve.problems import ProblemFamily
from swerve.progress import Progress
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.rewards import grade_all
from swerve.rollout import rollout_groups
from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.sync import PolicyEngine
from swerve.seeds import derive_seed
from swerve.train.columns import Member, PolicyStep
from swerve.train.curriculum import Draws
from swerve.train.learner import Learner
from swerve.train.phases import Phase
from swerve.types import Problem, Prompt, RolloutGroup
from swerve.world import World

Metrics = Mapping[str, Any]
"""What to log of a step, by name; None was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRollouts:
    """This process's groups of one step: those that it sampled, or what it learns from, which may be parts of some."""

    groups: Sequence[RolloutGroup]
    numbers: Sequence[int]
    """Each group's number within the step, over all processes."""
    rewards: Sequence[Sequence[float]]
    """The reward training uses of each completion of each group."""
    places: Sequence[Sequence[int]] = ()
    """Of each completion within its whole group; none: the groups are whole."""
    num_refills: int = 0
    """Rounds of sampling after the first."""
    drawn: Sequence[Problem] = ()
    """The problems of all processes' groups."""
    draw_metrics: Metrics = field(default_factory=dict)
    """What to log of the draw."""

    def varied(self) -> list[bool]:
        """Return whether each group's rewards differ."""
        return [len(set(values)) > 1 for values in self.rewards]

    def members(self) -> list[Member]:
        """Return which of the step's completions these are, one group after the other."""
        places = self.places or [range(len(group.rollouts)) for group in self.groups]
        return [Member(number, place) for number, own in zip(self.numbers, places, strict=True) for place in own]

    def sequences(self) -> list[TokenSequence]:
        """Return prompt and completion ids, one group after the other."""
        return [
            (group.prompt.token_ids, rollout.completion.token_ids)
            for group in self.groups
            for rollout in group.rollouts
        ]

    def whole(self, kept: Sequence[int]) -> StepRollouts:
        """Return some of the groups, which must be whole."""
        return replace(
            self,
            groups=[self.groups[index] for index in kept],
            numbers=[self.numbers[index] for index in kept],
            rewards=[self.rewards[index] for index in kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """Everything a stage works with."""

    config: Config
    run: RunDirectory
    world: World
    family: ProblemFamily
    draws: Draws
    """The training problems as the stage draws them."""
    learner: Learner
    engine: PolicyEngine
    stop_ids: tuple[int, ...]
    phase: Phase
    """The present one of the stage, or the only one."""
    first_step: int
    """Global step before the stage's first update."""
    resumed: bool
    """Whether the learner no longer has the policy that `stage_start` loads."""
    progress: Progress
    records: list[Mapping[str, Any]]
    """The phase's lines of the metrics so far, the stage's in one without phases; it grows with every step."""
    stage_start: Callable[[], PreTrainedModel]
    """Loads the policy that the stage began with, or a phase from which on there is another reference."""
    raise_if_interrupted: Callable[[], None]
    """Raises InterruptedRunError if a signal asked for a stop: for work before the stage's first update."""
    history: list[Mapping[str, Any]] = field(default_factory=list)
    """The run's lines of problems.jsonl so far; it grows with every step."""
    reweigh: Callable[[PolicyStep, StepRollouts, int], PolicyStep] | None = None
    """(what the updates learn from, rollouts, step from 0) -> the same with other weights: of a replay that leaves out
    groups."""
    pending: dict[int, StepRollouts] = field(default_factory=dict)
    """Rollouts that were sampled ahead, by the 0-based number of the step that learns from them: one step's at most."""

    def seed(self, *path: str | int) -> int:
        """Return the seed of a named stream of this run."""
        return derive_seed(self.config.seed, *path)

    def draw(self, slots: range, *, step: int, pool_step: int | None = None) -> list[Problem]:
        """Return the problems of some slots of the step with 0-based number `step`; see `Draws.draw`."""
        return self.draws.draw(slots, step=step, history=self.history, pool_step=pool_step)

    def draw_metrics(self, drawn: Sequence[Problem], *, step: int) -> Metrics:
        """Return what to log of the problems that a step draws, over all processes."""
        return self.draws.figures(drawn, step, self.history)

    @property
    def records_solved(self) -> bool:
        """Whether a stage of the run follows how often problems were solved."""
        return any(isinstance(stage.curriculum, SuccessRateCurriculum) for stage in self.config.stages)

    def record_solved(self, step: int, solved: Sequence[tuple[str, int, int]]) -> None:
        """Write down how many completions of each problem were right, for later steps' draws.

        Args:
            step: 0-based number in the stage.
            solved: problem id, right and all completions of each group, over all processes.
        """
        record = {"step": self.first_step + step + 1, "problems": [list(counts) for counts in solved]}
        self.history.append(record)
        if self.world.is_main:
            append_metrics(self.run.problems_path, record)

    def awake_engine(self, *, step: int) -> AbstractContextManager[Engine]:
        """Return the engine with the policy before the step with 0-based number `step`, awake inside a `with` block."""
        self.learner.drop_gradients()
        weights = self.learner.weights
        return self.engine.awake(weights.stream_weights(), version=self.first_step + step, gathered=weights.gathered)

    def encode(self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase | None = None) -> list[Prompt]:
        """Return the prompt of each problem; None for the tokenizer, here and below: that of the model in training."""
        return encode_prompts(tokenizer or self.learner.tokenizer, problems, template_arguments(self.config.model))

    def sample_groups(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> list[RolloutGroup]:
        """Return the graded completions of each prompt."""
        return rollout_groups(
            engine, tokenizer or self.learner.tokenizer, prompts, params, seeds=seeds, grade=grade_all
        )

    def sampling(self, *, num_samples: int, temperature: float, with_entropy: bool = False) -> SamplingParams:
        """Return sampling parameters with the run's length limit and stop tokens."""
        return SamplingParams(
            num_samples=num_samples,
            max_new_tokens=self.config.max_new_tokens,
            temperature=temperature,
            stop_ids=self.stop_ids,
            with_entropy=with_entropy,
        )


class StageRunner(Protocol):
    """One stage, ready to make its updates."""

    def step(self, index: int) -> Metrics:
        """Make the update with 0-based number `index` of the stage; return what to log (None: not measured)."""
        ...
