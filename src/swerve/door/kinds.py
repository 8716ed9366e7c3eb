"""What kind of thing a function in Python is given, and which function takes it. Free of torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from swerve.errors import ConfigError, shown

_KINDS = {
    "Run": "run", "RunDirectory": "run",
    "NamedModel": "model", "CheckpointRef": "model",
    "SampleSet": "samples", "StoredSamples": "samples", "SampleFile": "samples",
    "ProbeResult": "probe", "ClaimCard": "card", "Comparison": "comparison", "Grades": "grades",
    "SampleSettings": "settings", "ClaimSettings": "settings", "Config": "settings",
}  # fmt: skip
"""Name of a class -> the kind of its objects."""
_MODEL_FILES = ("config.json", "adapter_config.json")
ROW_FILES = (".jsonl", ".json", ".csv", ".parquet")
_OTHER = "other"


class _Kind(NamedTuple):
    said: str
    """What messages call it."""
    takers: str
    """What takes it, or where the table of it is."""


_SAID = {
    "run": _Kind(
        "a run",
        "swerve.evaluate(run), swerve.probe(run), swerve.report(run) and swerve.compare(run, run) take runs, and "
        "run.model('rl') is a model of one",
    ),
    "model": _Kind(
        "a model",
        "swerve.sample(models, problems), swerve.evaluate(models, problems), swerve.probe(before, after, texts) and "
        "swerve.claim(before, after, problems=...) take models",
    ),
    "samples": _Kind(
        "samples",
        "swerve.report(samples), swerve.compare(samples), swerve.claim(samples), swerve.grade(samples['NAME']) and "
        "swerve.probe(before, after, samples) take samples",
    ),
    "probe": _Kind("what swerve.probe returned", "swerve.report(result) makes its page, result.to_pandas() its table"),
    "card": _Kind("a claim card", "print(card) says where its page is, card.to_pandas() has its tables"),
    "comparison": _Kind("a comparison", "its table is comparison.to_pandas()"),
    "grades": _Kind(
        "what swerve.grade returned",
        "its table is grades.to_pandas(); swerve.compare(grades, grades) and swerve.claim(grades, grades) take two",
    ),
    "settings": _Kind("settings", "swerve.sample(models, settings) takes those of sampling"),
    "tokenizer": _Kind("a tokenizer", "a model in memory is given with it, as (model, tokenizer)"),
    "rows": _Kind(
        "rows",
        "swerve.sample(models, rows) takes problems, swerve.grade(rows, task='math') answers with gold ones, "
        "swerve.compare(rows, rows) graded ones, and swerve.probe(before, after, rows) responses",
    ),
    "file": _Kind(
        "a file of rows",
        "swerve.sample(models, file) takes problems; swerve.grade(file, task='math'), swerve.compare(file, file), "
        "swerve.claim(file, file) and swerve.probe(before, after, file) responses",
    ),
}
_MODELS = (
    "a folder, RUN:LABEL, owner/name on the hub, run.model('rl'), or a model of transformers in memory, alone or as "
    "(model, tokenizer)"
)
_PROBLEMS = "a file, a task's name, a list of mappings with question and answer, or a table"
_RESPONSES = "a file, what swerve.sample returned, a list of texts or of pairs (prompt, response), or a table"
_TAKES: dict[str, dict[str, tuple[set[str], str]]] = {
    "report": {"run": ({"run", "samples", "probe"}, "a run, a study, or what swerve.probe or swerve.sample returned")},
    "compare": {
        "sources": (
            {"run", "samples", "grades", "file", "rows"},
            "runs, what swerve.sample or swerve.grade returned, or files or tables of graded responses",
        )
    },
    "grade": {
        "answers": (
            {"rows", "samples", "grades", "file"},
            "a list of mappings with response and gold, a table, a file, or one model's samples",
        )
    },
    "evaluate": {
        "models": ({"run", "model"}, "a run, or models and problems"),
        "problems": ({"rows", "settings", "file", "model"}, f"as problems {_PROBLEMS}"),
    },
    "sample": {
        "models": ({"model"}, f"models: {_MODELS}"),
        "problems": ({"rows", "settings", "file"}, f"as problems {_PROBLEMS}"),
    },
    "probe": {
        "reference": ({"run", "model"}, "a run, or two models and responses"),
        "checkpoints": ({"model"}, f"as the model after {_MODELS}"),
        "responses": ({"rows", "samples", "file"}, f"as responses {_RESPONSES}"),
    },
    "claim": {
        name: (
            {"model", "samples", "grades", "file", "rows"},
            "two models, what swerve.sample returned of them, or graded answers of each: a file, or a table",
        )
        for name in ("base", "trained")
    },
}
"""Of each function and argument the kinds that it takes beside texts and paths, and what to give, in words."""


def check_kinds(function: str, arguments: Mapping[str, Any]) -> None:
    """Check that a function of the door is given things that it takes.

    Args:
        function: its name.
        arguments: what it is given, by parameter.

    Raises:
        ConfigError: one is of another kind; the message says what is wanted, and which function takes what was given.
    """
    for name, (kinds, wanted) in _TAKES.get(function, {}).items():
        if name not in arguments:
            continue
        given = arguments[name]
        for one in given if name == "sources" else [given]:
            kind = kind_of(one)
            if function == "report" and isinstance(one, Mapping | list | tuple) and kind in {None, *kinds}:
                raise ConfigError(f"a page is of one thing, got {shown(one)}; swerve.compare(...) compares several")
            if kind is None or kind in kinds:
                continue
            if kind == _OTHER:
                is_shown = not callable(one)
                raise ConfigError(f"swerve.{function} takes {wanted}, and not {shown(one) if is_shown else repr(one)}")
            said = f"{_SAID[kind].said}{_which(one)}"
            raise ConfigError(f"swerve.{function} takes {wanted}, and is given {said}; {_SAID[kind].takers}")


def _which(given: Any) -> str:
    """Return the place of a thing, or its type where it is one of another library."""
    if isinstance(given, str | os.PathLike) and type(given).__name__ not in _KINDS:
        return f" ({os.fspath(given)})"
    one = given[0] if isinstance(given, tuple) else given
    return "" if type(one).__name__ in _KINDS else f" ({type(one).__name__})"


def kind_of(given: Any) -> str | None:
    """Return what kind of thing something is; None: a text, or what the function itself looks at.

    Of a list or a mapping it is the kind of its first entry; a list of mappings, and a table, are rows.
    """
    if type(given).__name__ in _KINDS:
        return _KINDS[type(given).__name__]
    if isinstance(given, str | os.PathLike):
        place = Path(given)
        if any(os.path.isfile(place / name) for name in _MODEL_FILES):  # a text may be longer than a path
            return "model"
        return "file" if place.suffix in ROW_FILES and os.path.isfile(place) else None
    if isinstance(given, Mapping | list | tuple):
        first: Any = next(iter(given.values() if isinstance(given, Mapping) else given), None)
        is_column = isinstance(given, Mapping) and isinstance(first, list) and not kind_of(first)
        if isinstance(first, Mapping) or (is_column and isinstance(next(iter(first), None), str)):
            return "rows"
        kind = kind_of(first)
        return None if kind in (_OTHER, "rows") else kind
    if any(hasattr(given, name) for name in ("column_names", "columns", "to_pylist")):
        return "rows"
    torch, transformers = sys.modules.get("torch"), sys.modules.get("transformers")
    if torch is not None and isinstance(given, torch.nn.Module):
        return "model"
    if transformers is not None and isinstance(given, transformers.PreTrainedTokenizerBase):
        return "tokenizer"
    is_plain = given is None or isinstance(given, int | float | complex | bytes | set) or callable(given)
    return _OTHER if is_plain else None
