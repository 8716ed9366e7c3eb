"""How fast this machine samples, learns, reads and writes with a model's shapes: a few seconds of random weights.

A few of the architecture's layers are timed, and some more; the others are taken to add as much as these.
"""

from __future__ import annotations

import copy
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from swerve.batch import TokenSequence, completion_hidden, token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.models.fast_layers import use_fast_layers
from swerve.models.folder_checks import quiet_transformers
from swerve.models.head import model_head
from swerve.models.model_folder import resolve_device
from swerve.models.packed_attention import use_packed_attention
from swerve.models.runtime import apply_runtime
from swerve.plan.empty_model import empty_model, layer_list, num_weights
from swerve.plan.rates import Rates
from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.replicated_model import checkpoint_activations

_NEW_TOKENS = (2, 14)
"""Of the completions that are timed: the difference is what decoding takes."""
_ON_CPU = 16, 512
"""Rows and tokens at most that are timed on a processor, where more of them take as long each."""
_BYTES = 1 << 28
"""Of the file that is written."""
_REPEATS = 3
_MOST_LAYERS, _LAYER_BYTES = 8, 1 << 30
"""Layers that are timed at most, and what the weights of more than two may take."""


def measured_rates(
    architecture: PreTrainedConfig, runtime: RuntimeConfig, *, dtype: str, prompt: int, longest: int, rows: int,
    tokens_per_batch: int, trains: bool, place: Path,
) -> Rates:  # fmt: skip
    """Return the rates of a model on this machine.

    Args:
        architecture: the model's.
        runtime: device, threads, and which layers an update runs again.
        dtype: that the model computes in.
        prompt: tokens of a prompt.
        longest: tokens of a completion; the cache is timed at half of it.
        rows: completions that are sampled side by side.
        tokens_per_batch: of a micro-batch.
        trains: whether gradients and the optimizer are timed, too.
        place: whose disk is written to.
    """
    apply_runtime(runtime)
    device = resolve_device(runtime.device)
    most_rows, most_tokens = _ON_CPU if device == "cpu" else (rows, tokens_per_batch)
    rows, tokens = min(rows, most_rows), min(tokens_per_batch, most_tokens)
    half = max(1, min(tokens // 2, longest))
    sequences = [([index] * half, [index] * half) for index in range(max(1, tokens // (2 * half)))]

    # Few layers and more; each further one takes what those between have added.
    whole = empty_model(architecture, dtype)
    layers = [*layer_list(whole)]
    num_layers, size = len(layers), num_weights(layers[0] if layers else whole) * whole.dtype.itemsize
    more = min(num_layers, max(2, min(_MOST_LAYERS, _LAYER_BYTES // size)))
    few = max(1, more // 4)
    timed = [
        _timed(_small(architecture, dtype, number).to(device), runtime, sequences, prompt + longest // 2, rows, trains)
        for number in (few, more)
    ]
    share = (num_layers - few) / max(1, more - few)
    seconds = {kind: max(one, one + (two - one) * share) for kind, one, two in _pairs(*timed)}
    amounts = {kind: 2 * half * len(sequences) for kind in ("reading", "update")}
    amounts |= {"sampling": rows * (_NEW_TOKENS[1] - _NEW_TOKENS[0]), "optimizer": num_weights(whole)}
    found = {kind: amounts[kind] / each for kind, each in seconds.items()}
    found["writing"] = _BYTES / _seconds(lambda: _write(place), "cpu")
    return Rates(of=found, source=f"measured here, with {few} and {more} layers of random weights")


def _pairs(first: dict[str, float], second: dict[str, float]) -> list[tuple[str, float, float]]:
    return [(kind, one, second[kind]) for kind, one in first.items()]


def _timed(
    model: PreTrainedModel,
    runtime: RuntimeConfig,
    sequences: Sequence[TokenSequence],
    context: int,
    rows: int,
    trains: bool,
) -> dict[str, float]:
    """Return how long a model takes by kind of work: rows that go on behind a context, and a batch."""
    device, (early, late) = model.device.type, _NEW_TOKENS
    found = {"sampling": _sampled(model, context, rows, late) - _sampled(model, context, rows, early)}

    # One batch, read and learned.
    use_fast_layers(model)
    packs = runtime.rows == "packed" and use_packed_attention(model)
    (batch,) = token_batches(sequences, pad_id=0, packed=packs)
    ids, batch, head = batch.completion_ids[batch.mask].to(device), batch.to(device), model_head(model)

    def loss(logits: Tensor, chunk: slice) -> Tensor:
        with torch.no_grad():
            entropy(logits)
        return -token_logprobs(logits, ids[chunk]).sum()

    def read() -> Tensor:
        return head.loss(completion_hidden(model, batch, head), loss)

    def read_only() -> None:
        with torch.no_grad():
            read()

    found["reading"] = _seconds(read_only, device)
    if trains:
        checkpoint_activations(model, runtime.activation_checkpointing)
        model.train()
        found["update"] = _seconds(lambda: read().backward(), device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
        found["optimizer"] = _seconds(optimizer.step, device)
    return found


def _small(architecture: PreTrainedConfig, dtype: str, num_layers: int) -> Any:
    """Return the model with random weights and so many layers at most."""
    config, untyped = copy.deepcopy(architecture), cast(Any, AutoModelForCausalLM)
    text: Any = config.get_text_config()
    num, text.num_hidden_layers = text.num_hidden_layers, min(num_layers, text.num_hidden_layers)
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == num:  # an entry for each layer
            setattr(text, name, value[: text.num_hidden_layers])
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    with quiet_transformers():
        return untyped.from_config(config, trust_remote_code=False, dtype=kind).eval()


def _sampled(model: PreTrainedModel, context: int, rows: int, new_tokens: int) -> float:
    """Return how long it takes to sample completions of one prompt."""
    prompt = [torch.arange(context).remainder(1000).tolist()]
    sampling = SamplingParams(num_samples=rows, max_new_tokens=new_tokens, temperature=1.0, stop_ids=())
    with closing(TorchEngine(model, pad_id=0, max_rows=rows)) as engine:
        return _seconds(lambda: engine.generate(prompt, sampling, seeds=[0]), model.device.type)


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return how long work takes, the middle one of a few times."""
    found = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def _write(place: Path) -> None:
    """Write bytes as a checkpoint is written: with a digest, to the disk."""
    folder = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
    with tempfile.TemporaryFile(dir=folder) as file:
        data = os.urandom(1 << 20)
        digest = hashlib.sha256()
        for _ in range(_BYTES >> 20):
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
