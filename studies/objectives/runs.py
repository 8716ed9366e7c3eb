"""What is kept of a run: its evaluations at the beginning, at step 30 and at the end, and its training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.pages import Record
from studies.runs import run_folders
from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.recipes import load_config

MIDDLE = 30
WINDOW = 5


def keep(folder: Path) -> Iterator[Record]:
    """Yield the record of each run of one of the studies."""
    for variant, seed, path in run_folders(folder):
        run = RunDirectory(path)
        (stage,) = load_config(run.config_path).stages
        by_step = {evaluation.step: _evaluated(evaluation) for evaluation in read_evaluations(run)}
        metrics = list(read_metrics(run.metrics_path))
        yield {
            "kind": "run",
            "study": folder.name.removeprefix("objectives-"),
            "name": variant,
            "seed": seed,
            "lr": stage.optimizer.lr,
            "steps": stage.steps,
            "before": by_step.get(0),
            "middle": by_step.get(MIDDLE),
            "after": by_step.get(stage.steps),
            "error": run.read_provenance().get("error"),
            **_training(metrics),
            "seconds": round(sum(step["seconds"] for step in metrics), 1),
        }


def _evaluated(evaluation: Evaluation) -> Record:
    """Return what the tables show of one evaluation."""
    means = {
        "accuracy": evaluation.greedy.accuracy,
        "sampled": evaluation.sampled.mean_reward,
        "trace_right": evaluation.greedy.trace_right,
        "length": evaluation.greedy.num_tokens,
        "truncated": evaluation.greedy.truncated,
    }
    return {name: None if estimate is None else estimate.mean for name, estimate in means.items()}


def _training(metrics: Sequence[Mapping[str, Any]]) -> Record:
    """Return what the training steps measured: best window, ends, and means over every few steps."""
    names = ("reward", "neg_logprob", "completion_length", "truncated_share", "grad_norm", "loss", "kl")
    chunks = [metrics[first : first + WINDOW] for first in range(0, len(metrics), WINDOW)]
    rewards = [step["reward"] for step in metrics if "reward" in step]
    windows = [fmean(rewards[first : first + WINDOW]) for first in range(len(rewards) - WINDOW + 1)]
    best = max(range(len(windows)), key=windows.__getitem__) if windows else None

    # A curve for every metric that was measured.
    trajectory: dict[str, list[Any]] = {"step": [chunk[-1]["stage_step"] for chunk in chunks]}
    for name in names:
        if any(step.get(name) is not None for step in metrics):
            trajectory[name] = [_mean(chunk, name) for chunk in chunks]
    return {
        "best_reward": None if best is None else windows[best],
        "best_steps": None if best is None else [best + 1, best + WINDOW],
        "last_grad_norm": _mean(metrics[-WINDOW:], "grad_norm"),
        "collapses": [[step["stage_step"], step["collapse"]] for step in metrics if step.get("collapse")],
        "trajectory": trajectory,
    }


def _mean(metrics: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [step[name] for step in metrics if step.get(name) is not None]
    return fmean(values) if values else None
