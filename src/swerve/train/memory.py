"""How much memory a recipe's training needs, by part.

One micro-batch of the largest size is read, and its gradients formed, by the recipe's architecture with tensors that
have shapes but no content; what is alive at each moment is counted. The rest is arithmetic on the number of weights.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from swerve.batch import TokenBatch, completion_hidden, completion_logits, token_batches
from swerve.config.engines import EngineConfig, TorchEngineConfig
from swerve.config.recipe import Config
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import Sampling
from swerve.config.stage_base import SamplingStage
from swerve.config.stages import DistillStage, DpoStage, RlStage, StageConfig
from swerve.config.supervised_stages import SftStage
from swerve.errors import CheckpointError, ConfigError, said_by
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.models.adapter import new_adapter
from swerve.models.fast_layers import use_fast_layers
from swerve.models.folder_checks import cannot_read, quiet_transformers
from swerve.models.head import head_inputs, model_head
from swerve.models.packed_attention import sdpa_again, use_packed_attention
from swerve.models.starting_model import is_of_run, read_architecture, recipe_architecture
from swerve.probe.recipe import ProbeRecipe
from swerve.problems import load_family
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.train.replicated_model import checkpoint_activations, trained_names
from swerve.train.sharded_model import decoder_layers

_WIDE, _NARROW = 4, 2
_LONGEST_PROMPT = 512
_PROMPTS_TRIED = 64
_PROMPTS_OF_PAIRS = 64
"""How many prompts a dpo stage samples from at a time."""
_SAMPLED_LOGITS = 1 << 22
"""How many logits are sampled from at a time; see `swerve.rollout.decoding.sample_tokens`."""
_BYTES_PER_SAMPLED_LOGIT = 24
_PER_TOKEN, _PER_ROW = ("keys", "values"), ("conv_states", "recurrent_states")
"""What the layers of a cache keep."""
_LEAST_INT8, _INT8_BLOCK = 4096, 256
"""Of bitsandbytes: fewer weights of a tensor keep float32 moments; so many int8 moments share a float32 scale."""
_LIBRARIES_ON_CPU = 80_000_000
"""Bytes of what torch and oneDNN load and set up with the first step; measured with a model of 100,000 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """What a stage holds at its peak, in bytes."""

    stage: str
    weights: int
    """All that compute, and with `runtime.precision: bfloat16` float32 copies of those that are trained."""
    gradients: int
    """Of the trained weights, float32; not while sampling."""
    optimizer: int
    """AdamW's two moments of the trained weights."""
    frozen: int
    """A reference or a teacher, as far as it is not in memory already, and a vLLM that does not sleep."""
    update: int
    """What reading a micro-batch and forming its gradients takes beyond the above."""
    sampling: int
    """Keys and values of the completions that are sampled side by side, and their logits; of a model that is divided
    over processes also its whole weights, which the embedded engine samples with."""
    gathered: int = 0
    """Of such a model: what an update holds of the others' weights, and of gradients before they are summed."""
    libraries: int = 0
    """On a processor, beyond what the program takes when it has started."""

    @property
    def held(self) -> int:
        """What is held all the time."""
        return self.weights + self.optimizer + self.frozen + self.libraries

    @property
    def peak(self) -> int:
        """All that is held at once: an update and sampling take turns."""
        return self.held + max(self.gradients + self.gathered + self.update, self.sampling)

    def shown(self) -> str:
        """Return the parts as a line's end, in GB of 10^9 bytes."""
        names = ("weights", "gradients", "optimizer", "frozen", "gathered", "update", "sampling", "libraries")
        parts = [(name, getattr(self, name)) for name in names]
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts if size)


