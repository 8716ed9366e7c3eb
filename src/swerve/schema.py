"""Walk the classes of settings: allowed keys, the shorthand for tagged unions, and one line per error.

A tagged union is a mapping whose key `kind` says which class it is. Where one is expected, text `x` is shorthand for
`{kind: x}`. A hint is the type of a value, as a class's annotation has it; None where nothing is known of the value.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from swerve.errors import ConfigError, ConfigErrors, UnknownKeyError, nearest

KeyPath = tuple[str | int, ...]
"""Keys and places in lists, from the whole down to a value."""
Hint = Any
_MOST_PLACES = 3
"""That an error names, where a key may stand at several."""
_NEARLY = 0.8
"""How alike a name and a key are, of 1, to be taken for one that stands elsewhere."""


@dataclass(frozen=True, slots=True)
class AlsoCalled:
    """What a setting is called in other commands, or by other programs: an error says which was meant."""

    names: tuple[str, ...]


def _origin(hint: Hint) -> Any:
    return get_origin(hint)


def _bare(hint: Hint) -> Hint:
    """Return a type without its bounds."""
    return get_args(hint)[0] if _origin(hint) is Annotated else hint


def _branches(hint: Hint) -> list[Hint]:
    """Return what a value may be, of unions within unions too."""
    if _origin(_bare(hint)) not in (Union, UnionType):
        return [hint]
    return [branch for part in get_args(_bare(hint)) for branch in _branches(part)]


def _is_class(hint: Hint) -> bool:
    return inspect.isclass(hint) and issubclass(hint, BaseModel)


def _kinds(hint: Hint) -> dict[str, type[BaseModel]]:
    """Return the classes of a tagged union by their kind; empty where a value is no such union."""
    classes = [branch for branch in _branches(hint) if _is_class(branch)]
    return {cls.model_fields["kind"].default: cls for cls in classes} if len(classes) > 1 else {}


def _options(hint: Hint) -> list[Hint]:
    """Return what a value may be instead of one thing, null left out: the branches of a union without kinds."""
    options = [branch for branch in _branches(hint) if branch is not NoneType]
    return options if len(options) > 1 and not _kinds(hint) else []


def _class_of(hint: Hint, value: Any) -> type[BaseModel] | None:
    """Return the class of a mapping, by its kind in a tagged union; None where it has none."""
    if kinds := _kinds(hint):
        kind = value.get("kind") if isinstance(value, Mapping) else value
        return kinds.get(kind) if isinstance(kind, str) else None
    return next((branch for branch in _branches(hint) if _is_class(branch)), None)


def _below(hint: Hint, key: str | int, value: Any) -> Hint:
    """Return the type of what stands at a key, or in a list, of a value."""
    if isinstance(key, int):
        lists = [branch for branch in map(_bare, _branches(hint)) if _origin(branch) in (tuple, list)]
        return get_args(lists[0])[0] if lists else None
    cls = _class_of(hint, value)
    return cls.model_fields[key].annotation if cls is not None and key in cls.model_fields else None


def _child(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int) and key < len(value):
        return value[key]
    return None


def _at(model: type[BaseModel], path: KeyPath, data: Any) -> tuple[Hint, Any]:
    """Return the type and the value at `path` in `data`."""
    hint, value = model, data
    for key in path:
        hint, value = _below(hint, key, value), _child(value, key)
    return hint, value


def _words(hint: Hint) -> list[Any]:
    """Return the words a value is chosen from: of a literal, or a union's kinds."""
    literals = [branch for branch in _branches(hint) if _origin(branch) is Literal]
    return list(_kinds(hint)) or [word for literal in literals for word in get_args(literal)]


def allowed_keys(model: type[BaseModel], path: KeyPath, data: Any) -> dict[str, str]:
    """Return the keys of the mapping at `path`, and of the mappings in it, each with its path from there.

    A key of the mapping itself wins over one of the same name further down: `{"lr": "optimizer.lr", ...}`.
    """
    hint, value = _at(model, path, data)
    cls = _class_of(hint, value) or BaseModel
    keys = {key: key for key in cls.model_fields}
    for name, entry in cls.model_fields.items():
        below = _class_of(entry.annotation, _child(value, name))
        if below is not None:
            keys = {**{key: f"{name}.{key}" for key in below.model_fields}, **keys}
    return keys


