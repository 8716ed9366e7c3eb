"""The table of imported responses: written with where it comes from, and the same bytes for the same input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.tables import RESPONSES_SCHEMA, write_table
from swerve.formats.responses import ResponseRecord

__all__ = ["read_provenance", "response_rows", "write_responses"]

_PROVENANCE = b"swerve_provenance"


def write_responses(path: Path, records: Sequence[ResponseRecord], provenance: Mapping[str, Any]) -> None:
    """Write responses as `RESPONSES_SCHEMA`, with JSON values that say where they come from in the file's metadata.

    Raises:
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    metadata = {
        "swerve_table": "responses",
        _PROVENANCE.decode(): json.dumps(provenance, sort_keys=True, ensure_ascii=False, allow_nan=False),
    }
    write_table(path, response_rows(records), RESPONSES_SCHEMA, metadata=metadata)


def read_provenance(path: Path) -> dict[str, Any]:
    """Return what a table of responses says of where it comes from; empty for any other file."""
    if path.suffix != ".parquet":
        return {}
    try:
        metadata = pq.read_schema(path).metadata or {}
        found = json.loads(metadata.get(_PROVENANCE, b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return {}
    return found if isinstance(found, dict) else {}


def response_rows(records: Sequence[ResponseRecord]) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of the records.

    A response without a number gets its place among those of its problem, checkpoint and step.
    """
    counted: Counter[tuple[Any, ...]] = Counter()
    rows = []
    for record in records:
        group = (record.problem.id, record.label, record.step)
        rows.append(_row(record, counted[group] if record.sample is None else record.sample))
        counted[group] += 1
    return rows


def _row(record: ResponseRecord, sample: int) -> dict[str, Any]:
    problem, spans = record.problem, record.spans
    details = {
        "alternatives": list(problem.alternatives),
        "prefix": problem.prefix,
        "grader": problem.grader,
        "grading": dict(problem.grading),
        "difficulty": problem.difficulty,
        "metadata": dict(problem.metadata),
    }
    return {
        "problem_id": problem.id,
        "family": problem.family,
        "kind": problem.kind,
        "question": problem.question,
        "prompt": problem.prompt,
        "messages": _json([{"role": role, "content": text} for role, text in problem.messages]),
        "gold": problem.gold,
        "response": record.response,
        "label": record.label,
        "step": record.step,
        "sample": sample,
        "recorded_reward": record.reward,
        "recorded_correct": record.correct,
        "extracted": record.extracted,
        "finish_reason": record.finish_reason,
        "set": record.set,
        "prompt_ids": None if problem.prompt_ids is None else list(problem.prompt_ids),
        "completion_ids": None if record.completion_ids is None else list(record.completion_ids),
        "token_starts": None if spans is None else [start for start, _ in spans],
        "token_ends": None if spans is None else [end for _, end in spans],
        "boundary": record.boundary,
        "problem_details": _json({name: value for name, value in details.items() if value}),
        "place": record.place,
        "extra": _json(dict(record.extra)),
    }


def _json(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if value else None
