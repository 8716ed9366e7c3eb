"""Models that are loaded when their turn comes: a folder in the Hugging Face layout, a hub name, one in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from transformers import AutoConfig, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from swerve.artifacts.files import MANIFEST_NAME, read_manifest, sha256_file
from swerve.config import RuntimeConfig
from swerve.errors import CheckpointError
from swerve.models.model_folder import (
    LoadedModel,
    load_model,
    load_tokenizer,
    resolve_device,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from swerve.models.trial import quiet_transformers, said_by, try_to_build

_HASHED_SUFFIXES = (".safetensors", ".json", ".model", ".txt", ".jinja")


class ModelSource(Protocol):
    """A model that is loaded when it is needed, and known by its content before."""

    @property
    def label(self) -> str:
        """The model's name in messages and tables."""

    @property
    def fingerprint(self) -> str:
        """A digest of all that decides hidden states: weights, configuration, tokenizer, dtype, type of device."""

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

    @property
    def content(self) -> str:
        """Digest of the folder's weights, configuration and tokenizer, or of the hub's commit.

        Raises:
            CheckpointError: there is no such model.
        """
        folder = Path(self.path)
        return folder_fingerprint(folder) if folder.is_dir() else _digest(_hub_commit(str(self.path)))

    def load(self) -> LoadedModel:
        """Load the model; see `load_model` for what is refused."""
        return load_model(self.path, device=self.device, dtype=self.dtype)

    def check(self) -> CheckedModel:
        """Check configuration, tokenizer and, in a folder, the weights' shapes; no weight is loaded.

        Raises:
            CheckpointError: there is no such model, a file is damaged, or tokenizer and model do not belong together.
        """
        name, _, revision = str(self.path).partition("#")
        is_folder = Path(self.path).is_dir()
        source, options = (str(self.path), {}) if is_folder or not revision else (name, {"revision": revision})
        content = self.content
        try_to_build(source)
        try:
            with quiet_transformers():
                config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        except Exception as error:  # the parsers raise types of their own, without a common base
            raise CheckpointError(f"cannot load a model from {self.path}: config.json: {said_by(error)}") from error
        tokenizer = load_tokenizer(source, **options)
        text = config.get_text_config()
        rows, largest = getattr(text, "vocab_size", None), max(tokenizer.get_vocab().values(), default=-1)
        if rows is not None and largest >= rows:
            raise CheckpointError(
                f"{self.path}: the tokenizer has the token id {largest}, but the model has embeddings for {rows} "
                "tokens only; the two do not belong together"
            )
        positions = getattr(text, "max_position_embeddings", None)
        return CheckedModel(content=content, tokenizer=tokenizer, num_positions=positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """What is known of a model before its weights are loaded."""

    content: str
    """See `CheckpointSource.content`."""
    tokenizer: PreTrainedTokenizerBase
    num_positions: int | None
    """Longest sequence, tokens; None: the configuration does not say."""


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

    def load(self) -> LoadedModel:
        """Return the model."""
        return self.loaded


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
        said = str(error).splitlines()[0]
        raise CheckpointError(f"cannot find a model {path}: {said}{_remedy(said, name)}") from error
    assert config is not None
    return f"{name} {Path(config).parent.name}"  # the hub's cache keeps each commit in a folder of its name


def _remedy(said: str, name: str) -> str:
    """Return what to do where the hub, or the way to it, refuses a model."""
    if "gated" in said:
        return "; ask for access on the model's page, then log in with: hf auth login"
    if "couldn't connect" in said:
        fetch = f"hf download --local-dir FOLDER {name}"
        return f"; without a network, fetch it where there is one ({fetch}) and give the folder"
    return ""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
