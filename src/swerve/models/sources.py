"""Models that are loaded when their turn comes: a folder in the Hugging Face layout, or a hub name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from swerve.artifacts.checkpoint import BASE, CheckpointRef
from swerve.artifacts.files import MANIFEST_NAME, parse_json, read_manifest
from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.config.runtime import RuntimeConfig
from swerve.errors import CheckpointError
from swerve.models.adapter import ADAPTER_CONFIG, adapter_base, base_digest, file_digest, is_adapter, whole_matrices
from swerve.models.hub import checkpoint_folder, local_folder
from swerve.models.model_folder import (
    LoadedModel,
    bases_kept,
    bases_of,
    check_vocabulary,
    is_kept,
    load_model,
    load_model_config,
    load_tokenizer,
    resolve_device,
)
from swerve.tokens import num_ids
from swerve.world import ALONE

_HASHED_SUFFIXES = (".safetensors", ".json", ".model", ".txt", ".jinja")
_DESCRIPTIONS = ("config.json", "generation_config.json", "tokenizer_config.json", ADAPTER_CONFIG)
_VERSIONS = ("transformers_version", "peft_version")
"""Keys of a description that say which version of a library wrote it."""


class ModelSource(Protocol):
    """A model that is loaded when it is needed, and known by its content before."""

    @property
    def label(self) -> str:
        """The model's name in messages and tables."""

    @property
    def fingerprint(self) -> str:
        """A digest of all that decides hidden states: weights, configuration, tokenizer, dtype, type of device."""

    def check(self) -> CheckedModel:
        """Return what is known of the model before its weights are loaded."""

    def load(self) -> LoadedModel:
        """Return the model in evaluation mode."""

    def matrices(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of two dimensions or more by name, tied ones once; an adapter is added to its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """A model in a folder in the Hugging Face layout, or on the hub (`owner/name#revision`)."""

    label: str
    path: Path | str
    device: str
    dtype: str
    """`float32`, `bfloat16` or `float16`."""

    @property
    def fingerprint(self) -> str:
        """Digest of the folder's content (or the hub's commit), the dtype and the type of device.

        Raises:
            CheckpointError: there is no such model.
        """
        return _digest(self.content, self.dtype, self.device.partition(":")[0])

    @property
    def content(self) -> str:
        """Digest of the folder's weights, configuration and tokenizer, or of the hub's commit.

        Raises:
            CheckpointError: there is no such model.
        """
        if Path(self.path).is_dir():
            return folder_fingerprint(Path(self.path))
        folder = local_folder(self.path)  # the cache keeps each commit in a folder of its name
        return _digest(f"{str(self.path).partition('#')[0]} {folder.name}", *_base_digests(folder))

    def load(self) -> LoadedModel:
        """Load the model; see `load_model` for what is refused."""
        return load_model(self.path, device=self.device, dtype=self.dtype)

    def matrices(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of two dimensions or more by name, tied ones once; they stay in their files until used.

        An adapter is added to its layers, whose other weights are the base's in memory.
        """
        if is_adapter(local_folder(self.path)) or is_kept(self.path):
            return whole_matrices(self.load().model)
        return whole_matrices(load_model(self.path, device="cpu", dtype="auto", mapped_by=ALONE).model)

    def check(self) -> CheckedModel:
        """Check configuration, tokenizer and the weights' shapes; no weight is loaded.

        Raises:
            CheckpointError: there is no such model, a file is damaged, or tokenizer and model do not belong together.
        """
        content, config, tokenizer = self.content, load_model_config(self.path), load_tokenizer(self.path)
        check_vocabulary(self.path, int(config.get_text_config().vocab_size), tokenizer)
        return CheckedModel.of(content, config, tokenizer, dtype=self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """What is known of a model before its weights are loaded."""

    content: str
    """See `CheckpointSource.content`."""
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    vocabulary_size: int
    """Tokens that its distributions are over: what its head has beyond the tokenizer's ids is padding."""
    hidden_size: int | None
    dtype: str
    """In which it is read."""
    stored_dtype: str | None
    """Of its weights in the files, where the configuration says it."""

    @classmethod
    def of(
        cls, content: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, *, dtype: str
    ) -> CheckedModel:
        """Return what a configuration and a tokenizer say of a model that is read in `dtype`."""
        text: Any = config.get_text_config()
        stored = getattr(config, "dtype", None)
        return cls(
            content=content,
            config=config,
            tokenizer=tokenizer,
            vocabulary_size=min(int(text.vocab_size), num_ids(tokenizer)),
            hidden_size=getattr(text, "hidden_size", None),
            dtype=dtype,
            stored_dtype=None if stored is None else str(stored).removeprefix("torch."),
        )


def checkpoint_source(label: str, path: Path | str, runtime: RuntimeConfig) -> CheckpointSource:
    """Return a model as the runtime's device and dtype will load it."""
    return CheckpointSource(label=label, path=path, device=resolve_device(runtime.device), dtype=runtime.dtype)


def base_checkpoint(config: Config) -> CheckpointRef | None:
    """Return the trained model that a run of a recipe begins with, as a checkpoint at step 0 called `base`.

    Its digest is that of a checkpoint's manifest, else of the folder's weights, configuration and tokenizer. None: the
    recipe begins with a new model.

    Raises:
        CheckpointError: the model is not where the recipe has it.
    """
    if not isinstance(config.model, PretrainedModel):
        return None
    folder = local_folder(checkpoint_folder(config.model.path))
    manifest = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() else {}
    # Nothing was trained yet.
    return CheckpointRef(
        path=folder,
        step=0,
        stage=BASE,
        stage_step=0,
        scheduled=True,
        final=True,
        weights_sha256=manifest.get("weights_sha256") or folder_fingerprint(folder),
    )


def shared_bases(sources: Iterable[ModelSource]) -> AbstractContextManager[None]:
    """Load the bases of adapters among some models once inside the block; see `bases_kept`."""
    return bases_kept(bases_of(source.path for source in sources if isinstance(source, CheckpointSource)))


def folder_fingerprint(folder: Path) -> str:
    """Return a digest of a model folder's weights, configuration and tokenizer, and of the base of an adapter.

    Digests that the folder's manifest lists are taken from there; loading compares them with the files. Which version
    of a library wrote a description is no part of it.

    Raises:
        CheckpointError: the folder has no weights.
    """
    if (folder / MANIFEST_NAME).is_file():
        files = {str(name): str(digest) for name, digest in read_manifest(folder)["files"].items()}
    else:
        paths = sorted(path for path in folder.iterdir() if path.suffix in _HASHED_SUFFIXES)
        files = {path.name: file_digest(path) for path in paths}
    if not any(name.endswith(".safetensors") for name in files):
        raise CheckpointError(f"{folder} has no weights in safetensors files: it is not a model")
    for name in files:
        if name in _DESCRIPTIONS and (folder / name).is_file():
            files[name] = _described(folder / name) or files[name]
    return _digest(*(f"{name} {files[name]}" for name in sorted(files)), *_base_digests(folder))


def _described(file: Path) -> str | None:
    """Return a digest of what a description says, versions of libraries apart; None where it is no JSON object."""
    try:
        entries = parse_json(file.read_bytes())
    except (ValueError, RecursionError):  # what is wrong with it is said where the model is read
        return None
    if not isinstance(entries, dict):
        return None
    return _digest(json.dumps(_without_versions(entries), sort_keys=True))


def _without_versions(value: Any) -> Any:
    """Return a JSON value without the versions in it, which a model of several has of each.

    >>> _without_versions({"transformers_version": "5.16.1", "text_config": {"transformers_version": "5", "size": 2}})
    {'text_config': {'size': 2}}
    """
    if not isinstance(value, dict):
        return value
    return {key: _without_versions(entry) for key, entry in value.items() if key not in _VERSIONS}


def _base_digests(folder: Path) -> list[str]:
    return [base_digest(adapter_base(folder))] if is_adapter(folder) else []


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
