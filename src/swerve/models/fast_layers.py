"""Linear layers, norms and attention that compute what a model's own compute, in less time and memory.

In float32 on a processor, products are made by oneDNN, which comes with torch. It has the wide instructions of all
makers' processors, where the library that torch calls has those of Intel's alone: up to twice as fast on an AMD EPYC.
In bfloat16 on a processor, short sequences are attended by products of whole matrices, where torch's kernel goes
through them in small blocks: its gradients take two to five times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from swerve.functional.logprobs import at_least_float32

# From so many multiplications on a product of oneDNN is faster: it prepares itself for new shapes.
_MANY_WEIGHTS, _MANY = 1 << 11, 1 << 21
# Longer sequences are left to torch's kernel, which skips what is masked.
_SHORT = 512
# Numbers of one matrix of attention scores, which the processor's caches should hold.
_SCORES = 1 << 19
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def use_fast_layers(model: nn.Module) -> None:
    """Let the layers of a model whose code is that of torch's linear ones, or of Llama's norms, be those below."""
    for module in model.modules():
        forward = _FORWARDS.get(_code(type(module)))
        if forward is not None:
            vars(module)["forward"] = MethodType(forward, module)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `states @ weight.T + bias`, as torch's function does."""
    is_made = type(states) is Tensor and states.dtype == weight.dtype  # not one of shards, or without content
    if not (is_made and states.numel() >= many_rows(weight) * weight.shape[1]):
        return nn.functional.linear(states, weight, bias)
    if not torch.is_grad_enabled():
        return _product(states, weight, bias)
    # A product of rows is no view, so that the model's code may change it in place, as Gemma 3n's does.
    rows = states.reshape(-1, states.shape[-1])
    product: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return product.view(*states.shape[:-1], -1)


def many_rows(weight: Tensor) -> float:
    """Return from how many rows on `linear` makes products with this weight by oneDNN; infinity: never."""
    is_made_for = weight.dtype == torch.float32 and weight.device.type == "cpu" and _HAS_ONEDNN
    return _MANY / weight.numel() if is_made_for and weight.numel() >= _MANY_WEIGHTS else math.inf


