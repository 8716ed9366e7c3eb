"""A run's training made once more, in memory, from the rollouts that it recorded: nothing is sampled.

Nothing is written to the run either: what the stages write goes to a folder for temporary files.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.responses import response_from_row
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.config.stages import DistillStage, DpoStage, RlStage, StageConfig
from swerve.config.supervised_stages import RejectStage
from swerve.errors import ArtifactError, ConfigError
from swerve.interruption import Interruption
from swerve.models.model_folder import declare_stop_ids, read_trainer_state, resolve_device
from swerve.models.runtime import apply_runtime
from swerve.models.starting_model import starting_model
from swerve.problems import load_family
from swerve.progress import Progress
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.loader import load_config
from swerve.rewards.checks import problems_digest
from swerve.rollout.engine import Engine, make_engine
from swerve.rollout.sync import PolicyEngine
from swerve.seeds import derive_seed
from swerve.train.changes import RESTORE, UNCHANGED, Variation, read_rollouts
from swerve.train.checkpointer import SavedState, checkpoint_after
from swerve.train.checks import check_machine
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.curriculum import stage_draws
from swerve.train.custom_parts import check_unchanged, custom_digests, load_custom_parts
from swerve.train.early_stopping import best_step, is_over
from swerve.train.engine_check import engine_check
from swerve.train.loop import phases_to_train, trained_weights
from swerve.train.phases import phases_of
from swerve.train.replicated_model import trained_names
from swerve.train.rollouts import PENDING, step_of_rows
from swerve.train.sampling import StepSampler
from swerve.train.session import Session
from swerve.train.sharded_model import load_for
from swerve.train.stages import make_runner
from swerve.types import Problem
from swerve.world import joined_world


@dataclass(frozen=True, slots=True)
class ReadRun(RunDirectory):
    """A run that is read, while what its stages write goes to another folder."""

    scratch: Path

    @property
    def problems_path(self) -> Path:
        """See the base class."""
        return self.scratch / "problems.jsonl"

    @property
    def initial_path(self) -> Path:
        """See the base class."""
        return self.scratch / "initial"

    def rollouts_path(self, step: int) -> Path:
        """See the base class."""
        return self.scratch / f"step_{step:06d}.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """A step that was made once more, and the model after it."""

    position: CheckpointRef
    """What a checkpoint after it is or would be; the stage's end where the stage stopped early."""
    metrics: Metrics
    context: StageContext

    @property
    def written(self) -> Path:
        """Where the step's rollouts are as it wrote them; only steps that sample have some."""
        return self.context.run.rollouts_path(self.step)

    @property
    def step(self) -> int:
        """Global number of the step."""
        return self.context.first_step + int(self.metrics["stage_step"])


@contextmanager
def replay_session(config: Config, run: RunDirectory, progress: Progress) -> Iterator[Session]:
    """Check that a run can be made once more here, and yield a session that reads it.

    Raises:
        ConfigError: the run's code, data or problems are others than it began with, or a stage kept no rollouts.
        StalledProcessError: another process failed or did not come in time.
    """
    # Code and data of the user's own are those that the run began with, and this machine can do what is asked.
    check_unchanged(custom_digests(config), run, to="replay")
    load_custom_parts(config)
    check_machine(config)
    for stage in config.stages:
        if isinstance(stage, RlStage | DistillStage) and not stage.keep_rollouts:
            raise ConfigError(
                f"{run.path} has no rollouts of stage '{stage.label}' (stages.{stage.label}.keep_rollouts=false): only "
                "a run that keeps them can be replayed"
            )
    apply_runtime(config.runtime)
    with (
        tempfile.TemporaryDirectory(prefix="swerve-replay-") as folder,
        joined_world(
            resolve_device(config.runtime.device),
            timeout=config.runtime.collective_timeout,
            also_alone=config.runtime.sharding.kind != "none",
        ) as world,
    ):
        if run.problems_path.is_file():
            shutil.copy(run.problems_path, folder)
        # What was sampled ahead is read when its step comes.
        config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"ahead": 0})})
        reading = ReadRun(run.path, Path(folder))
        yield Session(config=config, run=reading, world=world, progress=progress, interruption=Interruption())


