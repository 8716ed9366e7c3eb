"""When a run's checkpoints are written, what a resumed training continues from, and what is dropped.

Training continues after the newest checkpoint that agrees with itself, with the run and with the logs. Kept checkpoints
before it that are missing or damaged are named, and stay as they are.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from swerve.artifacts.checkpoint import CheckpointRef, cut_back
from swerve.artifacts.files import MANIFEST_NAME
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.config.stages import StageConfig
from swerve.errors import CheckpointError
from swerve.models.model_folder import LoadedModel, read_trainer_state
from swerve.models.saving import save_checkpoint
from swerve.models.starting_model import initial_model
from swerve.progress import Progress
from swerve.train.context import StageContext
from swerve.train.early_stopping import best_step, is_over, kept_steps
from swerve.train.health.verdict import HealthVerdict
from swerve.train.rollouts import pending_state
from swerve.train.sharded_model import load_for
from swerve.train.watches import LiveEvaluation
from swerve.world import World


def save_if_due(
    stage: StageConfig,
    context: StageContext,
    step: int,
    verdict: HealthVerdict,
    evaluation: LiveEvaluation,
    *,
    stopping: bool,
) -> CheckpointRef:
    """Write the checkpoint that a step asks for; return its place, which is the stage's end where it is over.

    All processes must call it alike.

    Args:
        stage: that was trained.
        context: the stage's.
        step: of the stage, from 1.
        verdict: on the step's health.
        evaluation: written with the checkpoint of the weights that it measured.
        stopping: whether training ends here.
    """
    # It is due where the recipe lists it, for resuming, as the best so far, and at the end of the stage.
    best, world = best_step(context.records), context.world
    position = checkpoint_after(stage, context.first_step + step, step, context.run)
    is_last = position.final or is_over(stage, context.records)
    is_due = position.scheduled or best == step or (stage.save_every and step % stage.save_every == 0)
    # A stage ends with its best weights, and at its last step whenever it stops.
    has_other_weights = is_last and best not in (None, step)
    if has_other_weights:
        path = context.run.checkpoint_path(context.first_step + (best or 0))
        context.learner.weights.load_weights(load_for(context.config.runtime, path, world).model)
        context.engine.forget_version()
        world.barrier()  # the first process removes the checkpoint as soon as it has saved
        context.progress.note(f"{stage.label}: ends after {position.label} with the weights of step {best}, the best")
    if is_last:
        position = checkpoint_after(stage, context.first_step + stage.steps, stage.steps, context.run)
    if stopping or is_due or is_last or verdict.error is not None:
        saved = _save(position, context)
        if world.is_main and not has_other_weights:
            evaluation.write(saved)
    return position


def _save(position: CheckpointRef, context: StageContext) -> CheckpointRef:
    """Write a checkpoint, and drop what is no longer needed then."""
    config, run, world, learner = context.config, context.run, context.world, context.learner
    world.doing("saving after")
    run_files = run.sync_run_files(position) if world.is_main else {}
    saved = save_checkpoint(
        position,
        model=learner.model,
        weights=learner.weights.whole_weights(),
        tokenizer=learner.tokenizer,
        trainer_state={**learner.weights.trainer_state(learner.optimizer), **pending_state(context)},
        provenance={**run.identity(), "run_files": run_files},
        base=None if config.model.lora is None else initial_model(config, run),
        world=world,
    )
    if world.is_main:
        tidy(run, position, config)
    world.barrier()
    return saved


def checkpoint_after(stage: StageConfig, step: int, stage_step: int, run: RunDirectory) -> CheckpointRef:
    """Return what a checkpoint after a global step, the stage's `stage_step` from 1, is or would be."""
    return CheckpointRef(
        path=run.checkpoint_path(step),
        step=step,
        stage=stage.label,
        stage_step=stage_step,
        scheduled=stage_step in stage.kept_steps,
        final=stage_step == stage.steps,
    )


class SavedState(NamedTuple):
    """What a checkpoint holds, in memory."""

    loaded: LoadedModel
    trainer: dict[str, dict[str, Tensor]]


def resume_point(
    config: Config, run: RunDirectory, progress: Progress, *, world: World, verify: bool = False
) -> tuple[CheckpointRef | None, SavedState | None]:
    """Return the checkpoint that training continues from and what is in it (None: begin); say what is missing.

    Args:
        config: the run's.
        run: where.
        progress: told what is passed over or missing.
        world: the processes that go on.
        verify: also compare the content of the checkpoints before it with their digests, not their sizes alone.

    Raises:
        ArtifactError: run.json, config.yaml or the logs were changed.
    """
    intact, damages = run.intact_checkpoints(verify=verify)
    for damage in damages:
        progress.note(f"passing over a checkpoint: {damage}")
    state = None
    while intact and state is None:
        newest = intact[-1]
        missing_best = (
            kept_steps(config, run, newest) - config.scheduled_steps - {checkpoint.step for checkpoint in intact}
        )
        try:
            if missing_best:
                raise CheckpointError(f"the best one before {newest.label}, step {max(missing_best)}, is missing")
            # Each file is read once, and compared with its digest on the way.
            loaded = load_for(config.runtime, newest.path, world)
            mapped_by = world if config.runtime.sharding.kind == "fsdp" else None
            trainer = read_trainer_state(newest.path, mapped_by=mapped_by)
            if not trainer and not newest.final:
                raise CheckpointError(
                    f"{newest.path} has no optimizer state any more (retention.save_optimizer: false)"
                )
            state = SavedState(loaded, trainer)
        except CheckpointError as error:
            progress.note(f"passing over a checkpoint: {error}")
            intact.pop()
    if state is None:
        run.intact_checkpoints(verify=True)  # raises where the logs agree with none that is whole
        return None, None
    progress.note(f"continuing after {newest.label} (step {newest.step})")
    for step in sorted(config.retained_steps(newest.step)):
        path = run.checkpoint_path(step)
        if step < newest.step and not (path / MANIFEST_NAME).is_file():
            progress.note(
                f"checkpoint of step {step} is missing: {path}; restore it from a copy, or continue without it"
            )
    return newest, state


def cut_back_to(run: RunDirectory, newest: CheckpointRef | None, config: Config) -> None:
    """Drop what the logs say of steps after a checkpoint, and the checkpoints that no longer serve resuming."""
    for path in (run.metrics_path, run.problems_path):
        cut_back(path, None if newest is None else newest.run_files.get(path.name))
    tidy(run, newest, config)


def tidy(run: RunDirectory, newest: CheckpointRef | None, config: Config) -> None:
    """Delete what is no longer needed once a checkpoint is there: it was read or has just been written.

    These are earlier checkpoints that only served resuming, those that `retention` does not keep, and optimizer states
    that it does not keep.
    """
    step = newest.step if newest else 0
    run.remove_outdated_checkpoints(step, scheduled=kept_steps(config, run, newest))
    if not config.retention.save_optimizer:
        run.remove_trainer_states(step)
