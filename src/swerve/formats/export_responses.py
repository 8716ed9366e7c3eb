"""Write responses as files of verifiers, Inspect, Hugging Face `datasets` and verl, some at a time."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_directory, atomic_path
from swerve.artifacts.response_columns import response_schema
from swerve.artifacts.responses import Response, response_row
from swerve.formats import program_layouts as layouts
from swerve.formats.export import MADE_BY, ExportFormat, ExportSummary, check_replaceable, table_files
from swerve.formats.imported_responses import TABLE_COLUMNS, LeftOut, iter_responses
from swerve.formats.program_layouts import filled
from swerve.formats.table_files import is_table

_ROWS_HELD = 64
_RENAMED = {"messages": "problem_messages", "prompt": "prompt_text"}
"""Columns whose names mean something else in a data set of conversations."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def export_responses(source: Path, target: Path, *, format: ExportFormat, overwrite: bool = False) -> ExportSummary:
    """Write responses in a layout of `OF_RESPONSES`, atomically.

    Args:
        source: a table of responses or a folder of them, or a file that `swerve data import` reads.
        target: the file or folder that is made.
        format: the layout.
        overwrite: replace what is there; a folder only if an export made it.

    Raises:
        ArtifactError: the source is missing or damaged, or has no responses.
        ConfigError: the target is there already, or cannot be replaced.
        DiskFullError: no room; nothing is left behind.
    """
    # What is there is checked before anything is written; what files say of all responses is known first.
    is_in_parts = source.is_dir() and is_table(source) and not any(source.glob("*.parquet"))
    files = [source] if is_in_parts else table_files(source)
    if target.exists():
        check_replaceable(target, (source, *files), format, overwrite=overwrite)
    about = _totals(_responses(files, LeftOut()))
    about["name"] = source.stem
    about["created"] = datetime.fromtimestamp(files[0].stat().st_mtime, UTC).isoformat(timespec="seconds")
    notes: Counter[str] = Counter()
    told = _facts(files, format, notes)

    # Lines of JSON in a folder, or within one object.
    if format == "verifiers":
        with atomic_directory(target, made_by=MADE_BY, source=source.name) as folder:
            with (folder / "results.jsonl").open("w", encoding="utf-8") as stream:
                stream.writelines(f"{_encode(filled(layouts.VERIFIERS, known))}\n" for known in told)
            (folder / "metadata.json").write_text(_encode(filled(layouts.VERIFIERS_METADATA, about)), encoding="utf-8")
    elif format == "inspect":
        with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8") as stream:
            between = _encode(filled(layouts.INSPECT_LOG, about))[:-1] + ', "samples": [\n'
            for known in told:
                stream.write(between + _encode(filled(layouts.INSPECT, known)))
                between = ",\n"
            stream.write("]}\n")

    # Parquet has types: those of verl's data, or of the table, with its messages as structs.
    else:
        own = [field.with_name(_RENAMED.get(field.name, field.name)) for field in response_schema(*TABLE_COLUMNS)]
        kinds = pa.schema([("messages", layouts.messages_type(of_turns=bool(about["has_turns"]))), *own])
        if format == "verl":
            groups = itertools.groupby(told, lambda known: (known["index"], known["label"], known["step"]))
            told, kinds = (_verl_row(list(group), notes) for _, group in groups), layouts.verl_schema()
        with atomic_path(target) as temporary, pq.ParquetWriter(temporary, kinds, compression="zstd") as parquet:
            while held := list(itertools.islice(told, _ROWS_HELD)):
                parquet.write_table(pa.Table.from_pylist(held, schema=kinds))
    return ExportSummary(num_rows=about["num_responses"], columns=TABLE_COLUMNS, format=format, notes=dict(notes))


def _responses(files: Sequence[Path], left_out: LeftOut) -> Iterator[Response]:
    for file in files:
        yield from iter_responses(file, left_out=left_out)


def _totals(responses: Iterable[Response]) -> dict[str, Any]:
    """Return what files say of all responses."""
    # Counts of all, means of what some have.
    problems: Counter[str] = Counter()
    models: Counter[str] = Counter()
    has_turns = False
    scores: dict[str, list[float]] = {"correct": [], "reward": []}
    for response in responses:
        problems[response.problem.id] += 1
        models[response.label or layouts.UNKNOWN] += 1
        has_turns |= bool(response.turns)
        for name, values in scores.items():
            values += [value for value in [getattr(response, name)] if value is not None]
    means = {name: fmean(values) for name, values in scores.items() if values}
    return {
        "num_responses": problems.total(),
        "num_problems": len(problems),
        "num_repeats": max(problems.values()),
        "model": ", ".join(models),
        "has_turns": has_turns,
        "mean_reward": means.get("reward"),
        "means": [
            filled(layouts.INSPECT_MEAN, {"name": name, "mean": mean, "number": len(scores[name])})
            for name, mean in means.items()
        ],
    }


def _facts(files: Sequence[Path], format: ExportFormat, notes: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield what is known of each response, and count what the layout has no place for."""
    indices: dict[str, int] = {}
    repeats: Counter[str] = Counter()
    left_out = LeftOut()
    for response in _responses(files, left_out):
        row = response_row(response)
        row = {name: row[name] for name in TABLE_COLUMNS if name != "place"}  # a path of this machine
        notes.update(name for name, value in row.items() if value and not layouts.has_room(name, value, format))
        # Of what stands there in a form that says less.
        problem = response.problem
        if not (problem.messages or problem.question):
            notes["prompts that are one text, or ids alone, as one message"] += 1
        if response.text is None:
            notes["texts that are known as ids alone, as empty messages"] += 1
        repeats[problem.id] += 1
        index = indices.setdefault(problem.id, len(indices))
        yield layouts.facts(response, row, format, index=index, repeat=repeats[problem.id])
    if left_out.num_failed:
        notes["left out, as their records have no text"] += left_out.num_failed


def _verl_row(group: Sequence[Mapping[str, Any]], notes: Counter[str]) -> dict[str, Any]:
    """Return a row with the responses to one problem by one model that follow one another in the table."""
    if group[0]["repeat"] > 1:
        notes["in a row of their own, as others to the problem stand elsewhere in the table"] += len(group)
    lists = {name: [known[name] for known in group] for name in layouts.VERL_LISTS}
    row: dict[str, Any] = filled(layouts.VERL, {**group[0], **lists})
    return row
