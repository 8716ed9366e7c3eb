"""What many tests make or read in the same way: trained runs, notes of their progress, their numbers, models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.models import MemorySource
from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.models.model_folder import tokenizer_fingerprint, weights_fingerprint
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measured import Measurements
from swerve.progress import Progress, SilentProgress
from swerve.train.loop import train_run
from swerve.types import Problem


class Notes(SilentProgress):
    """Shows nothing and keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        """Keep a note."""
        self.notes.append(message)


def trained_run(config: Config, path: Path, *, resume: bool = False, progress: Progress | None = None) -> RunDirectory:
    """Train in a directory, or go on there; return the run."""
    run = RunDirectory(path)
    train_run(config, run, resume=resume, progress=progress or SilentProgress())
    return run


def write_evaluation(run: RunDirectory, checkpoint: CheckpointRef, **changes: Any) -> None:
    """Write the summary of a checkpoint's evaluation, as far as others than its reader look at it."""
    half = {"num_problems": 1, "model": checkpoint.label, "temperature": None, "num_samples": 1}
    names = ("stage", "step", "stage_step", "weights_sha256")
    known = {name: getattr(checkpoint, name) for name in names} | {"checkpoint": checkpoint.label}
    empty: dict[str, Any] = {"settings": {}, "config_hash": None, "tables": {}, "greedy": half, "sampled": half}
    Evaluation.model_validate({**known, **empty, **changes}).write(run.evaluation_path(checkpoint))


def response(index: int, length: int, **changes: Any) -> Response:
    """A response of `length` tokens to an addition problem of its own; what is not given is not known of it."""
    known: dict[str, Any] = {
        "problem": Problem(id=f"p{index}", family="addition", question="", answer=""),
        "prompt_ids": (1,),
        "completion_ids": tuple(range(length)),
    }
    return Response(**{"sequence_id": index, **known, **changes})


def measurements(
    sequences: Sequence[Response],
    *,
    checkpoints: Sequence[str] = ("rl-9",),
    reference: str = "dpo-1",
    categories: Sequence[str] = ("word",),
    fill: float = 1.0,
    **columns: Any,
) -> Measurements:
    """Measurements with `fill` in every column that is not given; of one checkpoint a column is one row.

    The categories are repeated to the number of tokens.
    """
    num = sum(len(sequence.sampled_positions) for sequence in sequences)
    values: dict[str, Any] = {name: np.full((len(checkpoints), num), fill) for name in STATISTICS}
    values.update({name: np.atleast_2d(rows) for name, rows in columns.items()})
    return Measurements(
        sequences=tuple(sequences),
        checkpoints=tuple(checkpoints),
        references=(reference,) * len(checkpoints),
        columns=values,
        categories=(tuple(categories) * num)[:num],
    )


def figures(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the metrics of every step but for their times."""
    steps = read_metrics(run.metrics_path)
    return [{name: value for name, value in step.items() if name != "seconds"} for step in steps]


class LoadedSource(MemorySource):
    """A model in memory that is known by its content."""

    @property
    def fingerprint(self) -> str:
        """Digest of the weights with their types, the configuration, the tokenizer and the type of device."""
        model = self.loaded.model
        config, tokenizer = model.config.to_json_string(), tokenizer_fingerprint(self.loaded.tokenizer)
        parts = (weights_fingerprint(model), config, tokenizer, model.device.type)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
