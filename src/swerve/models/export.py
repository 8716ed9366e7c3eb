"""Checkpoints, folders of other trainers and LoRA adapters, written as plain Hugging Face folders with a model card."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.files import check_space, new_directory, read_json
from swerve.errors import CheckpointError
from swerve.models.adapter import adapter_base, is_adapter, whole_folder
from swerve.models.folder_checks import quiet_transformers, said_by
from swerve.models.hub import PICKLED
from swerve.models.model_card import ModelCard, Origin
from swerve.models.model_folder import (
    load_base,
    load_tokenizer,
    tokenizer_fingerprint,
    weights_fingerprint,
)

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"
_TYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
_GENERATION = "generation_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What was exported."""

    out: str
    dtype: str
    num_parameters: int
    """Tied weights counted once."""
    weights_sha256: str
    tokenizer_sha256: str
    files: tuple[str, ...]


def export_model(origin: Origin, out: Path, *, dtype: str | None, max_shard_size: str) -> Export:
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
    base = adapter_base(origin.folder) if is_adapter(origin.folder) else None
    base_folder = whole_folder(origin.folder)
    stored = _stored(base_folder)
    kinds = {kind for kind, _ in stored.values()}
    chosen = dtype or (_TYPES.get(kinds.pop(), "float32") if len(kinds) == 1 else "float32")
    size = getattr(torch, chosen).itemsize
    check_space(out, size * sum(math.prod(shape) for _, shape in stored.values()))

    model = load_base(origin.folder, device="cpu", dtype="float32")
    model.to(getattr(torch, chosen))
    _check_finite(origin.folder, model, chosen)
    places = [one for one in (origin.folder, base_folder) if (one / "tokenizer_config.json").is_file()]
    tokenizer = load_tokenizer((*places, base_folder)[0])
    digest = weights_fingerprint(model)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    with new_directory(out) as folder:
        _write_model(folder, model, base_folder, max_shard_size)
        _write_tokenizer(folder, tokenizer, *places[:1])
        card = ModelCard(
            name=out.name,
            origin=origin,
            base=base,
            dtype=chosen,
            num_parameters=num_parameters,
            weights_sha256=digest,
            tokenizer_sha256=tokenizer_fingerprint(tokenizer),
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )
        (folder / "README.md").write_text(card.text(), encoding="utf-8")
        files = tuple(sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()))
    return Export(
        out=str(out),
        dtype=chosen,
        num_parameters=num_parameters,
        weights_sha256=digest,
        tokenizer_sha256=card.tokenizer_sha256,
        files=files,
    )


def _stored(folder: Path) -> dict[str, tuple[str, list[int]]]:
    """Return type and shape of each tensor in a folder, from the headers of its files.

    Raises:
        CheckpointError: it has no safetensors, or lacks a file that its index names.
    """
    if not any(folder.glob("*.safetensors")):
        pickled = [one for pattern in ("*", "*/*") for one in sorted(folder.glob(pattern)) if one.suffix in PICKLED]
        if pickled:
            raise CheckpointError(
                f"{pickled[0]} is pickled, and reading a pickle runs whatever code is in it; convert the weights to "
                "safetensors where they were trained, with the script in docs/cli.md (swerve export)"
            )
        raise CheckpointError(f"{folder} holds no weights: give a folder with config.json and *.safetensors")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json; copy it there from the model that was trained")
    found = {}
    for name, file in _placed(folder).items():
        try:
            with safe_open(file, framework="pt") as stored:
                part = stored.get_slice(name)
                found[name] = (str(part.get_dtype()), list(part.get_shape()))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {said_by(error)}") from error
    return found


def _placed(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    index = folder / _INDEX
    if index.is_file():
        entry = read_json(index)
        places = entry.get("weight_map") if isinstance(entry, dict) else None
        if not isinstance(places, dict) or not all(isinstance(one, str) for one in places.values()):
            raise CheckpointError(f"{index} is damaged: it has no 'weight_map' from tensors to files")
        missing = sorted({one for one in places.values() if not (folder / one).is_file()})
        if missing:
            raise CheckpointError(f"{folder} lacks {missing[0]}, which {_INDEX} names; copy every shard")
        return {name: folder / one for name, one in places.items()}
    if not (folder / _WHOLE).is_file():
        shard = next(folder.glob("*.safetensors")).name
        raise CheckpointError(f"{folder} has {shard} but neither {_WHOLE} nor {_INDEX}, which says what is where")
    try:
        with safe_open(folder / _WHOLE, framework="pt") as stored:
            return dict.fromkeys(stored.keys(), folder / _WHOLE)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{folder / _WHOLE} is damaged: {said_by(error)}") from error


def _check_finite(folder: Path, model: PreTrainedModel, dtype: str) -> None:
    for name, tensor in model.state_dict().items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{folder}: the weight '{name}' has values beyond {dtype}; use --dtype bfloat16 or float32"
            )


def _write_model(folder: Path, model: PreTrainedModel, source: Path, max_shard_size: str) -> None:
    generation = source / _GENERATION
    if generation.is_file():  # taken over as it is: transformers writes only settings that it finds consistent
        model.generation_config = GenerationConfig()
    try:
        with quiet_transformers():
            model.save_pretrained(folder, max_shard_size=max_shard_size)
    except SafetensorError as error:
        raise _as_os_error(error) from error
    if generation.is_file():
        shutil.copyfile(generation, folder / _GENERATION)


def _as_os_error(error: SafetensorError) -> OSError:
    """Safetensors reports a failed write by a message that ends in `(os error N)`."""
    number = str(error).rpartition("os error ")[2].strip(")\"' ")
    return OSError(int(number), str(error)) if number.isdigit() else OSError(str(error))


def _write_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerBase, source: Path | None = None) -> None:
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
