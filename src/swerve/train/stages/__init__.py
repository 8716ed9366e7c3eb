"""The kinds of training stage: each turns a step's number into one update."""

from __future__ import annotations

from swerve.config import DistillStage, DpoStage, RlStage, SftStage, StageConfig
from swerve.train.stages.base import Figures, StageContext, StageRunner
from swerve.train.stages.distill import DistillRunner
from swerve.train.stages.dpo import DpoRunner
from swerve.train.stages.rl import RlRunner
from swerve.train.stages.sft import SftRunner

__all__ = ["Figures", "StageContext", "StageRunner", "make_runner"]


def make_runner(stage: StageConfig, context: StageContext) -> StageRunner:
    """Return the runner of a stage's kind."""
    match stage:
        case SftStage():
            return SftRunner(stage, context)
        case DpoStage():
            return DpoRunner(stage, context)
        case RlStage():
            return RlRunner(stage, context)
        case DistillStage():
            return DistillRunner(stage, context)
