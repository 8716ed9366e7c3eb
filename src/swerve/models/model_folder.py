"""Models on disk: folders in the Hugging Face layout, loaded safely, and checkpoints, written as a whole or not at all.

Weights and the trainer's state are safetensors: nothing is pickled and no remote code runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from swerve.artifacts.checkpoint import STATE_NAME
from swerve.artifacts.files import MANIFEST_NAME, read_manifest, verify_file
from swerve.errors import ArtifactError, CheckpointError, ConfigError, said_by, unreadable
from swerve.models.adapter import (
    ADAPTER_WEIGHTS,
    adapter_base,
    has_adapter,
    is_adapter,
    merge_adapter,
    sharing_copy,
    with_adapter,
)
from swerve.models.description import keep_description, token_settings
from swerve.models.folder_checks import check_finite, check_folder, check_reads_a_token, quiet_transformers
from swerve.models.folder_metadata import check_has_tokenizer
from swerve.models.head import limit_ids_of
from swerve.models.hub import local_folder
from swerve.models.trial import check_causal
from swerve.models.weight_shards import (
    make_room,
    map_shards,
    read_shards,
    shard_files,
    tensors_digest,
    verify_shards,
    whole_tensor,
)
from swerve.prompts.templates import turn_end
from swerve.tokens import limit_ids, num_ids
from swerve.world import ALONE, World

WEIGHTS = "model"
_HOW_LOADED = ("is_local", "local_files_only")
"""What transformers notes in a loaded tokenizer and would save with it, though it says nothing of the tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model in evaluation mode with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def resolve_device(name: str) -> str:
    """Return `cuda` or `cpu` for `auto`, the name itself otherwise.

    Raises:
        ConfigError: a CUDA device is asked for, and torch finds no such device.
    """
    available = torch.cuda.is_available()
    if name.startswith("cuda") and not available:
        raise ConfigError(f"runtime.device={name}: torch finds no CUDA device here; use runtime.device=auto or cpu")
    return ("cuda" if available else "cpu") if name == "auto" else name


_bases: dict[Path, PreTrainedModel | None] = {}
"""Models that are kept in memory while adapters of them are used; None: it is yet to be loaded."""


@contextmanager
def bases_kept(bases: Iterable[Path | str]) -> Iterator[None]:
    """Load each of these models once at most inside the block: it, and its adapters, share its weights in memory."""
    added = {local_folder(base).resolve() for base in bases} - _bases.keys()
    _bases.update(dict.fromkeys(added))
    try:
        yield
    finally:
        for base in added:
            del _bases[base]


def is_kept(path: Path | str) -> bool:
    """Whether a model stays in memory for the adapters of it; see `bases_kept`."""
    return local_folder(path).resolve() in _bases


def bases_of(paths: Iterable[Path | str]) -> list[str]:
    """Return the models that the adapters among some models belong to.

    Raises:
        CheckpointError: there is no such model; an adapter's base is gone or has changed.
    """
    return [adapter_base(folder) for folder in map(local_folder, paths) if is_adapter(folder)]


def load_base(path: Path | str, *, device: str, dtype: str, mapped_by: World | None = None) -> PreTrainedModel:
    """Return a model for adapters to share the frozen weights of; a model with an adapter is merged first.

    Args: see `load_model`.

    Raises:
        CheckpointError: see `load_model`.
    """
    folder = local_folder(path).resolve()
    model = _bases.get(folder)
    if model is None:
        if is_adapter(folder):
            model = merge_adapter(sharing_copy(load_base(adapter_base(folder), device=device, dtype=dtype)), folder)
        else:
            model = _load_whole(path, device=device, dtype=dtype, mapped_by=mapped_by).model
        model.eval().requires_grad_(False)
        if folder in _bases:
            _bases[folder] = model
    return model


