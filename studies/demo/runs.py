"""Runs of the demo by the commands that a reader has, and what is kept of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from studies.demo import audit
from studies.study import Record, run_swerve
from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.probe_summary import read_summary
from swerve.artifacts.run import RunDirectory
from swerve.cli.summary import run_summary

TASKS = {"addition": "demo_addition", "knights_knaves": "demo_knights_knaves"}
SEEDS = (0, 1, 2)
WIDER = (
    "probe.cross_sampling.max_problems=100",
    "probe.cross_sampling.selectors=[js,logprob_drop,entropy,random]",
    "probe.cross_sampling.shares=[0.002,0.005,0.01,0.02,0.1]",
    "probe.pivots.max_rollouts=40",
)
"""What the wider probe of a run of the demo measures beyond the recipe."""
_SEQUENCE = (
    "task.max_number=9",
    "task.mistake_rate=0",
    "task.num_train=500",
    "task.num_heldout=80",
    "eval.num_problems=80",
    "stages=[{kind: sft, steps: 200, batch_size: 64, optimizer: "
    "{lr: 4e-3, schedule: cosine, warmup_steps: 20, beta2: 0.95}}]",
)
TRAININGS = {
    "dpo 3e-4": ("demo_addition", "stages.dpo.optimizer.lr=3e-4", "stages.rl.steps=1", "stages.rl.checkpoints=[1]"),
    "dpo 3e-3": ("demo_addition", "stages.dpo.optimizer.lr=3e-3", "stages.rl.steps=1", "stages.rl.checkpoints=[1]"),
    "rl 1e-3": ("demo_addition", "stages.rl.optimizer.lr=1e-3", "stages.rl.checkpoints=[20,40,80]"),
    "sequence": ("sequence",),
    "palindrome": ("palindrome",),
    "palindrome, 500 steps of SFT": ("palindrome", "stages.sft.steps=500"),
    "countdown": ("countdown",),
    **{
        f"sequence, restate {restate}, slips {slips}": (
            "sequence", *_SEQUENCE, f"task.restate={restate}", f"task.slip_rate={slips}"
        )
        for restate in ("false", "true")
        for slips in ("0", "0.15")
    },
}  # fmt: skip
"""Runs that are trained and evaluated only: a recipe and what differs from it."""
_OF_DEMO = ("reference", "final", "num_problems", "num_reference_wrong", "num_reference_wrong_final_right", "mcnemar",
            "num_rollouts", "causal")  # fmt: skip
_OF_WIDER = (*_OF_DEMO, "reselected", "noise_floor", "recovery", "prediction", "pivots", "cross_sampling",
             "training_signal", "notes")  # fmt: skip


def records(work: Path, known: Sequence[Record], patterns: Sequence[str]) -> Iterator[Record]:
    """Run what is not known and matches a pattern, one run after the other; yield what is kept of it."""
    names = {record["name"] for record in known if "name" in record}
    asked = [f"{task} {seed}" for task in TASKS for seed in SEEDS] + list(TRAININGS)
    for name in asked:
        if not any(pattern in name for pattern in patterns):
            continue
        if name not in names:
            yield _training(work, name) if name in TRAININGS else _demo(work, name)
        if name == "addition 0":
            yield from (_audit(work, one) for one in audit.PAIRS if one not in names)
        if name.startswith("addition") and f"wider {name}" not in names:
            yield _wider(work, name)


def _demo(work: Path, name: str) -> Record:
    """Run the demo; keep its evaluations, a part of its probe, and what it prints."""
    task, seed = name.split()
    run, shown = work / f"{task}-{seed}", f"runs/{TASKS[task].replace('_', '-', 1)}"
    found, progress = run_swerve(run, "demo", f"task={task}", f"seed={seed}", "--out", str(run))
    directory = RunDirectory(run)
    text = run_summary(
        read_evaluations(directory),
        read_summary(directory),
        seconds=found["seconds"],
        report=Path(shown) / "report" / "index.html",
    )
    return {
        "kind": "demo",
        "name": name,
        "task": task,
        "seed": int(seed),
        "cpu_seconds": found["cpu_seconds"],
        "evaluations": {one["checkpoint"]: _scores(one) for one in found["evaluations"]},
        **{key: found["probe"][key] for key in _OF_DEMO},
        "by_checkpoint": [_js(row, found["probe"]) for row in found["probe"]["spikes"] if row["divergence"] == "js"],
        "spikes": [row for row in found["probe"]["spikes"] if row["checkpoint"] == found["probe"]["final"]],
        "swaps": _swaps(run / "probe"),
        "printed": text.splitlines(),
        "progress": [line.replace(str(run), shown) for line in progress],
    }


def _js(row: Mapping[str, Any], probe: Mapping[str, Any]) -> Record:
    """Return a checkpoint's mean JS and how many spikes it has."""
    mean = next(one["js"] for one in probe["divergences"] if one["checkpoint"] == row["checkpoint"])
    return {"checkpoint": row["checkpoint"], "num_spikes": row["num_spikes"], "mean_js": mean}


