"""A model's config.json and generation_config.json, written as they were read.

transformers writes what its classes keep, and refuses settings that it finds inconsistent, such as a temperature
without sampling. A checkpoint says what the folder said that training began with, but for what swerve changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from swerve.errors import CheckpointError
from swerve.models.folder_checks import quiet_transformers

CONFIG, GENERATION = "config.json", "generation_config.json"
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_READ = "swerve_description"
"""Attribute of a model that was read from a folder."""


@dataclass(frozen=True, slots=True)
class _Description:
    config: Mapping[str, Any]
    generation: str | None
    """Content of generation_config.json; None: the folder has no such file."""


def keep_description(model: PreTrainedModel, folder: Path) -> None:
    """Keep with a model what its folder says of it."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    generation = folder / GENERATION
    text = generation.read_text(encoding="utf-8") if generation.is_file() else None
    setattr(model, _READ, _Description(config, text))


def was_read(model: PreTrainedModel) -> bool:
    """Whether a model comes from a folder, not from swerve itself."""
    return hasattr(model, _READ)


def token_settings(folder: Path) -> GenerationConfig | None:
    """Return the special tokens of a folder's generation_config.json; None: there is no such file.

    The other settings are for transformers' own sampling, which refuses those that contradict one another.

    Raises:
        CheckpointError: it is not a JSON object, or a special token in it is neither an id nor a list of ids.
    """
    file = folder / GENERATION
    if not file.is_file():
        return None
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON: {error}; give another copy of the model") from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{file} is not a JSON object; give another copy of the model")
    tokens = {name: entries.get(name) for name in _TOKENS}
    for name, given in tokens.items():
        if not all(one is None or type(one) is int for one in (given if isinstance(given, list) else [given])):
            raise CheckpointError(f"{name} in {file} must be an id or a list of ids, got {given!r}")
    return GenerationConfig(**tokens)


def write_description(folder: Path, model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Write config.json and generation_config.json of a model whose weights are stored in a type.

    Changed of what was read are the type, the name of the class, a tie to another head than the file's, and the
    tokens that end a completion.
    """
    read: _Description | None = getattr(model, _READ, None)
    config = model.config
    config.dtype = dtype
    config.architectures = [type(model).__name__.removeprefix("FSDP")]
    if read is None:
        with quiet_transformers():
            config.save_pretrained(folder)
    else:
        own: dict[str, Any] = {"architectures": config.architectures, "dtype": str(dtype).removeprefix("torch.")}
        if "torch_dtype" in read.config:  # as transformers called it before its version 5
            own["torch_dtype"] = own["dtype"]
        if getattr(config, "tie_word_embeddings", None) is False:
            own["tie_word_embeddings"] = False
        (folder / CONFIG).write_text(_json({**read.config, **own}), encoding="utf-8")
    if model.generation_config is None:
        return
    if read is None or read.generation is None:
        model.generation_config.to_json_file(folder / GENERATION, use_diff=True, keys_to_pop=["compile_config"])
    else:
        (folder / GENERATION).write_text(_with_ends(read.generation, model), encoding="utf-8")


def _with_ends(generation: str, model: PreTrainedModel) -> str:
    """Return the text of a generation_config.json with the tokens that end a model's completions."""
    entries, ends = json.loads(generation), getattr(model.generation_config, "eos_token_id", None)
    return generation if entries.get("eos_token_id") == ends else _json({**entries, "eos_token_id": ends})


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
