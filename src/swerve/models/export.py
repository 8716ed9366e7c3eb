"""Checkpoints, folders of other trainers and LoRA adapters, written as plain Hugging Face folders with a model card."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.files import check_space, new_directory
from swerve.errors import CheckpointError
from swerve.models.adapter import adapter_base, is_adapter, whole_folder
from swerve.models.folder_checks import check_finite, quiet_transformers, stored_headers
from swerve.models.folder_metadata import INDEX, check_files
from swerve.models.model_card import Export, WeightsOrigin, card_text
from swerve.models.model_folder import (
    load_base,
    load_tokenizer,
    tokenizer_fingerprint,
    weights_fingerprint,
)

_WHOLE = "model.safetensors"
_TYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
_GENERATION = "generation_config.json"


def export_model(origin: WeightsOrigin, out: Path, *, dtype: str | None, max_shard_size: str = "5GB") -> Export:
    """Write a folder that `from_pretrained` reads, as a whole or not at all.

    Args:
        origin: the folder to export, and what is known of it.
        out: where; it must not exist.
        dtype: `float32`, `bfloat16` or `float16`; None: that of the stored weights, float32 where they differ.
        max_shard_size: of a file of weights, such as `5GB`.

    Raises:
        CheckpointError: the folder holds pickled or quantised weights, or none; tensors are missing, unexpected or not
            finite, also after the cast; the tokenizer cannot be read.
        ArtifactError: there is no room, or the operating system refuses.
        MissingExtraError: it is an adapter, and peft is not installed.
    """
    # What the headers of the files say is enough to know whether there is room.
    base = adapter_base(origin.folder) if is_adapter(origin.folder) else None
    base_folder = whole_folder(origin.folder)
    _check_names(base_folder)
    stored = [tensor for file in base_folder.glob("*.safetensors") for tensor in stored_headers(file).values()]
    kinds = {kind for kind, _ in stored}
    chosen = dtype or (_TYPES.get(kinds.pop(), "float32") if len(kinds) == 1 else "float32")
    check_space(out, getattr(torch, chosen).itemsize * sum(math.prod(shape) for _, shape in stored))

    model = load_base(origin.folder, device="cpu", dtype="float32")
    model.to(getattr(torch, chosen))
    check_finite(origin.folder, model.state_dict(), f"beyond {chosen}; use --dtype bfloat16 or float32")
    places = [folder for folder in (origin.folder, base_folder) if (folder / "tokenizer_config.json").is_file()]
    tokenizer = load_tokenizer((*places, base_folder)[0])
    export = Export(
        out=str(out),
        dtype=chosen,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        weights_sha256=weights_fingerprint(model),
        tokenizer_sha256=tokenizer_fingerprint(tokenizer),
    )
    with new_directory(out) as folder:
        _write_model(folder, model, base_folder, max_shard_size)
        write_tokenizer(folder, tokenizer, *places[:1])
        (folder / "README.md").write_text(card_text(export, origin, base), encoding="utf-8")
        files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    return replace(export, files=tuple(files))


def _check_names(folder: Path) -> None:
    """Check that a folder has what a model is read from, and says which tensors are where; see `check_files`."""
    check_files(folder)
    shards = sorted(file.name for file in folder.glob("*.safetensors"))
    if not (folder / INDEX).is_file() and _WHOLE not in shards:
        raise CheckpointError(f"{folder} has {shards[0]} but neither {_WHOLE} nor {INDEX}, which says what is where")


def _write_model(folder: Path, model: PreTrainedModel, source: Path, max_shard_size: str) -> None:
    generation = source / _GENERATION
    if generation.is_file():  # taken over as it is: transformers writes only settings that it finds consistent
        model.generation_config = GenerationConfig()
    try:
        with quiet_transformers():
            model.save_pretrained(folder, max_shard_size=max_shard_size)
    except SafetensorError as error:  # of a failed write: its message ends in `(os error N)`
        number = str(error).rpartition("os error ")[2].strip(")\"' ")
        raise (OSError(int(number), str(error)) if number.isdigit() else OSError(str(error))) from error
    if generation.is_file():
        shutil.copyfile(generation, folder / _GENERATION)


def write_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerBase, source: Path | None = None) -> None:
    """Copy the tokenizer's files, which are then read as before; of one from the hub, write them."""
    if source is None:
        tokenizer.save_pretrained(folder)
        return
    for name in {*_TOKENIZER, *tokenizer.vocab_files_names.values()}:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (source / "additional_chat_templates").is_dir():
        shutil.copytree(source / "additional_chat_templates", folder / "additional_chat_templates")
    if tokenizer_fingerprint(load_tokenizer(folder)) != tokenizer_fingerprint(tokenizer):
        raise CheckpointError(f"the tokenizer of {source} needs more files than its kind names; save it anew there")
