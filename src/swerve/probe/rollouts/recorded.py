"""Rollouts that training recorded, and what it recorded of each token: advantage, KL, clipping.

The recorded rollouts are the very tokens that the updates saw. Tokens of steps that a checkpoint has not seen, and
tokens without an advantage, tell how much of the divergence came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response, read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.config.stages import DistillStage
from swerve.errors import ArtifactError
from swerve.probe.rollouts.population import as_sequence
from swerve.problems import ProblemFamily
from swerve.prompts.templates import template_arguments, with_beginnings
from swerve.seeds import derive_seed

POPULATION = "training"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRollouts:
    """Rollouts that a stage was trained on, and the signal at each of their tokens."""

    sequences: tuple[Response, ...]
    signals: tuple[Row, ...]
    """Rows of `signals.parquet`, one per token, by sequence and position."""
    notes: tuple[str, ...] = ()
    """What is missing, a sentence per step."""


def stage_start(config: Config, stage: str) -> int:
    """Return the global step after which a stage begins: the steps of the stages before it.

    Raises:
        ArtifactError: the recipe has no such stage.
    """
    first = 0
    for before in config.stages:
        if before.label == stage:
            return first
        first += before.steps
    raise ArtifactError(
        f"the recipe has no stage '{stage}'; it has {', '.join(known.label for known in config.stages)}"
    )


def training_rollouts(
    config: Config,
    run: RunDirectory,
    *,
    stage: str,
    family: ProblemFamily,
    tokenizer: PreTrainedTokenizerBase,
    max_rollouts: int,
    first_id: int = 0,
) -> TrainingRollouts:
    """Return a sample of the rollouts a stage recorded, spread evenly over its steps, with what training did to them.

    The same recipe gives the same sample. Steps whose updates were undone by a return to an earlier checkpoint are left
    out.

    Args:
        config: the run's.
        run: the run.
        stage: label of the stage.
        family: of the run's problems.
        tokenizer: of the run's checkpoints.
        max_rollouts: at most so many.
        first_id: `sequence_id` of the first.

    Raises:
        ArtifactError: the stage recorded no rollouts, they were recorded without the signal, or they are of problems
            that the recipe does not have.
    """
    # Which steps have a table, and the problems as the task gives them.
    trained, steps = _recorded_steps(config, run, stage)
    missing = [run.rollouts_path(step).name for step in trained if step not in steps]
    drawn = family.problems("train", seed=derive_seed(config.seed, "problems"))
    problems = {problem.id: problem for problem in with_beginnings(tokenizer, drawn, template_arguments(config.model))}
    learns_from_all = any(known.label == stage and isinstance(known, DistillStage) for known in config.stages)
    # So many rollouts of each step, with what its update did at their tokens.
    sequences: list[Response] = []
    signals: list[Row] = []
    for step, count in zip(steps, _quotas(len(steps), max_rollouts), strict=True):
        path = run.rollouts_path(step)
        for rollout in _sampled(path, count, derive_seed(config.seed, "probe", "training", step)) if count else ():
            version, name = rollout.version, rollout.problem.id
            if version is not None and version not in range(step - 1 - config.rollout.ahead, step):
                raise ArtifactError(
                    f"{path} was sampled by the weights of step {version}, not by those before step {step}: it is of "
                    "another step; train again, or leave out the population 'training'"
                )
            if name not in problems:
                raise ArtifactError(
                    f"{path} has the problem '{name}', which the recipe's task does not; the rollouts are of another "
                    "recipe: train again, or leave out the population 'training'"
                )
            number = first_id + len(sequences)
            named = replace(
                rollout, problem=problems[name], sequence_id=number, population=POPULATION, label=POPULATION
            )
            sequences.append(as_sequence(named, family=family, tokenizer=tokenizer))
            signals += _signal_rows(number, step, rollout, learns_from_all=learns_from_all)
    return TrainingRollouts(
        sequences=tuple(sequences),
        signals=tuple(signals),
        notes=tuple(f"rollouts/{name} is missing: the population 'training' lacks its step" for name in missing),
    )


def _recorded_steps(config: Config, run: RunDirectory, stage: str) -> tuple[list[int], list[int]]:
    """Return the global steps of the stage whose updates were made, and those with a table."""
    first = stage_start(config, stage)
    (length,) = (known.steps for known in config.stages if known.label == stage)
    records = [record for record in read_metrics(run.metrics_path) if record.get("stage") == stage]
    steps = [step for step in range(first + 1, first + length + 1) if run.rollouts_path(step).is_file()]
    if not steps:
        raise ArtifactError(
            f"{run.path} has no rollouts of stage '{stage}' for the population 'training'; rl and distill stages write "
            "them with keep_rollouts: true: name such a stage with probe.checkpoints, or leave the population out"
        )
    return [first + record["stage_step"] for record in records], steps


def _quotas(num_steps: int, total: int) -> list[int]:
    """Return how many rollouts to take of each step, evenly spread.

    >>> _quotas(3, 7), _quotas(5, 2)
    ([2, 2, 3], [0, 0, 1, 0, 1])
    """
    return [(place + 1) * total // num_steps - place * total // num_steps for place in range(num_steps)]


def _sampled(path: Path, count: int, seed: int) -> list[Response]:
    rollouts = read_response_table(path, ROLLOUTS_SCHEMA)
    chosen = sorted(np.random.default_rng(seed).permutation(len(rollouts))[:count].tolist())
    return [rollouts[place] for place in chosen]


def _signal_rows(sequence_id: int, step: int, rollout: Response, *, learns_from_all: bool) -> list[Row]:
    unknown = (None,) * len(rollout.completion_ids)
    columns = zip(rollout.advantages or unknown, rollout.clipped or unknown, rollout.kl or unknown, strict=True)
    used = learns_from_all or bool(rollout.advantages)
    return [
        {
            "sequence_id": sequence_id,
            "position": position,
            "step": step,
            "advantage": advantage,
            "clipped": clipped,
            "kl": kl,
            "used": used,
        }
        for position, (advantage, clipped, kl) in enumerate(columns)
    ]
