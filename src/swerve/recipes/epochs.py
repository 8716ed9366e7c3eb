"""Stages whose length a recipe gives in passes over their data: how many examples and steps these are."""

from __future__ import annotations

import math

from swerve.config import Config, DistillStage, RlStage, SftStage, StageConfig
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.held_out import held_out_of
from swerve.problems.learned import read_learned
from swerve.seeds import derive_seed


def with_steps(config: Config) -> Config:
    """Return a configuration whose stages have `steps` and `num_examples` in place of `epochs`, rounded up.

    A pass is over the training problems within `where`, or the responses of `data`, less what validates.

    Raises:
        ConfigError: a stage has no data, or plain text, whose number of sequences only the tokenizer decides.
        ArtifactError: a record of `data` is no response.
    """
    if all(getattr(stage, "epochs", None) is None for stage in config.stages):
        return config
    return config.model_copy(update={"stages": tuple(_with_steps(stage, config) for stage in config.stages)})


def _with_steps(stage: StageConfig, config: Config) -> StageConfig:
    if not isinstance(stage, SftStage | RlStage | DistillStage) or stage.epochs is None:
        return stage

    # What a pass is over, less what validates.
    if isinstance(stage, SftStage) and stage.data:
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