def gigabytes(size: int) -> str:
    """Return a number of bytes in GB, with two digits.

    >>> gigabytes(123_456_789), gigabytes(31_400_000_000)
    ('0.12', '31')
    """
    value = size / 1e9
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def device_memory(device: str) -> int:
    """Return the bytes of memory that a device has in all."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(memory: StageMemory, available: int, config: Config) -> None:
    """Refuse what cannot fit.

    Args:
        memory: what the recipe's training needs.
        available: bytes of the device.
        config: the recipe, whose keys could be changed.

    Raises:
        ConfigError: it needs more than there is; the message names the parts and the keys that change the largest.
    """
    if memory.peak <= available:
        return
    # Lowering what is largest helps: what is held all the time, an update, or sampling.
    runtime, lora = config.runtime, config.model.lora
    adapter = memory.gradients + memory.optimizer
    if memory.held - memory.libraries + memory.gradients > available:
        divide = "start more processes" if runtime.sharding.kind == "fsdp" else "set runtime.sharding.kind=fsdp"
        if lora is not None and adapter > memory.weights:
            keys = f"model.lora.rank={lora.rank}"
        elif lora is not None:
            keys = f"the size of the model, or divide the weights over processes: {divide}"
        else:
            keys = (
                "the size of the model, of which training holds 16 bytes a weight, train an adapter (model.lora), or "
                f"divide the weights over processes: {divide}"
            )
    elif memory.gradients + memory.gathered + memory.update > memory.sampling:
        keys = f"stages.{memory.stage}.tokens_per_batch"
        if runtime.activation_checkpointing != "full":
            keys += ", or set runtime.activation_checkpointing=full"
    else:
        keys = "rollout.engine.cache_gb or runtime.max_rows"
    raise ConfigError(
        f"stage '{memory.stage}' needs about {gigabytes(memory.peak)} of {gigabytes(available)} GB"
        f" ({memory.shown()}); lower {keys}"
    )


def predicted_memory(config: Config, *, available: int | None = None, processes: int = 1) -> StageMemory:
    """Return what the stage with the highest peak holds at it, in each process. Takes a few seconds.

    Args:
        config: the recipe.
        processes: that train together.
        available: bytes of the device, of which the embedded engine takes half of what is free for its cache where the
            recipe sets no `rollout.engine.cache_gb`; None: as much as `runtime.max_rows` completions take.

    Prompts are taken to be as long as the longest of some that the task generates, and where it reads them from files,
    as the longest completion, at most 512 tokens; micro-batches to be full, and completions to be as long as allowed.
    Measured peaks were within 15% (docs/performance.md), where the allocator gives back what is freed.

    Raises:
        ConfigError: the recipe leaves its model open, or its configuration cannot be read.
        CheckpointError: it is no causal model of text, or its weights are quantised.
    """
    architecture, tokenizer = recipe_architecture(config)
    engine, is_divided = config.rollout.engine, config.runtime.sharding.kind != "none"
    # The longest of some prompts that the task generates.
    prompt = min(_LONGEST_PROMPT, config.max_new_tokens)
    reads_files = any(name in type(config.task).model_fields for name in ("train", "parts"))
    if tokenizer is not None and not reads_files:
        problems = load_family(config.task).problems("train", seed=0)[:_PROMPTS_TRIED]
        encoded = encode_prompts(tokenizer, problems, template_arguments(config.model))
        prompt = max(len(prompt.token_ids) for prompt in encoded)

    whole = _empty_model(architecture, config.runtime)
    stages = []
    for stage in config.stages:
        memory = _stage_memory(config, stage, architecture, prompt, processes)
        if is_divided:
            memory = _divided(memory, config, whole, processes)
        # The cache takes what is free, and the embedded engine samples with the whole weights of a divided model.
        sampling = memory.sampling
        if available is not None and isinstance(engine, TorchEngineConfig) and engine.cache_gb is None:
            sampling = min(sampling, max(0, available - memory.held) // 2)
        if sampling and is_divided and isinstance(engine, TorchEngineConfig):
            sampling += sum(map(_size, whole.parameters()))
        stages.append(replace(memory, sampling=sampling))
    return max(stages, key=lambda memory: memory.peak)


def predicted_probe_memory(recipe: ProbeRecipe, *, available: int) -> StageMemory:
    """Return what a probe holds at its peak: one model at a time beside the other's output head, reading or sampling.

    Args:
        recipe: the probe's; of its models the first that is a folder counts.
        available: as for `predicted_memory`.

    Batches are taken to be full, and responses as long as is allowed; statistics over the vocabulary are held for
    `probe.tokens_per_chunk` tokens at a time and not counted.

    Raises:
        ConfigError: the model's configuration cannot be read.
        CheckpointError: it is no causal model of text, or its weights are quantised.
    """
    name, path = next((name, path) for name, path in recipe.models.items() if Path(path).is_dir())
    runtime = recipe.runtime.model_copy(update={"precision": recipe.runtime.dtype})
    model, mode = _empty_model(read_architecture(path, key=f"models.{name}")[0], runtime), FakeTensorMode()
    with mode:
        _replace_tensors(model, torch.bfloat16 if runtime.dtype == "bfloat16" else torch.float32)
    use_fast_layers(model)
    weights, other_head = sum(map(_size, model.parameters())), _size(model.get_output_embeddings().weight)

    # One batch of sequences as long as is allowed, and the sampler's cache for as many side by side as may be.
    longest = (recipe.sample or Sampling()).max_new_tokens or recipe.max_new_tokens or _LONGEST_PROMPT
    sequence, length = ([0] * _LONGEST_PROMPT, [0] * longest), _LONGEST_PROMPT + longest
    (batch,) = token_batches([sequence] * max(1, recipe.probe.tokens_per_batch // length), pad_id=0, in_order=True)
    head, live = model_head(model), _LiveBytes(besides=[*model.parameters(), *model.buffers()])
    batch = _fake(mode, batch)
    with mode, live, torch.inference_mode(), head_inputs(head.projection, skip_head=True):
        completion_logits(model.eval(), batch)
    sampling = _sampling_bytes(mode, model, length, rows=runtime.max_rows, engine=recipe.rollout.engine)
    return StageMemory(
        stage="probe",
        weights=weights,
        gradients=0,
        optimizer=0,
        frozen=other_head,
        update=live.peak,
        sampling=min(sampling, max(0, available - weights - other_head) // 2),
    )


def _divided(memory: StageMemory, config: Config, model: PreTrainedModel, processes: int) -> StageMemory:
    """Return what a process holds where weights, gradients and optimizer states are divided over processes."""
    runtime, sharding = config.runtime, config.runtime.sharding
    if processes % sharding.replicas:
        raise ConfigError(f"runtime.sharding.replicas={sharding.replicas} does not divide the {processes} processes")
    itemsize = _NARROW if runtime.precision == "bfloat16" else _WIDE
    layers = [sum(parameter.numel() for parameter in layer.parameters()) for layer in decoder_layers(model)]
    outside = sum(parameter.numel() for parameter in model.parameters()) - sum(layers)
    # Each process has its part of what is held.
    parts = processes // sharding.replicas
    own = {name: -(-getattr(memory, name) // parts) for name in ("weights", "gradients", "optimizer", "frozen")}
    if config.model.lora is None and runtime.precision == "bfloat16":
        own["weights"] = -(-own["weights"] * _WIDE // (_WIDE + _NARROW))  # no copies: what computes is gathered
    if sharding.offload:
        own |= dict.fromkeys(("weights", "gradients", "optimizer"), 0)
    # The next layer is gathered while one computes; a layer's gradients are there twice, as they are and to be summed.
    weights = outside + (2 * max(layers) if sharding.reshard else sum(layers))
    gradients = max(max(layers), outside) * (itemsize + _WIDE) if memory.gradients else 0
    reference = outside * itemsize if memory.frozen else 0
    return replace(memory, **own, gathered=weights * itemsize + gradients + reference)


def _empty_model(architecture: PreTrainedConfig, runtime: RuntimeConfig) -> PreTrainedModel:
    """Return the model without content, in the type that it computes in."""
    untyped: Any = AutoModelForCausalLM
    dtype = torch.bfloat16 if runtime.precision == "bfloat16" else torch.float32
    try:
        with torch.device("meta"), quiet_transformers():
            model: PreTrainedModel = untyped.from_config(architecture, trust_remote_code=False, dtype=dtype)
    except Exception as error:  # the architectures raise types of their own, without a common base
        raise CheckpointError(
            f"cannot build the model of model.path: its config.json is wrong: {said_by(error)}"
        ) from error
    return model


def _stage_memory(
    config: Config, stage: StageConfig, architecture: PreTrainedConfig, prompt: int, processes: int
) -> StageMemory:
    # The model as it is trained, of tensors that have shapes but no content.
    runtime = config.runtime
    is_narrow = runtime.precision == "bfloat16"
    itemsize, dtype = (_NARROW, torch.bfloat16) if is_narrow else (_WIDE, torch.float32)
    mode = FakeTensorMode()
    model = _empty_model(architecture, runtime)
    with torch.device("meta"), quiet_transformers():
        if config.model.lora is not None:
            model = new_adapter(model, config.model.lora, seed=0)
    with mode:
        _replace_tensors(model, dtype)
    names = trained_names(model, stage.freeze, key=f"stages.{stage.label}.freeze")
    sizes = {name: int(parameter.numel()) for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    num_trained, optimizer = sum(sizes[name] for name in names), 0
    for size in (sizes[name] for name in names):
        has_narrow = stage.optimizer.moments == "int8" and size >= _LEAST_INT8
        optimizer += 2 * (size + _WIDE * -(-size // _INT8_BLOCK)) if has_narrow else 2 * size * _WIDE
    use_fast_layers(model)
    packs = runtime.rows == "packed" and use_packed_attention(model)
    checkpoint_activations(model, runtime.activation_checkpointing)

    # An update of a full micro-batch; padded, as in training, where an architecture's code does not read packed rows.
    def update_bytes(*, packed: bool) -> int:
        batch = _fullest_batch(stage, prompt, config.max_new_tokens, packed=packed, processes=processes)
        return _update_bytes(mode, model, batch)

    try:
        update = update_bytes(packed=packs)
    except (TypeError, ValueError, RuntimeError, IndexError):
        if not packs:
            raise
        sdpa_again(model)  # as training does where an architecture's own code does not read packed rows
        update = update_bytes(packed=False)

    # Sampling, of as many completions side by side as there are.
    sampling, length = 0, prompt + config.max_new_tokens
    if not isinstance(stage, SftStage):
        prompts = -(-(stage.prompts_per_step if isinstance(stage, SamplingStage) else _PROMPTS_OF_PAIRS) // processes)
        rows = min(runtime.max_rows, prompts * stage.samples_per_prompt)
        sampling = _sampling_bytes(mode, model, length, rows=rows, engine=config.rollout.engine)
    is_on_gpu = runtime.device.startswith("cuda") or (runtime.device == "auto" and torch.cuda.is_available())
    return StageMemory(
        stage=stage.label,
        libraries=0 if is_on_gpu else _LIBRARIES_ON_CPU,
        weights=sum(sizes.values()) * itemsize + (num_trained * _WIDE if is_narrow else 0),
        gradients=num_trained * _WIDE,
        optimizer=optimizer,
        frozen=_num_frozen(config, stage, total=sum(sizes.values()), trained=num_trained) * itemsize,
        update=update,
        sampling=sampling,
    )


def _replace_tensors(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Put tensors of the present mode into the places of a model's own; weights get a type."""
    parameters = {
        id(parameter): nn.Parameter(torch.empty(parameter.shape, dtype=dtype)) for parameter in model.parameters()
    }
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            module._parameters[name] = parameters[id(parameter)]
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _num_frozen(config: Config, stage: StageConfig, *, total: int, trained: int) -> int:
    """Return how many weights of a reference or teacher are held beside the policy's: it shares those it can."""
    if isinstance(stage, RlStage) and stage.kl.coef and not stage.kl.reference:
        return trained
    if not (isinstance(stage, DistillStage) or (isinstance(stage, RlStage) and stage.kl.coef)):
        return 0
    (name,) = stage.frozen_models.values()
    return trained if is_of_run(name, config) and config.model.lora is not None else total


