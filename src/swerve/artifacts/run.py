"""The run directory: where every stage's artifacts live, and the only place that knows their names."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swerve.artifacts.checkpoint import (
    IDENTITY,
    STATE_NAME,
    CheckpointRef,
    Extent,
    check_extent,
    drop_trainer_state,
    read_checkpoint,
    synced_extent,
)
from swerve.artifacts.files import (
    MANIFEST_NAME,
    check_files,
    dump_json,
    fsync,
    new_directory,
    read_sealed,
    remove,
    remove_empty,
    sealed,
    sha256_file,
    verify_manifest,
    write_sealed,
)
from swerve.artifacts.locks import is_locked, locked, remove_leftovers
from swerve.artifacts.torchrun import torchrun_job
from swerve.errors import ArtifactError, CheckpointError, ConfigError, nearest, shown

RUN_SCHEMA_VERSION = 1
RUNS = Path("runs")
"""Folder in which a run is found by its name."""
_BEFORE_METRICS = ("initial", "rollouts", "problems.jsonl", "tensorboard", "wandb", "trackers.json")
"""What a stage and its trackers may have made in a run before the first line of metrics."""
PROBED = "probed"
"""Status of a directory that holds a probe of responses from elsewhere: no recipe, no checkpoints."""


def given_command() -> str:
    """Return the command line that this process was started with; empty: it is not swerve's."""
    return shlex.join(["swerve", *sys.argv[1:]]) if Path(sys.argv[0]).name == "swerve" else ""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths and small files of one run. Creating the object does not touch the disk."""

    path: Path

    def __post_init__(self) -> None:
        """Take the path as text, too."""
        object.__setattr__(self, "path", Path(self.path))

    @property
    def quoted(self) -> str:
        """The path as a word of a shell's command line."""
        return shlex.quote(str(self.path))

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

    @property
    def initial_path(self) -> Path:
        """The untrained model, where it was asked for."""
        return self.path / "initial"

    def rollouts_path(self, step: int) -> Path:
        """Rollouts that made the update to global step `step`."""
        return self.path / "rollouts" / f"step_{step:06d}.parquet"

    def pairs_path(self, stage: str) -> Path:
        """Preference pairs a stage was trained on."""
        return self.path / "rollouts" / f"{stage}_pairs.parquet"

    def selected_path(self, stage: str) -> Path:
        """Right completions a stage was trained on."""
        return self.path / "rollouts" / f"{stage}_selected.parquet"

    def checkpoint_path(self, step: int) -> Path:
        """Directory of the checkpoint after global step `step`."""
        return self.path / "checkpoints" / f"step_{step:06d}"

    def evaluation_path(self, checkpoint: CheckpointRef) -> Path:
        """Summary of a checkpoint's evaluation; its problems are beside it as `.parquet`."""
        return self.path / "eval" / f"{checkpoint.name}.json"

    def check_new(self) -> None:
        """Check that a new run can begin here.

        Raises:
            ConfigError: it exists and is not an empty directory.
        """
        if self.config_path.is_file() and self.checkpoint_manifests() and not (self.path / "run.json").is_file():
            raise ConfigError(f"{self.path} is a run without its run.json; put it back, or choose another with --out")
        if self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise ConfigError(
                f"run directory {self.path} exists; continue it with --resume (in Python resume=True), choose another "
                "with --out (out=), or delete it"
            )

    def create(self, *, config_yaml: str, provenance: Mapping[str, Any]) -> None:
        """Make the directory with `config.yaml` and `run.json`.

        Raises:
            ConfigError: it exists and is not empty.
        """
        self.check_new()
        digest = hashlib.sha256(config_yaml.encode()).hexdigest()
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        begun = {"schema_version": RUN_SCHEMA_VERSION, "status": "created", "date": date, "seconds": 0.0}
        begun |= {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU threads"}
        begun |= {"command": command} if (command := given_command()) else {}
        begun |= {"job": job} if (job := torchrun_job()) else {}
        record = {**begun, **provenance, "config_sha256": digest}
        with new_directory(self.path) as folder:
            record["folder"] = folder.stat().st_ino
            (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
            (folder / "run.json").write_text(dump_json(sealed(record)), encoding="utf-8")

    def is_of_this_job(self) -> bool:
        """Whether this job of torchrun began the run, before it was restarted.

        Raises:
            ArtifactError: `run.json` is damaged.
        """
        job = torchrun_job()
        return job is not None and (self.path / "run.json").is_file() and self.read_provenance().get("job") == job

    def withdraw(self, made: Iterable[Path] = ()) -> None:
        """Delete what `create` and training before its first metrics made, and the directory if nothing else is in it.

        What the run is continued with goes last: after a kill in between it is still a run.

        Args:
            made: directories that it is in and that were made for it, the innermost first.
        """
        for name in (*_BEFORE_METRICS, "config.yaml", "run.json", ".lock"):
            remove(self.path / name)
        remove_empty([self.path, *made])

    def read_provenance(self) -> dict[str, Any]:
        """Return `run.json`, which together with `config.yaml` is as it was written.

        Raises:
            ArtifactError: this is not a run directory, its schema version is another, or one of the two was changed.
        """
        record = self._read_record()
        if not self.config_path.is_file() or sha256_file(self.config_path) != record.get("config_sha256"):
            raise ArtifactError(
                f"{self.config_path} is not what the run began with (its SHA-256 is not the one in run.json); put it "
                "back; settings of eval, probe and report are changed on the command line"
            )
        return record

    def is_copy(self) -> bool:
        """Whether this is not the very folder that the run was begun in: it was copied, perhaps from somebody else."""
        return bool(self._read_record().get("folder") != self.path.stat().st_ino)

    def check_links(self) -> None:
        """Check that a run which was copied here holds no links: what is written into it would go where they lead.

        Raises:
            ArtifactError: it holds one.
        """
        if not self.is_copy():
            return
        for folder, folders, files in os.walk(self.path):
            for path in (Path(folder) / name for name in (*folders, *files)):
                if path.is_symlink():
                    raise ArtifactError(
                        f"{path} is a link to {os.readlink(path)} in a run that was copied or moved here, and what is "
                        "written would go there; put what it leads to in its place"
                    )

    def identity(self) -> dict[str, Any]:
        """Return what marks the run's files as its own: the hash of its configuration, and its seed."""
        provenance = self.read_provenance()
        return {name: provenance.get(name) for name in IDENTITY}

    def _read_record(self) -> dict[str, Any]:
        path = self.path / "run.json"
        if not path.is_file():
            is_card = (self.path / "claim.json").is_file()
            card = f"a claim card and no run; its page is {self.path / 'index.html'}"
            raise ArtifactError(f"{self.path} is {card if is_card else 'not a run directory (it has no run.json)'}")
        record = read_sealed(path)
        if record.get("schema_version") != RUN_SCHEMA_VERSION:
            raise ArtifactError(
                f"{self.path} has run schema version {record.get('schema_version')}, "
                f"this swerve reads {RUN_SCHEMA_VERSION}; use the swerve that wrote it"
            )
        return record

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Write entries of `run.json` anew; others, such as date and machine, and the configuration's digest stay."""
        known = self._read_record()
        write_sealed(self.path / "run.json", {**known, **provenance, "config_sha256": known.get("config_sha256")})

    def set_status(self, status: str, *, seconds: float = 0.0) -> None:
        """Record `created`, `training`, `interrupted`, `failed` or `trained`, and `seconds` more of training."""
        seconds += self._read_record().get("seconds", 0.0)
        self.write_provenance({"status": status, "seconds": round(seconds, 1)})

    @property
    def status(self) -> str | None:
        """What `set_status` recorded; `killed` where it says `training` and no process holds the run."""
        status: str | None = self._read_record().get("status")
        return "killed" if status == "training" and not self.is_held() else status

    @property
    def _lock_path(self) -> Path:
        return self.path / ".lock"

    def is_held(self) -> bool:
        """Whether a process holds the lock; of one that was killed the system has let it go."""
        return is_locked(self._lock_path)

    @contextmanager
    def lock(self, *, shared: bool = False, name: str = ".lock") -> Iterator[None]:
        """Hold the run for one process.

        Args:
            shared: hold it beside others that do so, against who would hold it alone.
            name: of the file that is locked; by another one than `.lock` only a part of the run's work is held.

        Raises:
            ArtifactError: another process holds it; the message names its pid.
        """
        place = self.path / name
        with locked(place, self.path if place == self._lock_path else place, shared=shared):
            if not shared and place == self._lock_path:
                # Of those that share it one may be writing what looks like leftovers; the report is written without it.
                remove_leftovers(self.path, apart=self.report_path)
            yield

    def checkpoint_manifests(self) -> list[Path]:
        """Return the manifests of all checkpoints, by step. A directory without one is not a checkpoint."""
        return sorted((self.path / "checkpoints").glob(f"step_*/{MANIFEST_NAME}"))

    @property
    def checkpoints(self) -> list[CheckpointRef]:
        """Every complete checkpoint, by step; their manifests are compared with themselves and with the run.

        Raises:
            ArtifactError: a manifest is damaged, or of another run.
        """
        provenance = self.read_provenance()
        return [read_checkpoint(manifest.parent, provenance) for manifest in self.checkpoint_manifests()]

    def missing_checkpoints(
        self, scheduled: Collection[int], retained: Callable[[int], Collection[int]] | None = None
    ) -> list[str]:
        """Return a line for each checkpoint that should be there and is not, and one for those that were deleted.

        Args:
            scheduled: global steps of the checkpoints that the recipe asks for.
            retained: returns those that stay once training has reached a step; None: all.
        """
        known = [one.step for one in self.checkpoints]
        is_trained = self.read_provenance().get("status") == "trained"
        kept = scheduled if retained is None else retained(max(known, default=0))
        due = [step for step in sorted(scheduled) if is_trained or step < max(known, default=0)]
        missing = [step for step in due if step not in known]
        deleted = ", ".join(self.checkpoint_path(step).name for step in missing if step not in kept)
        return [
            *([f"left out, for retention.keep deleted them: {deleted}"] if deleted else []),
            *(
                f"{self.checkpoint_path(step).name} is missing; restore it from a copy, or continue without it"
                for step in missing
                if step in kept
            ),
        ]

    def intact_checkpoints(self, *, verify: bool = False) -> tuple[list[CheckpointRef], list[ArtifactError]]:
        """Return the checkpoints that look whole, by step, and what is wrong with the others.

        The run's logs agree with them up to where they were then, and their files have the sizes that their manifest
        says. Changes nothing: damaged checkpoints stay where they are until training reaches their step again.

        Args:
            verify: compare the content of every file with its digest, too.

        Raises:
            ArtifactError: there are whole checkpoints, but the logs agree with none of them: training could only begin
                anew.
        """
        # Files and logs of a checkpoint are checked apart: only the logs cannot be made again.
        provenance = self.read_provenance()
        intact: list[CheckpointRef] = []
        damages: list[ArtifactError] = []
        logs: list[ArtifactError] = []
        for manifest in self.checkpoint_manifests():
            try:
                checkpoint = read_checkpoint(manifest.parent, provenance)
                (verify_manifest if verify else check_files)(checkpoint.path)
            except ArtifactError as error:
                damages.append(error)
                continue
            try:
                self.check_run_files(checkpoint)
                intact.append(checkpoint)
            except ArtifactError as error:
                logs.append(error)
        if logs and not intact:
            raise ArtifactError(f"{logs[0]}; put it back as it was, or begin another run with --out")
        return intact, [*damages, *logs]

    def sync_run_files(self, checkpoint: CheckpointRef) -> dict[str, Extent]:
        """Wait until the files beside a checkpoint that resuming reads are on the disk; return how far each goes.

        These are the logs, which drive adaptive coefficients and curricula, and inside a stage the pairs or completions
        that it sampled at its beginning.
        """
        sampled = [] if checkpoint.final else [self.pairs_path(checkpoint.stage), self.selected_path(checkpoint.stage)]
        paths = [path for path in (self.metrics_path, self.problems_path, *sampled) if path.is_file()]
        extents = {str(path.relative_to(self.path)): synced_extent(path) for path in paths}
        fsync(self.path)
        return extents

    def check_run_files(self, checkpoint: CheckpointRef) -> None:
        """Check that the logs still begin with what they held when a checkpoint was saved.

        Raises:
            ArtifactError: one is missing, shorter or another; the message names it.
        """
        for name, extent in checkpoint.run_files.items():
            try:
                check_extent(self.path / name, extent)
            except ArtifactError as error:
                raise ArtifactError(
                    f"{error}, which {checkpoint.label} (step {checkpoint.step}) was saved with"
                ) from None

    def remove_outdated_checkpoints(self, before: int, *, scheduled: Collection[int]) -> None:
        """Delete checkpoints that only served resuming, and no longer do, and what kills left of such.

        Args:
            before: global step of a checkpoint that is intact: earlier ones are not needed for resuming.
            scheduled: steps whose checkpoints are kept, whatever state they are in.
        """
        for path in sorted((self.path / "checkpoints").glob("step_*")):
            number = path.name.removeprefix("step_")
            if not number.isdigit() or path != self.checkpoint_path(int(number)) or int(number) in scheduled:
                continue
            if int(number) < before or not (path / MANIFEST_NAME).is_file():
                remove(path)

    def remove_trainer_states(self, before: int) -> None:
        """Leave only the weights of the checkpoints before a global step.

        That one is intact.
        """
        for path in (manifest.parent for manifest in self.checkpoint_manifests()):
            number = path.name.removeprefix("step_")
            is_outdated = number.isdigit() and int(number) < before
            if is_outdated and (path / STATE_NAME).is_dir() and not path.is_symlink():
                drop_trainer_state(path)

    def select_checkpoint(self, selector: str) -> CheckpointRef:
        """Return the checkpoint a selector names: a stage (`dpo`: its last), a label (`rl-30`) or `step_000538`.

        Raises:
            CheckpointError: nothing matches; the message lists the checkpoints of the run.
        """
        known = self.checkpoints
        for checkpoint in reversed(known):
            if selector in (checkpoint.name, checkpoint.label) or (selector == checkpoint.stage and checkpoint.final):
                return checkpoint
        names = [checkpoint.label for checkpoint in known]
        raise CheckpointError(
            f"{self.path} has no checkpoint '{selector}'; it has {', '.join(names) or 'none'}{nearest(selector, names)}"
        )


def find_run(run: str | Path | RunDirectory) -> RunDirectory:
    """Return the run that a user names: by its path, by its name under `runs/`, or as it is.

    Raises:
        ArtifactError: there is no such run; the message names the nearest. ConfigError: it is neither path nor run.
    """
    if isinstance(run, RunDirectory):
        run.read_provenance()
        return run
    if not isinstance(run, str | os.PathLike):
        raise ConfigError(f"a run is given by its path, its name under {RUNS}/, or as it is, and not as {shown(run)}")
    path = Path(run)
    if not path.exists() and (RUNS / path / "run.json").is_file():
        path = RUNS / path
    if not path.exists():
        path_name = path.name.partition(":")[0]  # of RUN:SELECTOR the run
        places = [place.parent for folder in {RUNS, path.parent} for place in folder.glob("*/run.json")]
        near = [str(place) for place in places if nearest(path_name, [place.name])]
        hint = nearest(str(path.parent / path_name), near) or nearest(str(RUNS / path_name), near)
        raise ArtifactError(
            f"run directory {path} does not exist{hint or f'; `swerve runs` lists those under {RUNS}/'}"
        )
    return find_run(RunDirectory(path))


def check_name(name: str) -> str:
    """Return a run's name if it is safe as a directory's name.

    Raises:
        ConfigError: it is empty, has characters other than letters, digits, `.`, `_` and `-`, or starts like a hidden
            file or an option of other programs.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"run name {name!r} is not allowed: use 1 to 100 letters, digits, '.', '_' and '-', starting with a "
            "letter, a digit or '_'; set it with name=NAME, or choose a directory with --out"
        )
    return name
