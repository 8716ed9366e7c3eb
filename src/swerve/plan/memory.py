"""How much memory work takes, by part: a full micro-batch of a model without content, and sums over its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from swerve.batch import TokenBatch, token_batches
from swerve.config.engines import TorchEngineConfig
from swerve.config.recipe import Config
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import SamplingStage
from swerve.config.stages import DistillStage, DpoStage, RlStage, StageConfig
from swerve.config.supervised_stages import RejectStage, SftStage
from swerve.errors import ConfigError
from swerve.models.adapter import new_adapter
from swerve.models.fast_layers import use_fast_layers
from swerve.models.folder_checks import cannot_read, quiet_transformers
from swerve.models.model_folder import resolve_device
from swerve.models.packed_attention import sdpa_again, use_packed_attention
from swerve.plan.empty_model import (
    FAULTS,
    empty_model,
    kept_bytes,
    num_weights,
    over_layers,
    reading_bytes,
    update_bytes,
)
from swerve.text import gigabytes
from swerve.train.disk import moments_bytes
from swerve.train.replicated_model import checkpoint_activations, trained_names
from swerve.train.sharded_model import decoder_layers

_WIDE, _NARROW = 4, 2
_PROMPTS_OF_PAIRS = 64
"""How many prompts a dpo stage samples from at a time."""
_LONGEST_COMPLETION = 1 << 21
"""Tokens of a completion that is counted."""
_SAMPLED_LOGITS = 1 << 22
"""How many logits are sampled from at a time; see `swerve.rollout.decoding.sample_tokens`."""
_BYTES_PER_SAMPLED_LOGIT = 24
_LIBRARIES_ON_CPU = 340_000_000
"""Bytes of what torch, transformers and oneDNN load and set up until the first step is done; measured with a model of
100,000 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """What each process of a stage holds at its peak, in bytes."""

    stage: str
    weights: int
    """All that compute, and with `runtime.precision: bfloat16` float32 copies of those that are trained."""
    gradients: int = 0
    """Of the trained weights, float32; not while sampling."""
    optimizer: int = 0
    """AdamW's two moments of the trained weights."""
    frozen: int = 0
    """A reference, a teacher or another model's output head, as far as it is not in memory already."""
    update: int
    """What reading a micro-batch, and forming its gradients where it is learned, takes beyond the above."""
    sampling: int
    """Of the embedded engine: keys and values of the completions that are sampled side by side, and their logits; of a
    model that is divided over processes also its whole weights, which it samples with."""
    gathered: int = 0
    """Of such a model: what an update holds of the others' weights, and of gradients before they are summed."""
    libraries: int = 0
    """On a processor, beyond what the program takes when it has started."""

    @property
    def held(self) -> int:
        """What is held all the time."""
        return self.weights + self.optimizer + self.frozen + self.libraries

    @property
    def updating(self) -> int:
        """What is held at most beside that while a micro-batch is read or learned."""
        return self.gradients + self.gathered + self.update

    @property
    def peak(self) -> int:
        """All that is held at once: an update and sampling take turns."""
        return self.held + max(self.updating, self.sampling)

    @property
    def parts(self) -> dict[str, int]:
        """The parts that are not empty, by name."""
        names = ("weights", "gradients", "optimizer", "frozen", "gathered", "update", "sampling", "libraries")
        return {name: size for name in names if (size := getattr(self, name))}

    def shown(self) -> str:
        """Return the parts as a line's end, in GB of 10^9 bytes."""
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in self.parts.items())


def keys_to_lower(memory: StageMemory, available: int, config: Config) -> str:
    """Return what of a recipe to change where its training needs more than a device has: the largest part.

    Args:
        memory: what the training needs.
        available: bytes of the device.
        config: the recipe.
    """
    runtime, lora = config.runtime, config.model.lora
    adapter = memory.gradients + memory.optimizer
    if memory.held - memory.libraries + memory.gradients > available:
        divide = "start more processes" if runtime.sharding.kind == "fsdp" else "set runtime.sharding.kind=fsdp"
        if lora is not None and adapter > memory.weights:
            return f"lower model.lora.rank={lora.rank}"
        own = "" if lora is not None else ", of which training holds 16 bytes a weight, train an adapter (model.lora)"
        return f"lower the size of the model{own}, or divide the weights over processes: {divide}"
    if memory.updating > memory.sampling:
        full = runtime.activation_checkpointing == "full"
        return f"lower stages.{memory.stage}.tokens_per_batch" + (
            "" if full else ", or set runtime.activation_checkpointing=full"
        )
    return "lower rollout.engine.cache_gb or runtime.max_rows"