def _every_key(hint: Hint, data: Any, path: KeyPath = ()) -> Iterator[tuple[str, KeyPath]]:
    """Yield the name of every key of a configuration, and what it is also called, with where it stands."""
    cls = _class_of(hint, data)
    for key, entry in cls.model_fields.items() if cls is not None else ():
        yield key, (*path, key)
        for more in entry.metadata:
            yield from ((name, (*path, key)) for name in (more.names if isinstance(more, AlsoCalled) else ()))
        yield from _every_key(entry.annotation, _child(data, key), (*path, key))
    for number, item in enumerate(data if isinstance(data, list) else ()):
        yield from _every_key(_below(hint, number, data), item, (*path, number))


def places_of(name: str, model: type[BaseModel], data: Any) -> list[str]:
    """Return where in a configuration a key of a name stands, or one that is also called so, the highest first."""
    return [dotted(path, data) for path in _paths_of(name, model, data)]


def _paths_of(name: str, model: type[BaseModel], data: Any) -> list[KeyPath]:
    return sorted(dict.fromkeys(path for key, path in _every_key(model, data) if key == name), key=len)


def nearly_called(name: str, model: type[BaseModel], data: Any) -> str | None:
    """Return the key of a configuration that a name is a slip of; None: of none."""
    known = {key for key, _ in _every_key(model, data)}
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_NEARLY)), None)


def strip_tags(model: type[BaseModel], location: Sequence[str | int]) -> KeyPath:
    """Return a pydantic error location without the union tags that pydantic puts into it."""
    hint: Hint = model
    path: list[str | int] = []
    for key in location:
        if _options(hint):
            break  # the key names a branch of the union
        if kinds := _kinds(hint):
            hint = kinds.get(str(key))
            continue
        path.append(key)
        hint = _below(hint, key, None)
    return tuple(path)


def expand_shorthand(hint: Hint, data: Any) -> Any:
    """Return `data` of a type with text in the place of a tagged union written out as a mapping.

    >>> from swerve.config.recipe import Config
    >>> expand_shorthand(Config, {"task": "addition", "name": "addition"})
    {'task': {'kind': 'addition'}, 'name': 'addition'}
    """
    if isinstance(data, str) and _kinds(hint):
        return {"kind": data}
    if isinstance(data, Mapping):
        return {key: expand_shorthand(_below(hint, key, data), child) for key, child in data.items()}
    if isinstance(data, list):
        return [expand_shorthand(_below(hint, 0, data), item) for item in data]
    return data


def with_section_defaults(hint: Hint, data: Any) -> Any:
    """Return `data` of a type with what a section has by default there, and not everywhere, beside its own keys.

    A key that is given so leaves the defaults of the others.

    >>> from swerve.config.sampling import SampleSettings
    >>> with_section_defaults(SampleSettings, {"runtime": {"device": "cpu"}})
    {'runtime': {'max_rows': 64, 'device': 'cpu'}}
    """
    if isinstance(data, list):
        return [with_section_defaults(_below(hint, 0, data), item) for item in data]
    if not isinstance(data, Mapping):
        return data
    fields, filled = (_class_of(hint, data) or BaseModel).model_fields, {}
    for key, value in data.items():
        default = fields[key].default if key in fields else None
        if isinstance(default, BaseModel) and isinstance(value, Mapping) and "kind" not in type(default).model_fields:
            value = {**default.model_dump(mode="json", exclude_unset=True), **value}
        filled[key] = with_section_defaults(_below(hint, key, data), value)
    return filled


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
    word: str = ""
    """Of a KEY=VALUE what was typed."""

    def covers(self, path: KeyPath) -> bool:
        """Whether the part is at, above or below a path."""
        common = min(len(self.path), len(path))
        return self.path[:common] == path[:common]

    def line(self, path: KeyPath) -> int:
        """Return the line of the innermost key on `path` that has one, of the part itself otherwise, or 0."""
        found = (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines)
        return next(found, self.lines.get(self.path, 0))


def _show(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, dict | list):
        return f"{'a' if value else 'an empty'} {'mapping' if isinstance(value, dict) else 'list'}"
    return json.dumps(value)[:60]


def dotted(path: KeyPath, data: Any) -> str:
    """Return a path as the command line writes it: items of lists by their name or kind, where that names one alone.

    >>> dotted(("stages", 1, "steps"), {"stages": [{"kind": "sft"}, {"kind": "rl"}]})
    'stages.rl.steps'
    """
    words = []
    for key in path:
        child = _child(data, key)
        words.append(str(key))
        if isinstance(key, int) and isinstance(data, list):
            labels = [item.get("name") or item.get("kind") if isinstance(item, Mapping) else None for item in data]
            own = labels[key] if key < len(labels) else None
            words[-1] = str(own if own is not None and labels.count(own) == 1 else key)
        data = child
    return ".".join(words)


