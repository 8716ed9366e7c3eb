"""Where an interrupted run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swerve.artifacts.files import verify_manifest
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.errors import ArtifactError
from swerve.progress import Progress

__all__ = ["ResumePoint", "find_resume_point"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The newest intact checkpoint, or None at the beginning."""

    checkpoint: CheckpointRef | None

    @property
    def step(self) -> int:
        """Global steps already made."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    @property
    def path(self) -> Path:
        """The checkpoint's directory; only where there is one."""
        assert self.checkpoint is not None
        return self.checkpoint.path


def find_resume_point(run: RunDirectory, progress: Progress) -> ResumePoint:
    """Return the newest checkpoint whose files all match their manifest; say which ones were passed over.

    Changes nothing: a damaged checkpoint stays where it is until training reaches its step again.
    """
    known = run.checkpoints(on_damaged=lambda error: progress.note(f"passing over a checkpoint: {error}"))
    for checkpoint in reversed(known):
        try:
            verify_manifest(checkpoint.path)
        except ArtifactError as error:
            progress.note(f"passing over checkpoint {checkpoint.label}: {error}")
            continue
        if checkpoint.step:
            progress.note(f"going on after {checkpoint.label} (step {checkpoint.step})")
        return ResumePoint(checkpoint=checkpoint)
    return ResumePoint(checkpoint=None)
