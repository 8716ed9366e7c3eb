"""What the probe finds where the truth is known, and what it finds where there is nothing.

    python benchmarks/probe_findings.py --demo RUN [RUN ...]              from finished probes: one run a seed
    python benchmarks/probe_findings.py --null RUN                        null pairs of the models of a run
    python benchmarks/probe_findings.py --stories MODEL --work WORK       a change planted in a pretrained model
    python benchmarks/probe_findings.py --page docs/probe-results.md --figures docs/images

The runs are `swerve demo seed=N`, probed with

    probe.cross_sampling.max_problems=100 probe.cross_sampling.shares=[0.002,0.005,0.01,0.02,0.1]
    probe.pivots.max_rollouts=40
    probe.populations=[reference_right,checkpoint_right,checkpoint_wrong,training]

MODEL is a folder with the pretrained stories260K (a Llama of 260,000 parameters) in the Hugging Face layout. Results
are appended to JSON lines; what is there already is not done again. One thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from probe_findings_figures import draw_figures
from probe_findings_page import tables, write_page
from probe_nulls import NULL_PARTS, NullSettings, null_records
from probe_stories import StorySettings, story_records

from swerve.artifacts.files import dump_json, read_json
from swerve.artifacts.run import RunDirectory
from swerve.version import __version__

RESULTS = Path(__file__).parent / "results" / "probe_findings-2026-11-20.jsonl"
_DIGITS = 5
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
Record = dict[str, Any]


def demo_record(path: Path) -> Record:
    """Return what the page shows of a run's finished probe."""
    summary = read_json(path / "probe" / "summary.json")
    kept = {name: summary[name] for name in _KEPT}
    pair = (summary["final"], summary["reference"])
    kept["training_signal"] = [
        row for row in summary["training_signal"] if (row["checkpoint"], row["reference"]) == pair
    ]
    return {"kind": "demo", "seed": RunDirectory(path).read_provenance()["seed"], **kept}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _append(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(_rounded(json.loads(dump_json(record))), allow_nan=False) + "\n")
    print(f"{record['kind']}: {path}", flush=True)


def _start(path: Path) -> None:
    if not path.exists():
        versions = {"swerve": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
        _append(
            path, {"kind": "versions", "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), **versions}
        )


def run_demos(out: Path, runs: Sequence[Path]) -> None:
    """Append the figures of runs whose seeds are not there."""
    known = {record["seed"] for record in _read(out) if record["kind"] == "demo"}
    for record in map(demo_record, runs):
        if record["seed"] not in known:
            _append(out, record)


def run_nulls(out: Path, run: Path) -> None:
    """Append the null experiments that are not there."""
    known = {record["kind"] for record in _read(out)}
    parts = [name for name in NULL_PARTS if f"null_{name}" not in known]
    for record in null_records(RunDirectory(run), NullSettings(), parts):
        _append(out, record)


def run_stories(out: Path, model: Path, work: Path | None) -> None:
    """Append the parts of the planted change that are not there."""
    known = {record["kind"] for record in _read(out)}
    with tempfile.TemporaryDirectory() as name:
        folder = work or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for record in story_records(model, folder.resolve(), StorySettings(), known=known):
            _append(out, record)


def main() -> None:
    """Run what is asked for, or show what was run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON lines, read and appended to")
    parser.add_argument("--demo", type=Path, nargs="+", default=[], metavar="RUN", help="finished, probed runs")
    parser.add_argument("--null", type=Path, metavar="RUN", help="the run whose models are compared with themselves")
    parser.add_argument("--stories", type=Path, metavar="MODEL", help="folder of stories260K")
    parser.add_argument("--work", type=Path, help="where fine-tuned copies are kept; a temporary directory by default")
    parser.add_argument("--table", action="store_true", help="print the tables")
    parser.add_argument("--page", type=Path, help="put the tables into this page")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw the figures there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.demo or arguments.null or arguments.stories:
        _start(arguments.out)
    run_demos(arguments.out, arguments.demo)
    if arguments.null:
        run_nulls(arguments.out, arguments.null)
    if arguments.stories:
        run_stories(arguments.out, arguments.stories, arguments.work)
    records = _read(arguments.out)
    if arguments.table:
        print("\n\n".join(f"{name}\n\n{table}" for name, table in tables(records).items()))
    if arguments.page:
        write_page(arguments.page, records)
    if arguments.figures:
        draw_figures(arguments.figures, records)


if __name__ == "__main__":
    main()