def _fullest_batch(stage: StageConfig, prompt: int, completion: int, *, packed: bool, processes: int) -> TokenBatch:
    """Return a micro-batch as full as the stage's become, which share prompts but no token besides."""
    repeats = 1 if isinstance(stage, SftStage) else stage.samples_per_prompt
    together = 2 if isinstance(stage, DpoStage) else 1
    number = stage.prompts_per_step * repeats if isinstance(stage, SamplingStage) else stage.batch_size * together
    number = max(together, -(-number // processes))
    sequences = [([index // repeats] * prompt, [index] * completion) for index in range(number)]
    return token_batches(
        sequences, pad_id=0, tokens_per_batch=stage.tokens_per_batch, together=together, packed=packed
    )[0]


def _update_bytes(mode: FakeTensorMode, model: PreTrainedModel, batch: TokenBatch) -> int:
    """Return what is alive at most while a batch is read and its gradients are formed and handed over."""
    head = model_head(model)
    ids = mode.from_tensor(batch.completion_ids[batch.mask])
    batch = _fake(mode, batch)

    def drop(parameter: Tensor) -> None:
        parameter.grad = None  # gradients are counted by themselves

    def loss(logits: Tensor, rows: slice) -> Tensor:
        with torch.no_grad():
            entropy(logits)
        return -token_logprobs(logits, ids[rows]).sum()

    for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
        parameter.register_post_accumulate_grad_hook(drop)
    model.train()
    live = _LiveBytes(besides=[*model.parameters(), *model.buffers()])
    with mode, live:
        if batch.packed_row is None:  # all are of one length, so that no place is padding
            with head_inputs(head.projection, skip_head=True) as captured:
                completion_logits(model, batch)
            hidden = captured[0].flatten(0, 1)
        else:
            hidden = completion_hidden(model, batch, head)
        head.loss(hidden, loss).backward()
    return live.peak


def _sampling_bytes(
    mode: FakeTensorMode, model: PreTrainedModel, length: int, *, rows: int, engine: EngineConfig
) -> int:
    """Return the bytes of the keys and values, and of the logits, of so many completions sampled side by side."""
    try:
        with mode, _LiveBytes(besides=()), torch.no_grad():
            output = model.eval()(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise cannot_read("model.path", error) from error
    cache = getattr(output, "cache", None) or getattr(output, "past_key_values", None)  # as before transformers 5.24
    layers = getattr(cache, "layers", [])
    kept = {name: [getattr(layer, name, None) for layer in layers] for name in _PER_TOKEN + _PER_ROW}
    per_token, per_row = (
        sum(_size(tensor) for name in names for tensor in tree_leaves(kept[name]) if isinstance(tensor, Tensor))
        for names in (_PER_TOKEN, _PER_ROW)
    )
    chosen = min(rows * int(output.logits.numel()), _SAMPLED_LOGITS) * _BYTES_PER_SAMPLED_LOGIT
    size, limit = (
        rows * (length * per_token + per_row),
        engine.cache_gb if isinstance(engine, TorchEngineConfig) else None,
    )
    return (size if limit is None else min(size, int(limit * 1e9))) + rows * _size(output.logits) + chosen


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    """Return a value with every tensor in it replaced by one of its shape without content."""
    if isinstance(value, Tensor):
        return mode.from_tensor(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _fake(mode, getattr(value, field.name)) for field in fields(value)})
    return tuple(_fake(mode, part) for part in value) if isinstance(value, tuple) else value


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operations inside the block make, while they are alive."""

    def __init__(self, *, besides: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._besides = [tensor.untyped_storage() for tensor in besides]  # held, so that no address is used again
        self._alive = {storage._cdata: 0 for storage in self._besides}  # views of these are nothing new
        self._total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = _computed(function, args, kwargs or {})
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self._alive:
            self._alive[key] = storage.nbytes()
            self._total += storage.nbytes()
            self.peak = max(self.peak, self._total)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._total -= self._alive.pop(key, 0)


def _computed(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what an operation gives; torch knows the shapes of experts' products in bfloat16 only.

    A number that a model reads out of a tensor, to branch on, is 0: tensors have no content here.
    """
    if function is torch.ops.aten._local_scalar_dense.default:
        return 0
    if function is not torch.ops.aten._grouped_mm.default:
        return function(*args, **kwargs)
    first, second, *rest = args
    return function(first.bfloat16(), second.bfloat16(), *rest, **kwargs).to(first.dtype)
