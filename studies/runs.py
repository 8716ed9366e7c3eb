"""What the runs of a study left on the disk, for the records that are kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.files import read_json
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import read_study
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, read_table


def run_folders(study: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield the variant, the seed and the directory of each run of a study that was measured."""
    for run in read_study(study).runs:
        if run.measured:
            yield run.variant, run.seed, study / run.path


def kept_evaluations(run: Path) -> dict[str, dict[str, Any]]:
    """Return what is kept of each evaluation of a run, by checkpoint."""
    kept = {}
    for evaluation in read_evaluations(RunDirectory(run)):
        scores = evaluation.model_dump(mode="json")
        greedy, sampled = scores["greedy"], scores["sampled"]
        kept[evaluation.checkpoint] = {
            "stage": evaluation.stage,
            **{name: greedy[name] for name in ("num_problems", "accuracy", "trace_right")},
            "mean_reward": sampled["mean_reward"],
            "by_num_samples": sampled["curve"],
            "first_mistakes": scores["first_mistakes"],
        }
    return kept


def kept_summary(run: Path) -> dict[str, Any]:
    """Return the summary of a run's probe."""
    summary: dict[str, Any] = read_json(run / "probe" / "summary.json")
    return summary


def by_arm(probe: Path) -> Iterator[tuple[dict[str, Any], dict[str, dict[str, Any]]]]:
    """Yield each position at which the causal test swapped a token in the reference's text, and its arms by name.

    The position is the row of the rollout in `sequences.parquet`, with `selection` and `position`.
    """
    rollouts = {
        row["sequence_id"]: row for row in read_table(probe / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    }
    arms: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for row in read_table(probe / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist():
        if row["policy"] == "reference":
            arms.setdefault((row["selection"], row["spike_sequence_id"], row["position"]), {})[row["arm"]] = row
    for (selection, sequence, position), by_name in arms.items():
        yield {**rollouts[sequence], "selection": selection, "position": position}, by_name
