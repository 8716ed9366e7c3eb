"""The next token of each row by a short forward pass, for the layers of Llama, Mistral, Qwen 2 and Qwen 3.

The forward pass of transformers prepares masks and checks options at every call and attends with a kernel made for
many queries. Decoding asks one query per row, thousands of times, so these layers are run directly.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import rms_norm
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from swerve.models.head import head_tolerance

_KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


class OneTokenForward:
    """The forward pass of one token per row; used once its logits were found equal to the model's own."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Keep the model; types of 16 bits are left to the model's own forward pass, which rounds in other places."""
        self._model: Any = model
        self.usable = type(model) in _KNOWN and model.dtype in (torch.float32, torch.float64) and _rotates_all(model)
        self.checked = False

    def check(self, found: Float[Tensor, "B V"], own: Float[Tensor, "B V"]) -> bool:
        """Return whether logits are the model's own to rounding; where they are not, this is not to be used again."""
        tolerance = head_tolerance(own.dtype)
        self.usable = torch.allclose(found, own, rtol=tolerance, atol=tolerance * float(own.abs().amax()))
        self.checked = True
        return self.usable

    def __call__(
        self,
        ids: Int[Tensor, " B"],
        positions: Int[Tensor, "B 1"],
        cache: Cache,
        is_token: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B V"]:
        """Append a token to each row of the cache and return the logits of the next one.

        Args:
            ids: the tokens.
            positions: theirs.
            cache: of plain layers.
            is_token: which columns the rows have tokens in, the new one included; None: all.
        """
        bias = None
        if is_token is not None:
            bias = torch.zeros(is_token.shape, dtype=self._model.dtype, device=ids.device)
            bias = bias.masked_fill_(~is_token, -torch.inf)[:, None]
        model = self._model.model
        hidden = model.embed_tokens(ids)
        cos, sin = model.rotary_emb(hidden, positions)
        half = cos.shape[-1] // 2
        turned = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        layers: Any = zip(model.layers[: self._model.config.num_hidden_layers], cache.layers, strict=True)
        for layer, cached in layers:
            hidden = hidden + _attend(layer.self_attn, _norm(layer.input_layernorm, hidden), cos, turned, cached, bias)
            mlp, normed = layer.mlp, _norm(layer.post_attention_layernorm, hidden)
            hidden = hidden + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)).mul_(mlp.up_proj(normed)))
        logits: Tensor = self._model.lm_head(_norm(model.norm, hidden))
        return logits


def _rotates_all(model: Any) -> bool:
    return bool(2 * len(model.model.rotary_emb.inv_freq) == model.model.layers[0].self_attn.head_dim)


def _norm(module: Any, hidden: Tensor) -> Tensor:
    return rms_norm(hidden, module.weight.shape, module.weight, module.variance_epsilon)


def _attend(attention: Any, hidden: Tensor, cos: Tensor, turned: Tensor, cached: Any, bias: Tensor | None) -> Tensor:
    rows, width = len(hidden), attention.head_dim
    queries, keys, values = (
        project(hidden).view(rows, -1, width) for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if hasattr(attention, "q_norm"):
        queries, keys = _norm(attention.q_norm, queries), _norm(attention.k_norm, keys)
    num_queries, num_keys = queries.shape[1], keys.shape[1]
    both = torch.cat([queries * attention.scaling, keys], dim=1)
    both = torch.addcmul(both * cos, both.roll(width // 2, dims=-1), turned)
    queries, keys = both[:, :num_queries], both[:, num_queries:]
    all_keys, all_values = cached.update(keys[:, :, None], values[:, :, None])
    scores = queries.reshape(rows * num_keys, -1, width) @ all_keys.flatten(0, 1).transpose(1, 2)
    if bias is not None:
        scores.view(rows, num_queries, -1).add_(bias)
    attended = scores.softmax(-1) @ all_values.flatten(0, 1)
    output: Tensor = attention.o_proj(attended.view(rows, num_queries * width))
    return output