def training_problems(session: Session) -> list[Problem]:
    """Return the problems that the run drew from.

    Raises:
        ConfigError: they are others than it began with.
    """
    config, run = session.config, session.run
    problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
    if run.read_provenance().get("problems_sha256", digest := problems_digest(problems)) != digest:
        raise ConfigError(
            f"cannot replay {run.path}: its training problems, or what grades them, have changed since the run began; "
            "restore the files that the task names"
        )
    return problems


def replayed_steps(
    session: Session,
    problems: Sequence[Problem],
    *,
    start: CheckpointRef | None,
    stop: int,
    variation: Variation = UNCHANGED,
) -> Iterator[ReplayedStep]:
    """Make the steps after a checkpoint once more from the rollouts on disk, and yield each before the next is made.

    All processes must go through it together.

    Args:
        session: of `replay_session`.
        problems: of `training_problems`.
        start: with its trainer's state, unless it is the last of its stage; None: the beginning of the run.
        stop: global step that is the last.
        variation: what is otherwise than it was.

    Raises:
        ArtifactError: a step's rollouts are missing or damaged.
    """
    run, world, config = session.run, session.world, session.config
    if variation.settings:
        keys = [f"stages.{config.stages[-1].label}.{setting}" for setting in variation.settings]
        changed = load_config(RunDirectory(run.path), *keys)
        config = config.model_copy(update={"stages": with_steps(changed, data_sizes(changed)).stages})
        session = replace(session, config=config)
    family = load_family(config.task)
    state = _state_of(start, session)
    if state is None:
        model, tokenizer = starting_model(config, run, family, world)
    else:
        model, tokenizer = state.loaded.model, state.loaded.tokenizer
    weights = trained_weights(session, model)
    declare_stop_ids(model, tokenizer)
    draws = {stage.label: stage_draws(phases_of(stage), family, problems, seed=config.seed) for stage in config.stages}
    moments = {} if state is None else dict(state.trainer)
    moments.pop(PENDING, None)  # they are on disk, too
    if variation.settings and "optimizer" in moments:  # of what is frozen now nothing is needed
        trained = set(trained_names(model, config.stages[-1].freeze))
        kept = {key: value for key, value in moments["optimizer"].items() if key.rpartition("/")[0] in trained}
        moments["optimizer"] = kept

    def make() -> Engine:
        if not (variation.again or variation.seed):
            raise AssertionError("a replay of recorded rollouts samples nothing")
        return make_engine(config.rollout.engine, model, tokenizer, max_rows=config.runtime.max_rows)

    engine_of_policy = PolicyEngine(make, engine_check(config, weights, tokenizer, problems), world)
    with closing(engine_of_policy) as engine:
        for phase, steps, context in phases_to_train(
            session, family, draws, weights, tokenizer, engine, start, moments
        ):
            if context.first_step + steps.start >= stop:
                return
            for step in _phase_steps(phase.stage, context, steps, variation):
                yield step
                if step.position.step >= stop:
                    return


def _phase_steps(
    stage: StageConfig, context: StageContext, steps: range, variation: Variation
) -> Iterator[ReplayedStep]:
    """Make the steps of a phase."""
    context = replace(context, reweigh=variation.weighted)
    if variation.seed:  # of what is drawn by chance in a step; the problems have their own
        seed = derive_seed(context.config.seed, "replay", variation.seed)
        context = replace(context, config=context.config.model_copy(update={"seed": seed}))
    if variation.tokens_per_batch is not None:
        stage = stage.model_copy(update={"tokens_per_batch": variation.tokens_per_batch})
    # Pairs and completions that were selected at the stage's beginning are read as where training is resumed.
    is_collected = isinstance(stage, DpoStage | RejectStage)
    context = replace(context, resumed=True) if is_collected else context
    runner, best_weights = make_runner(stage, context), None
    for index in steps:
        if isinstance(stage, RlStage | DistillStage):
            context.pending[index] = _given_rollouts(stage, context, index, variation)
        torch.manual_seed(context.seed(stage.label, "step", index, context.world.rank))  # for dropout
        metrics: dict[str, Any] = {} if context.phase.number is None else {"phase": context.phase.number}
        metrics |= {"stage_step": index + 1, **runner.step(index)}
        context.records.append(metrics)
        # A stage ends with its best weights, and where it stops early at its last step.
        position = checkpoint_after(stage, context.first_step + index + 1, index + 1, context.run)
        best, is_last = best_step(context.records), position.final or is_over(stage, context.records)
        if best == index + 1:
            best_weights = deepcopy(context.learner.model)
        if is_last:
            position = checkpoint_after(stage, context.first_step + stage.steps, stage.steps, context.run)
            if best not in (None, index + 1) and best_weights is not None:
                context.learner.weights.load_weights(best_weights)
        yield ReplayedStep(position=position, metrics=metrics, context=context)
        if is_last:
            return


