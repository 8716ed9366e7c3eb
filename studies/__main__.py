"""Fill the pages of the documentation from the kept results, and draw their images.

python -m studies                                       all pages
python -m studies objectives                            those with places of one study
python -m studies demo --keep runs/studies/demo         first keep what a study found
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import studies.any_model.__main__ as any_model
import studies.demo.figures as demo_figures
import studies.demo.findings as demo
import studies.demo.runs as demo_runs
import studies.demo.seeds as demo_seeds
import studies.grading.tables as grading
import studies.objectives.figures as objectives_figures
import studies.objectives.findings as objectives
import studies.objectives.runs as objectives_runs
import studies.planted.tables as planted
import studies.selectors.findings as selectors
import studies.stories.figures as stories_figures
import studies.stories.tables as stories
import studies.zoo as zoo
from studies import benchmarks, campaign, experiments
from studies.pages import ROOT, fill_pages
from studies.records import RESULTS, keep_records, made_with, read_records

STUDIES: Mapping[str, ModuleType] = {
    "any_model": any_model,
    "campaign": campaign,
    "demo": demo,
    "demo_seeds": demo_seeds,
    "experiments": experiments,
    "grading": grading,
    "objectives": objectives,
    "planted": planted,
    "selectors": selectors,
    "stories": stories,
    "zoo": zoo,
}
"""Name of the file of results -> `tables(records)`, and `numbers(records)` where sentences quote any."""
KEEPERS: Mapping[str, Callable[[Path], Any]] = {
    "demo": demo_runs.keep,
    "demo_seeds": demo_runs.keep,
    "experiments": experiments.keep,
    "objectives": objectives_runs.keep,
    "selectors": selectors.keep,
}
"""Name -> the records that are kept of the directory of a study."""
DRAWN = {"demo": demo_figures, "objectives": objectives_figures, "stories": stories_figures}
NAMES = (*STUDIES, "benchmarks")


def texts(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the tables, and the numbers that sentences quote; `NAME: made` says what made the results."""
    if name == "benchmarks":
        return benchmarks.tables(), benchmarks.numbers()
    study, records = STUDIES[name], read_records(RESULTS / f"{name}.jsonl")
    numbers = study.numbers(records) if hasattr(study, "numbers") else {}
    return study.tables(records), {**numbers, f"{name}: made": made_with(records)}


def main() -> None:
    """Keep what is asked for; fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="STUDY", help=", ".join(NAMES))
    parser.add_argument("--keep", nargs="+", type=Path, metavar="DIR", help="directories of a study that is done")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder where --keep writes")
    parser.add_argument("--print", action="store_true", help="print the tables and numbers, fill no page")
    arguments = parser.parse_args()
    names = arguments.names or NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"there is no study '{unknown[0]}'; there are {', '.join(NAMES)}")

    # Keep new results in place of old ones of the same runs.
    if arguments.keep:
        if len(names) != 1 or names[0] not in KEEPERS:
            parser.error(f"--keep needs one of {', '.join(KEEPERS)}")
        for folder in arguments.keep:
            keep_records(arguments.results / f"{names[0]}.jsonl", KEEPERS[names[0]](folder))
        if arguments.results != RESULTS:
            return

    # Put what was kept into the pages.
    for name in names:
        tables, numbers = texts(name)
        if arguments.print:
            print("\n\n".join(f"{place}\n\n{text}" for place, text in tables.items()))
            print("\n".join(f"{place} = {text}" for place, text in numbers.items()))
            continue
        fill_pages(tables, numbers)
        if name in DRAWN:
            DRAWN[name].draw_figures(ROOT / "docs" / "images", read_records(RESULTS / f"{name}.jsonl"))


if __name__ == "__main__":
    main()