def training_memory(
    config: Config, architecture: PreTrainedConfig, prompt: int, *, available: int | None = None, processes: int = 1
) -> StageMemory:
    """Return what the stage with the highest peak holds at it, in each process.

    Args:
        config: the recipe.
        architecture: of its model.
        prompt: tokens of the longest prompt.
        available: bytes of the device, of which the embedded engine takes half of what is free for its cache where the
            recipe sets no `rollout.engine.cache_gb`; None: as much as `runtime.max_rows` completions take.
        processes: that train together.

    Micro-batches are taken to be full, and completions to be as long as allowed. Measured peaks were within 15%
    (docs/performance.md), where the allocator gives back what is freed.

    Raises:
        ConfigError: the processes cannot be divided as the recipe says, or a completion is absurdly long.
        CheckpointError: the architecture cannot be built or read.
    """
    if config.max_new_tokens > _LONGEST_COMPLETION:
        raise ConfigError(
            f"max_new_tokens={config.max_new_tokens} is more than any model writes; at most {_LONGEST_COMPLETION} are "
            "planned: lower it"
        )
    engine, is_divided = config.rollout.engine, config.runtime.sharding.kind != "none"
    whole = empty_model(architecture, config.runtime.precision)
    stages = []
    for stage in config.stages:
        memory = _stage_memory(config, stage, architecture, prompt, processes)
        if is_divided:
            memory = _divided(memory, config, whole, processes)
        # The cache takes what is free, and the embedded engine samples with the whole weights of a divided model.
        sampling = memory.sampling
        if available is not None and isinstance(engine, TorchEngineConfig) and engine.cache_gb is None:
            sampling = min(sampling, max(0, available - memory.held) // 2)
        if sampling and is_divided:
            sampling += num_weights(whole) * whole.dtype.itemsize
        stages.append(replace(memory, sampling=sampling))
    return max(stages, key=lambda memory: memory.peak)


def reading_memory(
    architecture: PreTrainedConfig,
    runtime: RuntimeConfig,
    *,
    stage: str,
    length: int,
    cache: float | None,
    is_embedded: bool,
    available: int,
    tokens_per_batch: int = 0,
) -> StageMemory:
    """Return what sampling from a model, or reading it beside another's output head, holds at its peak.

    Args:
        architecture: the model's.
        runtime: its `dtype` and `max_rows` count.
        stage: what the work is called.
        length: tokens of the longest sequence.
        cache: `cache_gb` of the embedded engine.
        is_embedded: whether the embedded engine samples; otherwise nothing is sampled here.
        available: bytes of the device; see `training_memory`.
        tokens_per_batch: of the batches that are read, which are taken to be full; 0: it only samples.

    Raises:
        CheckpointError: the architecture cannot be built or read.
    """
    model = empty_model(architecture, runtime.dtype)
    use_fast_layers(model)
    weights, head, read, sampling = num_weights(model) * model.dtype.itemsize, 0, 0, 0
    if tokens_per_batch:
        head = model.get_output_embeddings().weight.numel() * model.dtype.itemsize
        sequences = [([0] * (length // 2), [0] * (length - length // 2))] * max(1, tokens_per_batch // length)
        (batch,) = token_batches(sequences, pad_id=0, in_order=True)
        (read,) = over_layers(model.eval(), lambda: (reading_bytes(model, batch.to("meta")),))
    if is_embedded:
        sampling = _sampling_bytes(model, length, rows=runtime.max_rows, cache=cache)
        sampling = min(sampling, max(0, available - weights - head) // 2) if cache is None else sampling
    return StageMemory(
        stage=stage, weights=weights, frozen=head, update=read, sampling=sampling, libraries=_libraries(runtime)
    )


def _libraries(runtime: RuntimeConfig) -> int:
    return _LIBRARIES_ON_CPU if resolve_device(runtime.device) == "cpu" else 0


def _divided(memory: StageMemory, config: Config, model: PreTrainedModel, processes: int) -> StageMemory:
    """Return what a process holds where weights, gradients and optimizer states are divided over processes."""
    runtime, sharding = config.runtime, config.runtime.sharding
    if processes % sharding.replicas:
        raise ConfigError(f"runtime.sharding.replicas={sharding.replicas} does not divide the {processes} processes")
    itemsize, layers = model.dtype.itemsize, [num_weights(layer) for layer in decoder_layers(model)]
    outside = num_weights(model) - sum(layers)
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


def trained_model(config: Config, architecture: PreTrainedConfig) -> PreTrainedModel:
    """Return a recipe's model as it is trained, with its adapter, without content."""
    model = empty_model(architecture, config.runtime.precision)
    dtype: Any = model.dtype
    if config.model.lora is not None:
        with torch.device("meta"), quiet_transformers():
            model = new_adapter(model, config.model.lora, seed=0).to(dtype)
    return model


def _stage_memory(
    config: Config, stage: StageConfig, architecture: PreTrainedConfig, prompt: int, processes: int
) -> StageMemory:
    # The model as it is trained.
    runtime = config.runtime
    model = trained_model(config, architecture)
    itemsize, total = model.dtype.itemsize, num_weights(model)
    names = trained_names(model, stage.freeze, key=f"stages.{stage.label}.freeze")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    trained = sum(sizes)
    use_fast_layers(model)
    packs = runtime.rows == "packed" and use_packed_attention(model)
    checkpoint_activations(model, runtime.activation_checkpointing)

    # An update of a full micro-batch; padded, as in training, where an architecture's code does not read packed rows.
    def update_of(*, packed: bool) -> int:
        batch = _fullest_batch(stage, prompt, config.max_new_tokens, packed=packed, processes=processes)
        ids, batch = batch.completion_ids[batch.mask].to("meta"), batch.to("meta")
        return over_layers(model.train(), lambda: (update_bytes(model, batch, ids),))[0]

    try:
        update = update_of(packed=packs)
    except FAULTS:
        sdpa_again(model)
        try:
            update = update_of(packed=False)
        except FAULTS as error:
            raise cannot_read("model.path", error) from error

    # Sampling, of as many completions side by side as there are; a server holds its own.
    sampling, length, engine = 0, prompt + config.max_new_tokens, config.rollout.engine
    if not isinstance(stage, SftStage) and isinstance(engine, TorchEngineConfig):
        prompts = -(-(stage.prompts_per_step if isinstance(stage, SamplingStage) else _PROMPTS_OF_PAIRS) // processes)
        rows = min(runtime.max_rows, prompts * stage.samples_per_prompt)
        sampling = _sampling_bytes(model, length, rows=rows, cache=engine.cache_gb)
    return StageMemory(
        stage=stage.label,
        libraries=_libraries(runtime),
        weights=total * itemsize + (trained * _WIDE if itemsize == _NARROW else 0),
        gradients=trained * _WIDE,
        optimizer=moments_bytes(stage, sizes),
        frozen=_num_frozen(config, stage, total=total, trained=trained) * itemsize,
        update=update,
        sampling=sampling,
    )


def _num_frozen(config: Config, stage: StageConfig, *, total: int, trained: int) -> int:
    """Return how many weights of a reference or teacher are held beside the policy's: it shares those it can."""
    if isinstance(stage, RlStage) and stage.kl.coef and not stage.kl.reference:
        return trained
    has_teacher = isinstance(stage, DistillStage) or (isinstance(stage, RejectStage) and stage.teacher is not None)
    if not (has_teacher or (isinstance(stage, RlStage) and stage.kl.coef)):
        return 0
    (name,) = stage.frozen_models.values()
    return trained if config.is_own(name) and config.model.lora is not None else total


def _fullest_batch(stage: StageConfig, prompt: int, completion: int, *, packed: bool, processes: int) -> TokenBatch:
    """Return a micro-batch as full as the stage's become, which share prompts but no token besides."""
    repeats = 1 if isinstance(stage, SftStage) else stage.samples_per_prompt
    together = 2 if isinstance(stage, DpoStage) else 1
    number = stage.prompts_per_step * repeats if isinstance(stage, SamplingStage) else stage.batch_size * together
    enough = stage.tokens_per_batch // completion + repeats + together
    number = max(together, min(enough, -(-number // processes)))
    sequences = [([index // repeats] * prompt, [index] * completion) for index in range(number)]
    return token_batches(
        sequences, pad_id=0, tokens_per_batch=stage.tokens_per_batch, together=together, packed=packed
    )[0]


def _sampling_bytes(model: PreTrainedModel, length: int, *, rows: int, cache: float | None) -> int:
    """Return the bytes of the keys and values, and of the logits, of so many completions sampled side by side."""
    per_token, per_row = kept_bytes(model)
    num_ids: int = model.get_output_embeddings().weight.shape[0]
    chosen = min(rows * num_ids, _SAMPLED_LOGITS) * _BYTES_PER_SAMPLED_LOGIT
    size = rows * (length * per_token + per_row)
    return (size if cache is None else min(size, int(cache * 1e9))) + rows * num_ids * model.dtype.itemsize + chosen
