"""A model without content: tensors that have shapes alone, whose bytes are counted while it works.

What is alive is counted for one and for two of an architecture's layers; the others are taken to add as much.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from swerve.batch import TokenBatch, completion_logits, read_packed
from swerve.errors import CheckpointError, said_by
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.models.folder_checks import cannot_read, quiet_transformers
from swerve.models.head import head_inputs, model_head
from swerve.train.sharded_model import decoder_layers

_PER_TOKEN, _PER_ROW = ("keys", "values"), ("conv_states", "recurrent_states")
"""What the layers of a cache keep."""
_HEAD_ROWS = 512
"""Tokens of which the output head's work is done: it takes them in chunks, all alike."""
_NUM_EXPERTS = "num_experts", "num_local_experts", "n_routed_experts"
"""What architectures call the number of a layer's experts."""
FAULTS = (TypeError, ValueError, RuntimeError, IndexError)
"""Of an architecture's code."""


def empty_model(architecture: PreTrainedConfig, dtype: str) -> PreTrainedModel:
    """Return a model without content.

    Raises:
        CheckpointError: its configuration is wrong.
    """
    untyped: Any = AutoModelForCausalLM
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    try:
        with torch.device("meta"), quiet_transformers():
            model: PreTrainedModel = untyped.from_config(architecture, trust_remote_code=False, dtype=kind)
    except Exception as error:  # the architectures raise types of their own, without a common base
        raise CheckpointError(
            f"cannot build the model of model.path: its config.json is wrong: {said_by(error)}"
        ) from error
    return model


def num_weights(module: nn.Module) -> int:
    """Return how many weights a module has."""
    return sum(int(parameter.numel()) for parameter in module.parameters())


def used_weights(model: PreTrainedModel) -> int:
    """Return how many weights a token is read with: of a mixture of experts those of the experts that it chooses."""
    text: Any = model.config.get_text_config()
    chosen = getattr(text, "num_experts_per_tok", None) or getattr(text, "top_k_experts", None)
    number = next((found for name in _NUM_EXPERTS if (found := getattr(text, name, None))), None)
    if not (chosen and number):
        return num_weights(model)
    experts: int = sum(int(weight.numel()) for name, weight in model.named_parameters() if ".experts." in name)
    return num_weights(model) - experts + experts * int(chosen) // int(number)


def layer_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the module that holds a model's decoder layers; an empty one where they are not in a list."""
    first = decoder_layers(model)[0]
    lists = (one for one in model.modules() if isinstance(one, nn.ModuleList))
    return next((one for one in lists if first in [*one]), nn.ModuleList())


def over_layers(model: PreTrainedModel, measure: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Return numbers of a model that are sums over its layers, from runs of one and of two of them.

    Layers that have the same parts are taken to count alike.
    """
    place = layer_list(model)
    if len(place) < 2:
        return measure()
    whole = dict(place._modules)

    def measured(*chosen: nn.Module) -> tuple[int, ...]:
        place._modules = {str(number): layer for number, layer in enumerate(chosen)}
        try:
            return measure()
        finally:
            place._modules = dict(whole)

    first, *rest = place
    total, more = list(alone := measured(first)), dict[object, tuple[int, ...]]()
    for layer in rest:
        kind = _kind(layer)
        more[kind] = more.get(kind) or measured(first, layer)
        total = [number + both - one for number, both, one in zip(total, more[kind], alone, strict=True)]
    return tuple(total)


def _kind(layer: nn.Module) -> object:
    """Return what layers that count alike have in common: their parts, and whether they are run again."""
    parts = [(name, *one.shape, one.requires_grad) for name, one in layer.named_parameters()]
    return type(layer), "forward" in vars(layer), tuple(parts)


def reading_bytes(model: PreTrainedModel, batch: TokenBatch) -> int:
    """Return what is alive at most while a batch is read."""
    live = _LiveBytes(besides=[*model.parameters(), *model.buffers()])
    with torch.no_grad(), _kernels(), live, head_inputs(model_head(model).projection, skip_head=True):
        completion_logits(model, batch)
    return live.peak


def update_bytes(model: PreTrainedModel, batch: TokenBatch, ids: Tensor) -> int:
    """Return what is alive at most while a batch is read and its gradients are formed and handed over."""
    head = model_head(model)

    def drop(parameter: Tensor) -> None:
        parameter.grad = None  # gradients are counted by themselves

    def loss(logits: Tensor, rows: slice) -> Tensor:
        with torch.no_grad():
            entropy(logits)
        return -token_logprobs(logits, ids[rows]).sum()

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    hooks = [parameter.register_post_accumulate_grad_hook(drop) for parameter in trained]
    live = _LiveBytes(besides=[*model.parameters(), *model.buffers()])
    with _kernels(), live:
        with head_inputs(head.projection, skip_head=True) as captured:
            (completion_logits if batch.packed_row is None else read_packed)(model, batch)
        hidden = captured[0].flatten(0, 1)  # all are of one length: no place is padding
        head.loss(hidden[:_HEAD_ROWS], loss).backward()
    for hook in hooks:
        hook.remove()
    return live.peak


def kept_bytes(model: PreTrainedModel) -> tuple[int, int]:
    """Return what a model's cache keeps of each token, and of each completion, in bytes.

    Raises:
        CheckpointError: its code cannot read a token.
    """

    def kept() -> tuple[int, ...]:
        output = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device="meta"), use_cache=True)
        cache = getattr(output, "cache", None) or getattr(
            output, "past_key_values", None
        )  # as before transformers 5.24
        layers = getattr(cache, "layers", [])
        tensors = [
            [tensor for layer in layers for name in names for tensor in tree_leaves(getattr(layer, name, None))]
            for names in (_PER_TOKEN, _PER_ROW)
        ]
        return tuple(sum(_size(one) for one in some if isinstance(one, Tensor)) for some in tensors)

    model.eval()
    try:
        with torch.no_grad(), _kernels(), _LiveBytes(besides=()):
            per_token, per_row = over_layers(model, kept)
    except FAULTS as error:
        raise cannot_read("model.path", error) from error
    return per_token, per_row


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@contextmanager
def _kernels() -> Iterator[None]:
    """Keep of attention what torch's kernels keep, not the matrix of scores that tensors without content get."""
    module, kernel = nn.functional, nn.functional.scaled_dot_product_attention
    apply: Any = _Attended.apply
    module.scaled_dot_product_attention = lambda query, key, value, *args, **more: apply(query, key, value)
    try:
        yield
    finally:
        module.scaled_dot_product_attention = kernel


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        attended = query.new_empty(*query.shape[:-1], value.shape[-1])
        ctx.save_for_backward(query, key, value, attended)
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


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
