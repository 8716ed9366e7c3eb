"""Files of a JSON object a line, as most programs write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_json_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write a file with one row on each line; return its path."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path
