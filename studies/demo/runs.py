"""What is kept of the demo's runs, of its wider probes, of trainings alone and of audits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from studies.pages import Record, first
from studies.runs import by_arm, kept_evaluations, kept_summary, run_folders
from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.cli.bench import estimator_lines
from swerve.cli.summary import demo_text, over_seeds
from swerve.cli.text import table
from swerve.estimates import Estimate
from swerve.formats.text_tables import table_of

_PROBED = ("reference", "final", "num_problems", "num_reference_wrong", "num_reference_wrong_final_right", "mcnemar",
           "num_rollouts", "causal")  # fmt: skip
_PROBED_WIDER = (*_PROBED, "reselected", "noise_floor", "recovery", "prediction", "cross_sampling", "notes")


PROGRESS = {
    "training": ("run directory", "train", "sample pairs"),
    "evaluation": ("evaluate",),
    "probe": ("probe:", "noise models", "causal test", "pivots", "cross-sampling"),
}
"""How the lines of progress of each part of the demo begin."""


def keep(folder: Path) -> Iterator[Record]:
    """Yield what is kept of one of the studies, or of an audit."""
    if (folder / "estimators.json").is_file():
        yield _audit(folder)
        return
    if folder.name == "demo-multiplication":
        runs = {seed: RunDirectory(run) for _, seed, run in run_folders(folder)}
        printed = table(table_of(over_seeds(runs)), columns=sys.maxsize).splitlines()
        yield {"kind": "seeds", "name": "multiplication", "printed": printed}
    for variant, seed, run in run_folders(folder):
        if folder.name in ("demo", "demo-multiplication"):
            task = "multiplication" if variant == "demo" else variant
            yield _demo(task, seed, run, folder / "logs" / variant / f"seed-{seed}.log")
        elif folder.name == "demo-wider":
            yield _wider(seed, run)
        else:
            yield {"kind": "training", "name": variant, "seed": seed, "evaluations": kept_evaluations(run)}


def _demo(task: str, seed: int, run: Path, log: Path) -> Record:
    """Return the evaluations of a run, a part of its probe, and what `swerve demo` prints of it."""
    recipe = f"demo-{task.replace('_', '-')}"
    seconds = log.stat().st_mtime - (run / "config.yaml").stat().st_mtime
    directory, probe = RunDirectory(run), kept_summary(run)
    report = Path("runs") / recipe / "report" / "index.html"
    text = demo_text(directory, report, seconds=seconds)

    # Of what the commands of a study's run print, the progress alone: the demo is one command.
    lines, beginnings = log.read_text(encoding="utf-8").splitlines(), tuple(chain(*PROGRESS.values()))

    # Of each checkpoint its mean JS and how many spikes it has.
    by_checkpoint = []
    for row in probe["spikes"]:
        if row["divergence"] == "js":
            mean = first(probe["divergences"], checkpoint=row["checkpoint"])["js"]
            by_checkpoint.append({"checkpoint": row["checkpoint"], "num_spikes": row["num_spikes"], "mean_js": mean})
    return {
        "kind": "demo",
        "name": f"{task} {seed}",
        "task": task,
        "seed": seed,
        # Of runs side by side the time says nothing.
        **({} if task == "multiplication" else {"cpu_seconds": round(seconds, 1)}),
        "evaluations": kept_evaluations(run),
        **{name: probe[name] for name in _PROBED},
        "by_checkpoint": by_checkpoint,
        "spikes": [row for row in probe["spikes"] if row["checkpoint"] == probe["final"]],
        "swaps": _swaps(run / "probe"),
        "printed": text.splitlines(),
        "progress": [line.replace(str(run), f"runs/{recipe}") for line in lines if line.startswith(beginnings)],
    }


def _swaps(probe: Path) -> list[Record]:
    """Return of each rollout of the causal test its wrong steps, which one has the top spike, and successes by arm."""
    swaps = []
    for row, arms in by_arm(probe):
        wrong, position = list(row["wrong_positions"] or ()), row["position"]
        if row["selection"] == "spike":
            swaps.append(
                {
                    "wrong_steps": len(wrong),
                    "spike": "first" if wrong[:1] == [position] else "later" if position in wrong else "none",
                    "successes": {arm: swap["num_successes"] for arm, swap in arms.items()},
                    "continuations": {arm: swap["num_continuations"] for arm, swap in arms.items()},
                }
            )
    return swaps


def _wider(seed: int, run: Path) -> Record:
    probe = kept_summary(run)
    pair = (probe["final"], probe["reference"])
    signal = [row for row in probe["training_signal"] or () if (row["checkpoint"], row["reference"]) == pair]
    kept = {name: probe[name] for name in _PROBED_WIDER}
    kept["pivots"] = first(probe["pivots"], policy="reference")
    return {"kind": "wider", "name": f"wider addition {seed}", "seed": seed, **kept, "training_signal": signal}


def _audit(folder: Path) -> Record:
    """Return the estimates of an audit, and what it prints."""
    audit = read_json(folder / "estimators.json")
    rows = [{**row, "realised": row["realised"] and Estimate(**row["realised"])} for row in audit["values"]]
    last, kl = audit["deciles"][-1], audit["exact"]["reverse_kl"]
    return {
        "kind": "audit",
        "name": folder.name.replace("-", " "),
        "seed": 0,
        "printed": estimator_lines({**audit, "values": rows}),
        **{name: audit[name] for name in ("num_tokens", "exact", "values", "gradients")},
        "last_decile_share": last["num_tokens"] * last["kl_mean"] / (audit["num_tokens"] * kl),
    }