def load_model(path: Path | str, *, device: str, dtype: str, mapped_by: World | None = None) -> LoadedModel:
    """Load a causal model and its tokenizer from a folder or from the hub.

    Where the folder has a manifest, what is read is compared with it on the way. A LoRA adapter is loaded with its
    base; see `bases_kept`.

    Args:
        path: folder in the Hugging Face layout or of a peft adapter, or a hub name with an optional `#revision`.
        device: `cpu`, `cuda`, `cuda:1`, ...
        dtype: `float32` or `bfloat16`; `auto` is the type in the files.
        mapped_by: processes that each take a part of the weights: these stay in their files until they do.

    Raises:
        CheckpointError: a file is missing or damaged, a tensor is missing, unexpected or not finite; an adapter has no
            base, or another than it was trained on.
        MissingExtraError: it is an adapter, and peft is not installed.
    """
    # Adapters, and bases that are kept for them, share weights in memory.
    folder = local_folder(path)
    if is_adapter(folder):
        return _load_with_adapter(path, device=device, dtype=dtype, mapped_by=mapped_by)
    if is_kept(folder):
        model = sharing_copy(load_base(path, device=device, dtype=dtype))
        return LoadedModel(model=model, tokenizer=load_tokenizer(folder))
    return _load_whole(path, device=device, dtype=dtype, mapped_by=mapped_by)


