"""Write the tables of keys in the docs from classes and the docstrings of their fields.

docs/summary-keys.md has the keys of summary.json, evaluations and studies, docs/artifacts.md the columns of
`probe/tokens.parquet`. Pages in FILLED have tables of functions with their equations, or of figures, between markers.

python docs/key_tables.py           write the pages
python docs/key_tables.py --check   exit with 1 if they are not what the classes say
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import swerve.functional
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import Record
from swerve.artifacts.study import Study
from swerve.artifacts.tables import TOKEN_COLUMNS
from swerve.estimates import Estimate
from swerve.report.figures import figure_specs

PAGE = Path(__file__).parent / "summary-keys.md"
ARTIFACTS = Path(__file__).parent / "artifacts.md"
FILLED = tuple(Path(__file__).parent / f"{name}.md" for name in ("figures", "objectives"))
_HEAD = """# Summary keys

Written by `python docs/key_tables.py` from the records in `swerve.artifacts` and their docstrings; a test compares.

E is an interval, `{"mean", "low", "high"}`, always at the level that `confidence` (in evaluations
`settings.eval.confidence`) says. What was not asked for or cannot be measured is null or empty. Divergences, entropies
and moves of log-probabilities are in nats. [Probe](probe.md) defines the divergences and spikes,
[Findings](probe.md#findings) what is made of them, [Causal tests](probe-causal.md) the rest.
"""
_PAGES = (("probe/summary.json", ProbeSummary), ("eval/step_NNNNNN.json", Evaluation), ("study.json", Study))


def page() -> str:
    """Return the whole page."""
    parts, shown = [_HEAD], set[type]()
    for title, top in _PAGES:
        parts.append(f"## {title}\n\n{_table(top)}")
        for record in _reached(top):
            if record not in shown:
                parts.append(f"### {record.__name__}\n\n{_first_line(record)}\n\n{_table(record)}")
                shown.add(record)
    return "\n".join(parts)


def _first_line(record: type) -> str:
    return (inspect.getdoc(record) or "").split("\n", 1)[0]


def _table(record: type) -> str:
    docs = dict(_docstrings(record))
    hints = typing.get_type_hints(record, include_extras=False)
    rows = [
        f"| `{name}` | {_shown(hint)} | {docs.get(name) or _record_line(hint)} |"
        for name, hint in hints.items()
        if not name.startswith("model_")
    ]
    return "\n".join(["| key | type | what it is |", "|---|---|---|", *rows, ""])


def _record_line(hint: Any) -> str:
    """Return what the one record inside a type is, for a field without words of its own."""
    found = [one for one in (hint, *_arguments(hint)) if _is_record(one)]
    return _first_line(found[0]) if len(found) == 1 else ""


def _docstrings(record: type) -> Iterator[tuple[str, str]]:
    """Yield each field of a record, inherited ones first, with the text under it."""
    for cls in reversed(record.__mro__):
        if cls is Record or not (is_dataclass(cls) or issubclass(cls, Record)):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        statements = typing.cast(ast.ClassDef, body).body
        for field, text in itertools.pairwise(statements):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                yield field.target.id, " ".join(str(text.value.value).split()).replace("|", "&#124;")


def _arguments(hint: Any) -> tuple[Any, ...]:
    return tuple(one for one in typing.get_args(hint) if one is not Ellipsis)


def _shown(hint: Any) -> str:
    """Return a type as a reader of JSON would say it."""
    origin, arguments = typing.get_origin(hint), _arguments(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_shown(one) for one in arguments)
    if origin is typing.Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin is tuple:
        return f"list of {_shown(arguments[0])}"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"object: {_shown(arguments[0])} to {_shown(arguments[1])}"
    if hint is Estimate:
        return "E"
    if _is_record(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    names = {type(None): "null", str: "string", float: "number", int: "integer", bool: "boolean", Any: "JSON"}
    return names[hint]


def _is_record(hint: Any) -> bool:
    return inspect.isclass(hint) and hint is not Estimate and (is_dataclass(hint) or issubclass(hint, Record))


def _reached(record: type) -> Iterator[type]:
    """Yield the records that the fields of a record are made of, each before those inside it."""
    for hint in typing.get_type_hints(record).values():
        todo = [hint]
        while todo:
            one = todo.pop()
            if _is_record(one):
                yield one
                yield from _reached(one)
            todo += _arguments(one)


def artifacts_page() -> str:
    """Return docs/artifacts.md with the table of the columns of a token written anew."""
    rows = ["| column | type | what it is |", "|---|---|---|"]
    for name, (kind, words) in TOKEN_COLUMNS.items():
        shown = "label" if pa.types.is_dictionary(kind) else str(kind.to_pandas_dtype().__name__)
        rows.append(f"| `{name}` | {shown} | {words.replace('|', '&#124;')} |")
    table = "\n".join(["<!-- columns of a token -->\n", *rows, "\n<!-- end of columns -->"])
    marked = r"<!-- columns of a token -->\n(?:\n|\|.*\n)*<!-- end of columns -->"
    return re.sub(marked, lambda _: table, ARTIFACTS.read_text(encoding="utf-8"))


_PLACE = re.compile(r"<!-- (functions|figures) of ([\w ]+) -->\n(?:\n|\|.*\n)*<!-- end of \1 -->")


def filled_page(path: Path) -> str:
    """Return a page with the tables between its markers written anew; the rest of the page is as it is."""

    def filled(place: re.Match[str]) -> str:
        kind, name = place.groups()
        rows = _function_rows(name) if kind == "functions" else _figure_rows()
        return "\n".join([f"<!-- {kind} of {name} -->\n", *rows, f"\n<!-- end of {kind} -->"])

    return _PLACE.sub(filled, path.read_text(encoding="utf-8"))


def _figure_rows() -> list[str]:
    rows = [f"| `{name}` | {spec.shows} | {spec.needs} |" for name, spec in figure_specs().items()]
    return ["| name | shows | needs |", "|---|---|---|", *rows]


def _function_rows(module: str) -> list[str]:
    """Return a row for each public function of a module of `swerve.functional`: its first line and its equation."""
    rows = ["| function | what it is | equation |", "|---|---|---|"]
    for name in swerve.functional.__all__:
        function = getattr(swerve.functional, name)
        if inspect.isfunction(function) and function.__module__ == f"swerve.functional.{module}":
            first, *paragraphs = (inspect.getdoc(function) or "").split("\n\n")
            # The equation is the first paragraph after the first line, if that is one: none has a sentence in it.
            lines = paragraphs[0].splitlines() if paragraphs else []
            is_equation = not any(re.search(r"^(Raises|>>>)|[a-z`)]\. ?[A-Z]|[.]$", line) for line in lines)
            shown = "<br>".join(f"`{line.strip()}`" for line in lines if is_equation)
            words = re.sub(r"^Return (\w)", lambda word: word[1].upper(), " ".join(first.split()))
            rows.append(f"| `{name}` | {words} | {shown} |".replace("||", r"\|\|"))
    return rows


if __name__ == "__main__":
    written = {PAGE: page(), ARTIFACTS: artifacts_page()}
    written |= {path: filled_page(path) for path in FILLED}
    if "--check" in sys.argv:
        sys.exit(any(file.read_text(encoding="utf-8") != text for file, text in written.items()))
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
