"""What a recipe is made of: the recipe that it extends, its own keys, a profile, and `KEY=VALUE` overrides.

Each is laid over what comes before it. A layer of dotted keys, which a profile, the command line and the top level of
a recipe that extends another have, replaces one value by another; mappings of a recipe are merged with those of the
recipe that it extends.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from swerve.errors import ConfigError, nearest, shown
from swerve.recipes.files import RecipeUse, read_recipe_text
from swerve.recipes.yaml_lines import YamlDocument, parse_yaml
from swerve.schema import KeyPath, Origin, expand_shorthand


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One dotted key with its value: a `KEY=VALUE` argument, or a line of a file."""

    text: str
    """What error messages call it, or the file it stands in."""
    keys: tuple[str, ...]
    value: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """Of a file: the line of the key, and of every key of the value, by their paths from here."""
    merges: bool = False
    """Whether a mapping is merged with one of the same `kind`, or with the items of a list that it names."""
    word: str = ""
    """Of a KEY=VALUE argument what was typed."""

    @property
    def source(self) -> str:
        """What error messages call it, with the line."""
        return f"{self.text}:{self.lines[()]}" if self.lines else self.text


_SHOWN_CHARS = 60
Change = str | Mapping[str, Any] | Sequence[str] | Override
"""A change of a recipe: `KEY=VALUE`, a mapping of keys to values, or several texts."""

Profiles = Mapping[str, Mapping[str, Override] | None]
"""Overrides by profile and dotted key; None: no such profile, whatever a recipe that is extended has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """Plain data of a recipe, where each part of it was written, and its profiles."""

    name: str
    """What error messages call the recipe."""
    data: Any
    model: type[BaseModel] = BaseModel
    """What the data is read as, which says where text is shorthand for a mapping."""
    origins: tuple[Origin, ...] = ()
    profiles: Profiles = field(default_factory=dict)

    @property
    def profile_names(self) -> tuple[str, ...]:
        """Names that `profile=NAME` may have."""
        return tuple(name for name, overrides in self.profiles.items() if overrides is not None)

    def overridden(self, override: Override) -> Layered:
        """Return the recipe with an override in it; later ones can go into its value."""
        if override.merges:
            return functools.reduce(Layered.overridden, _leaves(self.data, override), self)
        data, path = apply_override(self.data, override)
        lines = {(*path, *rest): line for rest, line in override.lines.items()}
        # What may be a secret is in no error: the key of a server in place of its variable's name, or a password.
        may_be_secret = override.keys[-2:] in (("engine", "key"), ("engine", "url"))
        source = f"override '{'.'.join(map(str, override.keys))}=...'" if may_be_secret else override.text
        origin = Origin(path=path, source=source, lines=lines, word=override.word)
        return replace(self, data=expand_shorthand(self.model, data), origins=(*self.origins, origin))

    def profile(self, chosen: Override) -> tuple[Override, ...]:
        """Return the overrides of the profile that `profile=NAME` chooses.

        Raises:
            ConfigError: there is no such profile; the message lists those there are.
        """
        if chosen.value is None:
            return ()
        overrides = self.profiles.get(chosen.value) if isinstance(chosen.value, str) else None
        if overrides is None:
            names = self.profile_names
            known = f"{nearest(str(chosen.value), names)} ({', '.join(names)})"
            has = f"no profile '{chosen.value}'{known}" if names else "no profiles"
            raise ConfigError(f"{chosen.source}: {self.name} has {has}")
        return tuple(overrides.values())


def overrides_of(given: Iterable[Change], keywords: Mapping[str, Any] = {}) -> list[Override]:
    """Return changes of a recipe one by one; a mapping is laid over the recipe as one that extends it would be.

    Raises:
        ConfigError: a text is not `KEY=VALUE`, or a value is nothing that a recipe can hold.

    >>> [override.keys for override in overrides_of(["seed=1", {"stages.rl.steps": 40}], {"name": "mine"})]
    [('seed',), ('stages', 'rl', 'steps'), ('name',)]
    """
    overrides: list[Override] = []
    for change in (*given, keywords):
        if isinstance(change, Override):
            overrides.append(change)
        elif isinstance(change, str):
            overrides.append(parse_override(change))
        elif isinstance(change, Mapping):
            overrides += [_mapped_override(str(key), value) for key, value in change.items()]
        elif isinstance(change, Sequence):
            overrides += overrides_of(change)
        else:
            raise ConfigError(
                f"a change must be text such as 'seed=1', or a mapping of keys to values, got {shown(change)}"
            )
    return overrides


def _mapped_override(key: str, value: Any) -> Override:
    """Return a key of a mapping with its value as JSON has it; NumPy's numbers are numbers."""
    keys = tuple(part.strip() for part in key.split("."))
    source = _change_text(key, value)
    if not all(keys):
        raise ConfigError(f"{source}: a part of the key is empty")
    try:
        plain = to_jsonable_python(value, fallback=lambda number: number.item())
    except (PydanticSerializationError, AttributeError, ValueError):
        raise ConfigError(f"{source}: {type(value).__name__} is no value of a recipe") from None
    return Override(text=source, keys=keys, value=plain, merges=len(keys) == 1 and isinstance(plain, dict))


