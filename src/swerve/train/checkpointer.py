"""When a run's checkpoints are written, and what is dropped then."""

from __future__ import annotations

from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import StageConfig
from swerve.models.model_folder import save_checkpoint
from swerve.train.context import StageContext
from swerve.train.early_stopping import best_step, is_over
from swerve.train.health.verdict import Verdict
from swerve.train.resume import tidy
from swerve.train.rollouts import pending_state
from swerve.train.sharded_model import load_for
from swerve.train.starting_model import initial_model
from swerve.train.watches import LiveEvaluation


def save_if_due(
    stage: StageConfig,
    context: StageContext,
    step: int,
    verdict: Verdict,
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
