"""Where an interrupted run continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swerve.artifacts.files import verify_manifest
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.errors import ArtifactError
from swerve.progress import Progress


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
    """Return the newest intact checkpoint with no damaged one before it; say which ones were passed over.

    Going back before a damaged checkpoint makes it again. One that only served resuming is not missed. Changes nothing:
    damaged checkpoints stay where they are until training reaches their step again.
    """
    found: CheckpointRef | None = None
    for reference in run.checkpoint_manifests():
        try:
            checkpoint = run.read_checkpoint(reference)
            verify_manifest(checkpoint.path)
        except ArtifactError as error:
            progress.note(f"passing over a damaged checkpoint and what came after it: {error}")
            break
        found = checkpoint
    if found is not None:
        progress.note(f"going on after {found.label} (step {found.step})")
    return ResumePoint(checkpoint=found)
