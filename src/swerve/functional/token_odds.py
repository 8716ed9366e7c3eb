"""The odds of one token against all others, from its logit and the logsumexp of the other logits.

logits[c] - logsumexp(the others) = log p_c - log(1 - p_c) keeps its digits for p_c near 1, where 1 - p_c and the
logarithm of 1 - exp(log p_c) have none: there the chosen logit is most of the full logsumexp.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from swerve.functional.divergence_terms import num_group_rows
from swerve.functional.precision import at_least_float32

__all__ = ["check_token_shapes", "log_odds", "other_logsumexp"]


def other_logsumexp(logits: Float[Tensor, "N V"], ids: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return log sum_{v != id} exp(logits_v), exact to rounding however likely or unlikely the token is.

    With it, log(1 - p_c) = other_logsumexp - logsumexp; its gradient is exp(logits_v - result), and 0 for the token.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N]`.

    Returns:
        `[N]`, float32 (float64 for float64 logits); minus infinity where every other logit is.

    Raises:
        ValueError: the shapes differ, or there are no other tokens.

    >>> logits = torch.tensor([[120.0, 1.0, 1.0]])
    >>> round(float(other_logsumexp(logits, torch.tensor([0]))), 6)
    1.693147
    """
    check_token_shapes(logits, ids)
    return _chosen_and_others(logits, ids[:, None])[1][:, 0]


def log_odds(logits: Float[Tensor, "N V"], ids: Int[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Return log p - log(1 - p), nats, of K tokens a row; the gradient takes one buffer of the logits' shape for all K.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N, K]`.

    >>> log_odds(torch.tensor([[120.0, 0.0]]), torch.tensor([[0, 1]])).tolist()
    [[120.0, -120.0]]
    """
    chosen, others = _chosen_and_others(logits, ids)
    return chosen - others


def _chosen_and_others(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    chosen, others = _ChosenAndOthers.apply(logits, ids.long())  # type: ignore[no-untyped-call]
    return chosen, others


class _ChosenAndOthers(torch.autograd.Function):
    """The logits of the tokens `ids [N, K]`, and for each of them the logsumexp of all other tokens."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows = num_group_rows(logits)
        parts = [_group_others(*group) for group in zip(logits.split(rows), ids.split(rows), strict=True)]
        others = torch.cat(parts)
        ctx.save_for_backward(logits, ids, others)
        return logits.gather(-1, ids).to(others.dtype), others

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_chosen: Tensor, grad_others: Tensor) -> tuple[Tensor, None]:
        logits, ids, others = ctx.saved_tensors
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        rows = num_group_rows(logits)
        tensors = (gradient, logits, ids, others, grad_chosen, grad_others)
        for out, group, *columns in zip(*(tensor.split(rows) for tensor in tensors), strict=True):
            out.copy_(_group_gradient(group, *columns))
        return gradient, None


def _group_others(logits: Tensor, ids: Tensor) -> Tensor:
    scratch = at_least_float32(logits).clone()  # of one group of rows
    columns = []
    for column in ids.split(1, dim=-1):
        chosen = scratch.gather(-1, column)
        columns.append(scratch.scatter_(-1, column, -math.inf).logsumexp(dim=-1))
        scratch.scatter_(-1, column, chosen)
    return torch.stack(columns, dim=-1)


def _group_gradient(logits: Tensor, ids: Tensor, others: Tensor, grad_chosen: Tensor, grad_others: Tensor) -> Tensor:
    logits = at_least_float32(logits)
    others = others.clamp(min=torch.finfo(others.dtype).min)  # where all others have probability 0 they stay at 0
    total = torch.zeros_like(logits)
    for index in range(ids.shape[1]):
        column = slice(index, index + 1)
        # At the token itself the exponent may be large; it is replaced.
        share = (logits - others[:, column]).clamp_(max=0.0).exp_().mul_(grad_others[:, column])
        total += share.scatter_(-1, ids[:, column], grad_chosen[:, column])
    return total


def check_token_shapes(logits: Float[Tensor, ...], ids: Int[Tensor, ...]) -> None:
    """Refuse anything but logits `[N, V]` with V at least 2 and ids `[N]`.

    Raises:
        ValueError: the shapes differ, or there are no other tokens.

    >>> check_token_shapes(torch.zeros(3, 5), torch.zeros(3, dtype=torch.long))
    """
    if logits.dim() != 2 or ids.shape != logits.shape[:1]:
        raise ValueError(f"logits must be [N, V] and ids [N]; got {tuple(logits.shape)} and {tuple(ids.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"a token is compared with the other tokens: V must be at least 2, got {logits.shape[1]}")
