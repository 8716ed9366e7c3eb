"""What the pages show of `swerve demo`, five training seeds: its figures by seed, and what seed 0 printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from studies.demo.findings import by_seed, last, swap
from studies.demo.runs import PROGRESS
from studies.pages import Record, fenced, first, of_kind, percent


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the table and the printed texts by the names of their places."""
    demos, seeds = of_kind(records, "demo"), first(records, kind="seeds")
    return {"demo multiplication": by_seed(demos), "demo over seeds": fenced(seeds["printed"]), **_printed(demos[0])}


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote, from the lowest to the highest of the seeds."""
    demos = of_kind(records, "demo")
    swaps = [swap(demo, "spike") for demo in demos]
    values = {
        "accuracy before": [last(demo, "dpo")["accuracy"]["mean"] for demo in demos],
        "accuracy after": [last(demo, "rl")["accuracy"]["mean"] for demo in demos],
        "own token": [each["reference"]["success"] for each in swaps],
        "token of RL": [each["checkpoint"]["success"] for each in swaps],
        "another token": [each["alternative"]["success"] for each in swaps],
    }
    return {f"multiplication: {name}": f"{percent(min(of))} to {percent(max(of))}" for name, of in values.items()}


def _printed(demo: Record) -> dict[str, str]:
    """Return what the demo printed at its end, whole and as its first verdicts alone, and its progress by stage."""
    texts = {
        "demo summary": "\n".join(f"    {_first_sentence(line)}" for line in demo["printed"][1:5]),
        "demo output": fenced(demo["printed"]),
    }
    for part, beginnings in PROGRESS.items():
        # Of each part of the run its second line, if it has more than two, and its last.
        by_name: dict[str, list[str]] = {}
        for line in demo["progress"]:
            if line.startswith(beginnings):
                by_name.setdefault(line.partition(":")[0], []).append(line)
        said = [line for lines in by_name.values() for line in [*lines[1:-1][:1], lines[-1]]]
        texts[f"demo progress {part}"] = fenced(said)
    return texts


def _first_sentence(line: str) -> str:
    """Return a line up to its first full stop before a space.

    >>> _first_sentence("92% right, from 0.5%. Another token does not: 0.1%."), _first_sentence("Report: a.html")
    ('92% right, from 0.5%.', 'Report: a.html')
    """
    return re.split(r"(?<=\.) ", line, maxsplit=1)[0]
