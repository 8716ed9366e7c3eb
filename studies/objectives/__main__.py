"""Objectives: one short run of each on column addition, all from the same SFT checkpoint.

    python -m studies.objectives                              fill the page, draw its images from the kept results
    python -m studies.objectives --make --work WORK --jobs 2  first run what is not in the results; --anew runs all
    python -m studies.objectives --make --only 'max_prob*' --seeds 1 2

The SFT stage of the recipe `demo_addition` is trained once per seed; every run continues from its checkpoint with 80
steps of its own objective and is evaluated on 400 held-out problems. Seeds other than 0 have the runs of the page's
table of several seeds. Then the gradient of each loss is measured, by checkpoint. Each run uses one thread.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from studies.objectives.figures import draw_figures
from studies.objectives.numbers import numbers
from studies.objectives.tables import tables
from studies.study import Study, append_record, read_records

STUDY = Study(
    results="objectives.jsonl",
    page="objectives-compared.md",
    tables=tables,
    numbers=numbers,
    draw_figures=draw_figures,
)


@contextmanager
def _work_directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _measure_signals(out: Path, work: Path) -> None:
    from studies.objectives.runs import sft_checkpoint, variant_checkpoints
    from studies.objectives.signals import signal_records

    known = {record["checkpoint"] for record in read_records(out) if record["kind"] == "signal"}
    start, _ = sft_checkpoint(work, 0)
    for record in signal_records(start, lambda key: variant_checkpoints(key, work), known=known):
        append_record(out, record)
        print(json.dumps(record), flush=True)


def main() -> None:
    """Run what is asked for, show what was run."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--work", type=Path, help="where runs are kept; a temporary directory by default")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, a thread each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="PATTERN", help="runs whose name or group matches, in this order"
    )
    arguments = STUDY.parse(parser)
    if arguments.make:
        from studies.objectives.runs import compare

        with _work_directory(arguments.work) as work:
            compare(arguments.out, work, seeds=arguments.seeds, patterns=arguments.only, jobs=max(1, arguments.jobs))
            if arguments.only == ["*"]:
                _measure_signals(arguments.out, work)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
