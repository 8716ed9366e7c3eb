"""A checkpoint as its manifest describes it, and how far the run's files beside it had been written then."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swerve.artifacts.files import MANIFEST_NAME, fsync, read_manifest, regular_file, remove, write_sealed
from swerve.artifacts.record import Record
from swerve.errors import ArtifactError, CheckpointError

IDENTITY = ("config_hash", "seed")
"""What marks the files of a run as its own."""
STATE_NAME = "trainer_state"
"""Folder of a checkpoint with what resuming needs beside the weights."""
BASE = "base"
"""Label of the trained model that a run began with, at step 0."""


class Extent(Record):
    """How far a file had been written when a checkpoint was saved beside it."""

    length: int
    """Bytes."""
    sha256: str
    """Of these bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A checkpoint of a run, as its manifest describes it."""

    path: Path
    step: int
    """Global optimisation step: counted over all stages of the run."""
    stage: str
    stage_step: int
    scheduled: bool
    """False for a checkpoint that only exists because the run was interrupted there."""
    final: bool
    """Whether it is the last of its stage."""
    weights_sha256: str = ""
    """Digest of the weights; empty for a checkpoint that is yet to be written."""
    run_files: Mapping[str, Extent] = field(default_factory=dict)
    """How far the run's files that resuming reads had been written, by name; empty while it is yet to be written."""

    @property
    def label(self) -> str:
        """Short name for tables and figures, such as `rl-30`; `base` for the model before training."""
        return f"{self.stage}-{self.stage_step}" if self.step else BASE

    @property
    def name(self) -> str:
        """The directory's name, such as `step_000538`; evaluation files carry the same one."""
        return f"step_{self.step:06d}"

    def __fspath__(self) -> str:
        """Return its folder, so that `from_pretrained` takes a checkpoint, too."""
        return str(self.path)

    def __str__(self) -> str:
        """Return the same; libraries make a text of what they are given."""
        return str(self.path)

    def __repr__(self) -> str:
        """Return its label and where it is."""
        return f"CheckpointRef({self.label!r}: {str(self.path)!r})"


def read_checkpoint(path: Path, provenance: Mapping[str, Any]) -> CheckpointRef:
    """Return a run's checkpoint after comparing its manifest with itself, its place and the run's `run.json`.

    Raises:
        ArtifactError: the manifest is damaged, or of another place or run.
    """
    entry = read_manifest(path)
    names = ("step", "stage", "stage_step", "scheduled", "final", "weights_sha256")
    where = path / MANIFEST_NAME
    try:
        extents = {name: Extent(**extent) for name, extent in entry["run_files"].items()}
        checkpoint = CheckpointRef(path=path, run_files=extents, **{name: entry[name] for name in names})
        is_its_place = path.name == checkpoint.name
    except (KeyError, TypeError, AttributeError, ValueError):
        raise CheckpointError(f"{where} does not name its step, stage and weights: it is damaged") from None
    if not is_its_place:
        raise CheckpointError(f"{where} says step {checkpoint.step}: it does not belong into this directory")
    for name in IDENTITY:
        if name in entry and name in provenance and entry[name] != provenance[name]:
            raise CheckpointError(
                f"{path} is of another run: its {name} is {entry[name]}, that of {path.parent.parent} "
                f"{provenance[name]}"
            )
    _check_offsets(checkpoint, provenance.get("stages"))
    return checkpoint


def _check_offsets(checkpoint: CheckpointRef, stages: Mapping[str, int] | None) -> None:
    """Check that a checkpoint's step is the one at which its stage has made so many; None: the run does not say."""
    if stages is None:
        return
    labels = list(stages)
    first = (
        sum(stages[label] for label in labels[: labels.index(checkpoint.stage)]) if checkpoint.stage in stages else -1
    )
    steps = stages.get(checkpoint.stage, 0)
    known = first + checkpoint.stage_step == checkpoint.step and 0 < checkpoint.stage_step <= steps
    if first < 0 or not known or checkpoint.final != (checkpoint.stage_step == steps):
        raise CheckpointError(
            f"{checkpoint.path / MANIFEST_NAME} says {checkpoint.label} at step {checkpoint.step}, which the run's "
            f"stages do not have ({', '.join(f'{label}: {steps}' for label, steps in stages.items())})"
        )


def drop_trainer_state(path: Path) -> None:
    """Leave only the weights of a checkpoint, if its manifest is whole.

    A kill in between leaves its state, or files that its manifest no longer lists.
    """
    with suppress(ArtifactError):  # a damaged manifest is named where training continues
        manifest = read_manifest(path)
        for key in ("files", "sizes"):
            entries = manifest.get(key, {})
            manifest[key] = {name: one for name, one in entries.items() if Path(name).parts[0] != STATE_NAME}
        write_sealed(path / MANIFEST_NAME, manifest)
        remove(path / STATE_NAME)


def synced_extent(path: Path) -> Extent:
    """Wait until a file is on the disk; return how far it goes and the digest of its content."""
    fsync(path)
    return Extent(length=path.stat().st_size, sha256=_head_sha256(path, None))


def check_extent(path: Path, extent: Extent) -> None:
    """Check that a file begins with what it held at some point.

    Raises:
        ArtifactError: it is missing, shorter or another; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} is missing")
    length = path.stat().st_size
    if length < extent.length:
        raise ArtifactError(f"{path} was cut off: it has {length} bytes of {extent.length}")
    if _head_sha256(path, extent.length) != extent.sha256:
        raise ArtifactError(f"{path} was changed: its first {extent.length} bytes have another SHA-256")


def cut_back(path: Path, extent: Extent | None) -> None:
    """Drop what was written after some point, which a resumed run will write again; None: drop the file."""
    if extent is None:
        path.unlink(missing_ok=True)
    elif path.stat().st_size > extent.length:
        os.truncate(path, extent.length)
        fsync(path)


def _head_sha256(path: Path, length: int | None) -> str:
    digest = hashlib.sha256()
    left = path.stat().st_size if length is None else length
    with regular_file(path).open("rb") as stream:
        while left and (part := stream.read(min(left, 1 << 20))):
            digest.update(part)
            left -= len(part)
    return digest.hexdigest()
