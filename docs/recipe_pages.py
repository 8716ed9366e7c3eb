"""The keys of recipes, probe files and study files, a table for each class of the configuration.

python docs/recipe_pages.py PAGE     print one, such as reference/stages.md
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import swerve.recipes
from swerve.config.recipe import Config
from swerve.probe.recipe import ProbeRecipe
from swerve.study.study_file import StudyFile

_FILES = (
    # The page, its title, and the keys that it begins with; those inside them follow.
    ("recipe", "Recipe", Config, ("", "rollout", "eval", "retention", "report", "runtime")),
    ("task", "Keys of `task`", Config, ("task",)),
    ("model", "Keys of `model`", Config, ("model",)),
    ("stages", "Keys of `stages`", Config, ("stages",)),
    ("stage-parts", "Keys inside a stage", Config, ()),
    ("objective", "Keys of the objective", Config, ()),
    ("probe", "Keys of `probe`", Config, ("probe",)),
    ("probe-file", "Probe file", ProbeRecipe, ("", "samples", "sample")),
    ("study-file", "Study file", StudyFile, ("", *StudyFile.model_fields)),
)
_OBJECTIVE = ("advantages", "loss", "kl", "entropy", "correction", "collapse")
_TYPES = {"boolean": "true or false", "integer": "integer", "number": "number", "string": "text", "object": "mapping"}
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def pages() -> dict[str, str]:
    """Return the text of each page by its name below docs/."""
    sections = _all_sections()
    links = {cls: section for section in sections for cls in section.classes if not section.keys}
    made = {}
    for file, title, _, _ in _FILES:
        parts = [f"# {title}"]
        if file == "recipe":
            parts.append((inspect.getdoc(swerve.recipes) or "").partition("\n\n")[2])
        parts += [_section_text(section, links) for section in sections if section.file == file]
        made[f"reference/{file}.md"] = "\n\n".join(parts) + "\n"
    return made


@dataclass(frozen=True)
class _Section:
    """Keys that stand in one table."""

    file: str
    title: str
    classes: tuple[type[BaseModel], ...]
    """One class, or the kinds of one key."""
    keys: tuple[str, ...] = ()
    """The keys shown; empty: all."""
    shown_before: tuple[str, ...] = ()
    """Keys that every kind has, and an earlier section shows."""

    @property
    def anchor(self) -> str:
        """Where a link to the heading goes."""
        return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", self.title).strip().lower())


def _all_sections() -> list[_Section]:
    sections, seen = list[_Section](), set[type[BaseModel]]()
    for file, _, root, keys in _FILES:
        if "" in keys:
            sections.append(_Section(file, "Top level", (root,)))
        for key in filter(None, keys):
            sections += _sections_of(file, key, root.model_fields[key].annotation, seen)
    return sections


def _sections_of(file: str, key: str, hint: Any, seen: set[type[BaseModel]]) -> Iterator[_Section]:
    """Yield the sections of one key's value and of what is inside it, level by level, once for each class."""
    level = {f"{key}.*" if _is_list(hint) else key: _models_in(hint)}
    while level:
        below: dict[str, list[type[BaseModel]]] = {}
        for path, models in level.items():
            classes = tuple(dict.fromkeys(cls for cls in models if cls not in seen))
            seen.update(classes)
            inner_file = "objective" if path.rpartition(".")[2] in _OBJECTIVE else "stage-parts"
            yield from _sections_at(inner_file if path.startswith("stages.*.") else file, path, classes)
            for cls in classes:
                for name, field in cls.model_fields.items():
                    inner = f"{path}.{name}.*" if _is_list(field.annotation) else f"{path}.{name}"
                    below.setdefault(inner, []).extend(_models_in(field.annotation))
        level = {path: models for path, models in below.items() if models}


def _sections_at(file: str, path: str, classes: tuple[type[BaseModel], ...]) -> Iterator[_Section]:
    """Yield one section, or one for each class where these have many keys each."""
    are_kinds = all("kind" in cls.model_fields for cls in classes)
    if len(classes) < 2 or (are_kinds and "." in path.removesuffix(".*")):
        if classes:
            yield _Section(file, f"`{path}`", classes)
        return
    common = _common_keys(classes)
    if len(common) > 2:
        yield _Section(file, f"`{path}`: all kinds", classes, keys=common)
    for cls in classes:
        name = f"`{_kind(cls)}`" if are_kinds else cls.__name__
        yield _Section(file, f"`{path}`: {name}", (cls,), shown_before=common if len(common) > 2 else ())


