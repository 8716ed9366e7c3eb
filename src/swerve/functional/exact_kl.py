"""Exact divergences to a reference over the full vocabulary, as a loss: no cancellation, gradients in closed form."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from swerve.functional.divergence_terms import (
    Softmax,
    js_sum,
    kl_sum,
    log_ratio,
    log_share_of_mean,
    num_group_rows,
    softmax,
)

__all__ = ["KlDirection", "exact_kl"]

KlDirection: TypeAlias = Literal["reverse", "forward", "js"]


def exact_kl(
    logits: Float[Tensor, "N V"], ref_logits: Float[Tensor, "N V"], *, direction: KlDirection
) -> Float[Tensor, " N"]:
    """Return each position's exact divergence between the policy pi = softmax(logits) and the reference, unreduced.

        reverse:  KL(pi || ref) = sum_v p log(p / q)            gradient  p (x - sum p x),  x = log(p / q)
        forward:  KL(ref || pi) = sum_v q log(q / p)            gradient  p - q
        js:       (KL(pi || m) + KL(ref || m)) / 2, m = (p + q) / 2       p (a - sum p a),  a = log(p / m) / 2

    with respect to the logits z; the reference is a constant. Values are those of `divergence_stats`. Between forward
    and backward only the two inputs are kept; the gradient is written a group of rows at a time into one buffer of the
    logits' shape and type. The gradient can be taken once: there is no second derivative.

    A divergence is infinite where one side excludes (logit of minus infinity) a token that the other allows: reverse
    where the reference excludes it, forward where the policy does. The gradient stays finite there.

    Args:
        logits: `[N, V]`, of the policy.
        ref_logits: `[N, V]`, of the reference or a teacher.
        direction: which of the three divergences.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the direction is unknown, the shapes differ, or a row has NaN, plus infinity, or no finite logit.

    >>> logits, ref_logits = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, -1.0]])
    >>> [round(float(exact_kl(logits, ref_logits, direction=name)), 6) for name in ("reverse", "forward", "js")]
    [0.433781, 0.327813, 0.089541]
    """
    if direction not in get_args(KlDirection):
        raise ValueError(f"direction must be one of {', '.join(get_args(KlDirection))}; got {direction!r}")
    if logits.dim() != 2 or logits.shape != ref_logits.shape:
        shapes = f"{tuple(logits.shape)} and {tuple(ref_logits.shape)}"
        raise ValueError(f"logits and ref_logits must both be [N, V]; got {shapes}")
    values: Tensor = _ExactKl.apply(logits, ref_logits.detach(), direction)  # type: ignore[no-untyped-call]
    return values


class _ExactKl(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ref_logits: Tensor, direction: KlDirection) -> Tensor:
        ctx.save_for_backward(logits, ref_logits)
        ctx.direction = direction
        rows = num_group_rows(logits)
        groups = zip(logits.split(rows), ref_logits.split(rows), strict=True)
        return torch.cat([_values(softmax(group), softmax(ref), direction) for group, ref in groups])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        logits, ref_logits = ctx.saved_tensors
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        rows = num_group_rows(logits)
        groups = zip(*(tensor.split(rows) for tensor in (logits, ref_logits, grad_output, gradient)), strict=True)
        for group, ref, scale, out in groups:
            out.copy_(scale[:, None] * _gradient(group, ref, ctx.direction))
        return gradient, None, None


def _values(p: Softmax, q: Softmax, direction: KlDirection) -> Tensor:
    x = log_ratio(p, q)
    finite = _finite(x)
    if direction == "reverse":
        return kl_sum(p.probs, q.probs, finite).masked_fill((x == math.inf).any(dim=-1), math.inf)
    if direction == "forward":
        return kl_sum(q.probs, p.probs, -finite).masked_fill((x == -math.inf).any(dim=-1), math.inf)
    return js_sum(p.probs, q.probs, finite)


def _gradient(logits: Tensor, ref_logits: Tensor, direction: KlDirection) -> Tensor:
    """Return the derivative by the logits; taking the mean off also removes what rounding adds to every log-ratio."""
    p, q = softmax(logits), softmax(ref_logits)
    x = _precise_log_ratio(logits, ref_logits, p, q)
    if direction == "forward":
        difference = (p.probs + q.probs) * torch.tanh(x / 2)  # p - q, to relative precision where the two are near
        return difference - p.probs * _total(difference)
    slopes = log_share_of_mean(x) / 2 if direction == "js" else x
    # Measured from the most likely token, so that a probability near 1 does not multiply a difference of large numbers.
    slopes = slopes - slopes.gather(-1, p.probs.argmax(dim=-1, keepdim=True))
    return p.probs * (slopes - _total(p.probs * slopes))


def _precise_log_ratio(logits: Tensor, ref_logits: Tensor, p: Softmax, q: Softmax) -> Tensor:
    # Starts from the difference of the logits themselves: the shifted ones have been rounded once more.
    dtype = p.probs.dtype
    shifts = (p.largest - q.largest)[:, None]
    totals = (p.log_total - q.log_total).to(dtype)[:, None]
    return _finite(((logits.to(dtype) - ref_logits.to(dtype)) - shifts) - totals)


def _finite(x: Tensor) -> Tensor:
    huge = torch.finfo(x.dtype).max / 4
    return x.nan_to_num(nan=0.0, posinf=huge, neginf=-huge)  # NaN: neither allows the token, its terms are 0


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=-1, keepdim=True, dtype=torch.float64).to(values.dtype)
