"""`metrics.jsonl`: one object per step, append-only, always written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swerve.artifacts.files import write_text
from swerve.errors import ArtifactError, DiskFullError


def append_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON object as a line. Values that were not measured are None, never NaN."""
    line = json.dumps(record, allow_nan=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)
    except OSError as error:
        if DiskFullError.matches(error):
            raise DiskFullError(path) from error
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return every record, in order; a last line cut short by a kill is dropped.

    Raises:
        ArtifactError: a line other than the last is not a JSON object.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ArtifactError(f"{path}:{number} is not a JSON object: the file is damaged") from None
        records.append(record)
    return records


def truncate_metrics(path: Path, *, last_step: int) -> None:
    """Drop the records of steps after `last_step`: what a resumed run will write again."""
    if not path.exists():
        return
    kept = [record for record in read_metrics(path) if record["step"] <= last_step]
    write_text(path, "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept))
