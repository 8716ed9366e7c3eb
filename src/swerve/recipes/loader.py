"""Load recipes, those that ship with swerve and anybody's own, with `KEY=VALUE` overrides; and write them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from swerve.artifacts.run import RunDirectory
from swerve.config import Config
from swerve.errors import ConfigError, nearest
from swerve.recipes.epochs import with_steps
from swerve.recipes.schema import REMOVED_KEYS, Origins, expand_shorthand, explain_errors
from swerve.recipes.yaml_lines import MAX_BYTES, KeyPath, YamlDocument, emit_yaml, parse_yaml

_Settings = TypeVar("_Settings", bound=BaseModel)


def shipped_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that come with swerve.

    >>> "demo_addition" in shipped_recipes()
    True
    """
    files = resources.files("swerve.recipes").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def recipe_text(name: str) -> str:
    """Return the YAML text of a shipped recipe, comments included.

    Raises:
        ConfigError: no recipe of that name ships; the message lists those that do.
    """
    names = shipped_recipes()
    if name not in names:
        raise ConfigError(
            f"unknown recipe {name!r}{nearest(name, names)} "
            f"(shipped: {', '.join(names)}; or give the path of a YAML file)"
        )
    return (resources.files("swerve.recipes") / f"{name}.yaml").read_text(encoding="utf-8")


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"recipe file {str(path)!r} does not exist") from None
    except OSError as error:
        raise ConfigError(f"recipe file {str(path)!r} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL character in the name
        raise ConfigError(f"recipe file {str(path)!r} cannot be read: {error}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text") from None


def _read_source(source: str | Path) -> tuple[str, str]:
    """Return what messages call the recipe, and its text."""
    if isinstance(source, str) and source in shipped_recipes():
        return f"{source}.yaml", recipe_text(source)
    path = Path(source)
    named_like_recipe = isinstance(source, str) and path.suffix not in (".yaml", ".yml") and "/" not in source
    if named_like_recipe and not path.is_file():
        return str(source), recipe_text(str(source))
    return str(path), _read_file(path)


def load_config(
    source: str | Path, overrides: Sequence[str] = (), *, note: Callable[[str], object] = lambda line: None
) -> Config:
    """Return the configuration of a recipe with `KEY=VALUE` overrides applied in order.

    Keys that an earlier version had are refused with what is done in their place; in the `config.yaml` of a run, which
    is not changed after it began, they are left out.

    Args:
        source: path of a YAML file, or the name of a shipped recipe.
        overrides: such as `seed=1`, `task=knights_knaves` or `stages.rl.optimizer.lr=1e-4`; values are YAML.
        note: is given a line about what was left out, such as `print`.

    Raises:
        ConfigError: one line that names the file and line (or the override), the key, what is allowed and the nearest
            valid word.

    >>> load_config("demo_addition", ["seed=7"]).seed
    7
    """
    name, text = _read_source(source)
    document = parse_yaml(text, source=name)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}: a recipe is a mapping with the keys task, model and stages")
    if _is_of_run(Path(source)):
        document = replace(document, data=_without_removed(document.data, name, note))
    return with_steps(_validated(Config, document, name, overrides))


def _is_of_run(path: Path) -> bool:
    return path.name == "config.yaml" and (path.parent / "run.json").exists()


def _without_removed(data: Any, source: str, note: Callable[[str], object]) -> Any:
    """Return the configuration of a run of an earlier version without the keys that no longer do anything."""
    for key, reason in REMOVED_KEYS.items():
        rest = _without(data, key.split("."))
        if rest != data:
            note(f"{source}: '{key}' of an earlier version is left out: {reason}")
        data = rest
    return data


def _without(data: Any, keys: Sequence[str]) -> Any:
    if not isinstance(data, dict) or keys[0] not in data:
        return data
    if len(keys) == 1:
        return {key: value for key, value in data.items() if key != keys[0]}
    return {**data, keys[0]: _without(data[keys[0]], keys[1:])}


def load_document(model: type[_Settings], path: Path, overrides: Sequence[str] = ()) -> _Settings:
    """Return what a YAML file other than a recipe says, with overrides; errors are those of `load_config`.

    Raises:
        ConfigError: one line that names the file and line (or the override), the key, what is allowed and the nearest
            valid word.
    """
    document = parse_yaml(_read_file(path), source=str(path))
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values")
    return _validated(model, document, str(path), overrides)


def load_settings(model: type[_Settings], overrides: Sequence[str]) -> _Settings:
    """Return what `KEY=VALUE` overrides alone describe, where there is no recipe; all else has the model's defaults.

    Raises:
        ConfigError: one line that names the override, the key and what is allowed.

    >>> from swerve.config import EvalConfig
    >>> load_settings(EvalConfig, ["num_problems=9"]).num_problems
    9
    """
    return _validated(model, YamlDocument(data={}, lines={}), "overrides", overrides)