def _given_rollouts(
    stage: RlStage | DistillStage, context: StageContext, index: int, variation: Variation
) -> StepRollouts:
    """Return what a step learns from: what was recorded or is sampled now, with what is changed in it."""
    if (variation.again and index > variation.first) or (variation.seed and index >= variation.first):
        rollouts = StepSampler(stage, context).sample(index)
    else:
        step = context.first_step + index + 1
        rows = read_rollouts(RunDirectory(context.run.path), step)
        try:
            _check_rows(rows, stage, context)
            rollouts = step_of_rows(rows, stage, context, index)
            _check_prompts(rollouts, context)
        except ArtifactError as error:
            path = RunDirectory(context.run.path).rollouts_path(step)
            raise ArtifactError(f"{path}{error}; {RESTORE}") from None
    return variation.rollouts(rollouts, stage, context, index) if isinstance(stage, RlStage) else rollouts


def _check_rows(rows: Sequence[Mapping[str, Any]], stage: RlStage | DistillStage, context: StageContext) -> None:
    """Check that rows can be those of a step; messages go on after the name of the file.

    Raises:
        ArtifactError: they cannot.
    """
    # Groups are numbered without a gap from the beginning of each round of sampling.
    num_samples, size = stage.samples_per_prompt, stage.prompts_per_step
    rounds = 1 + (stage.max_refills if isinstance(stage, RlStage) else 0)
    places = [(row["group"], row["sample"]) for row in rows]
    groups = sorted({group for group, _ in places if group is not None})
    is_gapless = all(number % size == 0 or number - 1 in groups for number in groups)
    wanted = [(group, number) for group in groups for number in range(num_samples)]
    if not rows or places != wanted or not is_gapless or not 0 <= groups[0] <= groups[-1] < rounds * size:
        raise ArtifactError(f" does not have {num_samples} rows, sample 0 to {num_samples - 1}, of each group")
    vocabulary = context.learner.head.vocabulary_size
    for row in rows:
        where = f", group {row['group']}, sample {row['sample']}"
        ids, logprobs = row["completion_ids"] or [], row["logprobs"] or []
        read = [*(row["prompt_ids"] or []), *ids]
        if not (row["prompt_ids"] and ids) or None in logprobs or len(logprobs) != len(ids):
            raise ArtifactError(f"{where}: it has {len(ids)} tokens and {len(logprobs)} log-probabilities")
        if any(token is None or not 0 <= token < vocabulary for token in read):
            raise ArtifactError(f"{where}: a token id is not one of the model's, 0 to {vocabulary - 1}")
        try:
            response = response_from_row(row)
            response.judged(response.given_reward)
        except ValueError as error:
            raise ArtifactError(f"{where}: its verdict cannot be: {error}") from None
        if row["reward"] is not None and not math.isfinite(row["reward"]):
            raise ArtifactError(f"{where}: its reward is {row['reward']}, not a finite number")


def _check_prompts(rollouts: StepRollouts, context: StageContext) -> None:
    """Check that the prompts of a step are those of its problems.

    Raises:
        ArtifactError: one is another.
    """
    prompts = context.encode([group.prompt.problem for group in rollouts.groups])
    for number, group, prompt in zip(rollouts.numbers, rollouts.groups, prompts, strict=True):
        if group.prompt.token_ids != prompt.token_ids:
            raise ArtifactError(f", group {number}: `prompt_ids` are not those of its problem, {prompt.problem.id!r}")


def _state_of(start: CheckpointRef | None, session: Session) -> SavedState | None:
    """Return what is in a checkpoint; None where the replay begins with the run."""
    if start is None:
        return None
    runtime, world = session.config.runtime, session.world
    mapped_by = world if runtime.sharding.kind == "fsdp" else None
    return SavedState(load_for(runtime, start.path, world), read_trainer_state(start.path, mapped_by=mapped_by))