def attention(
    query: Float[Tensor, "B H W D"],
    key: Float[Tensor, "B K W D"],
    value: Float[Tensor, "B K W E"],
    *,
    scaling: float | None,
    allowed: Bool[Tensor, "W W"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H W E"]:
    """Return softmax(scaling Q K^T) V over what each place may see; scores and softmax are float32.

    Args:
        query: H is a multiple of K: heads h with the same h // (H / K) attend to the same keys.
        key: of the same places.
        value: of the same places.
        scaling: of the scores; None: 1 / sqrt(D).
        allowed: the places (columns) that each place (row) sees; None: itself and those before it.
        dropout: share of the softmax's numbers that are set to 0.
    """
    width = query.shape[2]
    if dropout or not (query.dtype == torch.bfloat16 and query.device.type == "cpu" and width <= _SHORT):
        return nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=allowed,
            dropout_p=dropout,
            is_causal=allowed is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    groups = query.shape[1] // key.shape[1]
    if allowed is None:
        allowed = torch.ones(width, width, dtype=torch.bool).tril()
    bias = torch.zeros(width, width).masked_fill_(~allowed, -torch.inf).repeat(groups, 1)
    inputs = query.reshape(-1, groups * width, query.shape[3]), key.flatten(0, 1), value.flatten(0, 1)
    scaling = query.shape[3] ** -0.5 if scaling is None else scaling
    attended: Tensor = _Attention.apply(*inputs, bias, scaling)  # type: ignore[no-untyped-call]
    return attended.view(*query.shape[:3], -1)


def attention_weights(
    query: Float[Tensor, "n R D"], key: Float[Tensor, "n W D"], bias: Float[Tensor, "*m 1_or_R W"], scaling: float
) -> Float[Tensor, "n R W"]:
    """Return softmax(scaling Q K^T + bias), computed in float32 or float64; the bias is of that type."""
    query, key = at_least_float32(query), at_least_float32(key)
    return torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scaling).softmax(-1)


def _linear_forward(module: Any, states: Tensor) -> Tensor:
    return linear(states, module.weight, module.bias)


def _norm_forward(module: Any, states: Tensor) -> Tensor:
    normed: Tensor = _RmsNorm.apply(states, module.weight, module.variance_epsilon)  # type: ignore[no-untyped-call]
    return normed


def _code(kind: type[nn.Module]) -> tuple[Any, ...]:
    code = getattr(kind.forward, "__code__", None)
    return tuple(getattr(code, name, None) for name in ("co_code", "co_names", "co_consts"))


_FORWARDS = {_code(nn.Linear): _linear_forward, _code(LlamaRMSNorm): _norm_forward}


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `left @ right.T + bias`."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _product(states, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        of_states = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_states = _product(gradient, weight.T)
        left, right = gradient.T, states.T
        if ctx.needs_input_grad[1]:  # the longer factor is to be on the right
            of_weight = _product(left, right) if len(left) <= len(right) else _product(right, left).T
        if ctx.needs_input_grad[2]:
            of_bias = left.sum(1)
        return of_states, of_weight, of_bias


class _RmsNorm(torch.autograd.Function):
    """weight * u with u = x r and r = (mean(x^2) + epsilon)^(-1/2), in float32; u is rounded to the type of x.

    Only x is kept for the backward pass, and a number per token.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = at_least_float32(states)
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = torch.addcmul(size.new_full((1,), epsilon), size, size, value=1 / wide.shape[-1]).rsqrt_()
        ctx.save_for_backward(states, scale, weight)
        return weight * (wide * scale).to(states.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return r (g w - u mean(g w u)), and the sum of g u over the tokens."""
        states, scale, narrow = ctx.saved_tensors
        unit, weight = at_least_float32(states) * scale, narrow.to(scale.dtype)
        product = gradient * unit
        of_weight, shares = product.flatten(0, -2).sum(0), (product @ weight)[..., None]
        of_states = torch.mul(gradient, weight, out=product).addcmul_(unit, shares, value=-1 / unit.shape[-1])
        return of_states.mul_(scale).to(states.dtype), of_weight.to(narrow.dtype), None


class _Attention(torch.autograd.Function):
    """softmax(scaling Q K^T + bias) V for n matrices Q `[R, D]`, K `[W, D]`, V `[W, E]`; the bias is `[R, W]`.

    Only Q, K and V are kept: the backward pass computes the softmax again. It and its gradient are float32, and rounded
    to the type of Q for the products that follow, as in flash attention.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float) -> Tensor:
        ctx.save_for_backward(query, key, value, bias)
        ctx.scaling = scaling
        parts = _parts(query, key, value, size=bias.numel())
        return torch.cat([torch.bmm(attention_weights(q, k, bias, scaling).to(v.dtype), v) for q, k, v in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Of the scores it is P (dP - sum(P dP)) with P their softmax and dP = dO V^T; of Q, K and V it follows."""
        query, key, value, bias = ctx.saved_tensors
        gradients = []
        for q, k, v, of_output in _parts(query, key, value, gradient, size=bias.numel()):
            weights = attention_weights(q, k, bias, ctx.scaling)
            of_weights = torch.bmm(of_output.float(), v.float().transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_scores = of_scores.mul_(ctx.scaling).to(q.dtype)
            of_value = torch.bmm(weights.to(v.dtype).transpose(1, 2), of_output)
            gradients.append((torch.bmm(of_scores, k), torch.bmm(of_scores.transpose(1, 2), q), of_value))
        return (*map(torch.cat, zip(*gradients, strict=True)), None, None)


def _parts(*tensors: Tensor, size: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors, of n matrices each, in parts of few matrices; scores of one have `size` numbers."""
    return zip(*(tensor.split(max(1, _SCORES // size)) for tensor in tensors), strict=True)