def _change_text(key: str, value: Any) -> str:
    text = repr(value)
    return f"{key}={text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}...'}"


def _leaves(data: Any, override: Override) -> Iterator[Override]:
    """Yield the values that a mapping changes, one by one."""
    base = data
    for depth, key in enumerate(override.keys):
        if isinstance(base, list):
            base = base[_item_index(base, key, override, override.keys[:depth])]
        else:
            base = base.get(key) if isinstance(base, dict) else None
    new = override.value
    is_like = isinstance(base, dict) and isinstance(new, dict) and new.get("kind", base.get("kind")) == base.get("kind")
    if not new or not (is_like or (isinstance(base, list) and isinstance(new, dict))):
        yield replace(override, merges=False)
        return
    for key, value in new.items():
        keys = (*override.keys, *key.split("."))
        yield from _leaves(data, replace(override, text=_change_text(".".join(keys), value), keys=keys, value=value))


def split_profile(overrides: Sequence[str | Override]) -> tuple[Override | None, list[Override]]:
    """Return the last `profile=NAME` of a command line, and the other overrides.

    >>> split_profile(["seed=1", "profile=tiny"])[0].value
    'tiny'
    """
    chosen, others = None, []
    for given in overrides:
        override = parse_override(given) if isinstance(given, str) else given
        if override.keys == ("profile",):
            chosen = override
        else:
            others.append(override)
    return chosen, others


def read_layers(
    source: str | Path,
    use: RecipeUse,
    model: type[BaseModel] = BaseModel,
    *,
    children: Mapping[str, str] = {},
    place: str = "",
) -> Layered:
    """Return a recipe with what it extends.

    Args:
        source: path of a YAML file, or the name of a shipped recipe of that use.
        use: the command that runs it.
        model: what it is read as, for its shorthand; by default none is written out.
        children: the recipes that extend this one, for the message about a circle: path -> name.
        place: of the `extends` that names it, with which its errors begin.

    Raises:
        ConfigError: a file cannot be read, recipes extend one another in a circle, or profiles are no mappings.
    """
    try:
        name, text = read_recipe_text(source, use)
    except ConfigError as error:
        raise ConfigError(f"{place}{error}") from None
    if (identity := os.path.realpath(source)) in children:
        circle = " -> ".join((*children.values(), name))
        raise ConfigError(f"{place}recipes extend one another in a circle: {circle}")
    document = parse_yaml(text, source=name)
    if not isinstance(document.data, dict):
        train = "a recipe is a mapping with the keys task, model and stages"
        raise ConfigError(f"{name}: {train if use == 'train' else 'must be a mapping of keys to values'}")

    # A recipe that extends none is its own keys.
    own = {key: value for key, value in document.data.items() if key not in ("extends", "profiles")}
    profiles = _profiles(document, name)
    parent = document.data.get("extends")
    if parent is None:
        origin = Origin(path=(), source=name, lines=document.lines)
        data = expand_shorthand(model, own)
        return Layered(name=name, data=data, model=model, origins=(origin,), profiles=profiles)

    # Another one names a shipped recipe, or a file whose path is relative to its own.
    place = f"{name}:{document.lines[('extends',)]}: "
    if not isinstance(parent, str) or not parent:
        raise ConfigError(f"{place}'extends' must be the name of a shipped recipe or the path of a YAML file")
    if Path(parent).suffix in (".yaml", ".yml") or "/" in parent:
        parent = os.path.normpath(Path(source).parent / parent)
    base = read_layers(parent, use, model, children={**children, identity: name}, place=place)

    # It lays its mappings over those of the recipe that it extends, then its dotted keys one by one.
    merged, paths = _merged(base.data, {key: value for key, value in own.items() if "." not in key}, ())
    layered = replace(
        base,
        name=name,
        data=expand_shorthand(model, merged),
        origins=(*base.origins, *(Origin(path=path, source=name, lines=document.lines) for path in paths)),
        profiles=_inherited(base.profiles, profiles),
    )
    for key in own:
        if "." in key:
            layered = layered.overridden(_file_override(document, (key,), name))
    return layered


