"""The demo on several seeds: what its recipes come to, and what the probe finds where every wrong token is known.

    python -m studies.demo                      fill the pages and draw their images from the kept results
    python -m studies.demo --make --work WORK   first run what is not in the results; --anew runs everything
    python -m studies.demo --make --only "addition 0" "rl 1e-3"

Runs are `swerve demo task=TASK seed=N` for three seeds of both tasks, a wider probe of those of column addition, two
audits of estimators, and `swerve train` of the small recipes and of `demo_addition` at other learning rates. They stay
in WORK, where an interrupted study continues. One thread, one run after the other.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from studies.demo import audit, findings, results
from studies.demo.figures import draw_figures
from studies.study import Record, Study, append_record, read_records


def _tables(records: list[Record]) -> dict[str, str]:
    return {**findings.tables(records), **results.tables(records), **audit.tables(_audits(records))}


def _numbers(records: list[Record]) -> dict[str, str]:
    return {**findings.numbers(records), **results.numbers(records), **audit.numbers(_audits(records))}


def _audits(records: list[Record]) -> list[Record]:
    return [record for record in records if record["kind"] == "audit"]


STUDY = Study(
    results="demo.jsonl",
    page="results.md",
    other_pages=(
        "docs/probe-results.md",
        "docs/getting-started.md",
        "docs/generated-tasks.md",
        "docs/estimators.md",
        "docs/probe.md",
        "README.md",
    ),
    tables=_tables,
    numbers=_numbers,
    draw_figures=draw_figures,
)


def measure(out: Path, work: Path, patterns: list[str]) -> None:
    """Append what is not in the file of results."""
    from studies.demo.runs import records

    work.mkdir(parents=True, exist_ok=True)
    for record in records(work.resolve(), read_records(out), patterns):
        append_record(out, record)
        print(f"{record['name']}: {out}", flush=True)


def main() -> None:
    """Measure what is asked for, show what was measured."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--work", type=Path, help="where runs are kept; a temporary directory by default")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="runs whose name holds one of these")
    arguments = STUDY.parse(parser)
    if arguments.make:
        with tempfile.TemporaryDirectory() as name:
            measure(arguments.out, arguments.work or Path(name), arguments.only)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
