"""One seed of the setting: an SFT model, RL on it, and what the probe finds between the two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from studies.study import Record, run_swerve

SAMPLED = ("eval.samples_per_problem=8",)
PROBED = (*SAMPLED, "probe.selection=split", "probe.max_rollouts=300", "probe.pivots.max_rollouts=40")
_KEPT = ("num_problems", "num_rollouts", "num_reference_wrong", "num_reference_wrong_final_right", "divergences",
         "recovery", "prediction", "pivots", "cross_sampling")  # fmt: skip


def seed_record(work: Path, seed: int) -> Record:
    """Train, evaluate and probe one seed; return what is kept of it."""
    work.mkdir(parents=True, exist_ok=True)
    sft, run = work / f"sft-{seed}", work / f"rl-{seed}"
    first, _ = run_swerve(sft, "train", "word_problems_sft", f"seed={seed}", "--out", str(sft))
    model = f"model.path={sft / 'checkpoints' / 'step_001500'}"
    second, _ = run_swerve(
        run, "train", "word_problems", f"seed={seed}", model, "stages.rl.checkpoints=[]", "--out", str(run)
    )
    evaluated, _ = run_swerve(work / f"eval-{seed}", "eval", str(run), *SAMPLED)
    probed, _ = run_swerve(work / f"probe-{seed}", "probe", str(run), *PROBED)
    return {
        "kind": "seed",
        "seed": seed,
        "cpu_seconds": {"sft": first["cpu_seconds"], "rl": second["cpu_seconds"], "probe": probed["cpu_seconds"]},
        "evaluations": {one["checkpoint"]: _scores(one) for one in evaluated["evaluations"]},
        **{name: probed[name] for name in _KEPT},
        "swaps": next(one["selections"] for one in probed["causal"]["policies"] if one["policy"] == "reference"),
        "effects": _effects(run / "probe"),
    }


def _scores(evaluation: Mapping[str, Any]) -> Record:
    greedy = {name: evaluation["greedy"][name] for name in ("accuracy", "trace_right")}
    first_mistakes = evaluation["first_mistakes"]
    return {**greedy, "by_num_samples": evaluation["sampled"]["curve"], "first_mistakes": first_mistakes}


def _effects(probe: Path) -> dict[str, list[list[Any]]]:
    """Return, by kind of position, of each rollout: its problem, the token's effect, and that over another token."""
    problems = {row["sequence_id"]: row["problem_id"] for row in pq.read_table(probe / "sequences.parquet").to_pylist()}
    arms: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in pq.read_table(probe / "interventions.parquet").to_pylist():
        if row["policy"] == "reference":
            place = row["selection"], row["spike_sequence_id"], row["position"]
            arms.setdefault(place, {})[row["arm"]] = row["num_successes"] / row["num_continuations"]
    found: dict[str, list[list[Any]]] = {}
    for (selection, number, _), success in arms.items():
        over_own = success["checkpoint"] - success["reference"]
        over_other = success["checkpoint"] - success["alternative"] if "alternative" in success else None
        found.setdefault(selection, []).append([problems[number], number, over_own, over_other])
    return found
