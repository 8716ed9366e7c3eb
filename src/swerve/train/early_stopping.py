"""Early stopping of a supervised stage: which step is the best so far, and whether the stage is over.

Both are functions of the recorded metrics, so that a resumed run decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.config.stages import StageConfig
from swerve.config.supervised_stage import EarlyStoppingConfig, SupervisedStage

Records = Sequence[Mapping[str, Any]]
"""Lines of metrics.jsonl of one stage, in order."""


def validation_metrics(
    loss: float, step: int, records: Records, settings: EarlyStoppingConfig | None
) -> dict[str, float | int]:
    """Return what to log of a validation.

    Args:
        loss: nats per token.
        step: of the stage, from 1.
        records: the lines before this step's.
        settings: of early stopping; None: the stage does not stop early.

    >>> records = [{"stage_step": 2, "val_loss": 0.5, "best_step": 2}]
    >>> validation_metrics(0.495, 4, records, EarlyStoppingConfig(min_delta=0.01))
    {'val_loss': 0.495, 'best_step': 2}
    """
    if settings is None:
        return {"val_loss": loss}
    lowest = min(
        (record["val_loss"] for record in records if record.get("best_step") == record.get("stage_step")), default=None
    )
    is_better = lowest is None or loss < lowest - settings.min_delta
    return {"val_loss": loss, "best_step": step if is_better else best_step(records) or step}


def best_step(records: Records) -> int | None:
    """Return the step of the stage with the best validation loss so far; None: there was no validation."""
    return next((record["best_step"] for record in reversed(records) if record.get("best_step") is not None), None)


def is_over(stage: StageConfig, records: Records) -> bool:
    """Whether the validation loss has not improved for as many validations as the stage is patient.

    >>> from swerve.config.stage_base import OptimizerConfig
    >>> from swerve.config.stages import SftStage
    >>> patient = EarlyStoppingConfig(patience=2)
    >>> stage = SftStage(steps=9, optimizer=OptimizerConfig(lr=0.1), validation_share=0.1, early_stopping=patient)
    >>> records = [{"stage_step": step, "val_loss": 0.5, "best_step": 2} for step in (2, 4, 6)]
    >>> is_over(stage, records), is_over(stage, records[:2])
    (True, False)
    """
    settings = stage.early_stopping if isinstance(stage, SupervisedStage) else None
    best = best_step(records)
    if settings is None or best is None:
        return False
    since = [record for record in records if record.get("val_loss") is not None and record["stage_step"] > best]
    return len(since) >= int(settings.patience)


def kept_steps(config: Config, run: RunDirectory, newest: CheckpointRef | None) -> frozenset[int]:
    """Return the global steps whose checkpoints are kept: those of the recipe, and the best of a stage not yet over.

    Args:
        config: the run's.
        run: whose metrics say which step is best.
        newest: the checkpoint that training continues from, or has just written.
    """
    retained = config.retained_steps(0 if newest is None else newest.step)
    if newest is None or newest.final:
        return retained
    records = [
        record
        for record in read_metrics(run.metrics_path)
        if record["stage"] == newest.stage and record["stage_step"] <= newest.stage_step
    ]
    best = best_step(records)
    return retained if best is None else retained | {newest.step - newest.stage_step + best}
