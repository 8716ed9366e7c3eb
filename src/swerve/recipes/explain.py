"""Says in one line what is wrong with a recipe, and where: pydantic's errors in the words of the recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from swerve.errors import ConfigError, nearest
from swerve.recipes.overrides import Override
from swerve.recipes.schema import Schema, allowed_keys, is_nullable, literal_values, schema_at, strip_tags
from swerve.recipes.yaml_lines import KeyPath

__all__ = ["Origins", "explain_errors"]

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
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Where each value of a configuration was written."""

    source: str
    lines: Mapping[KeyPath, int]
    overrides: Sequence[tuple[KeyPath, Override]]

    def describe(self, path: KeyPath) -> str:
        """Return the place to blame for an error at `path`: an override at, above or below it, or a line."""
        for place, override in reversed(self.overrides):
            common = min(len(place), len(path))
            if place[:common] == path[:common] and path:
                return override.source
        line = self.line(path)
        return f"{self.source}:{line}" if line else self.source

    def line(self, path: KeyPath) -> int:
        """Return the line of the innermost key on `path` that has one, or 0."""
        return next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), 0)


def _show(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}" if value else f"an empty {type(value).__name__}"
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


def _choice(key: str, value: Any, words: Sequence[str]) -> str:
    options = ", ".join(f"'{word}'" for word in words)
    hint = nearest(value, words) if isinstance(value, str) else ""
    return f"{key} must be {'one of ' if len(words) > 1 else ''}{options}, got {_show(value)}{hint}"


def _message(root: Schema, error: ErrorDetails, path: KeyPath, data: Any) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    schema = schema_at(root, path, data)
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
    for error in errors:
        path = strip_tags(root, error["loc"])
        if error["type"] == "too_short" and error["input"]:
            continue  # pydantic repeats an item's error as a list that came out too short
        place = (*path, "kind") if error["type"] == "union_tag_invalid" else path
        line = f"{origins.describe(place)}: {_message(root, error, path, data)}"
        found.append((error["type"] != "extra_forbidden", origins.line(place), line))
    found.sort(key=lambda entry: entry[:2])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ConfigError(found[0][2] + more)
