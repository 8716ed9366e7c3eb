"""The kinds of training stage: each turns a step's number into one update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swerve.config.stages import StageConfig
from swerve.train.context import StageContext, StageRunner
from swerve.train.stages.distill import DistillRunner
from swerve.train.stages.dpo import DpoRunner
from swerve.train.stages.reject import RejectRunner
from swerve.train.stages.rl import RlRunner
from swerve.train.stages.sft import SftRunner

_RUNNERS: dict[str, Callable[[Any, StageContext], StageRunner]] = {
    "sft": SftRunner,
    "dpo": DpoRunner,
    "rl": RlRunner,
    "distill": DistillRunner,
    "reject": RejectRunner,
}


def make_runner(stage: StageConfig, context: StageContext) -> StageRunner:
    """Return the runner of a stage's kind."""
    return _RUNNERS[stage.kind](stage, context)
