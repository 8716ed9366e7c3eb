"""What a run leaves on the disk, and whether it fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from transformers import PreTrainedModel

from swerve.config.recipe import Config
from swerve.config.stages import DistillStage, RlStage, StageConfig
from swerve.errors import ProblemsError
from swerve.eval.heldout import heldout_problems
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec
from swerve.recipes.epochs import stage_sizes
from swerve.text import counted, gigabytes
from swerve.train.replicated_model import trained_names
from swerve.train.watches import is_evaluated, is_that_of_files

BYTES_PER_TOKEN = 15
"""Of a sampled token in a table: its id, log-probability and text, with little to compress; measured."""
BYTES_PER_FILE = 11_500
"""Of such a table without a token: its columns, their statistics and what the file says of itself; measured."""
ONE_MORE = "one more while it is written"
_LEAST_INT8, _INT8_BLOCK = 4096, 256
"""Of bitsandbytes: fewer weights of a tensor keep float32 moments; so many int8 moments share a float32 scale."""


def moments_bytes(stage: StageConfig, sizes: Iterable[int]) -> int:
    """Return the bytes of AdamW's two moments of tensors with so many weights each."""
    total = 0
    for size in sizes:
        is_narrow = stage.optimizer.moments == "int8" and size >= _LEAST_INT8
        total += 2 * (size + 4 * -(-size // _INT8_BLOCK)) if is_narrow else 8 * size
    return total


def run_disk(config: Config, model: PreTrainedModel) -> dict[str, int]:
    """Return the bytes that a run's folder has at its end, by kind of file; at most, where samples may end early.

    Args:
        config: the recipe, with the steps that its data gives it.
        model: as it is trained, with an adapter that is; its weights may have no content.
    """
    # A checkpoint has the weights, those that were trained in float32, and as its state the optimizer's moments.
    kept, first = config.retained_steps(sum(stage.steps for stage in config.stages)), 0
    weights, states, one, state = 0, 0, 0, 0
    for stage in config.stages:
        names = trained_names(model, stage.freeze, key=f"stages.{stage.label}.freeze")
        trained = [parameter.numel() for name, parameter in model.named_parameters() if name in names]
        others = [p.numel() * p.element_size() for name, p in model.named_parameters() if name not in names]
        one = 4 * sum(trained) + (sum(others) if config.model.lora is None else 0)
        state = moments_bytes(stage, trained)
        number = len([step for step in kept if first < step <= first + stage.steps])
        weights, states, first = weights + number * one, states + number * state, first + stage.steps
    is_replaced = config.retention.keep is not None or any(stage.save_every for stage in config.stages)
    if not config.retention.save_optimizer:
        states, is_replaced = state, True

    # Responses are written of every step, and of the evaluations that are a checkpoint's.
    sampled, evaluated = 0, 0
    for stage, size in zip(config.stages, stage_sizes(config), strict=True):
        if isinstance(stage, RlStage | DistillStage) and stage.keep_rollouts:
            sampled += size["tokens"] or 0
        if is_that_of_files(config):
            evaluated += sum(is_evaluated(config, stage, step) for step in stage.kept_steps)
    return {
        f"weights of {counted(len(kept), 'checkpoint')}": weights,
        "optimizer states": states,
        ONE_MORE: one + state if is_replaced else 0,
        "rollouts": sampled * BYTES_PER_TOKEN,
        "evaluations": evaluated * evaluation_tokens(config) * BYTES_PER_TOKEN if evaluated else 0,
    }


def evaluation_tokens(config: Config) -> int:
    """Return how many tokens an evaluation of one checkpoint samples at most."""
    number = config.eval.num_problems
    if not any(parse_spec(spec).is_on_hub for spec in config.task.sources):
        number = len(heldout_problems(config, load_family(config.task)))
    return number * (1 + config.eval.samples_per_problem) * config.max_new_tokens


def disk_said(disk: Mapping[str, int]) -> str:
    """Return the kinds of files that take any room, in GB of 10^9 bytes."""
    return ", ".join(f"{kind} {gigabytes(size)}" for kind, size in disk.items() if size)


def free_disk(place: Path) -> int:
    """Return the bytes that are free where a folder is or will be."""
    return shutil.disk_usage(standing_folder(place)).free


def standing_folder(place: Path) -> Path:
    """Return a folder, or the nearest of those above it that is there; its whole path where that is the working one.

    >>> standing_folder(Path("/nowhere/at/all"))
    PosixPath('/')
    """
    folder = next(folder for folder in (place, *place.parents) if folder.exists())
    return folder.absolute() if folder == Path() else folder


def check_disk(disk: Mapping[str, int], place: Path) -> None:
    """Refuse what will not fit on the disk.

    Args:
        disk: bytes by kind of file.
        place: where they go.

    Raises:
        ProblemsError: they will not; the message says how much is needed, and what to change.
    """
    needed, free = sum(disk.values()), free_disk(place)
    if needed > free:
        what = f"{place} needs about {gigabytes(needed)} GB ({disk_said(disk)}), and {gigabytes(free)} GB are free"
        fewer = "retention.keep, retention.save_optimizer=false, a larger checkpoint_every"
        raise ProblemsError([f"disk: {what}; free some, choose another place with --out, or keep less: {fewer}"])
