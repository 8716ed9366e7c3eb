"""Load recipes, those that ship with swerve and anybody's own, with `KEY=VALUE` overrides; and write them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from swerve.artifacts.files import regular_file
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.errors import ConfigError, ConfigErrors, shown
from swerve.recipes.files import RecipeUse
from swerve.recipes.layers import Change, Layered, Override, overrides_of, read_layers, split_profile
from swerve.recipes.yaml_lines import emit_yaml
from swerve.schema import dotted, explain_errors, places_of, with_section_defaults
from swerve.settings import STAGE_SECTIONS

_Settings = TypeVar("_Settings", bound=BaseModel)
RecipeSource = str | Path | Mapping[str, Any] | Config | RunDirectory
_PLACES = re.compile(
    r"(^|\.)engine\.(urls?|served_model|folder|weights|patience|timeout|key|concurrency|max_\w+|prices)(\.|$)|"
    r"^runtime\.sharding\."
)
"""Keys that may change on resuming: where the servers of an engine are, how they get weights, how long they are waited
for, and how a model is divided over processes, on which results depend by rounding as on the number of processes."""


def load_config(recipe: RecipeSource, *overrides: Change, **changes: Any) -> Config:
    """Return the configuration of a recipe with changes applied in order.

    No data is read: what a stage that is given in `epochs` has of steps is counted when training begins.

    Args:
        recipe: the name of a shipped recipe, the path of a YAML file, a mapping that says the same (`extends` too), a
            configuration, or a run, whose configuration is meant.
        overrides: texts such as `"seed=1"` or `"stages.rl.optimizer.lr=1e-4"`, whose values are YAML; and mappings. A
            mapping in a mapping is merged with the recipe's; under a dotted key, as in a text, it replaces the value.
        changes: the same as keywords.

    Raises:
        ConfigError: one line that names the file and line (or the override), the key, what is allowed and the nearest
            valid word.

    >>> load_config("demo_addition", "seed=7", {"stages.rl.steps": 40}, eval={"num_problems": 9}).seed
    7
    """
    try:
        return load_document(Config, recipe, overrides_of(overrides, changes), use="train")
    except ConfigError as error:
        if not isinstance(error, ConfigErrors):
            error.args = (_with_keyword_meant(str(error), changes),)
        raise


def _with_keyword_meant(message: str, changes: Mapping[str, Any]) -> str:
    """Return a message about a keyword that stands deeper in a recipe, with how it is written in Python."""
    found = re.search(r"unknown key '(\w+)'; did you mean (.*)\?$", message)
    place = re.findall(r"'((?:\w+\.)+\w+)'", found[2])[-1:] if found is not None and found[1] in changes else []
    if found is None or not place:
        return message
    value = changes[found[1]]
    first, *path = place[0].split(".")
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    return f"{message} Write {first}={nested!r:.80} or the text '{place[0]}={value!s:.40}'"


def load_run_config(run: RunDirectory, overrides: Iterable[Change] = (), changes: Mapping[str, Any] = {}) -> Config:
    """Return the configuration of a run, with overrides of what comes after training.

    Raises:
        ConfigError: an override would change how the run was trained.
    """
    parsed = overrides_of(overrides, changes)
    own = _flatten(load_config(run).model_dump(mode="json"))
    for override in parsed:
        is_as_trained = own.get(".".join(override.keys), override) == override.value  # typed for `check_copied`
        if override.keys[0] not in STAGE_SECTIONS and not is_as_trained:
            allowed = ", ".join(f"{name}." for name in STAGE_SECTIONS)
            places = places_of(override.keys[0], Config, {}) if len(override.keys) == 1 else []
            deeper = [repr(place) for place in places if place.partition(".")[0] in STAGE_SECTIONS]
            meant = f"; did you mean {' or '.join(deeper[:3])}?" if deeper else ""
            raise ConfigError(
                f"{override.source}: the run is trained already; only keys under {allowed} can be changed{meant}"
            )
    return load_config(run, *parsed)


def check_copied(config: Config, run: RunDirectory, typed: Iterable[Override]) -> None:
    """Check that of a run which was copied here no code is run, and no server reached, that nobody typed.

    Whoever made such a folder wrote its configuration.

    Raises:
        ConfigError: it names such code, or such a server.
        ArtifactError: see `RunDirectory.check_links`.
    """
    if not run.is_copy():
        return
    run.check_links()
    meant = [text for override in typed for text in _texts(override.value)]
    flat = _flatten(config.model_dump(mode="json"))
    for key, value in flat.items():
        is_code = key == "task.reward_file" or flat.get(f"{key.removesuffix('path')}kind") == "custom"
        is_code &= key.endswith(("reward_file", "path"))
        is_url = isinstance(value, str) and re.match(r"[a-z]+://", value, re.IGNORECASE) is not None
        if value and (is_code or is_url) and value not in meant:
            what = f"run the code in {value}" if is_code else f"send prompts, and the key that it names, to {value}"
            name, item = re.fullmatch(r"(.*?)([.\[]\d+\]?)?", key).groups()  # type: ignore[union-attr]
            as_typed = f"{name}=[{value}]" if item else f"{key}={value}"
            raise ConfigError(
                f"{run.path} was not begun in this folder: it was copied or moved, and would {what}; if that is meant, "
                f"say {as_typed}"
            )


def load_document(
    model: type[_Settings], source: RecipeSource, overrides: Sequence[str | Override] = (), *, use: RecipeUse = "probe"
) -> _Settings:
    """Return what a recipe of another command says, with overrides; sources and errors are those of `load_config`.

    Args:
        model: what it is read as.
        source: the recipe, one of that use.
        overrides: `profile=NAME`, and `KEY=VALUE` as of `load_config`.
        use: the command that runs it.

    Raises:
        ConfigError: one line that names the file and line (or the override), the key, what is allowed and the nearest
            valid word.
    """
    if isinstance(source, RunDirectory):
        source = regular_file(source.config_path)
    if isinstance(source, str | Path):
        return _validated(model, read_layers(source, use, model), overrides)
    if isinstance(source, Config):
        return _validated(
            model, Layered(name="configuration", data=source.model_dump(mode="json"), model=model), overrides
        )
    if not isinstance(source, Mapping):
        raise ConfigError(f"a recipe is a name, a path, a mapping or a configuration, got {shown(source)}")
    # A mapping extends a recipe, or begins with nothing.
    own = {key: value for key, value in source.items() if key != "extends"}
    parent = source.get("extends")
    base = Layered(name="recipe", data={}, model=model) if parent is None else read_layers(parent, use, model)
    return _validated(model, base, [*overrides_of([own]), *overrides])


def load_settings(
    model: type[_Settings], overrides: Sequence[str | Override], *, data: Mapping[str, Any] | None = None
) -> _Settings:
    """Return what `KEY=VALUE` overrides alone describe, where there is no recipe; all else has the model's defaults.

    Args:
        model: what it is read as.
        overrides: as of `load_config`, or options of a command as the keys that they stand for.
        data: JSON values that the overrides change.

    Raises:
        ConfigError: one line that names the override, the key and what is allowed.

    >>> from swerve.config.recipe import EvalConfig
    >>> load_settings(EvalConfig, ["num_problems=9"]).num_problems
    9
    """
    return _validated(model, Layered(name="overrides", data=data or {}, model=model), overrides)


def _validated(model: type[_Settings], layers: Layered, overrides: Sequence[str | Override]) -> _Settings:
    chosen, rest = split_profile(overrides)
    for override in [*(layers.profile(chosen) if chosen else ()), *rest]:
        layers = layers.overridden(override)
    try:
        # Through JSON: the models are strict, and in JSON a list may become a tuple.
        return model.model_validate_json(json.dumps(with_section_defaults(model, layers.data)))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise explain_errors(model, errors, layers.data, layers.name, layers.origins) from None


def dump_yaml(config: BaseModel) -> str:
    """Return the resolved configuration as YAML; `load_config` reads it back to an equal one."""
    return emit_yaml(config.model_dump(mode="json"))


def config_hash(config: Config) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the configuration's canonical JSON."""
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def has_custom(config: Config) -> bool:
    """Whether a part of the configuration is code of the user's own."""
    return any(
        key.endswith(".kind") and value == "custom" for key, value in _flatten(config.model_dump(mode="json")).items()
    )


