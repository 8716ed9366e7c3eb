"""The file of a study, and the runs that it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.files import write_text
from swerve.artifacts.probe_summary import read_summary
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    PAIR_MEASURES,
    TREND_WORDS,
    Trend,
)
from swerve.config import Config
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.recipes.epochs import with_steps
from swerve.recipes.files import shipped_recipes
from swerve.recipes.layers import parse_override, read_layers
from swerve.recipes.loader import differing_keys, dump_yaml, load_config, load_document
from swerve.recipes.yaml_lines import emit_yaml
from swerve.settings import Model, Words

StudyStep = Literal["train", "eval", "probe"]
Changes = dict[str, JsonValue]
"""Dotted keys of a recipe and their values."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,59}")
_START = "start"


def _counted(value: Any) -> Any:
    if type(value) is int:
        if not 0 < value < 10_000:
            raise ValueError(f"must be a list of seeds, or how many there are (1 to 9999), got {value}")
        return tuple(range(value))
    return tuple(value) if isinstance(value, list) else value


Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], BeforeValidator(_counted), Field(min_length=1)]
"""A list, or a number n for 0 to n - 1."""


class StudyStart(Model):
    """A run whose last checkpoint the runs of the study begin with."""

    recipe: str
    """Name of a shipped recipe, or path of a YAML file."""
    set: Changes = Field(default_factory=dict)
    """Changes to it."""
    per_seed: bool = False
    """Whether each seed has a start of its own, trained with that seed."""


class Expectation(Model):
    """What somebody found elsewhere, which the study is asked to confirm."""

    variants: Words = Field(min_length=1)
    """Of which it is expected, each for itself."""
    measure: str
    """A curve over training, for a shape; a measure, or `tokens_at_equal_accuracy`, for a difference."""
    shape: Trend
    """How the curve goes, or on which side of the baseline the variant is."""

    @model_validator(mode="after")
    def _check_measure(self) -> Expectation:
        is_curve = self.shape not in ("higher", "lower", "no_difference_shown")
        known = list(CURVES) if is_curve else [*MEASURES, *PAIR_MEASURES]
        if self.measure not in known:
            what = "curve" if is_curve else "measure"
            raise ValueError(
                f"there is no {what} '{self.measure}' that is '{TREND_WORDS[self.shape]}'"
                f"{nearest(self.measure, known)}; use {', '.join(known)}"
            )
        return self


