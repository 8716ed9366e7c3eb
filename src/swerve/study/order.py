"""Which runs of a study begin with, or learn from, a checkpoint of another: named in a recipe as `VARIANT:SELECTOR`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.errors import ConfigError
from swerve.models.hub import check_model, checkpoint_folder, is_left_open, pretrained_path
from swerve.recipes.loader import load_config
from swerve.study.job import StudyJob


def named_models(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the keys of a recipe that name a model that is there before the run, and their values."""
    if isinstance(config.model, PretrainedModel):
        yield "model.path", config.model.path
    for stage in config.stages:
        for key, name in stage.frozen_models.items():
            yield f"stages.{stage.label}.{key}", name


def bound(job: StudyJob, jobs: Sequence[StudyJob], variants: Collection[str], *, file: str) -> StudyJob:
    """Return a run with checkpoints of the others of its seed in the places of `VARIANT:SELECTOR`.

    Args:
        job: the run.
        jobs: all that are known of the study.
        variants: the study's.
        file: the study's, for messages.

    Raises:
        ConfigError: a variant has no run of this seed, or it will have no such checkpoint when it is done.
    """
    overrides = []
    for key, name in named_models(job.config):
        variant, colon, selector = name.partition(":")
        if not colon or variant not in variants or Path(name).exists():
            continue
        said = f"{file}: variant '{job.variant}': {key} is '{name}', and"
        other = next((one for one in jobs if one.name == f"{variant}/seed-{job.seed}"), None)
        if other is None:
            raise ConfigError(f"{said} variant '{variant}' has no run of seed {job.seed}, or its settings are tuned")
        kept = _kept(other.config)
        if selector not in kept:
            raise ConfigError(
                f"{said} runs of '{variant}' keep no checkpoint '{selector}' but {', '.join(kept)}; name one of these, "
                "or add it to the stage's checkpoints"
            )
        overrides.append(f"{key}={json.dumps(f'{other.run.path}:{selector}')}")
    config = load_config(job.config, *overrides) if overrides else job.config
    return replace(job, config=config, after=_waits_for(config, jobs))


def _waits_for(config: Config, jobs: Sequence[StudyJob]) -> tuple[str, ...]:
    """Return the names of the runs whose checkpoints a recipe names."""
    runs = {str(job.run.path): job.name for job in jobs}
    places = [(name.rpartition(":")[0], *map(str, Path(name).parents)) for _, name in named_models(config)]
    return tuple(dict.fromkeys(runs[place] for some in places for place in some if place in runs))


def _kept(config: Config) -> list[str]:
    """Return the selectors of what a run's folder has when the run is done; see `RunDirectory.select_checkpoint`."""
    last, first, found = config.retained_steps(sum(stage.steps for stage in config.stages)), 0, list[str]()
    for stage in config.stages:
        found.append(stage.label)
        found += [f"{stage.label}-{step}" for step in sorted(stage.kept_steps) if first + step in last]
        first += stage.steps
    return found


def check_models(jobs: Sequence[StudyJob], known: Sequence[StudyJob], *, is_here: bool) -> None:
    """Check that the models which runs begin with or learn from are there, or are made by others.

    Args:
        jobs: the runs.
        known: all of the study.
        is_here: whether they are done on this machine; False: only that each names a model.

    Raises:
        ConfigError: a recipe leaves its model open, or there is no such folder or name on the hub.
        CheckpointError: there is no such run, or it has no such checkpoint.
    """
    made, seen = {str(job.run.path) for job in known}, set[str]()
    for job in jobs:
        if isinstance(job.config.model, PretrainedModel) and is_left_open(job.config.model):
            pretrained_path(job.config.model)  # says so
        for _, name in named_models(job.config):
            is_made = made & {name.rpartition(":")[0], *map(str, Path(name).parents)}
            if is_here and name not in seen and not is_made and not job.config.is_own(name):
                check_model(checkpoint_folder(name))
            seen.add(name)


def in_order(jobs: Sequence[StudyJob]) -> tuple[StudyJob, ...]:
    """Return jobs so that each stands behind those that it waits for: first those that wait for none.

    Raises:
        ConfigError: some wait for each other.
    """
    waiting, done, known = list(jobs), dict[str, StudyJob](), {job.name for job in jobs}
    while waiting:
        free = [job for job in waiting if done.keys() >= known.intersection(job.after)]
        if not free:
            variants = " and ".join(sorted({f"'{job.variant}'" for job in waiting}))
            raise ConfigError(f"runs of {variants} begin with each other; name a model that is there before")
        done |= {job.name: job for job in free}
        waiting = [job for job in waiting if job.name not in done]
    return tuple(done.values())


def with_needed(jobs: Sequence[StudyJob], known: Sequence[StudyJob]) -> tuple[StudyJob, ...]:
    """Return jobs with all those of a study that they wait for, in an order in which they can be done."""
    by_name, names, more = {job.name: job for job in known}, set[str](), [job.name for job in jobs]
    while more:
        name = more.pop()
        if name not in names:
            names.add(name)
            more += by_name[name].after
    return in_order([job for job in known if job.name in names])
