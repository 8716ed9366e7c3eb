"""Walk the configuration's JSON schema: allowed keys, the shorthand for tagged unions, and one line per error.

A tagged union is a mapping whose key `kind` says which model it is. Where one is expected, text `x` is shorthand for
`{kind: x}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import ErrorDetails

from swerve.errors import ConfigError, nearest
from swerve.recipes.yaml_lines import KeyPath

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


def _options(node: Schema) -> list[Schema]:
    """Return what a value may be instead of one thing, null left out: the branches of a union without kinds."""
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    return options if len(options) > 1 else []


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
    """Return the schema of the value at `path` in `data`, unions not yet chosen; empty if there is no such value."""
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
        if _options(node):
            break  # the key names a branch of the union
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


_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), "a date such as 2026-01-31"),
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a part of a configuration was written."""

    path: KeyPath
    """Of the part in the configuration."""
    source: str
    """The file, or what messages call an override."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """Of a file: the line of every key in the part, by its path in the configuration."""

    def covers(self, path: KeyPath) -> bool:
        """Whether the part is at, above or below a path."""
        common = min(len(self.path), len(path))
        return self.path[:common] == path[:common]

    def line(self, path: KeyPath) -> int:
        """Return the line of the innermost key on `path` that has one, of the part itself otherwise, or 0."""
        found = (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines)
        return next(found, self.lines.get(self.path, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Where each value of a configuration was written."""

    source: str
    """What messages call the recipe."""
    parts: Sequence[Origin]
    """Each replaces what those before it have at its path."""

    def _of(self, path: KeyPath) -> Origin:
        parts = reversed(self.parts) if path else ()
        return next((part for part in parts if part.covers(path)), Origin(path=(), source=self.source))

    def describe(self, path: KeyPath) -> str:
        """Return the place to blame for an error at `path`: an override, or a file and line."""
        origin = self._of(path)
        line = origin.line(path)
        return f"{origin.source}:{line}" if line else origin.source

    def line(self, path: KeyPath) -> int:
        """Return the line to blame for an error at `path`, or 0."""
        return self._of(path).line(path)


def _show(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, dict | list):
        return f"{'a' if value else 'an empty'} {'mapping' if isinstance(value, dict) else 'list'}"
    return json.dumps(value)[:60]


def _key(path: KeyPath) -> str:
    text = ".".join(str(key) for key in path)
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _unknown_key(root: Schema, path: KeyPath, data: Any) -> str:
    known = allowed_keys(root, path[:-1], data)
    name = str(path[-1])
    if name in known:
        return f"unknown key {_key(path)}; did you mean '{known[name]}'?"
    own = [key for key, place in known.items() if key == place]
    return f"unknown key {_key(path)}" + (nearest(name, own) or f"; allowed: {', '.join(own)}")


def _described(option: Schema) -> str:
    """Return in words what a branch of a union without kinds takes."""
    if "const" in option:
        return f"'{option['const']}'"
    if option["type"] == "array":
        return "a list of texts"
    return f"a number above {option['exclusiveMinimum']:.10g}"


def _choice(key: str, value: Any, words: Sequence[str | int]) -> str:
    options = ", ".join(f"'{word}'" if isinstance(word, str) else str(word) for word in words)
    hint = nearest(value, [word for word in words if isinstance(word, str)]) if isinstance(value, str) else ""
    return f"{key} must be {'one of ' if len(words) > 1 else ''}{options}, got {_show(value)}{hint}"


def _message(root: Schema, error: ErrorDetails, path: KeyPath, data: Any) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    schema = schema_at(root, path, data)
    if options := _options(schema):
        null = " or null" if is_nullable(schema) else ""
        return f"{_key(path)} must be {' or '.join(map(_described, options))}{null}, got {_show(value)}"
    words = literal_values(root, schema)
    if kind == "extra_forbidden":
        return _unknown_key(root, path, data)
    if kind == "missing":
        return f"missing required key {_key(path)}"
    if kind == "union_tag_invalid":
        return _choice(_key((*path, "kind")), context["tag"], words)
    if kind == "union_tag_not_found":
        return f"missing required key {_key((*path, 'kind'))}; allowed: {', '.join(words)}"
    if kind == "literal_error":
        return _choice(_key(path), value, words)
    if kind in _EXPECTED:
        null = " or null" if is_nullable(schema) else ""
        quote = "; put it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"{_key(path)} must be {_EXPECTED[kind]}{null}, got {_show(value)}{quote}"
    if kind in _BOUNDS:
        bound, words_of_bound = _BOUNDS[kind]
        return f"{_key(path)} must be {words_of_bound} {context[bound]:.10g}, got {_show(value)}"
    if kind == "too_short":
        return f"{_key(path)} must have at least {context['min_length']} item"
    text = error["msg"].removeprefix("Value error, ")
    return f"{_key(path)}: {text}" if path else text


def explain_errors(root: Schema, errors: Sequence[ErrorDetails], data: Any, origins: Origins) -> ConfigError:
    """Return the error to raise: misspelt keys first (they cause others), then by line; the rest are counted."""
    found = []
    unions = set()
    for error in errors:
        path = strip_tags(root, error["loc"])
        if _options(schema_at(root, path, data)):
            if path in unions:
                continue  # one error for each branch
            unions.add(path)
        if error["type"] == "too_short" and error["input"]:
            continue  # pydantic repeats an item's error as a list that came out too short
        place = (*path, "kind") if error["type"] == "union_tag_invalid" else path
        line = f"{origins.describe(place)}: {_message(root, error, path, data)}"
        found.append((error["type"] != "extra_forbidden", origins.line(place), line))
    found.sort(key=lambda entry: entry[:2])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ConfigError(found[0][2] + more)
