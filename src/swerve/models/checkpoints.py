"""Checkpoints: a Hugging Face folder with the trainer's state beside it and a manifest over every file.

The trainer's state is safetensors: nothing is pickled, so loading a checkpoint runs no code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.files import atomic_directory, verify_manifest
from swerve.artifacts.run import CheckpointRef
from swerve.errors import ArtifactError, CheckpointError
from swerve.models.load import quiet_transformers, tokenizer_fingerprint, weights_fingerprint
from swerve.version import __version__

__all__ = ["load_optimizer_state", "save_checkpoint"]

_OPTIMIZER_FILE = Path("trainer_state") / "optimizer.safetensors"


def save_checkpoint(
    checkpoint: CheckpointRef,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    provenance: dict[str, Any],
) -> None:
    """Write a checkpoint at `checkpoint.path`, as a whole or not at all.

    Raises:
        DiskFullError: no room; earlier checkpoints are intact.
        ArtifactError: the operating system refuses.
    """
    position = {name: getattr(checkpoint, name) for name in ("step", "stage", "stage_step", "scheduled", "final")}
    with atomic_directory(
        checkpoint.path,
        **position,
        swerve_version=__version__,
        weights_sha256=weights_fingerprint(model),
        tokenizer_sha256=tokenizer_fingerprint(tokenizer),
        **provenance,
    ) as folder:
        try:
            with quiet_transformers():
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            (folder / _OPTIMIZER_FILE).parent.mkdir()
            save_file(_flatten(model, optimizer), folder / _OPTIMIZER_FILE)
        except SafetensorError as error:
            raise _as_os_error(error) from error


def _flatten(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors as `{parameter name}/{entry}`."""
    return {
        f"{name}/{entry}": value.detach().cpu().clone()
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state.get(parameter, {}).items()
    }


def _as_os_error(error: SafetensorError) -> OSError:
    """Safetensors reports a failed write by a message that ends in `(os error N)`."""
    number = str(error).rpartition("os error ")[2].strip(")\"' ")
    return OSError(int(number), str(error)) if number.isdigit() else OSError(str(error))


def load_optimizer_state(path: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """Put the optimizer's state of the checkpoint at `path` into `optimizer`, after comparing every file's digest.

    Raises:
        CheckpointError: a file is missing or damaged, or an entry belongs to no parameter of the model.
    """
    try:
        verify_manifest(path)
        flat = load_file(path / _OPTIMIZER_FILE)
    except (ArtifactError, SafetensorError, OSError) as error:
        raise CheckpointError(str(error)) from error
    parameters = dict(model.named_parameters())
    for key, value in flat.items():
        name, _, entry = key.rpartition("/")
        if name not in parameters:
            raise CheckpointError(f"{path}: optimizer state for '{name}', a parameter the model does not have")
        device = "cpu" if entry == "step" else parameters[name].device
        optimizer.state[parameters[name]][entry] = value.to(device)
