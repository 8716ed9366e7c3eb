"""Write tables of responses as files of verifiers, Inspect, Hugging Face `datasets` and verl, some rows at a time."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_directory, atomic_path
from swerve.artifacts.responses import response_from_row
from swerve.errors import ArtifactError
from swerve.formats import program_layouts as layouts
from swerve.formats.export import (
    MADE_BY,
    ExportFormat,
    ExportSummary,
    check_replaceable,
    common_schema,
    table_batches,
    table_files,
)
from swerve.formats.records import plain

_ROWS_HELD = 64
_RENAMED = {"messages": "problem_messages", "prompt": "prompt_text"}
"""Columns whose names mean something else in a data set of conversations."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def export_responses(source: Path, target: Path, *, format: ExportFormat, overwrite: bool = False) -> ExportSummary:
    """Write a table of responses, or those of a folder, in a layout of `OF_RESPONSES`, atomically.

    Raises:
        ArtifactError: the source is missing, damaged or no table of responses with their questions.
        ConfigError: the target is there already, or cannot be replaced.
        DiskFullError: no room; nothing is left behind.
    """
    # What is there is checked before anything is written; what files say of all responses is known first.
    files = table_files(source)
    schema = common_schema(source, files)
    if not {"problem_id", "question", "text"} <= set(schema.names):
        raise ArtifactError(
            f"{source} is no table of responses with their questions; `swerve data select RUN` makes one of rollouts"
        )
    if target.exists():
        check_replaceable(target, (source, *files), format, overwrite=overwrite)
    notes: Counter[str] = Counter()
    about = _totals(_facts(source, files, schema, format, Counter()))
    about["name"] = source.stem
    about["created"] = datetime.fromtimestamp(files[0].stat().st_mtime, UTC).isoformat(timespec="seconds")
    told = _facts(source, files, schema, format, notes)

    # Lines of JSON in a folder, or within one object.
    if format == "verifiers":
        with atomic_directory(target, made_by=MADE_BY, source=source.name) as folder:
            with (folder / "results.jsonl").open("w", encoding="utf-8") as stream:
                stream.writelines(f"{_encode(layouts.filled(layouts.VERIFIERS, known))}\n" for known in told)
            metadata = _encode(layouts.filled(layouts.VERIFIERS_METADATA, about))
            (folder / "metadata.json").write_text(metadata, encoding="utf-8")
    elif format == "inspect":
        with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8") as stream:
            stream.write(_encode(layouts.filled(layouts.INSPECT_LOG, about))[:-1] + ', "samples": [')
            for known in told:
                between = "" if known["repeat"] == 1 and known["index"] == 0 else ",\n"
                stream.write(between + _encode(layouts.filled(layouts.INSPECT, known)))
            stream.write("]}\n")
    # Parquet has types: those of verl's data, or of the table, with its messages as structs.
    elif format == "verl":
        groups = itertools.groupby(told, lambda known: (known["index"], known["label"], known["step"]))
        _write_parquet(target, (_verl_row(list(group), notes) for _, group in groups), layouts.VERL_SCHEMA)
    else:
        messages = pa.field("messages", layouts.TURNS if about["has_turns"] else layouts.MESSAGES)
        own = [field.with_name(_RENAMED.get(field.name, field.name)) for field in schema]
        _write_parquet(target, told, pa.schema([messages, *own]))
    return ExportSummary(num_rows=about["num_responses"], columns=tuple(schema.names), format=format, notes=dict(notes))


def _facts(
    source: Path, files: Sequence[Path], schema: pa.Schema, format: ExportFormat, notes: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield what is known of each response, and count what the layout has no place for."""
    indices: dict[str, int] = {}
    repeats: Counter[str] = Counter()
    batches = table_batches(files, schema)
    parts = (batch.slice(start, _ROWS_HELD) for batch in batches for start in range(0, len(batch), _ROWS_HELD))
    for number, row in enumerate(map(plain, itertools.chain.from_iterable(part.to_pylist() for part in parts)), 1):
        try:
            response = response_from_row(row)
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"{source}, row {number}: {error}") from None
        # Of what layouts have no room for, and where they have only a form that says less.
        problem = response.problem
        notes.update(name for name, value in row.items() if value and not layouts.has_place(name, value, format))
        if not (problem.messages or problem.question):
            notes["prompts that are one text, or ids alone, as one message"] += 1
        if response.text is None:
            notes["texts that are known as ids alone, as empty messages"] += 1
        repeats[problem.id] += 1
        index = indices.setdefault(problem.id, len(indices))
        yield layouts.facts(response, row, format, index=index, repeat=repeats[problem.id])


def _totals(told: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what files say of all responses."""
    names = ("index", "repeat", "model", "turns", "correct", "reward")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for known in told:
        for name, values in columns.items():
            values.append(known[name])
    scores = {name: [value for value in columns[name] if value is not None] for name in ("correct", "reward")}
    means = {name: fmean(values) for name, values in scores.items() if values}
    return {
        "num_responses": len(columns["index"]),
        "num_problems": len(set(columns["index"])),
        "num_repeats": max(columns["repeat"], default=0),
        "model": ", ".join(dict.fromkeys(columns["model"])),
        "has_turns": any(columns["turns"]),
        "mean_reward": means.get("reward"),
        "means": [
            layouts.filled(layouts.INSPECT_MEAN, {"name": name, "mean": mean, "number": len(scores[name])})
            for name, mean in means.items()
        ],
    }


def _verl_row(group: Sequence[Mapping[str, Any]], notes: Counter[str]) -> dict[str, Any]:
    """Return a row with the responses to one problem by one model that follow one another in the table."""
    if group[0]["repeat"] > 1:
        notes["in a row of their own, as others to the problem stand elsewhere in the table"] += len(group)
    lists = {name: [known[name] for known in group] for name in layouts.VERL_LISTS}
    row: dict[str, Any] = layouts.filled(layouts.VERL, {**group[0], **lists})
    return row


def _write_parquet(target: Path, rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> None:
    with atomic_path(target) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as parquet:
        while held := list(itertools.islice(rows, _ROWS_HELD)):
            parquet.write_table(pa.Table.from_pylist(held, schema=schema))
