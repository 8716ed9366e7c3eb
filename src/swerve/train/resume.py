"""What a resumed training continues from, and the kept checkpoints before it that are missing or damaged.

Training continues after the newest checkpoint that agrees with itself, with the run and with the logs. A kept
checkpoint before it is made again in a directory of its own, from the one before; it takes its place if the metrics on
the way are those that the run has recorded.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from swerve.artifacts.files import (
    MANIFEST_NAME,
    TEMPORARY_PREFIX,
    read_manifest,
    remove,
    replace_directory,
    write_sealed,
)
from swerve.artifacts.metrics import Extent, check_extent, cut_back, extent_to_step, read_metrics, truncate_metrics
from swerve.artifacts.run import STATE_NAME, CheckpointRef, RunDirectory
from swerve.config import Config
from swerve.config.recipe import RuntimeConfig
from swerve.errors import CheckpointError, InterruptedRunError, SwerveError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where training continues."""

    newest: CheckpointRef | None
    """The checkpoint to continue from; None: begin."""
    state: SavedState | None
    """What is in it."""
    intact: Sequence[CheckpointRef]
    """It and the checkpoints before it that look whole, by step."""
    missing: Sequence[int]
    """Global steps before it whose checkpoint should be there and is missing or damaged."""


def resume_point(
    config: Config, run: RunDirectory, progress: Progress, *, world: World, verify: bool = False
) -> ResumePoint:
    """Read the checkpoint that training continues from, and say what is passed over.

    Args:
        config: the run's.
        run: where.
        progress: told what is passed over.
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
        missing_best = kept_steps(config, run, newest) - config.scheduled_steps - {one.step for one in intact}
        try:
            if missing_best:
                raise CheckpointError(f"the best one before {newest.label}, step {max(missing_best)}, is missing")
            state = SavedState.read(newest, runtime=config.runtime, world=world)
        except CheckpointError as error:
            progress.note(f"passing over a checkpoint: {error}")
            intact.pop()
    if state is None:
        run.intact_checkpoints(verify=True)  # raises where the logs agree with none that is whole
        return ResumePoint(newest=None, state=None, intact=(), missing=())
    if newest.run_files is None:
        progress.note(
            f"{newest.label} was saved by an earlier version, whose manifests do not cover metrics.jsonl and "
            "problems.jsonl: they are taken as they are"
        )
    progress.note(f"continuing after {newest.label} (step {newest.step})")
    known = {checkpoint.step for checkpoint in intact}
    missing = [step for step in sorted(config.retained_steps(newest.step) - known) if step < newest.step]
    return ResumePoint(newest=newest, state=state, intact=intact, missing=missing)


def cut_back_to(run: RunDirectory, newest: CheckpointRef | None, config: Config) -> None:
    """Drop what the logs say of steps after a checkpoint, and the checkpoints that no longer serve resuming."""
    for path in (run.metrics_path, run.problems_path):
        if newest is not None and newest.run_files is None:  # by an earlier version
            truncate_metrics(path, last_step=newest.step)
        else:
            cut_back(path, None if newest is None else (newest.run_files or {}).get(path.name))
    tidy(run, newest, config)


def tidy(run: RunDirectory, newest: CheckpointRef | None, config: Config) -> None:
    """Delete what is no longer needed once a checkpoint is there: it was read or has just been written.

    These are earlier checkpoints that only served resuming, those that `retention` does not keep, and optimizer states
    that it does not keep.
    """
    step = newest.step if newest else 0
    run.remove_outdated_checkpoints(step, scheduled=kept_steps(config, run, newest))
    if not config.retention.save_optimizer:
        run.remove_trainer_states(step, kept=config.stateful_steps)


def make_missing_again(
    point: ResumePoint,
    run: RunDirectory,
    world: World,
    progress: Progress,
    train_to: Callable[[RunDirectory, CheckpointRef | None, int], None],
) -> None:
    """Make the missing checkpoints again, where that gives the same; say which stay missing.

    Args:
        point: with their steps.
        run: the run.
        world: the processes that train.
        progress: told of each.
        train_to: trains in a directory, from a checkpoint (None: the beginning) until a global step.

    Raises:
        InterruptedRunError: a signal asked for a stop.
    """
    for step in point.missing:
        name = run.checkpoint_path(step).name
        earlier = [one for one in point.intact if one.step < step and one.scheduled]  # the others are gone
        complete = [one for one in earlier if one.final or (one.path / STATE_NAME).is_dir()]
        start = complete[-1] if complete else None
        if world.device != "cpu" or any(one.run_files is None for one in (*earlier, *point.intact[-1:])):
            progress.note(f"{name} is missing; only on a CPU, and in a run of this version, it could be made again")
            continue
        progress.note(f"making {name} again, from {start.label if start else 'the beginning'}")
        again = _Again(run=run, start=start, step=step)
        try:
            if world.is_main:
                again.prepare(earlier)
            world.barrier()
            train_to(again.directory, start, step)
            if world.is_main:
                again.install()
        except InterruptedRunError as error:
            raise InterruptedRunError(
                f"interrupted while {name} was made again; continue with: swerve train {run.quoted} --resume",
                signal_number=error.exit_status - 128,
            ) from None
        except SwerveError as error:
            progress.note(f"{name} stays missing: it could not be made again: {error}")
        finally:
            if world.is_main:
                remove(again.directory.path)
        world.barrier()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """A checkpoint that is made again, in a directory of its own."""

    run: RunDirectory
    start: CheckpointRef | None
    """What is trained from; None: the beginning."""
    step: int
    """Global step of the checkpoint."""

    @property
    def directory(self) -> RunDirectory:
        """Where it is made: a run as it was at the start, which a kill leaves to be removed."""
        return RunDirectory(self.run.path / f"{TEMPORARY_PREFIX}again")

    def prepare(self, earlier: Sequence[CheckpointRef]) -> None:
        """Make the directory, with the logs up to the start and links to the checkpoints before it."""
        remove(self.directory.path)
        links = {self.directory.checkpoint_path(one.step): one.path for one in earlier}
        if self.run.initial_path.is_dir():
            links[self.directory.initial_path] = self.run.initial_path
        for link, folder in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder.resolve(), target_is_directory=True)
        extents = {} if self.start is None else dict(self.start.run_files or {})
        for name in ("run.json", "config.yaml", *extents):
            copy = self.directory.path / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.run.path / name, copy)
        for name, extent in extents.items():
            cut_back(self.directory.path / name, extent)

    def install(self) -> None:
        """Put the checkpoint into its place in the run.

        Raises:
            SwerveError: other metrics were measured on the way than the run has recorded.
        """
        logs = (self.run.metrics_path, self.run.problems_path)
        for log in logs:
            if self._records(self.directory.path / log.name) != self._records(log):
                raise SwerveError(
                    f"other values than those in {log.name} came out, as on another machine, or with another number "
                    "of threads or processes"
                )
        folder = self.directory.checkpoint_path(self.step)
        manifest = read_manifest(folder)
        extents = {name: Extent(**one) for name, one in manifest["run_files"].items()}
        extents.update({log.name: extent_to_step(log, self.step) for log in logs if log.name in extents})
        for name, extent in extents.items():
            check_extent(self.run.path / name, extent)
        write_sealed(folder / MANIFEST_NAME, {**manifest, "run_files": extents})
        replace_directory(self.run.checkpoint_path(self.step), folder)

    def _records(self, log: Path) -> list[dict[str, Any]]:
        """Return what a log says of the steps on the way, apart from times."""
        first = 0 if self.start is None else self.start.step
        records = [one for one in read_metrics(log) if first < one["step"] <= self.step]
        return [
            {name: value for name, value in one.items() if name not in ("seconds", "sync_seconds")} for one in records
        ]
