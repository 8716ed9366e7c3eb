"""The graders on real outputs: agreement with recorded verdicts, and every disagreement with its reason.

    python -m studies.grading                       fill the page from the kept results
    python -m studies.grading --make --data FOLDER  first grade everything again

FOLDER has the files that docs/graded-data.md lists, with their sources. What the disagreements are was looked up by
hand and is in `studies/grading/reasons.py` by their names: one that is not there is shown as "not looked at yet", one
that is there and no longer occurs is named on stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.grading.tables import numbers, stale_reasons, tables
from studies.study import Study, append_record, read_records

STUDY = Study(
    results="grading.jsonl",
    page="graded-data.md",
    tables=tables,
    numbers=numbers,
    other_pages=("docs/k-and-k.md",),
)


def measure(out: Path, data: Path) -> None:
    """Write the results anew."""
    from studies.grading.measurements import lines

    found = []
    for record in lines(data):
        found.append(record)
        print(f"{record['kind']}: {out}", flush=True)
    out.unlink(missing_ok=True)
    for record in found:
        append_record(out, record)


def main() -> None:
    """Measure what is asked for, show what was measured."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data that --make grades")
    arguments = STUDY.parse(parser)
    if arguments.make:
        if not arguments.data or not arguments.data.is_dir():
            parser.error(f"--make needs --data FOLDER; docs/{STUDY.page} says which files it has")
        measure(arguments.out, arguments.data)
    STUDY.show(arguments)
    for name in stale_reasons(read_records(arguments.out)):
        print(f"reasons.py has a reason for {name}, which is no disagreement any more", file=sys.stderr)


if __name__ == "__main__":
    main()
