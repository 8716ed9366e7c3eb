"""The run directory: where every stage's artifacts live, and the only place that knows their names."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.files import (
    MANIFEST_NAME,
    TEMPORARY_PREFIX,
    create_directory,
    dump_json,
    read_json,
    remove,
    verify_manifest,
    write_json,
)
from swerve.errors import ArtifactError, CheckpointError, ConfigError, nearest

RUN_SCHEMA_VERSION = 1
PROBED = "probed"
"""Status of a directory that holds a probe of responses from elsewhere: no recipe, no checkpoints."""


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

    @property
    def label(self) -> str:
        """Short name for tables and figures, such as `rl-30`."""
        return f"{self.stage}-{self.stage_step}"

    @property
    def name(self) -> str:
        """The directory's name, such as `step_000538`; evaluation files carry the same one."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths and small files of one run. Creating the object does not touch the disk."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One JSON object per training step."""
        return self.path / "metrics.jsonl"

    @property
    def problems_path(self) -> Path:
        """One JSON object per training step: how often each problem drawn was solved, for curricula that ask."""
        return self.path / "problems.jsonl"

    @property
    def probe_path(self) -> Path:
        """Directory of the probe's tables."""
        return self.path / "probe"

    @property
    def report_path(self) -> Path:
        """Directory of the report."""
        return self.path / "report"

    def rollouts_path(self, step: int) -> Path:
        """Rollouts that made the update to global step `step`."""
        return self.path / "rollouts" / f"step_{step:06d}.parquet"

    def rollouts_part_path(self, step: int, rank: int) -> Path:
        """One process's part of them, until the first process has joined the parts; left by a kill, it is removed."""
        return self.path / "rollouts" / f"{TEMPORARY_PREFIX}step_{step:06d}-{rank}.parquet"

    def pairs_path(self, stage: str) -> Path:
        """Preference pairs a stage was trained on."""
        return self.path / "rollouts" / f"{stage}_pairs.parquet"

    def checkpoint_path(self, step: int) -> Path:
        """Directory of the checkpoint after global step `step`."""
        return self.path / "checkpoints" / f"step_{step:06d}"

    def evaluation_path(self, checkpoint: CheckpointRef) -> Path:
        """Summary of a checkpoint's evaluation; its problems are beside it as `.parquet`."""
        return self.path / "eval" / f"{checkpoint.name}.json"

    def samples_path(self, checkpoint: CheckpointRef) -> Path:
        """Completions that a checkpoint's evaluation sampled, beside the greedy ones."""
        return self.path / "eval" / "samples" / f"{checkpoint.name}.parquet"

    def check_new(self) -> None:
        """Check that a new run can begin here.

        Raises:
            ConfigError: it exists and is not an empty directory.
        """
        if self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise ConfigError(
                f"run directory {self.path} exists; continue it with --resume, choose another with --out, or delete it"
            )

    def create(self, *, config_yaml: str, provenance: Mapping[str, Any]) -> None:
        """Make the directory with `config.yaml` and `run.json`.

        Raises:
            ConfigError: it exists and is not empty.
        """
        self.check_new()
        record = {"schema_version": RUN_SCHEMA_VERSION, "status": "created", **provenance}
        create_directory(self.path, {"config.yaml": config_yaml, "run.json": dump_json(record)})

    def withdraw(self) -> None:
        """Delete what `create` made, and the directory if nothing else is in it."""
        for path in (self.config_path, self.path / "run.json", self.path / ".lock"):
            path.unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def read_provenance(self) -> dict[str, Any]:
        """Return `run.json`.

        Raises:
            ArtifactError: this is not a run directory, or its schema version is another.
        """
        if not (self.path / "run.json").is_file():
            raise ArtifactError(f"{self.path} is not a run directory (it has no run.json)")
        provenance: dict[str, Any] = read_json(self.path / "run.json")
        if provenance.get("schema_version") != RUN_SCHEMA_VERSION:
            raise ArtifactError(
                f"{self.path} has run schema version {provenance.get('schema_version')}, "
                f"this swerve reads {RUN_SCHEMA_VERSION}; use the swerve that wrote it"
            )
        return provenance

    def set_status(self, status: str) -> None:
        """Record `created`, `training`, `interrupted`, `failed` or `trained` in `run.json`."""
        write_json(self.path / "run.json", {**self.read_provenance(), "status": status})

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for one process.

        Raises:
            ArtifactError: another process holds it; the message names its pid.
        """
        path = self.path / ".lock"
        with path.open("a+", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.seek(0)
                holder = stream.read().strip() or "unknown"
                raise ArtifactError(
                    f"{self.path} is in use by process {holder}; wait for it or stop it, or choose another --out"
                ) from None
            stream.truncate(0)
            stream.write(str(os.getpid()))
            stream.flush()
            yield

    def remove_leftovers(self) -> None:
        """Delete temporary files of a process that was killed; only for the holder of the lock."""
        for leftover in self.path.rglob(f"{TEMPORARY_PREFIX}*"):
            remove(leftover)

    def checkpoint_manifests(self) -> list[Path]:
        """Return the manifests of all checkpoints, by step. A directory without one is not a checkpoint."""
        return sorted((self.path / "checkpoints").glob(f"step_*/{MANIFEST_NAME}"))

    @staticmethod
    def read_checkpoint(manifest: Path) -> CheckpointRef:
        """Return the checkpoint a manifest describes.

        Raises:
            ArtifactError: the manifest is damaged.
        """
        entry = read_json(manifest)
        names = ("step", "stage", "stage_step", "scheduled", "final", "weights_sha256")
        try:
            return CheckpointRef(path=manifest.parent, **{name: entry[name] for name in names})
        except (KeyError, TypeError):
            raise CheckpointError(f"{manifest} does not name its step, stage and weights: it is damaged") from None

    def checkpoints(self) -> list[CheckpointRef]:
        """Return every complete checkpoint, by step.

        Raises:
            ArtifactError: a manifest is damaged.
        """
        return [self.read_checkpoint(manifest) for manifest in self.checkpoint_manifests()]

    def last_intact_checkpoint(self) -> tuple[CheckpointRef | None, ArtifactError | None]:
        """Return the newest intact checkpoint with no damaged one before it, and what is wrong with the next, if any.

        Training that continues before a damaged checkpoint makes it again. One that only served resuming is not missed.
        Changes nothing: damaged checkpoints stay where they are until training reaches their step again.
        """
        newest: CheckpointRef | None = None
        for manifest in self.checkpoint_manifests():
            try:
                checkpoint = self.read_checkpoint(manifest)
                verify_manifest(checkpoint.path)
            except ArtifactError as error:
                return newest, error
            newest = checkpoint
        return newest, None

    def remove_checkpoint(self, checkpoint: CheckpointRef) -> None:
        """Delete a checkpoint; its manifest first, so that a kill in between leaves nothing that looks complete."""
        (checkpoint.path / MANIFEST_NAME).unlink(missing_ok=True)
        remove(checkpoint.path)

    def select_checkpoint(self, selector: str) -> CheckpointRef:
        """Return the checkpoint a selector names: a stage (`dpo`: its last), a label (`rl-30`) or `step_000538`.

        Raises:
            CheckpointError: nothing matches; the message lists the checkpoints of the run.
        """
        known = self.checkpoints()
        for checkpoint in reversed(known):
            if selector in (checkpoint.name, checkpoint.label) or (selector == checkpoint.stage and checkpoint.final):
                return checkpoint
        names = [checkpoint.label for checkpoint in known]
        raise CheckpointError(
            f"{self.path} has no checkpoint '{selector}'; it has {', '.join(names) or 'none'}{nearest(selector, names)}"
        )
