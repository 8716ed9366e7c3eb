"""Stages whose length a recipe gives in passes over their data: how many examples and steps these are."""

from __future__ import annotations

import math
from typing import Any

from swerve.config.curricula import StageFilter
from swerve.config.recipe import Config
from swerve.config.stages import DistillStage, RlStage, SftStage, StageConfig
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec
from swerve.problems.held_out import held_out_of
from swerve.problems.learned import read_learned
from swerve.seeds import derive_seed

_ROWS_ON_HUB = {"train@openai/gsm8k:main": 7473}
"""Sizes of published data sets, so that a check need not fetch them."""


def with_steps(config: Config, *, asks_hub: bool = True) -> Config:
    """Return a configuration whose stages have `steps` and `num_examples` in place of `epochs`, rounded up.

    A pass is over the training problems within `where`, or the responses of `data`, less what validates.

    Args:
        config: the recipe.
        asks_hub: False: of data sets on the hub published sizes are taken; a stage whose data has none stays as it is.

    Raises:
        ConfigError: a stage has no data, or plain text, whose number of sequences only the tokenizer decides.
        ArtifactError: a record of `data` is no response.
    """
    if all(getattr(stage, "epochs", None) is None for stage in config.stages):
        return config
    return config.model_copy(update={"stages": tuple(_with_steps(stage, config, asks_hub) for stage in config.stages)})


def _with_steps(stage: StageConfig, config: Config, asks_hub: bool) -> StageConfig:
    if not isinstance(stage, SftStage | RlStage | DistillStage) or stage.epochs is None:
        return stage

    # What a pass is over, less what validates.
    data = getattr(stage, "data", ())
    specs = data or getattr(config.task, "train", ())
    if not asks_hub and any(parse_spec(spec).is_on_hub for spec in specs):
        is_whole = stage.where == StageFilter() and getattr(config.task, "num_train", None) is None
        if data or not is_whole or not all(spec in _ROWS_ON_HUB for spec in specs):
            return stage
        total = sum(_ROWS_ON_HUB[spec] for spec in specs)
    elif isinstance(stage, SftStage) and stage.data:
        total = _num_responses(stage, config)
    else:
        problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
        total = sum(map(stage.where.admits, problems))
    share = getattr(stage, "validation_share", None)
    total -= max(1, round(share * total)) if share else 0
    if total < 1:
        raise ConfigError(
            f"stage '{stage.label}': epochs={stage.epochs:g} of no examples; widen where, or give more data"
        )

    # A pass and its steps are rounded up.
    num = max(1, math.ceil(stage.epochs * total - 1e-9))  # 0.1 x 30 is 3
    steps = math.ceil(num / stage.step_size)
    return stage.model_copy(update={"steps": steps, "num_examples": num, "epochs": None})


def _num_responses(stage: SftStage, config: Config) -> int:
    held_out = held_out_of(
        load_family(config.task), seed=derive_seed(config.seed, "problems"), keep=config.keep_heldout
    )
    total = 0
    for spec in stage.data:
        texts, responses = read_learned(spec, held_out, lambda _line: None)
        if texts:
            raise ConfigError(
                f"stage '{stage.label}': epochs of plain text ({spec}) are not known before it is tokenised; give steps"
            )
        total += len(responses)
    return total


def stage_sizes(config: Config) -> list[dict[str, Any]]:
    """Return each stage's steps, and how many completions and tokens it samples at most.

    `steps` are None where the data decides them, and then nothing else is known.
    """
    sizes: list[dict[str, Any]] = []
    for stage in config.stages:
        if getattr(stage, "epochs", None) is not None:
            sizes.append({"stage": stage.label, "steps": None, "completions": None, "tokens": None})
            continue
        # Completions of pairs or of rejection are sampled once, those of RL and distillation at each step.
        prompts = getattr(stage, "num_prompts", 0) or getattr(stage, "max_prompts", 0)
        completions = prompts * getattr(stage, "samples_per_prompt", 0)
        if isinstance(stage, RlStage | DistillStage):
            for part in getattr(stage, "phases", ()) or (stage,):
                prompts = part.steps * (part.prompts_per_step or stage.prompts_per_step)
                completions += prompts * (part.samples_per_prompt or stage.samples_per_prompt)
        tokens = completions * config.max_new_tokens
        sizes.append({"stage": stage.label, "steps": stage.steps, "completions": completions, "tokens": tokens})
    return sizes
