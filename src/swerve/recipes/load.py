"""Recipe and overrides in, configuration out; and the way back. Free of torch."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from swerve.config import Config
from swerve.errors import ConfigError, nearest
from swerve.recipes.explain import Origins, explain_errors
from swerve.recipes.overrides import apply_override, parse_override
from swerve.recipes.schema import expand_shorthand
from swerve.recipes.yaml_lines import MAX_BYTES, emit_yaml, parse_yaml

__all__ = [
    "config_hash",
    "config_schema",
    "differing_keys",
    "dump_yaml",
    "load_config",
    "recipe_text",
    "shipped_recipes",
]


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


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of a recipe with `KEY=VALUE` overrides applied in order.

    Args:
        source: path of a YAML file, or the name of a shipped recipe.
        overrides: such as `seed=1`, `task=knights_knaves` or `stages.rl.optimizer.lr=1e-4`; values are YAML.

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
    root = _schema()
    data = expand_shorthand(root, document.data)
    places = []
    for override in map(parse_override, overrides):
        data, path = apply_override(data, override)
        # Expanded at once, so that a later override can go into it.
        data = expand_shorthand(root, data)
        places.append((path, override))
    try:
        # Through JSON: the models are strict, and in JSON a list may become a tuple.
        return Config.model_validate_json(json.dumps(data))
    except ValidationError as error:
        origins = Origins(source=name, lines=document.lines, overrides=places)
        raise explain_errors(root, error.errors(include_url=False), data, origins) from None


def dump_yaml(config: Config) -> str:
    """Return the resolved configuration as YAML; `load_config` reads it back to an equal one."""
    return emit_yaml(config.model_dump(mode="json"))


def config_hash(config: Config) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the configuration's canonical JSON."""
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of recipes."""
    return Config.model_json_schema()


@functools.cache
def _schema() -> Mapping[str, Any]:
    return config_schema()


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
