"""The next token of each row by a short forward pass, for the layers of Llama, Mistral, Qwen 2 and Qwen 3.

The forward pass of transformers prepares masks and checks options at every call and attends with a kernel made for
many queries. Decoding asks one query per row, thousands of times, so these layers are run directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from swerve.models.fast_layers import attention_weights, linear
from swerve.models.head import head_tolerance

_KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


class OneTokenForward:
    """The forward pass of one token per row; used once its logits were found equal to the model's own."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Keep the model, which may be divided over processes."""
        self._model: Any = model
        self._is_equal = _own_type(model) in _KNOWN and _rotates_all(model)
        self.usable = False
        self.checked = False
        self._layers: list[_Layer] = []
        # Of each position, cos and then sin, with the sign that its half has.
        self._rotations = torch.empty(0)
        self.read_weights()

    @torch.no_grad()
    def read_weights(self) -> None:
        """Take the weights as they are now; to be called whenever they may have changed."""
        self.usable = self._is_equal and _is_made_for(self._model.model.embed_tokens.weight)
        if self.usable:
            model = self._model.model
            self._layers = [_Layer.of(layer) for layer in model.layers[: self._model.config.num_hidden_layers]]
            self._final_norm = _Norm.of(model.norm)

    def check(self, found: Float[Tensor, "B V"], own: Float[Tensor, "B V"]) -> bool:
        """Return whether logits are the model's own to rounding; where they are not, this is not to be used again."""
        tolerance = head_tolerance(own.dtype)
        self._is_equal = torch.allclose(found, own, rtol=tolerance, atol=tolerance * float(own.abs().amax()))
        self.usable, self.checked = self._is_equal, True
        return self.usable

    def __call__(
        self,
        ids: Int[Tensor, " B"],
        positions: Int[Tensor, "B 1"],
        cache: Cache,
        is_token: Callable[[], Bool[Tensor, "B T"] | None],
    ) -> Float[Tensor, "B V"]:
        """Append a token to each row of the cache and return the logits of the next one.

        Args:
            ids: the tokens.
            positions: theirs.
            cache: of plain layers.
            is_token: returns which columns the rows have tokens in, the new one included; None: all.
        """
        layers: Any = cache.layers
        columns = cache.get_seq_length() + 1
        hidden = self._model.model.embed_tokens(ids)
        rotations = self._rotations_at(positions, hidden, columns)
        capacity = layers[0].capacity(columns)
        if layers[0].bias is None or layers[0].bias.shape[2] != capacity:
            layers[0].bias = self._bias(is_token(), hidden, columns, capacity)
        bias = layers[0].bias
        bias[:, :, columns - 1] = 0
        for layer, cached in zip(self._layers, layers, strict=True):
            hidden = layer(hidden, rotations, cached, bias)
        logits: Tensor = self._model.lm_head(self._final_norm(hidden))
        return logits

    def _bias(self, is_token: Tensor | None, hidden: Tensor, columns: int, capacity: int) -> Tensor:
        """Return what is added to the scores: minus infinity where a row has no token, and behind the last column."""
        shape = (1, 1) if is_token is None else (len(hidden), self._layers[0].num_keys)
        bias = hidden.new_zeros(*shape, capacity, dtype=_wide(hidden.dtype))
        bias[:, :, columns:] = -torch.inf
        if is_token is not None:
            bias[:, :, :columns].masked_fill_(~is_token[:, None], -torch.inf)
        return bias.view(-1, 1, capacity)

    def _rotations_at(self, positions: Tensor, hidden: Tensor, num_columns: int) -> tuple[Tensor, Tensor]:
        """Return what turns queries and keys at these positions, all of them below `num_columns`."""
        if len(self._rotations) < num_columns or self._rotations.device != hidden.device:
            every = torch.arange(2 * num_columns, device=hidden.device)
            cos, sin = (values[0] for values in self._model.model.rotary_emb(hidden, every[None]))
            half = cos.shape[-1] // 2
            self._rotations = torch.cat([cos, -sin[:, :half], sin[:, half:]], dim=-1)
        cos, turned = self._rotations[positions].chunk(2, dim=-1)
        return cos, turned