def config_schema(model: type[BaseModel] = Config) -> dict[str, Any]:
    """Return the JSON schema of recipes, or of those that are read as another model.

    A recipe that extends another needs no key of its own, and may have dotted ones.
    """
    schema = model.model_json_schema()
    extends = {"type": "string", "description": "Name of a shipped recipe, or path of a file, that this one extends."}
    profile = {"type": "object", "description": "Dotted keys and the values they have with `profile=NAME`."}
    profiles = {"type": "object", "description": "Profiles by name.", "additionalProperties": profile}
    required = schema.pop("required")
    return {
        **schema,
        "properties": {"extends": extends, "profiles": profiles, **schema["properties"]},
        "patternProperties": {r"^[^.]+\.": {}},
        "anyOf": [{"required": ["extends"]}, {"required": required}],
    }


def _texts(value: Any) -> list[str]:
    """Return the texts in a value."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for item in items for text in _texts(item)]


def _flatten(value: Any, path: tuple[str | int, ...] = (), data: Any = None) -> dict[str, Any]:
    data = value if not path else data
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {dotted(path, data): value}
    flat = {dotted(path, data): type(value).__name__}
    for key, child in items:
        flat.update(_flatten(child, (*path, key), data))
    return flat


def differing_keys(first: Config, second: Config) -> list[str]:
    """Return the dotted keys whose values differ between two configurations.

    >>> differing_keys(load_config("demo_addition"), load_config("demo_addition", ["seed=7", "eval.num_problems=9"]))
    ['seed', 'eval.num_problems']
    """
    left, right = _flatten(first.model_dump(mode="json")), _flatten(second.model_dump(mode="json"))
    missing = object()
    return [key for key in {**left, **right} if left.get(key, missing) != right.get(key, missing)]


def check_recorded_config(config: Config, run: RunDirectory) -> None:
    """Check that a configuration is the one that a run began with, but for `_PLACES`.

    Raises:
        ConfigError: it differs; the message names the keys.
        ArtifactError: the run's own was changed after it began.
    """
    run.read_provenance()
    keys = [key for key in differing_keys(load_config(run), config) if not _PLACES.search(key)]
    if keys:
        shown = ", ".join(f"'{key}'" for key in keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise ConfigError(
            f"cannot resume {run.path}: its configuration differs in {shown}; "
            "give the same recipe and overrides, or start another run with --out"
        )