def _key(path: KeyPath, data: Any) -> str:
    text = dotted(path, data)
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _key_meant(model: type[BaseModel], path: KeyPath, data: Any) -> str:
    """Return what may have been meant by a key that there is not, or which keys there are."""
    known = allowed_keys(model, path[:-1], data)
    name = str(path[-1])
    # Another kind of what stands here may have it.
    around, value = _at(model, path[:-1], data)
    kinds = [f"'{kind}'" for kind, cls in _kinds(around).items() if name in cls.model_fields]
    if kinds and isinstance(path[-2], str):  # of a list of stages another one is meant
        key = dotted((*path[:-1], "kind"), data)
        return f": it belongs to {key}={' or '.join(kinds)}, here it is {_show(_child(value, 'kind'))}; set {key}, too"
    # One that is here; a slip of a path, which may begin with an item of a list; what a key is also called.
    rest, every = _keys_below(_at(model, path, data)[1]), list(_every_key(model, data))
    lists = {place[:end] for _, place in every for end, key in enumerate(place) if isinstance(key, int)}
    starts = [path[:-1], *sorted(lists, key=len)] if rest else []
    whole = next(filter(None, (_key_below(model, start, (name, *rest), data) for start in starts)), None)
    also = {called: place[-1] for called, place in every if place[:-1] == path[:-1]}
    deeper = dotted((*path[:-1], *known[name].split(".")), data) if "." in known.get(name, "") else None
    if meant := deeper or known.get(name) or whole or also.get(name):
        return f"; did you mean '{meant}'?"
    # A key that stands elsewhere; a slip of one that is here, or of one elsewhere.
    own = [key for key, place in known.items() if key == place]
    places = _paths_of(name, model, data)
    if not places and rest and rest[-1] != "kind":  # what the last key is said to stand in is not there
        places = _paths_of(rest[-1], model, data)
        places, rest = [place for place in places if place[:-1] == path[:-1]] or places, ()
    if not places and not (hint := nearest(name, own)) and (other := nearly_called(name, model, data)):
        places = _paths_of(other, model, data)
    if places:
        where = " at the top level" if len(path) > 1 and len(places[0]) == 1 else ""
        keys = [_key_below(model, place, rest, data) or dotted(place, data) for place in places[:_MOST_PLACES]]
        return f"; did you mean {' or '.join(map(repr, keys))}{where}?"
    return hint or f"; allowed: {', '.join(own)}"


