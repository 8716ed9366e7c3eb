"""Checkpoints: a Hugging Face folder with the trainer's state beside it and a manifest over every file.

The trainer's state is safetensors: nothing is pickled, so loading a checkpoint runs no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.files import atomic_directory, verify_manifest
from swerve.artifacts.run import CheckpointRef
from swerve.errors import ArtifactError, CheckpointError
from swerve.models.load import quiet_transformers, tokenizer_fingerprint, weights_fingerprint
from swerve.version import __version__

__all__ = ["read_trainer_state", "save_checkpoint"]

_STATE = "trainer_state"


def save_checkpoint(
    checkpoint: CheckpointRef,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    trainer_state: Mapping[str, Mapping[str, Tensor]],
    provenance: dict[str, Any],
) -> None:
    """Write a checkpoint at `checkpoint.path`, as a whole or not at all.

    Args:
        checkpoint: where, and what it is.
        model: its weights and configuration are written.
        tokenizer: likewise.
        trainer_state: what resuming needs besides, by file name and tensor name.
        provenance: further entries of the manifest.

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
            (folder / _STATE).mkdir()
            for name, tensors in trainer_state.items():
                save_file(dict(tensors), folder / _STATE / f"{name}.safetensors")
        except SafetensorError as error:
            raise _as_os_error(error) from error


def _as_os_error(error: SafetensorError) -> OSError:
    """Safetensors reports a failed write by a message that ends in `(os error N)`."""
    number = str(error).rpartition("os error ")[2].strip(")\"' ")
    return OSError(int(number), str(error)) if number.isdigit() else OSError(str(error))


def read_trainer_state(path: Path) -> dict[str, dict[str, Tensor]]:
    """Return the trainer's state of the checkpoint at `path`, after comparing every file's digest.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    try:
        verify_manifest(path)
        return {file.stem: load_file(file) for file in sorted((path / _STATE).glob("*.safetensors"))}
    except (ArtifactError, SafetensorError, OSError) as error:
        raise CheckpointError(str(error)) from error
