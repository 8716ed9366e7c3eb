"""A model whose weights, gradients and optimizer states are divided over the processes, by torch's FSDP2.

Every decoder layer is a group that is gathered when it computes; embeddings, final norm and head are one group that
stays gathered from the forward pass to the end of the backward pass, because losses are formed from its weights outside
the model. Gradients are summed, not averaged: losses carry the denominators of the whole update. Of every micro-batch
they are reduced at once, so that no process ever holds more than its share of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from swerve.config.runtime import RuntimeConfig, ShardingConfig
from swerve.errors import ConfigError
from swerve.models.adapter import has_adapter, trainable_names, whole_tensors
from swerve.models.model_folder import LoadedModel, load_model
from swerve.models.weight_shards import whole_tensor
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World


class ShardedModel(ReplicatedModel):
    """A model of which each process has a part, and the modules trained beside it, which each has whole.

    All processes must make the same forward and backward passes, in the same order, and call every method together.
    """

    needs_equal_batches: ClassVar[bool] = True

    def _place(self, model: PreTrainedModel, world: World, runtime: RuntimeConfig, *, is_trained: bool) -> None:
        """Divide a model, which is whole in every process or mapped from files.

        Raises:
            ConfigError: the architecture has no decoder layers that are known, or some that compute in float32 only.
        """
        self._reshard_layers = runtime.sharding.reshard
        _divide(model, world, runtime, is_trained=is_trained)

    def _groups(self) -> list[FSDPModule]:
        return [module for module in self.model.modules() if isinstance(module, FSDPModule)]

    def _let_go(self) -> None:
        """Drop gathered weights: the model's parameters are this process's parts again."""
        for group in self._groups():
            group.reshard()

    def _train(self, names: Collection[str]) -> None:
        self._let_go()
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)
        self._trained = {name: parameter for name, parameter in self.model.named_parameters() if name in names}

    def sum_gradients(self) -> None:
        """Replace the gradients of the modules beside the model by their sums; the model's are sums already."""
        for module in self.extra_modules.values():
            for parameter in module.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self.world.sum_(parameter.grad)

    def clip_gradients(self, max_norm: float | None) -> float:
        """See `ReplicatedModel.clip_gradients`; the norm is of the whole gradients."""
        gradients = [parameter.grad for parameter in self.named_parameters().values() if parameter.grad is not None]
        divided = [gradient for gradient in gradients if isinstance(gradient, DTensor)]
        whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
        norms = [whole_tensor(torch.nn.utils.get_total_norm(divided))] if divided else []
        norms += [gradient.norm() for gradient in whole]
        total = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
        if max_norm is not None:
            factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
            torch._foreach_mul_([_own(gradient) for gradient in gradients], factor)
        return float(total)

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the model's weights by their names in it, divided as they are: see `write_shards`."""
        self._let_go()
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def follow(self) -> None:
        """Make the next forward pass gather the weights as they are after an update."""
        self._let_go()

    def stream_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `ReplicatedModel.stream_weights`; one tensor at a time is whole, of a model with an adapter all are."""
        if has_adapter(self.model):
            with self.gathered():
                yield from whole_tensors(self.model)
            return
        self._let_go()
        for name, value in self.model.state_dict().items():
            if name not in self.model.all_tied_weights_keys:
                yield name, whole_tensor(value)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold the whole weights in every process inside the block, in the type that the model computes in."""
        groups = self._groups()
        for group in groups:
            group.set_reshard_after_forward(False, recurse=False)
            group.unshard()
        try:
            yield
        finally:
            for group in groups:
                group.reshard()
                group.set_reshard_after_forward(
                    self._reshard_layers and group is not cast(Any, self.model), recurse=False
                )

    def load_weights(self, other: PreTrainedModel) -> None:
        """Take over the weights of a model of the same architecture that is not divided."""
        self._let_go()
        values = other.state_dict()
        with torch.no_grad():
            for name, own in self.model.state_dict().items():
                _own(own).copy_(_part(own, values[name]))

    def load_trainer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """See `ReplicatedModel.load_trainer_state`; of whole tensors each process takes its part."""
        parameters = self.named_parameters()
        parts = {key: _like(parameters[key.rpartition("/")[0]], value) for key, value in state["optimizer"].items()}
        super().load_trainer_state(optimizer, {**state, "optimizer": parts})

    def frozen_copy(self) -> None:
        """Return None: a divided model cannot be copied, and what is frozen is loaded."""
        return