def _scores(evaluation: Mapping[str, Any]) -> Record:
    greedy, sampled = evaluation["greedy"], evaluation["sampled"]
    return {
        "stage": evaluation["stage"],
        **{name: greedy[name] for name in ("num_problems", "accuracy", "trace_right")},
        "mean_reward": sampled["mean_reward"],
        "by_num_samples": sampled["curve"],
    }


def _swaps(probe: Path) -> list[dict[str, Any]]:
    """Return of each rollout of the causal test its wrong steps, which one has the top spike, and successes by arm."""
    rollouts = {row["sequence_id"]: row for row in pq.read_table(probe / "sequences.parquet").to_pylist()}
    arms: dict[tuple[int, int], dict[str, Any]] = {}
    for row in pq.read_table(probe / "interventions.parquet").to_pylist():
        if row["selection"] == "spike" and row["policy"] == "reference":
            arms.setdefault((row["sequence_id"], row["position"]), {})[row["arm"]] = row
    return [
        {
            "wrong_steps": len(wrong := list(rollouts[number]["wrong_positions"] or ())),
            "spike": "first" if wrong[:1] == [position] else "later" if position in wrong else "none",
            "successes": {arm: row["num_successes"] for arm, row in found.items()},
            "continuations": {arm: row["num_continuations"] for arm, row in found.items()},
        }
        for (number, position), found in sorted(arms.items())
    ]


def _audit(work: Path, name: str) -> Record:
    """Audit the estimators of KL on rollouts of the demo with seed 0."""
    run = work / "addition-0"
    rollouts, policy, reference = audit.PAIRS[name]
    words = ("--rollouts", str(run / "rollouts" / f"{rollouts}.parquet"))
    pair = ("--checkpoint", f"{run}:{policy}", "--reference", f"{run}:{reference}")
    out = work / name.replace(" ", "-")
    found, _ = run_swerve(out, "bench", "estimators", *words, *pair, "--out", str(out))
    return audit.kept(name, found)


def _wider(work: Path, name: str) -> Record:
    """Probe a run of the demo again, with more rollouts and more budgets."""
    task, seed = name.split()
    run = work / f"{task}-{seed}"
    found, _ = run_swerve(work / f"wider-{task}-{seed}", "probe", str(run), *WIDER)
    pair = (found["final"], found["reference"])
    kept = {key: found[key] for key in _OF_WIDER}
    kept["training_signal"] = [row for row in found["training_signal"] if (row["checkpoint"], row["reference"]) == pair]
    return {"kind": "wider", "name": f"wider {name}", "seed": int(seed), **kept}


def _training(work: Path, name: str) -> Record:
    """Train a recipe with what differs from it, and evaluate its checkpoints."""
    run = work / re.sub(r"[^a-z0-9.]+", "-", name.lower())
    recipe, *overrides = TRAININGS[name]
    run_swerve(run, "train", recipe, *overrides, "--out", str(run))
    found, _ = run_swerve(run.with_name(f"{run.name}-eval"), "eval", str(run))
    return {
        "kind": "training",
        "name": name,
        "recipe": recipe,
        "seed": 0,
        "overrides": overrides,
        "evaluations": {one["checkpoint"]: _scores(one) for one in found["evaluations"]},
    }
