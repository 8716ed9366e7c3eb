"""Checks of a model's folder: config.json and the shapes of the weights before these are read, a token afterwards.

Nothing in a folder is run: remote code is off, and weights are safetensors. Yet a config.json can describe a model that
takes any time and memory to build. So it is built without weights in a copy of the process first, under limits, once
for each content.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from swerve.errors import CheckpointError, said_by, unreadable
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import GraderLimits

_LOADING = GraderLimits(cpu_seconds=60.0, wall_seconds=600.0, memory_bytes=4 << 30)
_FLOATS = ("F64", "F32", "F16", "BF16")
_MOST_UNSTORED = 2
"""How many times as many parameters a model may have as its files hold."""
_FIXES = {
    "limit": "give another copy of the model, or more room where the limit is the shell's",
    "failed": "give another copy of the model",
    "killed": "run it again",
}
"""What can be done, by what ended the process."""
_described: dict[bytes, dict[str, Any]] = {}
"""Of each config.json that was built: see `_build`."""


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' own progress bars and reports off standard error inside the block."""
    shown, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if shown:
            transformers_logging.enable_progress_bar()


def check_folder(folder: Path) -> None:
    """Check that a folder's config.json describes the model whose weights lie beside it; no weight is read.

    Raises:
        CheckpointError: config.json cannot be read, or reaches a limit; it is of no causal model of text; the weights
            are quantised, of other shapes, or by far too few.
    """
    file = folder / "config.json"
    content = file.read_bytes() if file.is_file() else b""
    if content not in _described:
        try:
            with quiet_transformers():
                (_described[content],) = call_each(_build, [folder], _LOADING)
        except BoundedCallError as error:
            raise CheckpointError(
                f"cannot use {folder}: trying the model of its config.json ended with: {error}; {_FIXES[error.kind]}"
            ) from None
    _check_stored(folder, **_described[content])


def _build(folder: Path) -> dict[str, Any]:
    """Build the model that a config.json describes; return its number of parameters and the shapes of its tensors."""
    torch.set_num_threads(1)  # the threads of the process that was forked are not in its copy
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        check_configuration(folder, config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (MemoryError, RecursionError, CheckpointError):
        raise
    except Exception as error:  # the parsers raise types of their own, without a common base
        raise CheckpointError(f"cannot load a model from {folder}: config.json: {said_by(error)}") from error
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    return {"num_parameters": sum(parameter.numel() for parameter in model.parameters()), "shapes": shapes}


def _check_stored(folder: Path, num_parameters: int, shapes: dict[str, list[int]]) -> None:
    """Compare the tensors in a folder's files with those of its model."""
    # Each stored weight is of floating point and has the shape that is described.
    files = sorted(folder.glob("*.safetensors"))
    num_stored = 0
    for file in files:
        for name, (kind, shape) in stored_headers(file).items():
            num_stored += math.prod(shape)
            if kind not in _FLOATS and name.endswith("weight"):
                raise CheckpointError(
                    f"{file}: the weight '{name}' is stored as {kind}: weights that are quantised are not read; give "
                    f"the model that they were made from, with weights of {', '.join(_FLOATS)}"
                )
            if shape != shapes.get(name, shape):
                raise CheckpointError(
                    f"{file}: the weight '{name}' has the shape {shape}, and config.json describes {shapes[name]}; "
                    "the two files are not of one model"
                )

    # Tied weights are stored once; a folder that lacks more than that was not copied whole.
    if files and num_parameters > _MOST_UNSTORED * num_stored:
        raise CheckpointError(
            f"config.json in {folder} describes a model of {num_parameters:,} parameters, and its files hold "
            f"{num_stored:,}: weights are missing"
        )


def layer_configs(config: PreTrainedConfig) -> list[Any]:
    """Return the configuration of each layer, which differ where a model has heads of several sizes (Gemma 4)."""
    text: Any = config.get_text_config()
    return list(text.per_layer_config)


def check_configuration(source: Path | str, config: PreTrainedConfig) -> None:
    """Raise CheckpointError if a configuration is not of a causal model of text, or says that it is quantised."""
    kind = None
    if getattr(config, "is_encoder_decoder", False):
        kind = "an encoder and a decoder"
    elif config.get_text_config() is not config:
        kind = "a model of images, sound or video around one of text"
    elif type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = "not a causal language model"
    if kind is not None:
        raise CheckpointError(
            f"the model in {source} (model_type {config.model_type}) is {kind}, and only causal models of text alone "
            "are read; give such a model of its family"
        )
    _check_heads(source, config)
    quantised = getattr(config, "quantization_config", None)
    if quantised is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        raise CheckpointError(
            f"the weights in {source} are quantised ({method or 'quantization_config'} in config.json), and quantised "
            "weights are not read; give the model that they were made from, or a dequantised copy"
        )


def _check_heads(source: Path | str, config: Any) -> None:
    """Raise CheckpointError if a model's heads cannot be divided among those that its keys and values have."""
    # Layers may have numbers of their own, which only they can be asked for.
    heads, shared = (vars(config).get(name) for name in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and isinstance(shared, int) and (shared < 1 or heads % shared):
        rule = f"of which num_attention_heads={heads} has to be a multiple" if shared > 0 else "and 1 is the least"
        raise CheckpointError(
            f"config.json of {source} has num_key_value_heads={shared}, {rule}; give the config.json that the model "
            "came with"
        )


def stored_headers(file: Path) -> dict[str, tuple[str, list[int]]]:
    """Return type and shape of each tensor in a file of safetensors, from its header.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            parts = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
            return {name: (str(part.get_dtype()), list(part.get_shape())) for name, part in parts.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(unreadable(file, error)) from error


def check_finite(path: Path | str, weights: Mapping[str, torch.Tensor], reason: str = "that are not finite") -> None:
    """Check that weights are finite numbers.

    Raises:
        CheckpointError: one is not.
    """
    for name, tensor in weights.items():
        # The ends are not finite if any value is not, and take no memory, as a mask of them all would.
        if tensor.is_floating_point() and tensor.numel() and not all(map(torch.isfinite, torch.aminmax(tensor))):
            raise CheckpointError(f"{path}: the weight '{name}' has values {reason}")


def cannot_read(path: Path | str, error: Exception) -> CheckpointError:
    """Return what to raise of a model whose forward pass fails on any token."""
    return CheckpointError(
        f"the model in {path} cannot read a token ({said_by(error)}); its config.json does not describe a model "
        "that works"
    )


def check_reads_a_token(path: Path | str, model: PreTrainedModel) -> None:
    """Have a model read a token: sizes that do not fit one another are found only then.

    Raises:
        CheckpointError: it fails, or its logits are not finite.
    """
    try:
        with torch.inference_mode(), quiet_transformers():
            ids: Any = torch.zeros(1, 1, dtype=torch.long, device=model.device)
            logits = model(input_ids=ids).logits
    except Exception as error:
        raise cannot_read(path, error) from error
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(f"the model in {path} gives logits that are not finite; its config.json is damaged")
