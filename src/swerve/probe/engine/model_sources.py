"""Models the probe loads when their turn comes: a folder in the Hugging Face layout, a hub name, one in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from swerve.artifacts.files import MANIFEST_NAME, read_manifest, sha256_file
from swerve.config import RuntimeConfig
from swerve.errors import CheckpointError
from swerve.models.model_folder import (
    LoadedModel,
    load_config,
    load_model,
    load_tokenizer,
    resolve_device,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from swerve.probe.engine.model_facts import ModelFacts, max_positions

_HASHED_SUFFIXES = (".safetensors", ".json", ".model", ".txt", ".jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What configuration and tokenizer say of a model."""

    facts: ModelFacts
    """Without the texts of the tokens."""
    vocabulary: Mapping[str, int]
    """Token -> id."""
    special: Mapping[str, str | None]
    """`begin` and `end` -> the tokenizer's token."""
    hidden_size: int | None
    dtype: str
    """In which it is read."""
    stored_dtype: str | None
    """Of its weights in the files, where the configuration says it."""


class ModelSource(Protocol):
    """A model that is loaded when it is needed, and known by its content before."""

    @property
    def label(self) -> str:
        """The model's name in messages and tables."""

    @property
    def fingerprint(self) -> str:
        """A digest of all that decides hidden states: weights, configuration, tokenizer, dtype, type of device."""

    def describe(self) -> ModelDescription:
        """Return what is known of the model before its weights are read."""

    def load(self) -> LoadedModel:
        """Return the model in evaluation mode."""


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
        folder = Path(self.path)
        content = folder_fingerprint(folder) if folder.is_dir() else _hub_commit(str(self.path))
        return _digest(content, self.dtype, self.device.partition(":")[0])

    def describe(self) -> ModelDescription:
        """Return what configuration and tokenizer say; of a folder's weights the headers are read.

        Raises:
            CheckpointError: there is no such model, it cannot be read, or its weights are quantised.
        """
        return _described(load_config(self.path), load_tokenizer(self.path), self.dtype)

    def load(self) -> LoadedModel:
        """Load the model; see `load_model` for what is refused."""
        return load_model(self.path, device=self.device, dtype=self.dtype)


def checkpoint_source(label: str, path: Path | str, runtime: RuntimeConfig) -> CheckpointSource:
    """Return a model as the runtime's device and dtype will load it."""
    return CheckpointSource(label=label, path=path, device=resolve_device(runtime.device), dtype=runtime.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """A model that is in memory."""

    label: str
    loaded: LoadedModel

    @property
    def fingerprint(self) -> str:
        """Digest of the weights with their types, the configuration, the tokenizer and the type of device."""
        model = self.loaded.model
        config = model.config.to_json_string()
        tokenizer = tokenizer_fingerprint(self.loaded.tokenizer)
        return _digest(weights_fingerprint(model), config, tokenizer, model.device.type)

    def describe(self) -> ModelDescription:
        """Return what the model says of itself."""
        model = self.loaded.model
        return _described(model.config, self.loaded.tokenizer, str(model.dtype).removeprefix("torch."))

    def load(self) -> LoadedModel:
        """Return the model."""
        return self.loaded


def _described(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, dtype: str) -> ModelDescription:
    text: Any = config.get_text_config()
    stored = getattr(config, "dtype", None)
    vocabulary = tokenizer.get_vocab()
    return ModelDescription(
        facts=ModelFacts(
            vocabulary_size=int(text.vocab_size),
            largest_id=max(vocabulary.values(), default=-1),
            tokenizer_sha256=tokenizer_fingerprint(tokenizer),
            max_positions=max_positions(text),
            pieces=[],
        ),
        vocabulary=vocabulary,
        special={"begin": tokenizer.bos_token, "end": tokenizer.eos_token},
        hidden_size=getattr(text, "hidden_size", None),
        dtype=dtype,
        stored_dtype=None if stored is None else str(stored).removeprefix("torch."),
    )


def folder_fingerprint(folder: Path) -> str:
    """Return a digest of a model folder's weights, configuration and tokenizer.

    Digests that the folder's manifest lists are taken from there; loading compares them with the files.

    Raises:
        CheckpointError: the folder has no weights.
    """
    if (folder / MANIFEST_NAME).is_file():
        files = {str(name): str(digest) for name, digest in read_manifest(folder)["files"].items()}
    else:
        found = sorted(path for path in folder.iterdir() if path.suffix in _HASHED_SUFFIXES)
        files = {path.name: sha256_file(path) for path in found}
    if not any(name.endswith(".safetensors") for name in files):
        raise CheckpointError(f"{folder} has no weights in safetensors files: it is not a model")
    return _digest(*(f"{name} {files[name]}" for name in sorted(files)))


def _hub_commit(path: str) -> str:
    name, _, revision = path.partition("#")
    try:
        config = cached_file(name, "config.json", revision=revision or None)
    except OSError as error:
        raise CheckpointError(f"cannot find a model {path}: {str(error).splitlines()[0]}") from error
    assert config is not None
    return f"{name} {Path(config).parent.name}"  # the hub's cache keeps each commit in a folder of its name


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
