"""Evaluation: checkpoints on held-out problems, and the answers of a file. torch loads on first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.run import RunDirectory, find_run
from swerve.models.runtime import set_thread_environment
from swerve.progress import Progress, shown_progress
from swerve.recipes.layers import Change, overrides_of
from swerve.recipes.loader import check_copied, load_run_config

__all__ = ["evaluate"]


def evaluate(
    run: str | Path | RunDirectory, *overrides: Change, progress: Progress | bool | None = None, **changes: Any
) -> list[Evaluation]:
    """Evaluate every checkpoint of a run on its held-out problems, greedily and by sampling.

    Checkpoints that have an evaluation under these settings keep it; one under other settings is moved to
    `eval/earlier-DIGEST`. `run.evaluations` is the same as a data frame.

    Args:
        run: its path, its name under `runs/`, or the run.
        overrides: such as `"eval.num_problems=100"`, or mappings; only what comes after training can change.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        changes: the same as keywords, such as `eval={"num_problems": 100}`.

    Returns:
        The evaluations by step; under torchrun none in other processes than the first.

    Raises:
        ArtifactError: there is no such run, it has no checkpoint, or another process holds it.
        CheckpointError: a checkpoint is damaged.
        ConfigError: a change would be one of training, or a grader does not exist.
    """
    directory = find_run(run)
    config = load_run_config(directory, overrides, changes)
    check_copied(config, directory, overrides_of(overrides, changes))
    set_thread_environment(config.runtime)
    from swerve.eval.heldout import evaluate_run

    return evaluate_run(config, directory, progress=shown_progress(progress))
