"""A model of transformers in memory as a folder, for what reads folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swerve.errors import ConfigError, SwerveError
from swerve.models.folder_checks import quiet_transformers
from swerve.models.model_folder import load_tokenizer
from swerve.probe.in_memory import unwrapped


def save_in_memory(model: Any, folder: Path, *, tokenizer: Any = None) -> Path:
    """Write a model with its tokenizer, by default that of the folder or name it was loaded from; return the folder.

    Raises:
        ConfigError: its tokenizer is not known.
        MismatchError: it is no causal model of transformers.
    """
    inner = unwrapped(model)
    if tokenizer is None:
        try:
            tokenizer = load_tokenizer(inner.name_or_path or "")
        except SwerveError:
            raise ConfigError(
                "the tokenizer of a model in memory is not known; give both, as (model, tokenizer), or their folder"
            ) from None
    with quiet_transformers():
        inner.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
