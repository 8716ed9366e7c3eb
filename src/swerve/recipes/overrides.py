"""`KEY=VALUE` arguments: dotted keys into a recipe's data, values in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swerve.errors import ConfigError, nearest
from swerve.recipes.yaml_lines import KeyPath, parse_yaml

__all__ = ["Override", "apply_override", "parse_override"]


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
    """Return a copy of `data` with the override's value in it, and the path where it stands.

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
