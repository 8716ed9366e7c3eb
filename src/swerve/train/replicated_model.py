"""A model whose weights are whole in every process: everything that a sharded model would do differently."""

from __future__ import annotations

import copy
import difflib
import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.import_utils import is_liger_kernel_available

from swerve.batch import TokenBatch, checked_head, completion_hidden, token_batches
from swerve.config.runtime import DEFAULT_RUNTIME, RuntimeConfig
from swerve.errors import ConfigError, MismatchError, MissingExtraError
from swerve.models.adapter import has_adapter, sharing_copy, trainable_names, whole_tensors
from swerve.models.fast_layers import use_fast_layers
from swerve.models.head import Head, head_tolerance
from swerve.models.packed_attention import use_attention
from swerve.train.packed_rows import reads_packed_rows
from swerve.world import World


class ReplicatedModel:
    """A model and the modules trained beside it; each process has all weights, gradients are summed over processes.

    With `runtime.precision: bfloat16` the model computes in bfloat16, and what is trained, saved and summed are float32
    weights beside it, which it follows after every update.

    All processes must call the methods that name weights or gradients, in the same order.
    """

    needs_equal_batches: ClassVar[bool] = False
    """Whether all processes must make the same number of forward and backward passes."""

    def __init__(
        self,
        model: PreTrainedModel,
        world: World,
        *,
        runtime: RuntimeConfig = DEFAULT_RUNTIME,
        attention: str = "auto",
        is_trained: bool = True,
    ) -> None:
        """Take a model, which must not be used beside it any more.

        Args:
            model: with float32 weights.
            world: the processes.
            runtime: how it computes.
            attention: a recipe's `model.attention`.
            is_trained: False: there are no weights beside those that it computes with.

        Raises:
            ConfigError: the model cannot attend, or keep activations, in the way that is asked for.
            SwerveError: see `use_liger`.
        """
        self._place(model, world, runtime, is_trained=is_trained)
        self.model = model
        self.head = checked_head(model)
        """Forms logits from hidden states a chunk at a time; its weight is whole where a loss is formed."""
        if runtime.liger:
            use_liger(model, self.head)
        else:
            use_fast_layers(model)
        self.world = world
        self.extra_modules: dict[str, nn.Module] = {}
        """What the stage trains beside the model, by name."""
        self._runtime = runtime
        self._trained: dict[str, nn.Parameter] = {}
        self._copies: dict[str, tuple[nn.Parameter, RemovableHandle]] = {}
        """The float32 copies among them, each with what hands gradients over to it."""
        is_flash = attention.startswith("flash")
        if attention != "auto" and not is_flash:
            use_attention(model, attention)
        packs = runtime.rows == "packed" and (is_flash or reads_packed_rows(model, self.head))
        self._train(set(trained_names(model, ())) if is_trained else set())
        if is_flash:  # which has no float32
            use_attention(model, attention)
            packs = packs and reads_packed_rows(model, self.head)
        self.packs = packs
        """Whether the model reads packed rows: it was asked to, and gives what it gives for padded ones."""
        if is_trained:
            checkpoint_activations(model, runtime.activation_checkpointing)

    def _place(self, model: PreTrainedModel, world: World, runtime: RuntimeConfig, *, is_trained: bool) -> None:
        """Put the weights where they are to be; here they are there already."""

    def train_all_but(self, freeze: Sequence[str], *, key: str) -> None:
        """Train from now on the adapter, or all weights of a model without one, but for what is frozen.

        Frozen weights have no gradients, and with `runtime.precision: bfloat16` no float32 copies: they are rounded.

        Args:
            freeze: patterns of names of parameters.
            key: what error messages call them.

        Raises:
            ConfigError: a pattern fits no parameter, or all are frozen.
        """
        self._train(set(trained_names(self.model, freeze, key=key)))

    def _train(self, names: Collection[str]) -> None:
        wide = tuple(getattr(self.model, "_keep_in_fp32_modules", None) or ())
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)
            if name not in names and name in self._copies:
                self._copies.pop(name)[1].remove()
            if self._runtime.precision != "bfloat16" or any(part in name.split(".") for part in wide):
                continue  # transformers keeps some modules in float32
            if name in names and name not in self._copies:
                copied = nn.Parameter(parameter.detach().float())
                handle = parameter.register_post_accumulate_grad_hook(partial(_hand_over, copied))
                self._copies[name] = copied, handle
            parameter.data = parameter.data.to(torch.bfloat16)
        parameters = {name: parameter for name, parameter in self.model.named_parameters() if name in names}
        self._trained = {**parameters, **{name: copied for name, (copied, _) in self._copies.items()}}

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return every trained parameter by its name, those beside the model included."""
        extra = {
            f"{module}.{name}": parameter
            for module, values in self.extra_modules.items()
            for name, parameter in values.named_parameters()
        }
        return {**self._trained, **extra}

    def completion_hidden(self, batch: TokenBatch) -> Float[Tensor, "N D"]:
        """Return what the head is given at each real completion token of a batch, packed or not."""
        most = self.world.max if self.needs_equal_batches else int
        return completion_hidden(self.model, batch if self.packs else batch.padded(), self.head, most=most)

    def begin_update(self, *, drops: bool) -> None:
        """Put the model into training mode if it is to have dropout (`drops`), else into evaluation mode."""
        self.model.train(drops)

    def sum_gradients(self) -> None:
        """Replace every gradient by its sum over the processes."""
        if self.world.size == 1:
            return
        for parameter in self.named_parameters().values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.world.sum_(parameter.grad)

    def clip_gradients(self, max_norm: float | None) -> float:
        """Scale the gradients to an L2 norm of at most `max_norm` (None: leave them); return the norm before."""
        limit = float("inf") if max_norm is None else max_norm
        return float(torch.nn.utils.clip_grad_norm_(self.named_parameters().values(), limit))

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the model's whole weights by their names in it, tied ones under each of their names."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        trained = {
            name: self._trained.get(names[id(parameter)], parameter).detach()
            for name, parameter in self.model.named_parameters(remove_duplicate=False)
        }
        return {name: trained.get(name, value) for name, value in self.model.state_dict().items()}

    def follow(self) -> None:
        """Make the model compute with the weights as they are after an update."""
        for name, parameter in self.model.named_parameters():
            trained = self._trained.get(name, parameter)
            if parameter is not trained:
                parameter.data.copy_(trained.data)

    def stream_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the whole weights one at a time, for an engine to load, by their Hugging Face names.

        Tied ones come once, under their first name; an adapter is added to its base.
        """
        for name, value in whole_tensors(self.model) if has_adapter(self.model) else self.whole_weights().items():
            if name not in self.model.all_tied_weights_keys:
                yield name, value

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold the whole weights in this process inside the block, for an engine that samples with the model itself."""
        yield

    def load_weights(self, other: PreTrainedModel) -> None:
        """Take over the weights of a model of the same architecture."""
        self.model.load_state_dict(other.state_dict())
        for name, parameter in other.named_parameters():
            if name in self._trained:
                self._trained[name].data.copy_(parameter.data)

    def trainer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
        """Return the optimizer's whole tensors as `{parameter}/{entry}`, and those of each further module."""
        entries = {
            f"{name}/{entry}": value.detach() if isinstance(value, Tensor) else torch.tensor(value)
            for name, parameter in self.named_parameters().items()
            for entry, value in optimizer.state.get(parameter, {}).items()
        }
        modules = {
            name: {key: value.detach() for key, value in module.state_dict().items()}
            for name, module in self.extra_modules.items()
        }
        return {"optimizer": entries, **modules}

    def load_trainer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put what `trainer_state` returned into the optimizer and the further modules, in place of what is there.

        Raises:
            KeyError: optimizer state for a parameter that there is not; its name.
            RuntimeError: the state of a further module does not fit.
        """
        parameters = self.named_parameters()
        optimizer.state.clear()
        for key, value in state["optimizer"].items():
            name, _, entry = key.rpartition("/")
            if entry == "step":  # of bitsandbytes an integer
                kept: Any = value.cpu() if value.is_floating_point() else int(value)
            else:
                kept = value.to(parameters[name].device)
            optimizer.state[parameters[name]][entry] = kept
        for name, module in self.extra_modules.items():
            module.load_state_dict(state[name])

    def frozen(self) -> ReplicatedModel:
        """Set the model to evaluation without gradients, for good; return this object."""
        self.model.eval().requires_grad_(False)
        return self

    def frozen_copy(self) -> ReplicatedModel | None:
        """Return a frozen copy of the model as it is now, with the same memory for weights that are not trained.

        None: it cannot be copied, and has to be loaded.
        """
        frozen = copy.copy(self)
        frozen.model = sharing_copy(self.model)
        frozen.head = replace(self.head, projection=cast(Any, frozen.model).get_output_embeddings())
        frozen.extra_modules, frozen._trained, frozen._copies = {}, {}, {}
        return frozen.frozen()


def trained_names(model: PreTrainedModel, freeze: Sequence[str], *, key: str = "freeze") -> list[str]:
    """Return the names of the parameters that are trained: see `ReplicatedModel.train_all_but`.

    Raises:
        ConfigError: a pattern fits no parameter, or all are frozen.
    """
    names = trainable_names(model)
    for pattern in freeze:
        if not fnmatch.filter(names, pattern):
            close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
            raise ConfigError(
                f"{key}: no parameter that is trained has a name like '{pattern}'; near it: {', '.join(close)}"
            )
    trained = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in freeze)]
    if not trained:
        raise ConfigError(f"{key}: {', '.join(freeze)} would freeze every parameter; leave some to train")
    return trained


def _hand_over(trained: nn.Parameter, parameter: Tensor) -> None:
    assert parameter.grad is not None
    if trained.grad is None:
        trained.grad = parameter.grad.to(trained.dtype)
    else:
        trained.grad += parameter.grad
    parameter.grad = None


def check_liger() -> None:
    """Check that Liger Kernel can be used.

    Raises:
        MissingExtraError: it is not installed.
        ConfigError: there is no CUDA device.
    """
    if not is_liger_kernel_available():
        raise MissingExtraError("liger-kernel", "liger", "runtime.liger")
    if not torch.cuda.is_available():
        raise ConfigError("runtime.liger=true: its kernels need a CUDA device; leave it out")


def use_liger(model: PreTrainedModel, head: Head) -> None:
    """Put Liger Kernel's layers in the place of a model's own; its losses, which replace the head, are left out.

    Raises:
        ConfigError, MissingExtraError: see `check_liger`.
        MismatchError: states or gradients differ by more than rounding from those of the model's own layers.
    """
    check_liger()
    from transformers.integrations.liger import apply_liger_kernel

    model.eval()
    own = _states_and_gradient(model, head)
    apply_liger_kernel(model, {"cross_entropy": False, "fused_linear_cross_entropy": False})
    found, limit = _states_and_gradient(model, head), 10 * head_tolerance(model.dtype)
    if any(float((new - old).norm() / old.norm()) > limit for new, old in zip(found, own, strict=True)):
        raise MismatchError(
            f"runtime.liger=true: the layers of liger-kernel give {type(model).__name__} other states or gradients "
            "than its own; leave it out"
        )


def _states_and_gradient(model: PreTrainedModel, head: Head) -> tuple[Tensor, Tensor]:
    (batch,) = token_batches([((0, 1, 2), (1, 0)), ((1,), (2, 0, 1))], pad_id=0)
    hidden = completion_hidden(model, batch.to(model.device), head)
    embeddings: Any = model.get_input_embeddings()
    return hidden.detach(), torch.autograd.grad(hidden.sin().sum(), embeddings.weight)[0]


def checkpoint_activations(model: PreTrainedModel, layers: Literal["none", "every_second", "full"]) -> None:
    """Keep of some decoder layers only their inputs for the backward pass, which runs these layers again.

    transformers does so in training mode only, which turns on what dropout a layer's own code has.

    Raises:
        ConfigError: the architecture cannot do that.
    """
    if layers == "none":
        return
    able = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not (able and model.supports_gradient_checkpointing):
        raise ConfigError(
            f"runtime.activation_checkpointing={layers}: {type(model).__name__} cannot run layers again; use none"
        )
    for layer in able if layers == "full" else able[::2]:
        vars(layer)["forward"] = MethodType(_run_again, layer)


def _run_again(layer: GradientCheckpointingLayer, *args: Any, **kwargs: Any) -> Any:
    """Run a layer, and again in the backward pass."""
    forward = type(layer).forward
    if not torch.is_grad_enabled():
        return forward(layer, *args, **kwargs)
    return checkpoint(partial(forward, layer, **kwargs), *args, use_reentrant=False)
