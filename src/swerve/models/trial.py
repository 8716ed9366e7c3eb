"""What comes with a model's folder, tried before it is used.

The parsers and the code behind a config.json or a tokenizer.json can be led to take any time and memory, or to end the
process. So they work first in a copy of the process, under limits, once for each content of a folder.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from swerve.artifacts.files import MANIFEST_NAME, sha256_file
from swerve.errors import CheckpointError
from swerve.rewards.sandbox.bounded import BoundedCallError, call_each
from swerve.rewards.sandbox.confinement import GraderLimits

_LOADING = GraderLimits(cpu_seconds=60.0, wall_seconds=600.0, memory_bytes=4 << 30)
_FLOATS = ("F64", "F32", "F16", "BF16")
_MOST_UNSTORED = 2
"""How many times as many parameters a model may have as its files hold."""
_NUM_DECODED = 20_000
_TEXTS = (
    "What is 1,234.5 + 67% of (x - 8)^2? Let's think: 'a' \"b\" <c> [d] {e} \\frac{1}{2} $#@&*_~|;=/`.\n\t" * 20,
    "".join(map(chr, range(32, 127))) * 20,
    "a" * 2000 + "!",
    " " * 2000 + "!",
    "0123456789" * 200 + "!",
    "\u00e9 \ufb01 \u6f22\u5b57 \u0645 \U0001f642 \u03a9 \u2211 \u00bd \u200d \x00 e\u0301\u0301" * 50,
)
"""What a tokenizer is tried on."""
_FIXES = {
    "limit": "give another copy of the model, or more room where the limit is the shell's",
    "failed": "give another copy of the model",
    "killed": "run it again",
}
"""What can be done, by what ended the process."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")
_LONGEST_HEADER = 100_000_000
_tried = set[tuple[str, str]]()
"""What this process has tried: the kind of trial, and the content of the folder."""

Shapes = dict[str, tuple[Path, list[int]]]


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


def said_by(error: Exception) -> str:
    r"""Return the first line of an error's message, with what the line lacks to be understood.

    >>> said_by(KeyError("swoosh")), said_by(ValueError("in the field 'x':\n  not a number"))
    ("KeyError: 'swoosh'", "in the field 'x': not a number")
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    speaks_for_itself = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
    return line if speaks_for_itself else f"{type(error).__name__}: {line}"


def try_to_build(folder: Path) -> None:
    """Check that a folder's config.json describes the model whose weights lie beside it; no weight is read.

    Raises:
        CheckpointError: config.json cannot be read, or reaches a limit; the weights are quantised, of other shapes, or
            by far too few.
    """
    _once("the model of its config.json", folder, lambda _: _check_built(folder))


def _check_built(folder: Path) -> None:
    torch.set_num_threads(1)  # the threads of the process that was forked are not in its copy
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the parsers raise types of their own, without a common base
        raise CheckpointError(f"cannot load a model from {folder}: config.json: {said_by(error)}") from error
    check_readable(folder, config)
    shapes = _stored_shapes(folder)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise CheckpointError(f"cannot load a model from {folder}: config.json: {said_by(error)}") from error
    _check_shapes(folder, model, shapes)


def layer_configs(config: PreTrainedConfig) -> list[Any]:
    """Return the configuration of each layer, which differ where a model has heads of several sizes (Gemma 4)."""
    text: Any = config.get_text_config()
    return list(text.per_layer_config)


def check_readable(source: Path | str, config: PreTrainedConfig) -> None:
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
    quantised = getattr(config, "quantization_config", None)
    if quantised is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        raise CheckpointError(
            f"the weights in {source} are quantised ({method or 'quantization_config'} in config.json), and quantised "
            "weights are not read; give the model that they were made from, or a dequantised copy"
        )


def _stored_shapes(folder: Path) -> Shapes:
    """Return the shape of every stored tensor with its file; one of another type than floating point is refused."""
    shapes: Shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as stored:
                found = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
                kinds = {name: str(part.get_dtype()) for name, part in found.items()}
                shapes |= {name: (file, list(part.get_shape())) for name, part in found.items()}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {said_by(error)}") from error
        for name, kind in kinds.items():
            if kind not in _FLOATS and name.endswith("weight"):
                raise CheckpointError(
                    f"{file}: the weight '{name}' is stored as {kind}: weights that are quantised are not read; give "
                    f"the model that they were made from, with weights of {', '.join(_FLOATS)}"
                )
    return shapes


def _check_shapes(folder: Path, model: PreTrainedModel, shapes: Shapes) -> None:
    for name, tensor in model.state_dict().items():
        file, stored = shapes.get(name, (None, []))
        if file is not None and stored != list(tensor.shape):
            raise CheckpointError(
                f"{file}: the weight '{name}' has the shape {stored}, and config.json describes {list(tensor.shape)}; "
                "the two files are not of one model"
            )
    num = sum(parameter.numel() for parameter in model.parameters())
    num_stored = sum(math.prod(stored) for _, stored in shapes.values())
    if next(folder.glob("*.safetensors"), None) is not None and num > _MOST_UNSTORED * num_stored:
        raise CheckpointError(
            f"config.json in {folder} describes a model of {num:,} parameters, and its files hold {num_stored:,}: "
            "weights are missing"
        )


def try_tokenizer(folder: Path) -> None:
    """Load a folder's tokenizer, have it read plain text and write its vocabulary, in a copy of this process.

    Raises:
        CheckpointError: it cannot be loaded, reaches a limit, or fails.
    """
    tokenizer: Any = None

    def load_or_use(text: str | None) -> None:
        nonlocal tokenizer
        if text is not None:
            tokenizer.decode(tokenizer(text)["input_ids"])
            return
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise CheckpointError(f"cannot load a tokenizer from {folder}: {said_by(error)}") from error
        tokenizer.decode(sorted(tokenizer.get_vocab().values())[:_NUM_DECODED])

    _once("the tokenizer (tokenizer.json)", folder, load_or_use, [None, *_TEXTS])


def _once(what: str, folder: Path, check: Callable[[Any], None], items: Sequence[Any] = (None,)) -> None:
    """Call a check with each item under limits, unless this process has done so for a folder of this content."""
    content = _content(folder)
    if (what, content) in _tried:
        return
    try:
        with quiet_transformers():
            call_each(check, items, _LOADING)
    except BoundedCallError as error:
        place = " on plain text" if items[error.number] is not None else ""
        raise CheckpointError(
            f"cannot use {folder}: trying {what}{place} ended with: {error}; {_FIXES[error.kind]}"
        ) from None
    _tried.add((what, content))


def _content(folder: Path) -> str:
    """Return a digest of a folder's files; of those of weights, of their headers and sizes.

    The checkpoints of a run have the same one.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        if file.is_file() and file.name != MANIFEST_NAME:
            said = _header(file) if file.suffix in _WEIGHTS else sha256_file(file)
            digest.update(f"{file.name} {file.stat().st_size} {said}\n".encode())
    return digest.hexdigest()


def _header(file: Path) -> str:
    """Return a digest of what a file of safetensors says of its tensors."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return hashlib.sha256(stream.read(min(length, _LONGEST_HEADER))).hexdigest()


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
