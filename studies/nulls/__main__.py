"""False discoveries of the probe where there is nothing to find: what it reports on null pairs.

    python -m studies.nulls --run RUN          null pairs of the models of a finished run of the demo
    python -m studies.nulls --page --figures   make its part of the page

- The same model with itself, run in other batches and in bfloat16: every spike is false.
- Two samples of the same model: every comparison of populations should reject at its nominal 5%.
- The same token in both arms of a swap; a search for pivots where no token has an effect.

Results that are in the file already are not measured again. One thread.
"""

from __future__ import annotations

from pathlib import Path

from studies.nulls.figures import draw_figures
from studies.nulls.tables import tables
from studies.study import Study, append_record, read_records

STUDY = Study(results="nulls-2026-11-20.jsonl", page="probe-results.md", tables=tables, draw_figures=draw_figures)


def measure(out: Path, path: Path) -> None:
    """Append what is not in the file of results."""
    import torch

    from studies.nulls import causal, pairs
    from studies.nulls.null_run import NullRun, NullSettings
    from swerve.artifacts.run import RunDirectory

    torch.set_num_threads(1)
    known = {record["kind"] for record in read_records(out)}
    run = NullRun.read(RunDirectory(path), NullSettings())
    for part in (pairs.spikes, pairs.samples, pairs.coverage, causal.arms, causal.pivots):
        kind = f"null_{part.__name__}"
        if kind not in known:
            append_record(out, {"kind": kind, **part(run)})
            print(f"{kind}: {out}", flush=True)


def main() -> None:
    """Measure what is asked for, show what was measured."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--run", type=Path, help="the run whose models are compared with themselves")
    arguments = parser.parse_args()
    if arguments.run:
        measure(arguments.out, arguments.run)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
