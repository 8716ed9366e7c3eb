"""A run in training: its processes, its lock and status, and what signals and faults leave of it."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from swerve.artifacts.files import missing_folders
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.errors import (
    CollapseError,
    DiskFullError,
    EngineError,
    InterruptedRunError,
    QuietExit,
    StalledProcessError,
    SwerveError,
    WriteError,
)
from swerve.interruption import Interruption, deferred_signals
from swerve.models.model_folder import resolve_device
from swerve.progress import Progress
from swerve.recipes.loader import check_recorded_config, dump_yaml
from swerve.train.learner import NotFiniteError
from swerve.world import World, joined_world

_FAULTS = (
    StalledProcessError,
    QuietExit,
    InterruptedRunError,
    EngineError,
    DiskFullError,
    WriteError,
    NotFiniteError,
    CollapseError,
)
"""Errors that are no refusal of the recipe: the run stays, to be continued or looked at."""
_STATUS: Mapping[type[BaseException], str] = {
    KeyboardInterrupt: "interrupted",
    InterruptedRunError: "interrupted",
    CollapseError: "collapsed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One call of `train`: what stays the same to its end."""

    config: Config
    run: RunDirectory
    world: World
    progress: Progress
    interruption: Interruption

    def is_asked_to_stop(self) -> bool:
        """Whether a signal asked any process for a stop; all processes must call it."""
        return self.world.any(self.interruption.signal_number is not None)

    def interrupted(self, step: int) -> InterruptedRunError:
        """Return the error that ends training after a global step, which is saved."""
        saved = "; its checkpoint is saved" if step else "; nothing was trained yet"
        return InterruptedRunError(
            f"interrupted after step {step}{saved}; {_remedy(self.run)}",
            signal_number=self.interruption.signal_number or 15,
        )


@contextmanager
def open_session(
    config: Config, run: RunDirectory, progress: Progress, provenance: dict[str, Any], *, resume: bool
) -> Iterator[Session]:
    """Join the processes, make or lock the run directory, and keep its status until the block ends.

    A signal ends the block at once, wherever it is, until its `interruption.raises` is set to False.

    Raises:
        ConfigError: the run directory exists and `resume` is false, or it has another configuration.
        ArtifactError: another process holds the run.
        InterruptedRunError: a signal came before the first step.
        StalledProcessError: another process failed or did not come in time.
    """
    with deferred_signals() as interruption:
        interruption.raises = True
        try:
            with joined_world(
                resolve_device(config.runtime.device),
                timeout=config.runtime.collective_timeout,
                also_alone=config.runtime.sharding.kind != "none",
            ) as world:
                session = Session(config=config, run=run, world=world, progress=progress, interruption=interruption)
                if world.is_main:
                    with _held(session, provenance, resume=resume):
                        yield session
                else:  # they wait until the first process holds the run
                    world.barrier()
                    yield session
        except KeyboardInterrupt:
            if interruption.signal_number is None:
                raise
            remedy = _remedy(run) if (run.path / "run.json").is_file() else "nothing was written yet"
            message = f"interrupted before the first step; {remedy}"
            raise InterruptedRunError(message, signal_number=interruption.signal_number) from None
        except StalledProcessError:
            # Where the first process was killed, which keeps the status, this one that tells of it does.
            if (run.path / "run.json").is_file() and not run.is_held():
                run.set_status("failed")
            raise


@contextmanager
def _held(session: Session, provenance: dict[str, Any], *, resume: bool) -> Iterator[None]:
    """Make or lock the run directory in the first process, and write down how the block ends."""
    run, interruption = session.run, session.interruption
    # A signal waits until there is somebody who writes down that it came.
    interruption.raises = False
    is_new = not (resume and (run.path / "run.json").exists())
    made = missing_folders(run.path.parent) if is_new else []
    if is_new:
        run.create(config_yaml=dump_yaml(session.config), provenance=provenance)
    else:
        check_recorded_config(session.config, run)
    with run.lock():
        started = time.monotonic()
        try:
            run.set_status("training")
            interruption.raises = True
            interruption.check()
            session.world.barrier()
            yield
        except BaseException as error:
            interruption.raises = False  # while it is written down
            is_refused = isinstance(error, SwerveError) and not isinstance(error, _FAULTS)
            if is_new and is_refused and not run.metrics_path.exists():
                run.withdraw(made)  # refused before the first step: nothing to keep, and the name stays free
                raise
            with suppress(SwerveError):  # where the disk is full, what filled it is what is told
                run.set_status(_STATUS.get(type(error), "failed"), seconds=time.monotonic() - started)
            raise
        run.set_status("trained", seconds=time.monotonic() - started)


def _remedy(run: RunDirectory) -> str:
    return f"continue with: swerve train {shlex.quote(os.path.relpath(run.path))} --resume"
