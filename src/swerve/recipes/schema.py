"""Walks the configuration's JSON schema: which keys are allowed where, and the shorthand for tagged unions.

A tagged union is a mapping whose key `kind` says which model it is. Where one is expected, text `x` is shorthand for
`{kind: x}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.recipes.yaml_lines import KeyPath

__all__ = ["allowed_keys", "expand_shorthand", "is_nullable", "literal_values", "schema_at", "strip_tags"]

Schema = Mapping[str, Any]


def _dereference(root: Schema, node: Schema) -> Schema:
    """Follow a reference, and take the other branch of `X or null`."""
    for option in node.get("anyOf", ()):
        if option.get("type") != "null":
            return _dereference(root, option)
    if "$ref" in node:
        target: Schema = root["$defs"][node["$ref"].rsplit("/", 1)[1]]
        return target
    return node


def _variant(root: Schema, node: Schema, value: Any) -> Schema:
    """Return the model that a tagged union's `value` names, or an empty schema."""
    union = node["discriminator"]
    tag = value.get(union["propertyName"]) if isinstance(value, Mapping) else value
    reference = union["mapping"].get(tag) if isinstance(tag, str) else None
    return _dereference(root, {"$ref": reference}) if reference else {}


def _model(root: Schema, node: Schema, value: Any) -> Schema:
    node = _dereference(root, node)
    return _variant(root, node, value) if "discriminator" in node else node


def _child(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int) and key < len(value):
        return value[key]
    return None


def schema_at(root: Schema, path: KeyPath, data: Any) -> Schema:
    """Return the schema of the value at `path` in `data`, unions not yet chosen; empty where there is none."""
    node: Schema = root
    value = data
    for key in path:
        node = _model(root, node, value)
        node = node.get("items", {}) if isinstance(key, int) else node.get("properties", {}).get(key, {})
        value = _child(value, key)
    return node


def is_nullable(node: Schema) -> bool:
    """Whether null is allowed."""
    return any(option.get("type") == "null" for option in node.get("anyOf", ()))


def literal_values(root: Schema, node: Schema) -> list[str]:
    """Return the words a value is chosen from: of an enumeration, a constant or a union's kinds."""
    node = _dereference(root, node)
    if "discriminator" in node:
        tags = {reference: tag for tag, reference in node["discriminator"]["mapping"].items()}
        return [tags[option["$ref"]] for option in node["oneOf"]]  # in the order of the configuration's source
    if "const" in node:
        return [node["const"]]
    return list(node.get("enum", ()))


def allowed_keys(root: Schema, path: KeyPath, data: Any) -> dict[str, str]:
    """Return the keys of the mapping at `path`, and of the mappings in it, each with its path from there.

    A key of the mapping itself wins over one of the same name further down: `{"lr": "optimizer.lr", ...}`.
    """
    node, value = schema_at(root, path, data), data
    for key in path:
        value = _child(value, key)
    properties = _model(root, node, value).get("properties", {})
    keys = {key: key for key in properties}
    for name, child in properties.items():
        below = _model(root, child, _child(value, name)).get("properties", {})
        keys = {**{key: f"{name}.{key}" for key in below}, **keys}
    return keys


def strip_tags(root: Schema, location: Sequence[str | int]) -> KeyPath:
    """Return a pydantic error location without the union tags that pydantic puts into it."""
    node: Schema = root
    path: list[str | int] = []
    for key in location:
        node = _dereference(root, node)
        if "discriminator" in node:
            node = _variant(root, node, key)
            continue
        path.append(key)
        node = node.get("items", {}) if isinstance(key, int) else node.get("properties", {}).get(key, {})
    return tuple(path)


def expand_shorthand(root: Schema, data: Any) -> Any:
    """Return `data` with text in the place of a tagged union written out as a mapping.

    >>> from swerve.config import Config
    >>> expand_shorthand(Config.model_json_schema(), {"task": "addition", "name": "addition"})
    {'task': {'kind': 'addition'}, 'name': 'addition'}
    """
    return _expand(root, root, data)


def _expand(root: Schema, node: Schema, value: Any) -> Any:
    node = _dereference(root, node)
    if "discriminator" in node:
        if isinstance(value, str):
            return {node["discriminator"]["propertyName"]: value}
        node = _variant(root, node, value)
    if isinstance(value, Mapping):
        properties = node.get("properties", {})
        return {key: _expand(root, properties.get(key, {}), child) for key, child in value.items()}
    if isinstance(value, list):
        return [_expand(root, node.get("items", {}), item) for item in value]
    return value
