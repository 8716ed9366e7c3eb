"""What the probe finds in the demo, where a misconception was planted and every wrong token is known.

    python -m studies.probe_findings --demo RUN [RUN ...]   from finished probes: one run per seed
    python -m studies.probe_findings --page --figures       make its part of the page

The runs are `swerve demo seed=N`, probed with

    probe.cross_sampling.max_problems=100 probe.cross_sampling.shares=[0.002,0.005,0.01,0.02,0.1]
    probe.pivots.max_rollouts=40
    probe.populations=[reference_right,checkpoint_right,checkpoint_wrong,training]

Seeds that are in the file of results already are not read again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies.probe_findings.figures import draw_figures
from studies.probe_findings.tables import tables
from studies.study import Study, append_record, read_records
from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory

STUDY = Study(
    results="probe_findings-2026-11-20.jsonl", page="probe-results.md", tables=tables, draw_figures=draw_figures
)
_KEPT = (
    "reference",
    "final",
    "num_problems",
    "num_reference_wrong",
    "num_reference_wrong_final_right",
    "mcnemar",
    "reselected",
    "num_rollouts",
    "noise_floor",
    "recovery",
    "causal",
    "prediction",
    "pivots",
    "cross_sampling",
    "training_signal",
    "notes",
)


def demo_record(path: Path) -> dict[str, Any]:
    """Return what the page shows of a run's finished probe."""
    summary = read_json(path / "probe" / "summary.json")
    kept = {name: summary[name] for name in _KEPT}
    pair = (summary["final"], summary["reference"])
    kept["training_signal"] = [
        row for row in summary["training_signal"] if (row["checkpoint"], row["reference"]) == pair
    ]
    return {"kind": "demo", "seed": RunDirectory(path).read_provenance()["seed"], **kept}


def main() -> None:
    """Read what is asked for, show what was read."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--demo", type=Path, nargs="+", default=[], metavar="RUN", help="finished, probed runs")
    arguments = parser.parse_args()
    known = {record["seed"] for record in read_records(arguments.out) if record["kind"] == "demo"}
    for record in map(demo_record, arguments.demo):
        if record["seed"] not in known:
            append_record(arguments.out, record)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