def _inherited(base: Profiles, own: Profiles) -> Profiles:
    """Return the profiles of a recipe that extends another: of the inherited keys, none at or below one of its own."""
    profiles: dict[str, Mapping[str, Override] | None] = {**base, **own}
    for name, new in own.items():
        if new is not None:
            replaced = tuple(f"{key}." for key in new)
            kept = {key: old for key, old in (base.get(name) or {}).items() if not f"{key}.".startswith(replaced)}
            profiles[name] = {**kept, **new}
    return profiles


def _profiles(document: YamlDocument, name: str) -> Profiles:
    """Return the profiles that a file has itself."""
    profiles = document.data.get("profiles") or {}
    if not isinstance(profiles, dict):
        raise ConfigError(f"{name}:{document.lines['profiles',]}: 'profiles' must be a mapping of names to profiles")
    for profile, overrides in profiles.items():
        if overrides is not None and not isinstance(overrides, dict):
            place = f"{name}:{document.lines['profiles', profile]}"
            raise ConfigError(f"{place}: 'profiles.{profile}' must be a mapping of dotted keys to values")
    return {
        profile: overrides and {key: _file_override(document, ("profiles", profile, key), name) for key in overrides}
        for profile, overrides in profiles.items()
    }


def _file_override(document: YamlDocument, path: tuple[str, ...], name: str) -> Override:
    """Return the dotted key at a path of a file."""
    value = document.data
    for key in path:
        value = value[key]
    size = len(path)
    lines = {place[size:]: line for place, line in document.lines.items() if place[:size] == path}
    keys = tuple(part.strip() for part in path[-1].split("."))
    if not all(keys):
        raise ConfigError(f"{name}:{lines[()]}: a part of the key {path[-1]!r} is empty")
    return Override(text=name, keys=keys, value=value, lines=lines)


def _merged(base: Any, new: Any, path: KeyPath) -> tuple[Any, list[KeyPath]]:
    """Return `base` with `new` laid over it, and the paths at which a value of `new` stands whole.

    Mappings are merged unless they are of another `kind`; anything else is replaced.
    """
    if isinstance(new, str) and isinstance(base, dict) and "kind" in base:
        new = {"kind": new}
    if not (isinstance(base, dict) and isinstance(new, dict)) or new.get("kind", base.get("kind")) != base.get("kind"):
        return new, [path]
    merged, paths = dict(base), list[KeyPath]()
    for key, value in new.items():
        if key in base:
            merged[key], below = _merged(base[key], value, (*path, key))
        else:
            merged[key], below = value, [(*path, key)]
        paths += below
    return merged, paths


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
    source = f"override {text!r}"
    return Override(text=source, keys=keys, value=parse_yaml(value, source=source, with_lines=False).data, word=text)


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
    for name in ("name", "kind"):
        indices = [index for index, item in enumerate(mappings) if item.get(name) == key]
        if len(indices) == 1:
            return indices[0]
        if indices:
            raise ConfigError(f"{override.source}: '{key}' names {len(indices)} items; use an index: {indices}")
    names = [str(item.get("name") or item.get("kind") or index) for index, item in enumerate(mappings)]
    parent = ".".join(str(part) for part in done)
    raise ConfigError(
        f"{override.source}: '{parent}' has no item '{key}'; it has {', '.join(names) or 'none'}{nearest(key, names)}"
    )
