"""What a resumed training continues from, and the kept checkpoints before it that are missing or damaged.

Training continues after the newest checkpoint that agrees with itself, with the run and with the logs. Kept checkpoints
before it that are missing or damaged are named, and stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from swerve.artifacts.files import MANIFEST_NAME
from swerve.artifacts.metrics import cut_back
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import Config
from swerve.config.recipe import RuntimeConfig
from swerve.errors import CheckpointError
from swerve.models.model_folder import LoadedModel, read_trainer_state
from swerve.progress import Progress
from swerve.train.early_stopping import kept_steps
from swerve.train.sharded_model import load_for
from swerve.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """What a checkpoint holds, in memory."""

    loaded: LoadedModel
    trainer: dict[str, dict[str, Tensor]]

    @classmethod
    def read(cls, checkpoint: CheckpointRef, *, runtime: RuntimeConfig, world: World) -> SavedState:
        """Read a checkpoint once, each file compared with its digest on the way; all processes must call this.

        Raises:
            CheckpointError: it is damaged, or has no optimizer state though its stage is not over.
        """
        loaded = load_for(runtime, checkpoint.path, world)
        trainer = read_trainer_state(checkpoint.path, mapped_by=world if runtime.sharding.kind == "fsdp" else None)
        if not trainer and not checkpoint.final:
            raise CheckpointError(
                f"{checkpoint.path} has no optimizer state any more (retention.save_optimizer: false)"
            )
        return cls(loaded=loaded, trainer=trainer)


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
            state = SavedState.read(newest, runtime=config.runtime, world=world)
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
