"""Kept results: JSON lines, each after a line that says with which versions, on which machine and when it was made."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.pages import ROOT, Record
from swerve.artifacts.files import dump_json
from swerve.version import __version__

RESULTS = ROOT / "studies" / "results"
_DIGITS = 5


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none if there is no such file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append_record(path: Path, record: Record) -> None:
    """Append a line to a file of results, numbers to five significant digits.

    A line of date, machine and versions comes before the first one, and wherever they are others than before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    headers = [line for line in read_records(path) if line["kind"] == "versions"]
    lines = [record] if headers[-1:] == [versions()] else [versions(), record]
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(_rounded(json.loads(dump_json(line))), allow_nan=False) + "\n" for line in lines)


def keep_records(path: Path, records: Iterable[Record]) -> None:
    """Append records in place of those of the same kind, name and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for record in records:
        lines = [line for line in read_records(path) if _identity(line) != _identity(record)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        append_record(path, record)


def _identity(record: Record) -> list[Any]:
    return [record["kind"], record.get("name"), record.get("seed"), record.get("date")]


def versions() -> dict[str, Any]:
    """Return what results depend on beside their seeds; a run has one thread."""
    return {"kind": "versions", "threads": 1, **made_here("torch", "transformers")}


def made_here(*packages: str) -> dict[str, Any]:
    """Return the date, the machine with its processor as Linux names it, and versions of swerve and some packages."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    machine = {"machine": platform.machine(), "processor": next(models, platform.processor() or "unknown")}
    names = {"swerve": __version__, **{name: version(name) for name in packages}}
    return {"date": time.strftime("%Y-%m-%d"), **machine, **names}


def made_with(records: Sequence[Record]) -> str:
    """Say with which versions, on which machine, when and with which seeds results were made."""
    said = []
    for header in [record for record in records if record["kind"] == "versions"]:
        packages = [f"{name} {header[name]}" for name in ("swerve", "torch", "transformers") if name in header]
        threads = f", {header['threads']} thread" if "threads" in header else ""
        said.append(", ".join([header["date"], *packages, f"{header.get('processor', header['machine'])}{threads}"]))
    seeds = sorted({record["seed"] for record in records if "seed" in record})
    of_seeds = f"; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    return "; ".join(dict.fromkeys(said)) + of_seeds


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
