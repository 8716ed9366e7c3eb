"""Reductions: `[B, T]` and a mask to one number, each with a named, explicit denominator.

The denominator counts the whole update, over micro-batches and processes; the caller passes it. Then the sum of the
parts' results is the result of the whole, however it was split or padded.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["sequence_mean", "token_mean"]


def _check(denominator: int | float) -> None:
    if not denominator > 0:
        raise ValueError(f"nothing to average: the denominator is {denominator}; is every mask empty?")


def token_mean(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_tokens: int | float
) -> Float[Tensor, ""]:
    """Sum over all tokens / `num_tokens` of the whole update.

    Raises:
        ValueError: `num_tokens` is not above 0.

    >>> import torch
    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> round(float(token_mean(values, mask, num_tokens=10)), 6)
    7.6
    """
    _check(num_tokens)
    return values.where(mask, 0.0).sum() / num_tokens


def sequence_mean(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_sequences: int | float
) -> Float[Tensor, ""]:
    """Sum over sequences of each one's mean over its tokens / `num_sequences` of the whole update.

    A row without tokens contributes 0.

    Raises:
        ValueError: `num_sequences` is not above 0.

    >>> import torch
    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> round(float(sequence_mean(values, mask, num_sequences=4)), 6)
    7.75
    """
    _check(num_sequences)
    lengths = mask.sum(dim=1).clamp(min=1)
    return (values.where(mask, 0.0).sum(dim=1) / lengths).sum() / num_sequences
