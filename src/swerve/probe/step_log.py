"""Which steps of a probe are done, as parts that say what their results depend on. Free of torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swerve.artifacts.parts import Parts
from swerve.probe.recipe import StepName
from swerve.progress import Progress


def steps_done(probe_path: Path) -> Parts:
    """Return what was done in a probe's directory: of each step a digest of all that its last result depends on."""
    return Parts(probe_path / "steps", {})


@contextmanager
def logged_step(done: Parts | None, step: StepName, key: str, progress: Progress) -> Iterator[None]:
    """Note how long the step within took, and remember the digest of what its result depends on.

    An earlier digest is forgotten first: it would stand beside results of other settings after a kill.

    `done` is None in processes that share the work of the first one, which remembers it.
    """
    started = time.monotonic()
    if done is not None:
        done.drop(step)
    yield
    if done is not None:
        done.put(step, None, key)
    progress.note(f"{step}: done in {time.monotonic() - started:.1f} s")