def _validated(model: type[_Settings], document: YamlDocument, source: str, overrides: Sequence[str]) -> _Settings:
    root = _schema(model)
    data = expand_shorthand(root, document.data)
    places = []
    for override in map(parse_override, overrides):
        data, path = apply_override(data, override)
        data = expand_shorthand(root, data)  # at once, so that a later override can go into it
        places.append((path, override.source))
    try:
        # Through JSON: the models are strict, and in JSON a list may become a tuple.
        return model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        origins = Origins(source=source, lines=document.lines, overrides=places)
        raise explain_errors(root, error.errors(include_url=False), data, origins) from None


def dump_yaml(config: Config) -> str:
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


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of recipes."""
    return Config.model_json_schema()


@functools.cache
def _schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {prefix: value}
    flat = {prefix: type(value).__name__}
    for key, child in items:
        flat.update(_flatten(child, f"{prefix}.{key}" if prefix else str(key)))
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
    """Check that a configuration is the one that a run began with.

    Raises:
        ConfigError: it differs; the message names the keys.
        ArtifactError: the run's own was changed after it began.
    """
    run.read_provenance()
    keys = differing_keys(load_config(run.config_path), config)
    if keys:
        shown = ", ".join(f"'{key}'" for key in keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise ConfigError(
            f"cannot resume {run.path}: its configuration differs in {shown}; "
            "give the same recipe and overrides, or start another run with --out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One `KEY=VALUE` argument."""

    text: str
    """As the user wrote it."""
    keys: tuple[str, ...]
    value: Any

    @property
    def source(self) -> str:
        """What error messages call it."""
        return f"override {self.text!r}"


def parse_override(text: str) -> Override:
    """Split `a.b.c=value` and parse the value as YAML.

    Raises:
        ConfigError: there is no `=`, a part of the key is empty, or the value is not YAML.

    >>> parse_override("stages.rl.optimizer.lr=1e-4").value
    0.0001
    """
    key, equals, value = text.partition("=")
    keys = tuple(part.strip() for part in key.split("."))
    if not equals or not all(keys):
        raise ConfigError(f"override {text!r}: must have the form KEY=VALUE, such as seed=1 or stages.rl.steps=40")
    parsed = parse_yaml(value, source=f"override {text!r}", with_lines=False).data
    return Override(text=text, keys=keys, value=parsed)


def apply_override(data: Any, override: Override) -> tuple[Any, KeyPath]:
    """Return a copy of `data` with the override's value in it, and its path.

    An item of a list is named by its index, or by its `name` or `kind` (`stages.rl`). Mappings on the way are made
    where they are missing.

    Raises:
        ConfigError: the key leads through a value that has no keys, or no list item has that name.

    >>> apply_override({"stages": [{"kind": "sft"}, {"kind": "rl"}]}, parse_override("stages.rl.steps=40"))
    ({'stages': [{'kind': 'sft'}, {'kind': 'rl', 'steps': 40}]}, ('stages', 1, 'steps'))
    """
    return _replace(data, override.keys, override, ())


def _replace(node: Any, keys: tuple[str, ...], override: Override, done: KeyPath) -> tuple[Any, KeyPath]:
    if not keys:
        return override.value, done
    head, rest = keys[0], keys[1:]
    if isinstance(node, list):
        index = _item_index(node, head, override, done)
        item, path = _replace(node[index], rest, override, (*done, index))
        return [*node[:index], item, *node[index + 1 :]], path
    if node is None or isinstance(node, dict):
        mapping = node or {}
        child, path = _replace(mapping.get(head), rest, override, (*done, head))
        return {**mapping, head: child}, path
    parent = ".".join(str(key) for key in done)
    raise ConfigError(f"{override.source}: '{parent}' is a single value and has no key '{head}'")


def _item_index(items: Sequence[Any], key: str, override: Override, done: KeyPath) -> int:
    if key.isascii() and key.isdigit() and int(key[:9]) < len(items):
        return int(key[:9])
    mappings = [item if isinstance(item, dict) else {} for item in items]
    for field in ("name", "kind"):
        found = [index for index, item in enumerate(mappings) if item.get(field) == key]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(f"{override.source}: '{key}' names {len(found)} items; use an index: {found}")
    names = [str(item.get("name") or item.get("kind") or index) for index, item in enumerate(mappings)]
    parent = ".".join(str(part) for part in done)
    raise ConfigError(
        f"{override.source}: '{parent}' has no item '{key}'; it has {', '.join(names) or 'none'}{nearest(key, names)}"
    )
