"""One run of a study, and what is to be done next of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.probe_summary import read_summary
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.errors import ArtifactError, ConfigError
from swerve.recipes.loader import differing_keys, load_config
from swerve.study.study_file import StudyStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyJob:
    """One run of a study."""

    name: str
    """Such as `none/seed-0`; of a run that others begin with, `start` or `start/seed-0`; of one that tries a setting of
    a grid, `tuning/none/setting-3/seed-100`."""
    variant: str
    config: Config
    run: RunDirectory
    folder: Path
    """Of the study."""
    steps: tuple[StudyStep, ...]
    processes: int = 1
    """That train, evaluate and probe together."""
    after: tuple[str, ...] = ()
    """Names of the runs whose checkpoints it begins with or learns from."""

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.seed

    @property
    def config_path(self) -> Path:
        """Where its configuration is written."""
        return self.folder / "configs" / f"{self.name}.yaml"

    @property
    def log_path(self) -> Path:
        """Where what it prints is written."""
        return self.folder / "logs" / f"{self.name}.log"

    def next_step(self) -> StudyStep | None:
        """Return what is to be done next of the run, by what is on the disk; None: nothing.

        Raises:
            ArtifactError: the run's own files are damaged.
        """
        if not (self.run.path / "run.json").is_file():
            return "train"
        status = self.run.read_provenance().get("status")
        if status not in ("trained", "collapsed"):
            return "train"
        if "eval" in self.steps and not self._is_evaluated():
            return "eval"
        if "probe" in self.steps and status == "trained":
            try:
                return "probe" if read_summary(self.run) is None else None
            except ArtifactError:
                return "probe"
        return None

    def _is_evaluated(self) -> bool:
        """Whether every checkpoint that the recipe asks for has an evaluation of these weights under its settings."""
        try:
            evaluations = {evaluation.step: evaluation for evaluation in read_evaluations(self.run)}
        except ArtifactError:
            return False
        wanted = self.config.evaluation_settings
        for checkpoint in self.run.checkpoints:
            evaluation = evaluations.get(checkpoint.step)
            if checkpoint.scheduled and (
                evaluation is None
                or evaluation.weights_sha256 != checkpoint.weights_sha256
                or any(evaluation.settings.get(key) != value for key, value in wanted.items())
            ):
                return False
        return True

    def check_unchanged(self) -> None:
        """Check that the run, if it was begun, has the configuration that the study asks for.

        Raises:
            ConfigError: it has another; the message names the variant and the keys.
        """
        if not (self.run.path / "run.json").is_file():
            return
        keys = differing_keys(load_config(self.run), self.config)
        if keys:
            raise ConfigError(
                f"variant '{self.variant}' is not what {self.run.path} was trained with: it differs in "
                f"{', '.join(keys[:5])}{' and others' if len(keys) > 5 else ''}; give the variant as it was, call the "
                f"new one otherwise, or delete {self.run.path}"
            )