def check_offload(sharding: ShardingConfig, device: str) -> None:
    """Check that there is a CUDA device whose memory can be spared.

    Raises:
        ConfigError: the recipe asks for it on a machine without one.
    """
    if sharding.offload and not device.startswith("cuda"):
        raise ConfigError(
            "runtime.sharding.offload=true spares the memory of a CUDA device, which this machine lacks; leave it out"
        )


def _divide(model: PreTrainedModel, world: World, runtime: RuntimeConfig, *, is_trained: bool) -> None:
    """Divide a model's weights, in place; those that are trained become float32, the others what it computes in."""
    settings = runtime.sharding
    check_offload(settings, world.device)
    narrow = runtime.precision == "bfloat16"
    wide = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    if narrow and any(wide.intersection(name.split(".")) for name, _ in model.named_parameters()):
        raise ConfigError(
            f"runtime.sharding.kind=fsdp: {type(model).__name__} computes in float32 in {', '.join(sorted(wide))}; "
            "set runtime.precision=float32, or sharding.kind=none"
        )
    options: dict[str, Any] = {
        "mesh": world.mesh(settings.replicas),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if narrow
        else MixedPrecisionPolicy(),
        "offload_policy": CPUOffloadPolicy() if settings.offload else OffloadPolicy(),
    }
    narrow_type = torch.bfloat16 if narrow else torch.float32
    trained = set(trainable_names(model)) if is_trained else set[str]()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)  # of these FSDP2 takes the type of the gradients, once
    types = {
        id(parameter): torch.float32 if name in trained else narrow_type for name, parameter in model.named_parameters()
    }
    for part in [*decoder_layers(model), model]:
        for parameter in part.parameters():
            if not isinstance(parameter, DTensor):
                parameter.data = parameter.data.to(types[id(parameter)]).contiguous()
        fully_shard(part, reshard_after_forward=settings.reshard and part is not model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sum that also multiplies


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules that are gathered one at a time.

    Raises:
        ConfigError: transformers does not say which they are.
    """
    names = set(model._no_split_modules or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    layers = layers or [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"runtime.sharding.kind=fsdp: {type(model).__name__} has no decoder layers that transformers names; "
            "set sharding.kind=none"
        )
    inner = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if id(layer) not in inner]


def model_class(runtime: RuntimeConfig) -> type[ReplicatedModel]:
    """Return what holds a model in training."""
    return ShardedModel if runtime.sharding.kind == "fsdp" else ReplicatedModel


def load_for(runtime: RuntimeConfig, path: Path | str, world: World) -> LoadedModel:
    """Load a model that `model_class` is to hold: float32, or mapped from its files in the type that they have.

    Raises:
        CheckpointError: see `load_model`.
    """
    if runtime.sharding.kind == "fsdp":
        return load_model(path, device="cpu", dtype="auto", mapped_by=world)
    return load_model(path, device=world.device, dtype="float32")


def _own(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _part(like: Tensor, whole: Tensor) -> Tensor:
    """Return this process's rows of a whole tensor that is to be divided as another is."""
    if isinstance(whole, DTensor):
        return whole.to_local()
    if not isinstance(like, DTensor) or not whole.dim():
        return whole
    mesh = like.device_mesh
    parts = whole.chunk(mesh.size(mesh.ndim - 1))
    rank = mesh.get_local_rank(mesh.ndim - 1)
    return parts[rank] if rank < len(parts) else whole[:0]


def _like(parameter: Tensor, whole: Tensor) -> Tensor:
    """Return a state of a parameter, divided as it is; a number of steps stays what it is."""
    if isinstance(whole, DTensor):
        return whole
    if not isinstance(parameter, DTensor) or not whole.dim():
        return whole.clone()  # not in the memory of a file
    own = _part(parameter, whole).to(parameter.device, copy=True)
    return DTensor.from_local(
        own,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
