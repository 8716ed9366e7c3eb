"""Tables of swerve, as Parquet or exported to JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.dialects.layout import Dialect, Values, others
from swerve.formats.records import Record

__all__ = ["TABLES"]

_TABLE_NAMES = {
    "id": ("problem_id",),
    "response": ("response", "text"),
    "problem": ("question",),
    "correct": ("recorded_correct", "correct"),
    "reward": ("recorded_reward", "reward"),
    "set": ("set", "population"),
    "label": ("label", "source"),
    "step": ("step",),
}
_TABLE_SAME = (
    *("family", "prompt", "messages", "gold", "kind", "extracted", "sample", "finish_reason", "prompt_ids"),
    *("completion_ids", "token_starts", "token_ends", "boundary"),
)
_TABLE_JSON: Mapping[str, type] = {"messages": list, "problem_details": dict, "extra": dict}


def _convert_table(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = {**record.values, **{name: _from_json(record, name, kind) for name, kind in _TABLE_JSON.items()}}
    if not values.get("completion_ids") or not values.get("prompt_ids"):  # ids alone cannot be placed after a prompt
        values = {**values, "completion_ids": None, "prompt_ids": None}
    names = {**{name: (name,) for name in _TABLE_SAME}, **_TABLE_NAMES}
    chosen = {name: next((key for key in keys if values.get(key) is not None), None) for name, keys in names.items()}
    found = {name: values[key] for name, key in chosen.items() if key is not None}
    taken = [*(key for keys in names.values() for key in keys), *_TABLE_JSON, "place", "version"]
    version = values.get("version")
    if found.get("step") is None and isinstance(version, int):
        found["step"] = version + 1  # rollouts are counted by the update they are for, which comes after these weights
    extra = {**others(values, *taken), **(values["extra"] or {})}
    yield {**(values["problem_details"] or {}), **found, "extra": extra}


def _from_json(record: Record, name: str, kind: type) -> Any:
    text = record.values.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ArtifactError(f"{record.place}: {name} must be JSON as text; import the file again")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ArtifactError(f"{record.place}: {name} is not JSON of its kind; import the file again")
    return value


TABLES = Dialect(
    name="swerve",
    marks=(
        frozenset({"problem_id", "completion_ids", "text"}),
        frozenset({"problem_id", "problem_details", "response"}),
    ),
    convert=_convert_table,
)