class StudyFile(Model):
    """What a study's YAML file says."""

    name: str
    recipe: str
    """Name of a shipped recipe, or path of a YAML file, from the study's folder."""
    set: Changes = Field(default_factory=dict)
    """Changes to the recipe for all variants: dotted keys and values, as on the command line."""
    seeds: Seeds = (0, 1, 2)
    """Each variant is run with each; a number n stands for 0 to n - 1."""
    variants: dict[str, Changes] = Field(min_length=1)
    """Name -> changes to the recipe; with `recipe` among them, another recipe and changes to it."""
    baseline: str | None = None
    """The variant that others are compared with; null: the first."""
    start: StudyStart | None = None
    """What all runs begin with; null: what the recipe says."""
    measures: tuple[str, ...] = ()
    """What is compared, the headline first; empty: everything that was measured."""
    steps: tuple[StudyStep, ...] = ("train", "eval")
    """What is done of each run."""
    expected: tuple[Expectation, ...] = ()
    """Trends that were found elsewhere, each answered with yes or no."""
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    """Coverage of the intervals."""

    @field_validator("variants")
    @classmethod
    def _check_variants(cls, variants: dict[str, Changes]) -> dict[str, Changes]:
        for name, changes in variants.items():
            if not _NAME.fullmatch(name) or name == _START:
                raise ValueError(
                    f"variant {name!r}: use up to 60 letters, digits, '.', '_' and '-', and not '{_START}'"
                )
            if not isinstance(changes.get("recipe", ""), str):
                raise ValueError(f"variant {name!r}: recipe is a name or a path")
            if "seed" in changes or "name" in changes:
                raise ValueError(f"variant {name!r} changes its seed or name; seeds are given under 'seeds'")
        return variants

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed is given twice: {list(seeds)}")
        return seeds

    @field_validator("baseline")
    @classmethod
    def _check_baseline(cls, name: str | None, info: ValidationInfo) -> str | None:
        variants = info.data.get("variants", {})
        if name is not None and variants and name not in variants:
            raise ValueError(f"there is no variant '{name}'{nearest(name, variants)}; there are {', '.join(variants)}")
        return name

    @field_validator("measures")
    @classmethod
    def _check_measures(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        for name in measures:
            if name not in MEASURES:
                raise ValueError(f"there is no measure '{name}'{nearest(name, MEASURES)}; use {', '.join(MEASURES)}")
        return measures

    @model_validator(mode="after")
    def _check_expected(self) -> StudyFile:
        for name in (name for expectation in self.expected for name in expectation.variants):
            if name not in self.variants:
                raise ValueError(
                    f"expected names a variant '{name}' that there is not{nearest(name, self.variants)}; use "
                    f"{', '.join(self.variants)}, or expected=[]"
                )
        return self

    @property
    def compared_with(self) -> str:
        """Name of the variant that others are compared with."""
        return self.baseline or next(iter(self.variants))

    @property
    def changes(self) -> dict[str, Changes]:
        """What each variant changes, the one that others are compared with first."""
        return {self.compared_with: self.variants[self.compared_with], **self.variants}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a study."""

    name: str
    """Such as `none/seed-0`; of a run that others begin with, `start` or `start/seed-0`."""
    variant: str
    config: Config
    run: RunDirectory
    folder: Path
    """Of the study."""
    steps: tuple[StudyStep, ...]

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
        for checkpoint in self.run.checkpoints():
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
        keys = differing_keys(load_config(self.run.config_path), self.config)
        if keys:
            raise ConfigError(
                f"variant '{self.variant}' is not what {self.run.path} was trained with: it differs in "
                f"{', '.join(keys[:5])}{' and others' if len(keys) > 5 else ''}; give the variant as it was, call the "
                f"new one otherwise, or delete {self.run.path}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study with all its runs."""

    study: StudyFile
    path: Path
    starts: tuple[Job, ...]
    jobs: tuple[Job, ...]

    def write(self) -> None:
        """Write `study.yaml` and the configuration of each run."""
        write_text(self.path / "study.yaml", emit_yaml(self.study.model_dump(mode="json")))
        for job in (*self.starts, *self.jobs):
            write_text(job.config_path, dump_yaml(job.config))

    def select(self, names: Sequence[str]) -> tuple[Job, ...]:
        """Return the runs of these names; `start` and a variant's name stand for all of theirs.

        Raises:
            ConfigError: there is no such run.
        """
        known = {job.name: job for job in (*self.starts, *self.jobs)}
        for name in names:
            if not any(name in (job_name, job.variant) for job_name, job in known.items()):
                raise ConfigError(
                    f"--only '{name}': the study has no such run{nearest(name, known)} ({', '.join(known)})"
                )
        return tuple(job for name, job in known.items() if {name, job.variant} & set(names))


def plan_study(source: str, overrides: Sequence[str], *, out: Path | None, runs: Path) -> Plan:
    """Return the runs that a study asks for; nothing is written.

    Args:
        source: name of a shipped study, a YAML file, or the directory of a study.
        overrides: `KEY=VALUE` of the study's file; those of other keys are changes to the recipe for all variants.
        out: directory of the study; None: the one given as `source`, or, where it is no directory or the overrides
            give a name, this name under `studies` in `runs`.
        runs: where runs are.

    Raises:
        ConfigError: the file, an override or a configuration is wrong, a variant was changed after its runs began, or
            the directory is not that of a study.
    """
    # The directory of a study that was written before; None: a shipped one or a file is meant.
    places = () if source in shipped_recipes("study") else (Path(source), runs / "studies" / source)
    folder = next((path for path in places if (path / "study.yaml").is_file()), None)

    # The file, with the overrides of its own keys; the others change the recipe.
    file_name = source if folder is None else str(folder / "study.yaml")
    own, changes = _split(file_name, overrides)
    study = load_document(StudyFile, file_name, own, use="study")

    # Recipes are sought from the study's folder first.
    file, start, variants = Path(file_name), study.start, {}
    for name, changed in study.variants.items():
        recipe = {"recipe": _recipe(str(changed["recipe"]), file)} if "recipe" in changed else {}
        variants[name] = {**changed, **recipe}
    study = study.model_copy(
        update={
            "recipe": _recipe(study.recipe, file),
            "set": {**study.set, **changes},
            "start": start and start.model_copy(update={"recipe": _recipe(start.recipe, file)}),
            "variants": variants,
        }
    )
    if not _NAME.fullmatch(study.name):
        raise ConfigError(f"{file_name}: name {study.name!r}: use up to 60 letters, digits, '.', '_' and '-'")

    # Where the study lies; a directory of something else is never written into.
    is_renamed = any(parse_override(text).keys == ("name",) for text in own)
    path = out or (None if is_renamed else folder) or runs / "studies" / study.name
    if path.exists() and not (path / "study.yaml").is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(
            f"{path} exists and is not a study; choose another directory with --out, or another name=NAME"
        )

    # Every configuration is checked before anything runs.
    starts = {seed: job for seed in study.seeds if (job := _start_job(study, seed, path, runs)) is not None}
    jobs = tuple(_jobs(study, path, starts, file_name))
    for job in (*starts.values(), *jobs):
        job.check_unchanged()
    return Plan(study=study, path=path, starts=tuple({job.name: job for job in starts.values()}.values()), jobs=jobs)


def _split(source: str, overrides: Sequence[str]) -> tuple[list[str], Changes]:
    """Return the overrides of the study's own keys, and the changes to its recipe.

    A profile is the study's, where it has one of that name, and the recipe's otherwise.
    """
    parsed = [(text, parse_override(text)) for text in overrides]
    own = [text for text, override in parsed if override.keys[0] in StudyFile.model_fields]
    profiles = read_layers(source, "study").profiles
    own += [text for text, override in parsed if override.keys == ("profile",) and override.value in profiles]
    changes = {".".join(override.keys): override.value for text, override in parsed if text not in own}
    if "seed" in changes:
        raise ConfigError(f"override 'seed={changes['seed']}': a study has seeds=N, or seeds=[0, 1, ...]")
    return own, changes


def _recipe(recipe: str, file: Path) -> str:
    """Return a shipped recipe's name, or the absolute path of a file, which is sought from the study's folder first."""
    if recipe in shipped_recipes():
        return recipe
    beside = file.parent / recipe
    return str((beside if beside.is_file() else Path(recipe)).absolute()) if "." in recipe or "/" in recipe else recipe


def _texts(changes: Mapping[str, Any]) -> list[str]:
    """Return changes as the command line has them; JSON is YAML."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changes.items()]


def _start_job(study: StudyFile, seed: int, path: Path, runs: Path) -> Job | None:
    """Return the run that those of a seed begin with."""
    start = study.start
    if start is None:
        return None
    own_seed = [f"seed={seed}"] if start.per_seed else []
    config = with_steps(load_config(start.recipe, [*_texts(start.set), *own_seed]))
    ending = f"-seed-{seed}" if start.per_seed else ""
    config = config.model_copy(update={"name": f"{config.name}{ending}"})
    name = f"{_START}/seed-{seed}" if start.per_seed else _START
    run = RunDirectory(runs / config.name)
    return Job(name=name, variant=_START, config=config, run=run, folder=path, steps=("train",))


def _jobs(study: StudyFile, path: Path, starts: Mapping[int, Job], file: str) -> Iterator[Job]:
    for variant, changes in study.variants.items():
        recipe = str(changes.get("recipe", study.recipe))
        own = _texts({key: value for key, value in changes.items() if key != "recipe"})
        for seed in study.seeds:
            name = f"{variant}/seed-{seed}"
            texts = _texts(study.set)
            if start := starts.get(seed):
                num_steps = sum(stage.steps for stage in start.config.stages)
                texts.append(f"model.path={json.dumps(str(start.run.checkpoint_path(num_steps)))}")
            try:
                config = with_steps(load_config(recipe, [*texts, *own, f"seed={seed}"]))
            except ConfigError as error:
                raise ConfigError(f"{file}: variant '{variant}': {error}") from None
            config = config.model_copy(update={"name": f"{study.name}-{variant}-seed-{seed}"})
            run = RunDirectory(path / "runs" / name)
            yield Job(name=name, variant=variant, config=config, run=run, folder=path, steps=study.steps)
