"""The code and data of a recipe that are the user's own: read before training, and unchanged in a resumed run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, TypeVar

from swerve.artifacts.files import sha256_file
from swerve.artifacts.run import RunDirectory
from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import RejectStage
from swerve.errors import ConfigError
from swerve.models.adapter import base_digest
from swerve.models.hub import pretrained_path
from swerve.problems.data_specs import parse_spec
from swerve.recipes.custom import source_digest
from swerve.rollout.engine import engine_class
from swerve.settings import Custom
from swerve.train.kl import kl_placement
from swerve.train.policy_update import policy_loss
from swerve.train.preparation import advantage_estimator

_Done = TypeVar("_Done")


def custom_digests(config: Config) -> dict[str, str | None]:
    """Return digests of each custom part's file, of data files and a base, by key; no code is run.

    Raises:
        ConfigError: a file cannot be read.
    """
    digests = _of_custom_parts(config, lambda part, _load: source_digest(part.path))
    return {**digests, **dict(_data_digests(config))}


def load_custom_parts(config: Config) -> None:
    """Load every custom part of a recipe.

    Raises:
        ConfigError: a part cannot be loaded or does not take what it is given.
    """
    _of_custom_parts(config, lambda part, load: load(part))


def _of_custom_parts(config: Config, act: Callable[[Custom, Callable[[Any], object]], _Done]) -> dict[str, _Done]:
    """Return by key what comes of a custom part and of what loads it; errors begin with the key."""
    done = {}
    for key, part, load in _parts(config):
        if isinstance(part, Custom):
            try:
                done[key] = act(part, load)
            except ConfigError as error:
                raise ConfigError(f"{key}: {error}") from None
    return done


def _data_digests(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the key and a digest of the files of each data spec that a stage learns from, and of an adapter's base."""
    if config.model.lora is not None and isinstance(config.model, PretrainedModel):
        yield "model.path", base_digest(pretrained_path(config.model))
    for stage in config.stages:
        for key, specs in stage.data_specs.items():
            paths = [parse_spec(spec).path for spec in specs]
            files = [sha256_file(path) for path in paths if path.is_file()]
            if files:
                yield f"stages.{stage.label}.{key}", sha256(" ".join(files).encode()).hexdigest()


def _parts(config: Config) -> Iterator[tuple[str, Any, Callable[[Any], object]]]:
    """Yield the parts that may be the user's own: key, configuration, what loads it."""
    yield "rollout.engine", config.rollout.engine, engine_class
    for stage in config.stages:
        if isinstance(stage, RejectStage) and stage.engine is not None:
            yield f"stages.{stage.label}.engine", stage.engine, engine_class
        if isinstance(stage, RlStage):
            key = f"stages.{stage.label}"
            places = {f"{key}.phases.{number}": phase.own for number, phase in enumerate(stage.phases)}
            for place, settings in {key: dict(stage), **places}.items():
                yield f"{place}.advantages", settings.get("advantages"), advantage_estimator
                yield f"{place}.loss", settings.get("loss"), policy_loss
                yield f"{place}.kl", settings.get("kl"), kl_placement


def check_unchanged(digests: Mapping[str, str | None], run: RunDirectory, *, to: str = "resume") -> None:
    """Check that the custom parts and data files of a run are those it began with.

    Args:
        digests: of those that are there now.
        run: it.
        to: what cannot be done with it otherwise.

    Raises:
        ConfigError: a file has changed since.
    """
    recorded = run.read_provenance().get("custom", {})
    changed = [key for key, digest in digests.items() if recorded.get(key) != digest]
    if changed:
        raise ConfigError(
            f"cannot {to} {run.path}: the code or data of {', '.join(changed)} has changed since the run began; "
            "restore it, or start another run with --out"
        )