def _as(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `values.to(dtype)`, which takes its time even where there is nothing to do."""
    return values if values.dtype == dtype else values.to(dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type that norms and softmax are computed in."""
    return torch.promote_types(dtype, torch.float32)


def _own_type(model: PreTrainedModel) -> type:
    """Return the model's class, of a divided one the class that it was made of."""
    return type(model).__bases__[1] if isinstance(model, FSDPModule) else type(model)


def _is_made_for(weight: Tensor) -> bool:
    """Whether weights are whole, and not of 16 bits on a GPU, which has kernels for them."""
    if isinstance(weight, DTensor):
        return False
    is_narrow_on_a_cpu = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"
    return is_narrow_on_a_cpu or weight.dtype in (torch.float32, torch.float64)


def _rotates_all(model: Any) -> bool:
    """Whether all of a head is turned, by angles that do not depend on how long the sequences are."""
    rotary = model.model.rotary_emb
    kind = getattr(rotary, "rope_type", "default")
    is_fixed = "dynamic" not in kind and kind != "longrope"
    return is_fixed and bool(2 * len(rotary.inv_freq) == model.model.layers[0].self_attn.head_dim)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    epsilon: Tensor

    @classmethod
    def of(cls, module: Any) -> _Norm:
        weight: Tensor = module.weight
        return cls(weight, weight.new_full((1,), module.variance_epsilon, dtype=_wide(weight.dtype)))

    def __call__(self, states: Tensor) -> Tensor:
        """Return the states over their root mean square, weighted; five passes where `rms_norm` has seven."""
        size = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=self.epsilon.dtype)
        scale = torch.addcmul(self.epsilon, size, size, value=1 / states.shape[-1]).rsqrt_()
        return _as(states * scale, states.dtype).mul_(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A decoder layer as plain functions of tensors: looking up modules takes as long as small products."""

    input_norm: _Norm
    projections: tuple[Callable[[Tensor], Tensor], ...]
    """Queries, keys, values and output."""
    head_norm: _Norm | None
    """Of queries and keys side by side; None where the model has none."""
    scaling: float
    head_dim: int
    num_keys: int
    """Heads of keys."""
    mlp_norm: _Norm
    gate: Callable[[Tensor], Tensor]
    up: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        queries, keys = (module.out_features // attention.head_dim for module in (attention.q_proj, attention.k_proj))
        head_norm = None
        if hasattr(attention, "q_norm"):
            weights = [attention.q_norm.weight.expand(queries, -1), attention.k_norm.weight.expand(keys, -1)]
            head_norm = _Norm(torch.cat(weights), _Norm.of(attention.q_norm).epsilon)
        return cls(
            input_norm=_Norm.of(layer.input_layernorm),
            projections=tuple(
                _linear(module) for module in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
            ),
            head_norm=head_norm,
            scaling=attention.scaling,
            head_dim=attention.head_dim,
            num_keys=keys,
            mlp_norm=_Norm.of(layer.post_attention_layernorm),
            gate=_linear(mlp.gate_proj),
            up=_linear(mlp.up_proj),
            down=_linear(mlp.down_proj),
            activation=mlp.act_fn,
        )

    def __call__(self, hidden: Tensor, rotations: tuple[Tensor, Tensor], cached: Any, bias: Tensor) -> Tensor:
        hidden = hidden + self._attend(self.input_norm(hidden), rotations, cached, bias)
        normed = self.mlp_norm(hidden)
        return hidden.add_(self.down(self.activation(self.gate(normed)).mul_(self.up(normed))))

    def _attend(self, hidden: Tensor, rotations: tuple[Tensor, Tensor], cached: Any, bias: Tensor) -> Tensor:
        rows, width, num_keys = len(hidden), self.head_dim, self.num_keys
        queries, keys, values = (project(hidden) for project in self.projections[:3])
        both = torch.cat([queries, keys], dim=1).view(rows, -1, width)
        if self.head_norm is not None:
            both = self.head_norm(both)
        cos, turned = rotations
        both = (both * cos).add_(both.roll(width // 2, dims=-1).mul_(turned))
        cached.update(both[:, -num_keys:, None], values.view(rows, num_keys, 1, width))
        # The whole buffers, whose unused columns the bias leaves out: a matrix cut out of them is read more slowly.
        all_keys, all_values = (buffer.flatten(0, 1) for buffer in cached.buffers)
        queries = both[:, :-num_keys].reshape(rows * num_keys, -1, width)
        attended = _as(attention_weights(queries, all_keys, bias, self.scaling), values.dtype) @ all_values
        return self.projections[3](attended.view(rows, -1))


def _linear(module: nn.Module) -> Callable[[Tensor], Tensor]:
    if type(module) is nn.Linear and not (module._forward_hooks or module._forward_pre_hooks):
        return partial(linear, weight=module.weight, bias=module.bias)
    return module
