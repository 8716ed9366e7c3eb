"""Stages whose length a recipe gives in passes over their data: how many steps these are."""

from __future__ import annotations

import math

from swerve.config import Config, SftStage, StageConfig
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec, read_source
from swerve.seeds import derive_seed


def with_steps(config: Config) -> Config:
    """Return a configuration whose stages have `steps` in place of `epochs`, rounded up.

    A pass is over the training problems within `where`, or the records of `data`, less what validates.

    Raises:
        ConfigError: a stage has no data, or plain text, whose number of sequences only the tokenizer decides.
    """
    if all(getattr(stage, "epochs", None) is None for stage in config.stages):
        return config
    return config.model_copy(update={"stages": tuple(_with_steps(stage, config) for stage in config.stages)})


def _with_steps(stage: StageConfig, config: Config) -> StageConfig:
    epochs = getattr(stage, "epochs", None)
    if epochs is None:
        return stage
    per_step = stage.batch_size if isinstance(stage, SftStage) else getattr(stage, "prompts_per_step", 1)
    total = _num_records(stage) if isinstance(stage, SftStage) and stage.data else _num_problems(stage, config)
    share = getattr(stage, "validation_share", None)
    total -= max(1, round(share * total)) if share else 0
    if total < 1:
        raise ConfigError(f"stage '{stage.label}': epochs={epochs:g} of no examples; widen where, or give more data")
    return stage.model_copy(update={"steps": math.ceil(epochs * total / per_step), "epochs": None})


def _num_problems(stage: StageConfig, config: Config) -> int:
    problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
    return sum(map(stage.where.admits, problems))


def _num_records(stage: SftStage) -> int:
    total = 0
    for spec in stage.data:
        records = [] if parse_spec(spec).path.suffix == ".txt" else list(read_source(spec, default_split="train"))
        if all(record.values.keys() == {"text"} for record in records):
            raise ConfigError(
                f"stage '{stage.label}': epochs of plain text ({spec}) are not known before it is tokenised; give steps"
            )
        total += len(records)
    return total
