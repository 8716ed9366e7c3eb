"""The next token of each row by a short forward pass, for the layers of Llama, Mistral, Qwen 2 and Qwen 3.

The forward pass of transformers prepares masks and checks options at every call and attends with a kernel made for
many queries. Decoding asks one query per row, thousands of times, so these layers are run directly.
"""

from __future__ import annotations

from collections.abc import Callable
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

from swerve.models import fast_layers
from swerve.models.fast_layers import attention_weights, many_rows
from swerve.models.head import head_tolerance, num_ids_of

_KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


class OneTokenForward:
    """The forward pass of one token per row; used once its logits were found equal to the model's own."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Keep the model, which may be divided over processes; it is used once the weights were read."""
        self._model: Any = model
        kind = type(model).__bases__[1] if isinstance(model, FSDPModule) else type(model)
        self._is_equal = kind in _KNOWN and _rotates_all(model)
        self.usable = False
        self.checked = False
        self._layers: list[Callable[..., Tensor]] = []
        # Of each position, cos and then sin, with the sign that its half has.
        self._rotations = torch.empty(0)

    @torch.no_grad()
    def read_weights(self) -> None:
        """Take the weights as they are now; to be called whenever they may have changed."""
        self.usable = False
        if self._is_equal:
            # Made for whole weights, and not for 16 bits on a GPU, which has kernels for them.
            weight = self._model.model.embed_tokens.weight
            is_narrow_on_a_cpu = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"
            self.usable = not isinstance(weight, DTensor) and (is_narrow_on_a_cpu or _is_wide(weight))
        if self.usable:
            model = self._model.model
            self._layers = [_layer(module) for module in model.layers[: self._model.config.num_hidden_layers]]
            self._final_norm, self._head = _norm(model.norm), _linear(self._model.lm_head)

    def check(self, logits: Float[Tensor, "B V"], own: Float[Tensor, "B V"]) -> bool:
        """Return whether logits are the model's own to rounding; where they are not, this is not to be used again."""
        tolerance = head_tolerance(own.dtype)
        self._is_equal = torch.allclose(logits, own, rtol=tolerance, atol=tolerance * float(own.abs().amax()))
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
        return self._head(self._final_norm(hidden))[:, : num_ids_of(self._model)]

    def _bias(self, is_token: Tensor | None, hidden: Tensor, columns: int, capacity: int) -> Tensor:
        """Return what is added to the scores: minus infinity where a row has no token, and behind the last column."""
        shape = (1, 1) if is_token is None else (len(hidden), self._model.config.num_key_value_heads)
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


def _rotates_all(model: Any) -> bool:
    """Whether all of a head is turned, by angles that do not depend on how long the sequences are."""
    rotary = model.model.rotary_emb
    kind = getattr(rotary, "rope_type", "default")
    is_fixed = "dynamic" not in kind and kind != "longrope"
    return is_fixed and bool(2 * len(rotary.inv_freq) == model.model.layers[0].self_attn.head_dim)


# Functions of tensors alone, made once per call of the engine: looking up modules and their attributes takes as long as
# small products. So does `len` of a tensor.


def _layer(module: Any) -> Callable[[Tensor, tuple[Tensor, Tensor], Any, Tensor], Tensor]:
    """Return a decoder layer as a function of hidden states, rotations, its cache and the bias of the scores."""
    attend, mlp = _attention(module.self_attn, _norm(module.input_layernorm)), module.mlp
    norm, activation = _norm(module.post_attention_layernorm), mlp.act_fn
    gate, up, down = map(_linear, (mlp.gate_proj, mlp.up_proj, mlp.down_proj))

    def layer(hidden: Tensor, rotations: tuple[Tensor, Tensor], cached: Any, bias: Tensor) -> Tensor:
        hidden = attend(hidden, rotations, cached, bias)
        normed = norm(hidden)
        return down(activation(gate(normed)).mul_(up(normed)), added_to=hidden)

    return layer


def _attention(
    module: Any, norm: Callable[[Tensor], Tensor]
) -> Callable[[Tensor, tuple[Tensor, Tensor], Any, Tensor], Tensor]:
    """Return attention, after a norm, as a function that adds it to the hidden states."""
    width, scaling = module.head_dim, module.scaling
    num_queries, num_keys = (each.out_features // width for each in (module.q_proj, module.k_proj))
    projections = (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
    queries_of, keys_of, values_of, output_of = map(_linear, projections)
    head_norm = None
    if hasattr(module, "q_norm"):
        weights = [module.q_norm.weight.expand(num_queries, -1), module.k_norm.weight.expand(num_keys, -1)]
        head_norm = _norm(module.q_norm, torch.cat(weights))
    is_wide = _is_wide(module.q_proj.weight)

    def attend(hidden: Tensor, rotations: tuple[Tensor, Tensor], cached: Any, bias: Tensor) -> Tensor:
        rows, normed = hidden.shape[0], norm(hidden)
        both = torch.cat([queries_of(normed), keys_of(normed)], dim=1).view(rows, -1, width)
        if head_norm is not None:
            both = head_norm(both)
        cos, turned = rotations
        other = both.roll(width // 2, dims=-1)
        # With 16 bits the trainer rounds both products.
        both = (both * cos).addcmul_(other, turned) if is_wide else (both * cos).add_(other.mul_(turned))
        cached.append(both[:, num_queries:], values_of(normed).view(rows, num_keys, width))
        # The whole buffers, whose unused columns the bias leaves out: a matrix cut out of them is read more slowly.
        keys, values = (buffer.flatten(0, 1) for buffer in cached.buffers)
        queries = both[:, :num_queries].reshape(rows * num_keys, -1, width)
        attended = _as(attention_weights(queries, keys, bias, scaling), values.dtype) @ values
        return output_of(attended.view(rows, -1), added_to=hidden)

    return attend


def _norm(module: Any, weight: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return a norm, or one with another weight: states over their root mean square, in five passes of seven."""
    weight = module.weight if weight is None else weight
    share, wide = 1 / weight.shape[-1], _wide(weight.dtype)
    epsilon = weight.new_full((1,), module.variance_epsilon, dtype=wide)

    def norm(states: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=wide)
        scale = torch.addcmul(epsilon, size, size, value=share).rsqrt_()
        return _as(states * scale, states.dtype).mul_(weight)

    return norm


def _linear(module: Any) -> Callable[..., Tensor]:
    """Return a linear layer, or whatever stands in its place, as a function of states and of what it is added to."""
    is_plain = type(module) is nn.Linear and not (module._forward_hooks or module._forward_pre_hooks)
    weight, bias = module.weight, module.bias
    columns, many = weight.t() if is_plain else None, many_rows(weight)
    # With 16 bits the trainer rounds the product before it is added.
    adds_at_once = bias is None and _is_wide(weight)

    def linear(states: Tensor, added_to: Tensor | None = None) -> Tensor:
        if columns is None:
            output: Tensor = module(states)
        elif states.shape[0] >= many:
            output = fast_layers.linear(states, weight, bias)
        elif added_to is not None and adds_at_once:
            return torch.addmm(added_to, states, columns)
        else:
            output = torch.mm(states, columns) if bias is None else torch.addmm(bias, states, columns)
        return output if added_to is None else output.add_(added_to)

    return linear


def _is_wide(weight: Tensor) -> bool:
    return weight.dtype == _wide(weight.dtype)
