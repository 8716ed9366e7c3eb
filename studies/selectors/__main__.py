"""Which score finds the tokens that decide? Six scores on reasoning in English, by four tests, over several seeds.

    python -m studies.selectors                      fill the page from the kept results
    python -m studies.selectors --make --work WORK   first measure what is not in the results; --anew: everything

Of each seed: `swerve train word_problems_sft`, `swerve train word_problems` from it, `swerve eval` and `swerve probe`.
Rollouts are selected by one half of the sampled completions and read from the other. Runs stay in WORK, where an
interrupted study continues. One thread, one run after the other, about a quarter of an hour a seed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from studies.selectors.tables import numbers, tables
from studies.study import Study, append_record, read_records

STUDY = Study(
    results="selectors.jsonl",
    page="selectors.md",
    other_pages=("docs/generated-tasks.md", "docs/findings.md"),
    tables=tables,
    numbers=numbers,
)


def main() -> None:
    """Measure what is asked for, show what was measured."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--work", type=Path, help="where runs are kept; a temporary directory by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], metavar="SEED")
    arguments = STUDY.parse(parser)
    if arguments.make:
        from studies.selectors.runs import seed_record

        known = {record.get("seed") for record in read_records(arguments.out)}
        with tempfile.TemporaryDirectory() as name:
            for seed in (one for one in arguments.seeds if one not in known):
                append_record(arguments.out, seed_record((arguments.work or Path(name)).resolve(), seed))
                print(f"seed {seed}: {arguments.out}", flush=True)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
