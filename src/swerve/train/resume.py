"""What a resumed training continues from, and the kept checkpoints before it that are missing or damaged.

Training continues after the newest checkpoint that agrees with itself, with the run and with the logs. Kept checkpoints
before it that are missing or damaged are named, and stay as they are.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from swerve.artifacts.files import MANIFEST_NAME
from swerve.artifacts.metrics import cut_back
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import Config
from swerve.errors import CheckpointError
from swerve.models.model_folder import LoadedModel, read_trainer_state
from swerve.progress import Progress
from swerve.train.early_stopping import kept_steps
from swerve.train.sharded_model import load_for
from swerve.world import World


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
