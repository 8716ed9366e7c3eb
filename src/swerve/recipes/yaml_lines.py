"""Parse YAML with the line of every key, without the features that a recipe does not need.

Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): `1e-5` is a number; `no`,
`off` and `1:30` are text. Duplicate keys, tags, merge keys and infinite numbers are refused; size, depth and the number
of nodes after expanding aliases are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from swerve.errors import ConfigError
from swerve.schema import KeyPath

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_NODES = 20_000

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (_TAG + name for name in ("null", "bool", "int", "float", "str"))
# The order matters: the pattern of floats matches integers too.
_CORE_SCHEMA = (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """A parsed document: plain data, and the line (from 1) of every key and list item by its path."""

    data: Any
    lines: Mapping[KeyPath, int]


class _Loader(yaml.SafeLoader):
    """Composes nodes; depth is checked while composing, before Python's own recursion limit is met."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node and everything below it."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes text that either YAML 1.1 or YAML 1.2 would read as something else."""


class _FastLoader(getattr(yaml, "CSafeLoader", _Loader)):  # type: ignore[misc]
    """Composes the same nodes by libyaml, ten times as fast, without the limit of depth and with shorter messages."""


_Loader.yaml_implicit_resolvers, _FastLoader.yaml_implicit_resolvers = {}, {}  # none of YAML 1.1's
for _tag, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
    _FastLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
    _Dumper.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


class _Builder:
    """Turns composed nodes into plain data, collecting line numbers."""

    def __init__(self, source: str, *, with_lines: bool) -> None:
        self.source = source
        self.with_lines = with_lines
        self.lines: dict[KeyPath, int] = {}
        self.num_nodes = 0

    def error(self, line: int | None, message: str) -> ConfigError:
        where = f"{self.source}:{line}" if self.with_lines and line is not None else self.source
        return ConfigError(f"{where}: {message}")

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        line = node.start_mark.line + 1
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            raise self.error(line, f"more than {MAX_NODES} values after expanding aliases")
        if len(path) > MAX_DEPTH:  # an alias inside its own anchor
            raise self.error(line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.build(item, (*path, index)))
            return items
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        raise self.error(line, f"tag {node.tag!r} is not allowed; write the value without a tag")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR:
                raise self.error(line, "a key must be text; put it in quotes")
            key = self._scalar(key_node, line)
            if key == "<<":
                raise self.error(line, "merge keys ('<<') are not allowed; write the keys out")
            if key in data:
                raise self.error(line, f"key {key!r} is given twice, first in line {self.lines[(*path, key)]}")
            self.lines[(*path, key)] = line
            data[key] = self.build(value_node, (*path, key))
        return data

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        text = node.value
        try:
            if node.tag == _STR:
                text.encode()  # an escaped lone surrogate is not a character
                return text
            if node.tag == _NULL and text.lower() in ("~", "null", ""):
                return None
            if node.tag == _BOOL and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if node.tag == _INT:
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if node.tag == _FLOAT:
                return self._finite(text)
        except ValueError:
            raise self.error(line, f"{text[:40]!r} is not a valid value") from None
        raise self.error(line, f"tag {node.tag!r} is not allowed; write the value without a tag")

    def _finite(self, text: str) -> float:
        value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(value):
            raise ValueError
        return value


def _syntax_error(builder: _Builder, error: yaml.YAMLError, text: str) -> ConfigError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        problem = " ".join((error.problem or error.context or "cannot be read").split())
        return builder.error(error.problem_mark.line + 1, f"not valid YAML: {problem}")
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return builder.error(line, f"not valid YAML: character U+{error.character:04X} is not allowed")
    return builder.error(None, f"not valid YAML: {' '.join(str(error).split())}")


def _compose(text: str) -> yaml.Node | None:
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_FastLoader):
            starts, ends = isinstance(event, yaml.CollectionStartEvent), isinstance(event, yaml.CollectionEndEvent)
            depth += starts - ends
            if depth > MAX_DEPTH - 1:
                break
        else:
            node: yaml.Node | None = _FastLoader(text).get_single_node()
            return node
    except yaml.YAMLError:
        pass
    return _Loader(text).get_single_node()  # says what is wrong, and where


def parse_yaml(text: str, *, source: str, with_lines: bool = True) -> YamlDocument:
    r"""Parse one YAML document; `source` is what error messages call it.

    Raises:
        ConfigError: the text is too large, is not YAML, or uses something that is refused (see the module).

    >>> document = parse_yaml("seed: 1\nmodel:\n  lr: 1e-5\n  ask: no\n", source="recipe.yaml")
    >>> document.data
    {'seed': 1, 'model': {'lr': 1e-05, 'ask': 'no'}}
    >>> document.lines[("model", "lr")]
    3
    """
    builder = _Builder(source, with_lines=with_lines)
    if len(text) > MAX_BYTES:
        raise builder.error(None, f"larger than {MAX_BYTES} bytes")
    try:
        node = _compose(text)
    except yaml.YAMLError as error:
        raise _syntax_error(builder, error, text) from None
    data = None if node is None else builder.build(node, ())
    return YamlDocument(data=data, lines=builder.lines)


def emit_yaml(data: Mapping[str, Any]) -> str:
    """Return `data` (JSON values) as YAML that `parse_yaml` reads back exactly.

    >>> print(emit_yaml({"name": "no", "lr": 5e-05, "steps": [1, 2]}), end="")
    name: 'no'
    lr: 5.0e-05
    steps:
    - 1
    - 2
    """
    # Not allow_unicode: PyYAML then writes U+0085 in a form that it does not read back.
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120))