def _load_with_adapter(path: Path | str, *, device: str, dtype: str, mapped_by: World | None) -> LoadedModel:
    folder = local_folder(path)
    listed = _listed_weights(folder)
    base = load_base(adapter_base(folder), device=device, dtype=dtype, mapped_by=mapped_by)
    tokenizer = load_tokenizer(folder)
    try:
        tensors = read_shards(listed) if listed else load_file(folder / ADAPTER_WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(unreadable(folder / ADAPTER_WEIGHTS, error)) from error
    check_finite(path, tensors)
    model = with_adapter(base, folder, tensors, dtype=dtype)
    _fit_vocabulary(path, model, tokenizer)
    check_reads_a_token(path, model)
    return LoadedModel(model=model, tokenizer=tokenizer)


def _load_whole(path: Path | str, *, device: str, dtype: str, mapped_by: World | None = None) -> LoadedModel:
    folder = local_folder(path)
    weights = _listed_weights(folder)
    check_folder(folder)
    tokenizer = load_tokenizer(folder)
    make_room(folder.glob("*.safetensors"))
    auto_model: Any = AutoModelForCausalLM
    stored = "auto" if dtype == "auto" else getattr(torch, dtype)
    load = {"dtype": stored, "use_safetensors": True, "output_loading_info": True}
    if mapped_by is not None:
        verify_shards(weights, mapped_by)
    tensors = read_shards(weights) if mapped_by is None else map_shards(weights or shard_files(folder, WEIGHTS))
    with _loading(f"a model from {path}"):
        if (generation := token_settings(folder)) is not None:
            load["generation_config"] = generation
        if tensors:
            model, info = _from_tensors(folder, tensors, load)
        else:
            model, info = auto_model.from_pretrained(str(folder), trust_remote_code=False, **load)
    _check_complete(path, model, info)
    keep_description(model, folder)
    untyped: Any = model
    if untyped.get_expanded_tied_weights_keys(all_submodels=True) and not model.all_tied_weights_keys:
        # The files have an output head that differs from the embeddings: what is written of it says so, too.
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
    _fit_vocabulary(path, model, tokenizer)
    check_causal(path, model.config)
    if mapped_by is None:
        if not tensors:
            _own_memory(model)
        del tensors
        model.to(device)
        check_reads_a_token(path, model)
    model.eval()
    return LoadedModel(model=model, tokenizer=tokenizer)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Say in one line why `transformers` cannot load something.

    Its parsers, and a model's own code, raise whatever the files lead them to, without a common base.
    """
    try:
        with quiet_transformers():
            yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"cannot load {what}: {said_by(error)}") from error


def _listed_weights(folder: Path) -> dict[Path, str]:
    """Return the files of weights that a folder's manifest lists, with their digests; the others are compared with it.

    Raises:
        CheckpointError: the manifest or a file is missing or damaged. A folder without a manifest lists none.
    """
    if not (folder / MANIFEST_NAME).is_file():
        return {}
    weights: dict[Path, str] = {}
    try:
        for name, digest in read_manifest(folder)["files"].items():
            if name.endswith(".safetensors") and "/" not in name:
                weights[folder / name] = digest
            elif not name.startswith(f"{STATE_NAME}/"):
                verify_file(folder / name, digest)
    except ArtifactError as error:
        raise CheckpointError(str(error)) from error
    return weights


def verify_folder(path: Path | str) -> None:
    """Compare a model's files, and those of the base of an adapter, with the manifest, where there is one.

    Raises:
        CheckpointError: one is missing or damaged.
    """
    folder = local_folder(path)
    verify_shards(_listed_weights(folder), ALONE)
    if is_adapter(folder):
        verify_folder(adapter_base(folder))


def _from_tensors(
    folder: Path, tensors: Mapping[str, Tensor], options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the model of a folder with weights that were read from it, and which of them it lacks."""
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    auto_model: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model_class = type(auto_model.from_config(config, trust_remote_code=False))
    model, info = model_class.from_pretrained(None, config=config, state_dict=dict(tensors), **options)
    model.config.name_or_path = model.name_or_path = str(folder)
    return model, info


def load_model_config(path: Path | str) -> PreTrainedConfig:
    """Return the configuration of a model in a folder or on the hub, checked against the headers of its weights.

    Raises:
        CheckpointError: there is no such model, it cannot be read, its weights are quantised, or it is no causal
            model of text.
    """
    folder = local_folder(path)
    if is_adapter(folder):
        return load_model_config(adapter_base(folder))
    check_folder(folder)
    with _loading(f"a model from {path}: config.json"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    check_causal(path, config)
    return config


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder, or from the hub (`owner/name#revision`).

    Raises:
        CheckpointError: it is missing or cannot be read.
    """
    folder = local_folder(path)
    if is_adapter(folder) and not (folder / "tokenizer_config.json").is_file():
        return load_tokenizer(adapter_base(folder))
    check_has_tokenizer(folder)
    with _loading(f"a tokenizer from {path}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, padding_side="left"
        )
    for name in _HOW_LOADED:
        tokenizer.init_kwargs.pop(name, None)
    return tokenizer


def _check_complete(path: Path | str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(map(str, info.get(what, ())))
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(
                f"{path} does not hold this model's weights: {what.replace('_', ' ')} {names[:3]}{more}"
            )
    check_finite(path, model.state_dict())


def _fit_vocabulary(path: Path | str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embeddings: Any = model.get_input_embeddings()
    check_vocabulary(path, int(embeddings.weight.shape[0]), tokenizer)
    limit_ids_of(model, num_ids(tokenizer))


def check_vocabulary(path: Path | str, num_embeddings: int, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that a model can read its tokenizer's vocabulary; an added token that it cannot is refused where it occurs.

    Raises:
        CheckpointError: it has no embedding for a token of the vocabulary proper, or that begins, ends or pads texts.
    """
    if num_embeddings == 0:
        raise CheckpointError(f"{path}: the model has embeddings for no token; its config.json is damaged")
    added = tokenizer.get_added_vocab()
    largest = max((number for token, number in tokenizer.get_vocab().items() if token not in added), default=-1)
    used = {f"the tokenizer has the token id {largest}": largest}
    for name in ("bos_token", "eos_token", "pad_token"):
        token, number = getattr(tokenizer, name), getattr(tokenizer, f"{name}_id")
        used[f"the {name} {token!r} is the token id {number}"] = -1 if number is None else number
    for said, number in used.items():
        if number >= num_embeddings:
            raise CheckpointError(
                f"{path}: {said}, but the model has embeddings for {num_embeddings} tokens only; the two do not belong "
                "together"
            )
    limit_ids(tokenizer, num_embeddings)


def _own_memory(model: PreTrainedModel) -> None:
    """Copy the weights out of the mapped file into memory that torch allocates.

    Mapped tensors are not aligned, and CPU kernels round unaligned operands otherwise: a run resumed on them would
    sample with log-probabilities that differ in the last bit.
    """
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = tensor.data.clone()


def stop_ids(model: PreTrainedModel | PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the ids that end a completion: the end-of-sequence token, the model's own, and what ends a turn.

    The model's own are those of its generation_config.json, which a configuration alone does not have.
    """
    declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    own = declared if isinstance(declared, list) else [declared]
    if not all(isinstance(token, int | None) for token in own):
        raise CheckpointError(
            f"{model.name_or_path}: eos_token_id in generation_config.json must be an id or a list of ids, got "
            f"{declared!r}"
        )
    ends = {token for token in [tokenizer.eos_token_id, *own] if token is not None}
    end = turn_end(tokenizer, stop_ids=ends)
    return tuple(sorted(ends if end is None else {*ends, end}))


def declare_stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return `stop_ids`; what ends a turn is named in the model's generation_config.json, for programs that read it."""
    ids = stop_ids(model, tokenizer)
    if turn_end(tokenizer, stop_ids=ids) not in (None, tokenizer.eos_token_id) and model.generation_config is not None:
        model.generation_config.eos_token_id = list(ids)
    return ids


def weights_fingerprint(model: PreTrainedModel) -> str:
    """Return the digest of all weights that a checkpoint of the model has: its `weights_sha256`.

    Of a model with an adapter it covers the base, too.
    """
    weights = model.state_dict()
    return tensors_digest(WEIGHTS, weights if has_adapter(model) else stored_tensors(model, weights))


def stored_tensors(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a model's weights as its folder has them: tied ones once, by the names of the published files.

    Divided ones stay divided, where the files have the names of the model's own.
    """
    ignored = set(model._keys_to_ignore_on_save or ())
    if any(hasattr(tensor, "full_tensor") for tensor in weights.values()):
        if not get_model_conversion_mapping(model, add_legacy=False):
            ignored |= model.all_tied_weights_keys.keys()
            return {name: tensor for name, tensor in weights.items() if name not in ignored}
        weights = {name: whole_tensor(tensor) for name, tensor in weights.items()}
    kept = {name: tensor.detach() for name, tensor in weights.items() if name not in ignored}
    stored: dict[str, Tensor] = revert_weight_conversion(model, remove_tied_weights_from_state_dict(kept, model))
    return stored


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of the vocabulary: every token with its id."""
    digest = hashlib.sha256()
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{index} {token}\n".encode())
    return digest.hexdigest()


def read_trainer_state(path: Path, mapped_by: World | None = None) -> dict[str, dict[str, Tensor]]:
    """Return the trainer's state of the checkpoint at `path`; every file is compared with its digest on the way.

    Args:
        path: the checkpoint.
        mapped_by: see `load_model`.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    state: dict[str, dict[str, Tensor]] = {}
    try:
        files = {}
        for name, digest in read_manifest(path)["files"].items():
            if name.startswith(f"{STATE_NAME}/"):
                if name.endswith(".safetensors"):
                    files[path / name] = digest
                else:
                    verify_file(path / name, digest)
        if mapped_by is not None:
            verify_shards(files, mapped_by)
        # Files of one name in several shards are one entry.
        for file, digest in files.items():
            tensors = read_shards({file: digest}) if mapped_by is None else map_shards([file])
            state.setdefault(re.sub(r"-\d{5}-of-\d{5}$", "", file.stem), {}).update(tensors)
    except ArtifactError as error:
        raise CheckpointError(str(error)) from error
    return state
