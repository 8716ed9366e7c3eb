"""The graders on real outputs: agreement with recorded verdicts, and every disagreement with its reason.

    python -m studies.grading FOLDER    grade everything again

FOLDER has the files that docs/graded-data.md lists, with their sources; `python -m studies grading` fills that page.
What the disagreements are was looked up by hand and is in `studies/grading/reasons.py` by their names: one that is not
there is shown as "not looked at yet", one that is there and no longer occurs is named on stderr.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from studies.grading.measurements import lines
from studies.grading.tables import stale_reasons
from studies.records import RESULTS, append_record, read_records


def main() -> None:
    """Write the results anew, once all is graded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the data")
    parser.add_argument("--out", type=Path, default=RESULTS / "grading.jsonl", help="JSON lines")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data}; docs/graded-data.md says which files it has")
    records = list(lines(arguments.data))
    arguments.out.unlink(missing_ok=True)
    for record in records:
        append_record(arguments.out, record)
    for name in stale_reasons(read_records(arguments.out)):
        print(f"reasons.py has a reason for {name}, which is no disagreement any more", file=sys.stderr)


if __name__ == "__main__":
    main()