def _models_in(hint: Any) -> list[type[BaseModel]]:
    """Return the configuration classes inside a type, in their order."""
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return [hint]
    return [cls for part in typing.get_args(hint) if part is not Ellipsis for cls in _models_in(part)]


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple or any(map(_is_list, typing.get_args(hint)))


def _common_keys(classes: tuple[type[BaseModel], ...]) -> tuple[str, ...]:
    """Return the keys that all these classes have from one base class."""

    def is_the_same(key: str) -> bool:
        fields = [cls.model_fields.get(key) for cls in classes]
        return all(field is not None and repr(field) == repr(fields[0]) for field in fields)

    return tuple(filter(is_the_same, classes[0].model_fields))


def _kind(cls: type[BaseModel]) -> str:
    return str(cls.model_fields["kind"].default) if "kind" in cls.model_fields else ""


def _section_text(section: _Section, links: Mapping[type[BaseModel], _Section]) -> str:
    """Return a heading, the docstring of the class, and the table of its keys."""
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for cls in section.classes[:1] if section.keys else section.classes:
        schema = cls.model_json_schema()
        if len(section.classes) > 1 and not section.keys:
            rows.append(f"| **`kind: {_kind(cls)}`** | | | {_document(cls).partition(chr(10))[0]} |")
        for key, field in cls.model_fields.items():
            if key == "kind" or key in section.shown_before or (section.keys and key not in section.keys):
                continue
            node = schema["properties"][key]
            value, default = _value(node, schema), _default(field, node)
            rows.append(f"| `{key}` | {value} | {default} | {_meaning(field, section, links)} |")
    parts = [f"## {section.title}", _document(section.classes[0]) if len(section.classes) == 1 else ""]
    return "\n\n".join([*filter(None, parts), *(["\n".join(rows)] if len(rows) > 2 else [])])


def _document(cls: type[BaseModel]) -> str:
    return inspect.getdoc(cls) or ""


def _meaning(field: FieldInfo, section: _Section, links: Mapping[type[BaseModel], _Section]) -> str:
    """Return what a docstring says of a key, and where the keys of its value are."""
    words = " ".join((field.description or "").split()).replace("|", "&#124;")
    inside = {links[cls]: None for cls in _models_in(field.annotation) if cls in links}
    if len(inside) > 2:
        file = next(iter(inside)).file
        return f"{words} Keys: [{file}]({file}.md)." if file != section.file else words
    places = [f"[{one.title}]({'' if one.file == section.file else f'{one.file}.md'}#{one.anchor})" for one in inside]
    return f"{words} Keys: {', '.join(places)}.".strip() if places else words


def _default(field: FieldInfo, node: Mapping[str, Any]) -> str:
    if field.is_required():
        return "required"
    # Where a default depends on other keys, the schema has the usual one.
    is_fitted = field.default_factory_takes_validated_data
    value = node["default"] if is_fitted else field.get_default(call_default_factory=True)
    if isinstance(value, Mapping) and "kind" in value:
        return f"`{value['kind']}`"
    if hasattr(value, "kind"):
        return f"`{value.kind}`"
    if isinstance(value, BaseModel):
        return "`{}`"
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value, default=str)}`"


def _value(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return in words what a part of a JSON schema allows."""
    if "anyOf" in node:
        return " or ".join(_value(part, schema) for part in node["anyOf"])
    if "discriminator" in node:
        kinds = {reference: kind for kind, reference in node["discriminator"]["mapping"].items()}
        return ", ".join(f"`{kinds[part['$ref']]}`" for part in node["oneOf"])
    if "$ref" in node:
        return _value(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    if "const" in node or "enum" in node:
        return ", ".join(f"`{word}`" for word in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        items = _value(node["items"], schema) if "items" in node else "text"
        word, _, rest = items.partition(" ")
        return f"list of {f'{word}s {rest}'.strip() if word in _TYPES.values() else items}"
    if node.get("format") == "date":
        return "date"
    if node.get("type") == "null":
        return "null"
    if "type" not in node:
        return "any value"
    bounds = (f"{sign} {node[name]:.10g}" for name, sign in _BOUNDS.items() if name in node)
    return f"{_TYPES[node['type']]} {', '.join(bounds)}".strip()


if __name__ == "__main__":
    print(pages()[sys.argv[1]], end="")
