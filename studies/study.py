"""A study: its file of results, the page that shows them, and the options all studies' commands share."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.markdown import fill_page
from swerve.artifacts.files import dump_json
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
    """Records -> the tables by the names of their places in the pages."""
    numbers: Callable[[Sequence[Record]], Mapping[str, str]] = lambda records: {}
    """Records -> the numbers that sentences may quote, by name."""
    other_pages: tuple[str, ...] = ()
    """Further pages with places for them, from the root of the repository."""
    draw_figures: Callable[[Path, Sequence[Record]], None] | None = None
    """Draw the images of the records into a folder; None: the page has none."""

    @property
    def pages(self) -> list[Path]:
        """Where the pages lie."""
        return [ROOT / "docs" / self.page, *(ROOT / name for name in self.other_pages)]

    @property
    def results_path(self) -> Path:
        """Where the results are kept."""
        return ROOT / "studies" / "results" / self.results

    def texts(self, records: Sequence[Record]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the tables, and the numbers that sentences quote; `NAME: made` says what made the results NAME."""
        made = {f"{self.results_path.stem}: made": made_with(records)}
        return dict(self.tables(records)), {**self.numbers(records), **made}

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Return a command line with the options for results and tables; the rest is up to the study."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--out", type=Path, default=self.results_path, help="JSON lines, read and appended to")
        parser.add_argument("--make", action="store_true", help="measure what is not in the file of results")
        parser.add_argument("--anew", action="store_true", help="the same, beginning with an empty file")
        parser.add_argument("--table", action="store_true", help="print tables and numbers, fill no page")
        return parser

    def parse(self, parser: argparse.ArgumentParser) -> argparse.Namespace:
        """Return the arguments; --anew empties the file of results and asks for everything to be made."""
        arguments = parser.parse_args()
        if arguments.anew:
            arguments.out.unlink(missing_ok=True)
            arguments.make = True
        return arguments

    def show(self, arguments: argparse.Namespace) -> None:
        """Fill the pages and draw their images from the file of results, or print what would be filled in."""
        records = read_records(arguments.out)
        tables, numbers = self.texts(records)
        if arguments.table:
            print("\n\n".join(f"{name}\n\n{text}" for name, text in tables.items()))
            print("\n" + "\n".join(f"{name} = {text}" for name, text in numbers.items()))
            return
        found = [name for page in self.pages for name in fill_page(page, {**tables, **numbers})]
        if lost := sorted(set(tables) - set(found)):
            raise ValueError(f"no page has a place for '{lost[0]}': put <!-- {lost[0]} --> and <!-- /{lost[0]} -->")
        if self.draw_figures:
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
    """Append a line to a file of results, numbers to five significant digits.

    A line of date, machine and versions comes before the first one, and wherever they are others than before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    headers = [line for line in read_records(path) if line["kind"] == "versions"]
    lines = [record] if headers[-1:] == [versions()] else [versions(), record]
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(_rounded(json.loads(dump_json(line))), allow_nan=False) + "\n" for line in lines)


def run_swerve(path: Path, *words: str) -> tuple[dict[str, Any], list[str]]:
    """Run a command; return the JSON it prints, kept beside the run in `path`.json, and its lines of progress.

    Its CPU time is added as `cpu_seconds`: the time it takes alone, on a busy machine too. A run that
    was interrupted before it printed anything begins again.
    """
    kept, log = (path.with_name(f"{path.name}.{kind}") for kind in ("json", "log"))  # a name may hold a dot
    if not kept.exists():
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "swerve", *words, "--json"]
        shutil.rmtree(path, ignore_errors=True)
        before = _cpu_seconds()
        with log.open("w", encoding="utf-8") as errors:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=ROOT)
        printed = json.loads(done.stdout)  # a list of evaluations, or a mapping
        found = {"evaluations": printed} if isinstance(printed, list) else printed
        found["cpu_seconds"] = round(_cpu_seconds() - before, 1)
        kept.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8")), log.read_text(encoding="utf-8").splitlines()


def _cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def versions() -> dict[str, Any]:
    """Return what results depend on beside their seeds: date, machine and versions; a run has one thread."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    machine = {"machine": platform.machine(), "processor": processor(), "threads": 1}
    return {"kind": "versions", "date": time.strftime("%Y-%m-%d"), **machine, "swerve": __version__, **packages}


def processor() -> str:
    """Return the model of the processor, as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def made_with(records: Sequence[Record]) -> str:
    """Say with which versions, on which machine, when and with which seeds results were made."""
    headers = [record for record in records if record["kind"] in ("versions", "header")]
    said = []
    for header in headers:
        packages = [f"{name} {header[name]}" for name in ("swerve", "torch", "transformers") if name in header]
        threads = f", {header['threads']} thread" if "threads" in header else ""
        machine = f"{header.get('processor', header['machine'])}{threads}"
        said.append(", ".join([header["date"], *packages, machine]))
    seeds = sorted({record["seed"] for record in records if "seed" in record})
    of_seeds = f"; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    return "; ".join(dict.fromkeys(said)) + of_seeds


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
