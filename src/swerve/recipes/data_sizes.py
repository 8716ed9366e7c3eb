"""How many examples a pass over a stage's data has: the data is read for it."""

from __future__ import annotations

from collections.abc import Iterable

from swerve.config.curricula import StageFilter
from swerve.config.recipe import Config
from swerve.config.stages import DistillStage, RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec
from swerve.problems.held_out import held_out_of
from swerve.problems.learned import read_learned
from swerve.problems.task import SingleTask
from swerve.seeds import derive_seed

_ROWS_ON_HUB = {"train@openai/gsm8k:main": 7473, "test@openai/gsm8k:main": 1319}
"""Sizes of published data sets, so that a check need not fetch them."""


def data_sizes(config: Config, *, asks_hub: bool = True) -> dict[str, int]:
    """Return the number of examples of a pass by stage, of stages that are given in `epochs`.

    A pass is over the training problems within `where`, or the responses of `data`. Without such a stage nothing is
    read.

    Args:
        config: the recipe.
        asks_hub: False: of data sets on the hub published sizes are taken; a stage whose data has none is left out.

    Raises:
        ConfigError: a stage learns from plain text, whose number of sequences only the tokenizer decides.
        ArtifactError: a record of `data` is no response.
    """
    stages = [stage for stage in config.stages if isinstance(stage, SftStage | RlStage | DistillStage)]
    sizes = {stage.label: _size(stage, config, asks_hub) for stage in stages if stage.epochs is not None}
    return {label: size for label, size in sizes.items() if size is not None}


def published_rows(specs: Iterable[str]) -> int | None:
    """Return how many rows data sets on the hub have; None: of one it is not known here."""
    rows = [_ROWS_ON_HUB.get(spec) for spec in specs]
    known = [number for number in rows if number is not None]
    return sum(known) if known and len(known) == len(rows) else None


def _size(stage: SftStage | RlStage | DistillStage, config: Config, asks_hub: bool) -> int | None:
    # What is on the hub need not be asked for where its size is published and all of it is meant.
    data = stage.data if isinstance(stage, SftStage) else ()
    specs = data or config.task.train_sources
    if not asks_hub and any(parse_spec(spec).is_on_hub for spec in specs):
        is_all = isinstance(config.task, SingleTask) and config.task.num_train is None
        is_whole = is_all and stage.where == StageFilter()
        return None if data or not is_whole else published_rows(specs)
    # Responses of files, or problems of the task.
    family, seed = load_family(config.task), derive_seed(config.seed, "problems")
    if not data:
        return sum(map(stage.where.admits, family.problems("train", seed=seed)))
    held_out, total = held_out_of(family, seed=seed, keep=config.keep_heldout), 0
    for spec in data:
        texts, responses = read_learned(spec, held_out, lambda _line: None)
        if texts:
            raise ConfigError(
                f"stage '{stage.label}': epochs of plain text ({spec}) are not known before it is tokenised; give steps"
            )
        total += len(responses)
    return total
