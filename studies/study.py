"""A study: its file of results, the page that shows them, and the options all studies' commands share."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.markdown import fill_page
from swerve.version import __version__

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
_DIGITS = 5
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Where the results of a study are kept, and how its page is made of them."""

    results: str
    """Name of the file in `studies/results`."""
    page: str
    """Name of the page in `docs`."""
    tables: Callable[[Sequence[Record]], Mapping[str, str]]
    """Records -> the tables by the names of their places in the page."""
    draw_figures: Callable[[Path, Sequence[Record]], None] | None = None
    """Draw the figures of the records into a folder; None: the page has no figures."""

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Return a command line with the options for results, tables and figures; the rest is up to the study."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        results = ROOT / "studies" / "results" / self.results
        parser.add_argument("--out", type=Path, default=results, help="JSON lines, read and appended to")
        parser.add_argument("--table", action="store_true", help="print the tables")
        parser.add_argument("--page", action="store_true", help=f"put the tables into docs/{self.page}")
        if self.draw_figures:
            parser.add_argument("--figures", action="store_true", help="draw the figures into docs/images")
        return parser

    def show(self, arguments: argparse.Namespace) -> None:
        """Print the tables, fill the page or draw the figures, as the command line asks."""
        records = read_records(arguments.out)
        if arguments.table:
            print("\n\n".join(f"{name}\n\n{text}" for name, text in self.tables(records).items()))
        if arguments.page:
            fill_page(ROOT / "docs" / self.page, self.tables(records))
        if self.draw_figures and arguments.figures:
            IMAGES.mkdir(parents=True, exist_ok=True)
            self.draw_figures(IMAGES, records)


def tables_by_kind(
    records: Sequence[Record], by_kind: Mapping[str, Callable[[Record], Mapping[str, str]]]
) -> dict[str, str]:
    """Return the tables of all records whose kind has any."""
    found: dict[str, str] = {}
    for record in records:
        if record["kind"] in by_kind:
            found |= by_kind[record["kind"]](record)
    return found


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none if there is no such file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append_record(path: Path, record: Record) -> None:
    """Append a line to a file of results, numbers to five significant digits; a new file begins with the versions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record] if path.exists() else [_versions(), record]
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(_rounded(line), allow_nan=False) + "\n" for line in lines)


def _versions() -> Record:
    versions = {"swerve": __version__, "torch": version("torch"), "transformers": version("transformers")}
    return {"kind": "versions", "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), **versions}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
