"""What a run of a study measured: one number for each measure, values by problem, and curves over training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.metrics import StepMetrics, read_step_metrics
from swerve.artifacts.model_words import model_words
from swerve.artifacts.replays import read_taught
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import RunState, StudyRun
from swerve.behaviours.diversity import Embedder
from swerve.behaviours.measures import problem_values
from swerve.errors import ArtifactError
from swerve.estimates import Estimate
from swerve.report.read import task_words

ByProblem = Mapping[str, float]
"""Problem -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run, and what its files say beyond one number for each measure."""

    run: StudyRun
    by_problem: Mapping[str, ByProblem] = field(default_factory=dict)
    """Measure -> value of each problem at the last evaluated checkpoint."""
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Metric -> value at each global step."""
    begins: int = 0
    """Global step that the last stage begins after."""


def measure_run(
    path: Path, *, variant: str, seed: int, shown_path: str, failure: str | None = None, embed: Embedder | None = None
) -> MeasuredRun:
    """Read a run.

    Args:
        path: its directory; a run without one is `missing`.
        variant: what it is a run of.
        seed: its seed.
        shown_path: what the study calls its directory.
        failure: why the run failed, if it did.
        embed: texts -> vectors, for the similarity of embeddings.
    """
    known: dict[str, Any] = {"variant": variant, "seed": seed, "path": shown_path}
    run = RunDirectory(path)
    if not (path / "run.json").is_file():
        reason = failure or ("its run.json is missing" if path.exists() else "not begun")
        return MeasuredRun(run=StudyRun(**known, state="failed" if failure else "missing", reason=reason))
    try:
        provenance = run.read_provenance()
        evaluations, metrics = read_evaluations(run), tuple(read_step_metrics(run.metrics_path))
        last = evaluations[-1] if evaluations else None
        by_problem = {} if last is None else _by_problem(run, last, embed)
        taught = _taught(run)
    except ArtifactError as error:
        return MeasuredRun(run=StudyRun(**known, state="failed", reason=str(error)))

    known |= {key: provenance.get(key) for key in ("config_hash", "torch_version")}
    if (collapse := next((metric for metric in metrics if metric.collapse is not None), None)) is not None:
        known |= {"collapse": collapse.collapse, "collapse_step": collapse.step}

    # A run that ended in a collapse counts with what it measured, one that was trained only where it is evaluated.
    status = provenance.get("status")
    if failure or status not in ("collapsed", "trained") or (status == "trained" and last is None):
        lacking = "not evaluated" if status == "trained" else f"not trained to the end ({status})"
        state: RunState = "failed" if failure or status in ("failed", "trained") else "missing"
        return MeasuredRun(run=StudyRun(**known, state=state, reason=failure or lacking))
    if last is not None:
        known |= {
            "checkpoint": last.checkpoint,
            "task": task_words(run.config_path.read_text(encoding="utf-8")) if run.config_path.is_file() else "",
            "model": model_words(run.checkpoint_path(last.step)),
            "weights_sha256": last.weights_sha256,
            "values": _values(evaluations, metrics, by_problem) | taught,
            "by_kind": _by_kind(last),
            "start_by_kind": _by_kind(evaluations[0]) if evaluations[0].step == 0 else {},
        }
    begins = metrics[-1].step - metrics[-1].stage_step if metrics else 0
    curves = _curves(evaluations, metrics)
    return MeasuredRun(run=StudyRun(**known, state=status), by_problem=by_problem, curves=curves, begins=begins)


_OF_HALVES: Mapping[str, Mapping[str, str]] = {
    "greedy": {
        "accuracy": "accuracy",
        "entropy": "entropy",
        "length": "num_tokens",
        **{name: name for name in ("reflections", "empty_thinking", "truncated", "unanswered")},
    },
    "sampled": {"sampled_accuracy": "accuracy", "similarity": "similarity", "distinct_right": "distinct_right"},
}
"""Half of an evaluation -> measure of a study -> what it is of the half's scores."""


