"""What follows a collapse: a warning, a stop, or a return to an earlier checkpoint with a lower learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from swerve.config import RlStage, StageConfig
from swerve.errors import CollapseError
from swerve.models.model_folder import load_model
from swerve.train.collapse import Collapse, detect_collapse
from swerve.train.learner import load_trainer_state
from swerve.train.stages.context import StageContext
from swerve.train.verdict import Verdict

__all__ = ["judge_collapse"]


def judge_collapse(stage: StageConfig, context: StageContext, record: Mapping[str, Any]) -> Verdict:
    """Look for a collapse at the step of `record`, name it, and do what the recipe says.

    A return to an earlier checkpoint is done here: the learner has that checkpoint's weights and optimizer afterwards.
    """
    if not isinstance(stage, RlStage) or stage.collapse.action == "none":
        return Verdict()
    collapse = detect_collapse([*context.records, record], stage.collapse)
    if collapse is None:
        return Verdict()
    figures: dict[str, Any] = {"collapse": collapse.sign, "collapse_message": collapse.message}
    step = int(record["stage_step"])
    action = stage.collapse.action
    if (
        action == "roll_back"
        and sum("rolled_back_to" in old for old in context.records) < stage.collapse.max_roll_backs
    ):
        target = _return_to(stage, context, collapse, [*context.records, record])
        factor = context.learning_rate_factor() * stage.collapse.roll_back_lr
        whose = f"of step {target} of the stage" if target else "the stage began with"
        context.progress.note(
            f"{stage.label} step {step}: {collapse.message}; going back to the weights {whose}, "
            f"learning rate x {factor:g}"
        )
        return Verdict(figures={**figures, "rolled_back_to": target, "lr_factor": factor}, must_save=True)
    if action == "warn":
        context.progress.note(f"{stage.label} step {step}: {collapse.message}")
        return Verdict(figures=figures)
    error = CollapseError(
        f"stage '{stage.label}' collapsed at its step {step}: {collapse.message}; the state is saved; "
        "lower the learning rate, or go on regardless with --resume"
    )
    return Verdict(figures=figures, must_save=True, error=error)


def _return_to(stage: RlStage, context: StageContext, collapse: Collapse, records: Sequence[Mapping[str, Any]]) -> int:
    """Put the newest weights from before the collapse into the learner; return their step in the stage, 0 its start."""
    steps = [
        step
        for step in stage.checkpoints
        if step < collapse.since
        and not _was_lost(step, records)
        and not _was_ruined(step, records, stage.collapse.reward_drop)
    ]
    learner = context.learner
    target = max(steps, default=0)
    if target:
        path: Path = context.run.checkpoint_path(context.first_step + target)
        model = load_model(path, device=context.world.device, dtype=context.config.runtime.dtype).model
        load_trainer_state(path, learner)
    else:
        model = context.stage_start()
        learner.optimizer.state.clear()
        for module in learner.weights.extra_modules.values():
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    learner.weights.load_weights(model)
    return target


def _was_lost(step: int, records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an earlier return went back to before this step's checkpoint."""
    return any(
        record["rolled_back_to"] < step < record["stage_step"] for record in records if "rolled_back_to" in record
    )


def _was_ruined(step: int, records: Sequence[Mapping[str, Any]], reward_drop: float) -> bool:
    """Return whether the weights of this step had already lost their reward: the next step's rollouts are theirs."""
    rewards = {record["stage_step"]: record["reward"] for record in records if record.get("reward") is not None}
    best, own = max(rewards.values(), default=0.0), rewards.get(step + 1)
    return own is not None and best > 0 and own <= (1 - reward_drop) * best
