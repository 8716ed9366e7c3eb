"""Linear layers and norms that compute what a model's own compute, in less time and memory.

In float32 on a processor, products are made by oneDNN, which comes with torch. It has the wide instructions of all
makers' processors, where the library that torch calls has those of Intel's alone: twice as fast on an AMD EPYC.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from swerve.functional.logprobs import at_least_float32

# From so many multiplications on a product of oneDNN is faster: it prepares itself for new shapes.
_MANY_WEIGHTS, _MANY = 1 << 11, 1 << 21
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def use_fast_layers(model: nn.Module) -> None:
    """Let the layers of a model whose code is that of torch's linear ones, or of Llama's norms, be those below."""
    for module in model.modules():
        forward = _FORWARDS.get(_code(type(module)))
        if forward is not None:
            vars(module)["forward"] = MethodType(forward, module)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `states @ weight.T + bias`, as torch's function does."""
    if not (
        weight.numel() >= _MANY_WEIGHTS
        and states.numel() * weight.shape[0] >= _MANY
        and states.dtype == weight.dtype == torch.float32
        and type(states) is Tensor  # not one of shards, or without content
        and states.device.type == "cpu"
        and _HAS_ONEDNN
    ):
        return nn.functional.linear(states, weight, bias)
    if not torch.is_grad_enabled():
        return _product(states, weight, bias)
    result: Tensor = _Linear.apply(states, weight, bias)  # type: ignore[no-untyped-call]
    return result


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
        left, right = gradient.flatten(0, -2).T, states.flatten(0, -2).T
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
