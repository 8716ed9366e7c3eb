"""Stages whose length a recipe gives in passes over their data: how many examples and steps these are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from swerve.config.recipe import Config
from swerve.config.stage_base import Counted
from swerve.config.stages import DistillStage, RlStage, StageConfig
from swerve.config.supervised_stages import SftStage
from swerve.errors import ConfigError


def with_steps(config: Config, sizes: Mapping[str, int]) -> Config:
    """Return a configuration whose stages have `steps` and `num_examples` in place of `epochs`, rounded up.

    Args:
        config: the recipe.
        sizes: examples of a pass by stage, as `data_sizes` returns them, with those that validate; a stage that is not
            there stays as it is.

    Raises:
        ConfigError: a stage has no examples.
    """
    stages = (_with_steps(stage, sizes[stage.label]) if stage.label in sizes else stage for stage in config.stages)
    return config.model_copy(update={"stages": tuple(stages)}) if sizes else config


def _with_steps(stage: StageConfig, total: int) -> StageConfig:
    assert isinstance(stage, SftStage | RlStage | DistillStage)
    assert stage.epochs is not None
    share = stage.validation_share if isinstance(stage, SftStage) else None
    total -= max(1, round(share * total)) if share else 0
    if total < 1:
        raise ConfigError(
            f"stage '{stage.label}': epochs={stage.epochs:g} of no examples; widen where, or give more data"
        )

    # A pass and its steps are rounded up.
    num = max(1, math.ceil(stage.epochs * total - 1e-9))  # 0.1 x 30 is 3
    steps = math.ceil(num / stage.step_size)
    return stage.model_copy(update={"steps": steps, "num_examples": num, "epochs": None})


def stage_sizes(config: Config) -> list[dict[str, Any]]:
    """Return each stage's steps, and how many completions and tokens it samples at most.

    `steps` are None where the data decides them, and then nothing else is known.
    """
    sizes: list[dict[str, Any]] = []
    for stage in config.stages:
        if isinstance(stage, Counted) and stage.epochs is not None:
            sizes.append({"stage": stage.label, "steps": None, "completions": None, "tokens": None})
            continue
        # Completions of pairs or of rejection are sampled once, those of RL and distillation at each step.
        completions = stage.num_sampled_before
        if isinstance(stage, RlStage | DistillStage):
            phases = stage.phases if isinstance(stage, RlStage) else ()
            for steps, own in [(phase.steps, phase.own) for phase in phases] or [(stage.steps, {})]:
                settings = {**dict(stage), **own}
                completions += steps * settings["prompts_per_step"] * settings["samples_per_prompt"]
        tokens = completions * config.max_new_tokens
        sizes.append({"stage": stage.label, "steps": stage.steps, "completions": completions, "tokens": tokens})
    return sizes