def _by_problem(run: RunDirectory, evaluation: Evaluation, embed: Embedder | None) -> dict[str, dict[str, float]]:
    """Return the values of each problem; a problem is its id and its question, as generated tasks may reuse ids."""
    responses = read_response_table(run.path / "eval" / f"{evaluation.file_name}.parquet", EVALUATION_SCHEMA)
    values: dict[str, dict[str, float]] = {}
    for half, names in _OF_HALVES.items():
        groups: dict[str, list[Response]] = {}
        for response in responses:
            if (response.temperature == 0) == (half == "greedy"):
                groups.setdefault(f"{response.problem.id}\n{response.problem.question}", []).append(response)
        # What the evaluation leaves out (of texts that are no prose) is not measured here either.
        measured = problem_values(groups, embed=embed if half == "sampled" else None)
        for measure, name in names.items():
            if getattr(getattr(evaluation, half), name) is not None:
                values[measure] = measured[name]
        if "embedding_similarity" in measured:
            values["embedding_similarity"] = measured["embedding_similarity"]
    return values


def _values(
    evaluations: tuple[Evaluation, ...], metrics: tuple[StepMetrics, ...], by_problem: Mapping[str, ByProblem]
) -> dict[str, float]:
    values = {measure: sum(values.values()) / len(values) for measure, values in by_problem.items()}

    # How good it ever was, and when.
    known = [(each.greedy.accuracy.mean, each.step) for each in evaluations if each.greedy.accuracy is not None]
    if len(evaluations) > 1:
        firsts = {
            "first_accuracy": evaluations[0].greedy.accuracy,
            "first_sampled_accuracy": evaluations[0].sampled.of_samples(1).pass_at_k,
        }
        values |= {name: first.mean for name, first in firsts.items() if first is not None}
    if known:
        best, step = max(known, key=lambda pair: pair[0])
        values |= {"best_accuracy": best, "peak_step": float(step)}

    # What training recorded: the accuracy of its last tenth, and last values.
    accuracies = [metric.accuracy for metric in metrics if metric.accuracy is not None]
    if accuracies:
        values["training_accuracy"] = fmean(accuracies[-max(1, len(accuracies) // 10) :])
    for measure, key in (("divergence", "live_kl_forward"), ("kl", "kl")):
        recorded = [value for metric in metrics if (value := getattr(metric, key)) is not None]
        if recorded:
            values[measure] = recorded[-1]
    return values


def _taught(run: RunDirectory) -> dict[str, float]:
    """Return what a target lost without the tokens that taught it most, by measure, of the map over the most steps."""
    maps = sorted(read_taught(run).values(), key=lambda taught: taught.proof.stop - taught.proof.start)
    return {f"taught_{taught.target}": taught.lost for taught in maps}


def _by_kind(evaluation: Evaluation) -> dict[str, float]:
    by_kind = evaluation.greedy.by_kind
    accuracies = {kind: scores.accuracy.mean for kind, scores in by_kind.items() if scores.accuracy is not None}
    return accuracies if len(accuracies) > 1 else {}


_OF_EVALUATIONS: Mapping[str, Callable[[Evaluation], Estimate | None]] = {
    "accuracy": lambda evaluation: evaluation.greedy.accuracy,
    "sampled_accuracy": lambda evaluation: evaluation.sampled.of_samples(1).pass_at_k,
    "length": lambda evaluation: evaluation.greedy.num_tokens,
    "entropy": lambda evaluation: evaluation.greedy.entropy,
}
_OF_METRICS = {
    "accuracy": "eval_accuracy",
    "length": "eval_num_tokens",
    "training_accuracy": "accuracy",
    "training_entropy": "entropy",
    "loss": "loss",
    "reward": "reward",
    "surprise": "neg_logprob",
    "training_length": "completion_length",
    "divergence": "live_kl_forward",
    "kl": "kl",
}
"""Curve -> key of the metrics."""


def _curves(evaluations: tuple[Evaluation, ...], metrics: tuple[StepMetrics, ...]) -> dict[str, dict[int, float]]:
    curves, generated = defaultdict[str, dict[int, float]](dict), 0.0
    for evaluation in evaluations:
        for name, read in _OF_EVALUATIONS.items():
            if (estimate := read(evaluation)) is not None:
                curves[name][evaluation.step] = estimate.mean
    for step in metrics:
        for name, key in _OF_METRICS.items():
            # Losses of different stages are not of one kind.
            is_comparable = name != "loss" or step.stage == metrics[-1].stage
            if is_comparable and (value := getattr(step, key)) is not None:
                curves[name].setdefault(step.step, value)
        if step.num_completions and step.completion_length:
            generated += step.num_completions * step.completion_length
            curves["generated"][step.step] = generated
    for name in ("accuracy", "length"):
        curves[name] = dict(sorted(curves[name].items()))
    return dict(curves)