def _keys_below(value: Any) -> tuple[str, ...]:
    """Return the keys down to the one value in a mapping, such as that of `a.b.c=1` has."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return ()
    ((key, below),) = value.items()
    return (str(key), *_keys_below(below))


def _key_below(model: type[BaseModel], path: KeyPath, keys: Sequence[str], data: Any) -> str | None:
    """Return, dotted, the key that a name, or one after another, has below a path, or is a slip of; None: of none."""
    for key in keys:
        known = {name: (*path, *place.split(".")) for name, place in allowed_keys(model, path, data).items()}
        items = value if isinstance(value := _at(model, path, data)[1], list) else []
        known |= {dotted((*path, at), data).rpartition(".")[2]: (*path, at) for at in range(len(items))}
        close = difflib.get_close_matches(key, known, n=1, cutoff=_NEARLY)
        if not close:
            return None
        path = known[close[0]]
    return dotted(path, data)


def _as_list(model: type[BaseModel], path: KeyPath, value: Any, data: Any) -> str:
    """Return how a number is written that was given under the name of one, where the key takes a list of them."""
    known = allowed_keys(model, path[:-1], data)
    key = next((key for key in known if key == f"{path[-1]}s"), None)
    takes = None if key is None else _bare(_below(_at(model, path[:-1], data)[0], key, data))
    is_list = _origin(takes) in (tuple, list) and isinstance(value, int | float)
    return f" Write {key}=[{value}]." if is_list else ""


def _described(option: Hint) -> str:
    """Return in words what a branch of a union without kinds takes."""
    if _origin(option) is Literal:
        return f"'{get_args(option)[0]}'"
    if _origin(_bare(option)) is tuple:
        return "a list of texts"
    return f"a number above {option.__metadata__[0].metadata[0].gt:.10g}"


_MEANT = {"gpu": "cuda", "cuda:0": "cuda", "bf16": "bfloat16", "fp32": "float32"}
"""What others call a value, and what it is here."""


def choice_said(key: str, value: Any, words: Sequence[str | int]) -> str:
    """Return what to say of a value outside a list of words, with the nearest word if one is near."""
    options = ", ".join(f"'{word}'" if isinstance(word, str) else str(word) for word in words)
    hint = ""
    if isinstance(value, str):
        meant = _MEANT.get(value.lower(), value)
        hint = nearest(meant if meant in words else value, [word for word in words if isinstance(word, str)])
    return f"{key} must be {'one of ' if len(words) > 1 else ''}{options}, got {_show(value)}{hint}"


def _message(model: type[BaseModel], error: ErrorDetails, path: KeyPath, data: Any) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    hint, _ = _at(model, path, data)
    null = " or null" if NoneType in _branches(hint) else ""
    # What pydantic says of a union, it says of each branch: one line says what all of them take.
    if options := _options(hint):
        return f"{_key(path, data)} must be {' or '.join(map(_described, options))}{null}, got {_show(value)}"
    words = _words(hint)
    # Keys that are too many or too few, and kinds that are none.
    if kind == "extra_forbidden":
        return f"unknown key {_key(path, data)}{_key_meant(model, path, data)}{_as_list(model, path, value, data)}"
    if kind == "missing":
        return f"missing required key {_key(path, data)}"
    if kind == "union_tag_invalid":
        return choice_said(_key((*path, "kind"), data), context["tag"], words)
    if kind == "union_tag_not_found":
        return f"missing required key {_key((*path, 'kind'), data)}; allowed: {', '.join(words)}"
    # Values of another type or out of bounds.
    if kind == "literal_error":
        return choice_said(_key(path, data), value, words)
    if kind in _EXPECTED:
        fixes = {"string_type": "; put it in quotes", "tuple_type": f"; write {path[-1]}=[{value}]"}
        fix = fixes.get(kind, "") if isinstance(value, int | float) else ""
        return f"{_key(path, data)} must be {_EXPECTED[kind]}{null}, got {_show(value)}{fix}"
    if kind in _BOUNDS:
        bound, words_of_bound = _BOUNDS[kind]
        return f"{_key(path, data)} must be {words_of_bound} {context[bound]:.10g}, got {_show(value)}"
    if kind == "too_short":
        return f"{_key(path, data)} must have at least {context['min_length']} item"
    # What a class's own check says.
    text = error["msg"].removeprefix("Value error, ")
    return f"{_key(path, data)}: {text}" if path else text


def explain_errors(
    model: type[BaseModel], errors: Sequence[ErrorDetails], data: Any, name: str, origins: Sequence[Origin]
) -> ConfigError:
    """Return the error to raise, with a line for each thing that is wrong: misspelt keys first, then by line.

    Args:
        model: what the data is read as.
        errors: what pydantic says of it.
        data: the configuration.
        name: what messages call the recipe.
        origins: where its parts were written; each replaces what those before it have at its path.
    """
    lines, unknown = [], list[UnknownKeyError]()
    unions = set()
    for error in errors:
        path = strip_tags(model, error["loc"])
        if _options(_at(model, path, data)[0]):
            if path in unions:
                continue  # one error for each branch
            unions.add(path)
        if error["type"] == "too_short" and error["input"]:
            continue  # pydantic repeats an item's error as a list that came out too short
        if error["type"] == "default_factory_not_called":
            continue  # a default depends on a key that has an error of its own

        # The place to blame is the last part that covers the path: an override, or a line of a file.
        place = (*path, "kind") if error["type"] == "union_tag_invalid" else path
        parts = [part for part in reversed(origins) if place and part.covers(place)]
        origin = next(iter(parts), Origin(path=(), source=name))
        line = origin.line(place)
        blamed = f"{origin.source}:{line}" if line else origin.source
        message = _message(model, error, path, data)

        # Where an override chose another kind, what does not fit it is the override's doing, not that of the file.
        chosen = (part for part in reversed(origins) if not part.lines and part.path[-1:] == ("kind",))
        kind = next((part for part in chosen if part.path[:-1] == path[: len(part.path) - 1]), None)
        if error["type"] in ("extra_forbidden", "missing") and kind is not None and line:
            message, blamed = f"{message} (set in {blamed})", kind.source
        lines.append((error["type"] != "extra_forbidden", line, f"{blamed}: {message}"))
        if error["type"] == "extra_forbidden" and origin.word:
            bare = f"{blamed}: unknown key {_key(path, data)}"
            unknown.append(UnknownKeyError(lines[-1][2], word=origin.word, bare=bare))
    lines.sort(key=lambda entry: entry[:2])
    texts = list(dict.fromkeys(text for _, _, text in lines))
    if len(texts) > 1:
        return ConfigErrors(texts)
    return unknown[0] if unknown else ConfigError(texts[0])
