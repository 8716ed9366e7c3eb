"""Reductions: `[B, T]` and a mask to one number, each with a named, explicit denominator.

The denominator counts the whole update, over micro-batches and processes; the caller passes it. Then the sum of the
parts' results is the result of the whole, however it was split or padded. Masked positions are not read: NaN there
changes neither the value nor the gradient.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from swerve.functional.precision import at_least_float32

__all__ = [
    "Reduction",
    "reduction_weights",
    "sequence_mean",
    "sequence_sum",
    "sequence_sum_norm",
    "token_mean",
    "token_sum",
]

Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "sequence_sum_norm", "token_sum"]
"""The names of the reductions."""


def _check(denominator: int | float, name: str = "the denominator") -> None:
    if not denominator > 0:
        raise ValueError(f"nothing to average: {name} is {denominator}; is every mask empty?")


def _kept(values: Tensor, mask: Tensor) -> Tensor:
    if values.shape != mask.shape:
        raise ValueError(f"values and mask must both be [B, T]; got {tuple(values.shape)} and {tuple(mask.shape)}")
    return at_least_float32(values).where(mask, 0.0)


def token_mean(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_tokens: int | float
) -> Float[Tensor, ""]:
    """Sum over all tokens / `num_tokens` of the whole update (TRL's dapo; "Dr. GRPO" in RL2 and OpenRLHF).

    Raises:
        ValueError: `num_tokens` is not above 0, or shapes differ.

    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> round(float(token_mean(values, mask, num_tokens=10)), 6)
    7.6
    """
    _check(num_tokens, "num_tokens")
    return _kept(values, mask).sum() / num_tokens


def sequence_mean(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_sequences: int | float
) -> Float[Tensor, ""]:
    """Sum over sequences of each one's mean over its tokens / `num_sequences` of the whole update (TRL's grpo).

    A row without tokens contributes 0. A sequence must not be split over rows or micro-batches.

    Raises:
        ValueError: `num_sequences` is not above 0, or shapes differ.

    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> round(float(sequence_mean(values, mask, num_sequences=4)), 6)
    7.75
    """
    _check(num_sequences, "num_sequences")
    lengths = mask.sum(dim=1).clamp(min=1)
    return (_kept(values, mask).sum(dim=1) / lengths).sum() / num_sequences


def sequence_sum(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_sequences: int | float
) -> Float[Tensor, ""]:
    """Sum over all tokens / `num_sequences` of the whole update: the mean over sequences of their sums.

    Raises:
        ValueError: `num_sequences` is not above 0, or shapes differ.

    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> float(sequence_sum(values, mask, num_sequences=4))
    19.0
    """
    _check(num_sequences, "num_sequences")
    return _kept(values, mask).sum() / num_sequences


def sequence_sum_norm(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, num_sequences: int | float, length: int | float
) -> Float[Tensor, ""]:
    """Sum over all tokens / (`num_sequences` x a constant length): the published Dr. GRPO (arXiv:2503.20783).

    TRL's dr_grpo takes the largest completion length. verl's seq-mean-token-sum-norm takes the width T, and before 2026
    did not divide by the sequences: `num_sequences=1`.

    Raises:
        ValueError: `num_sequences` or `length` is not above 0, or shapes differ.

    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> float(sequence_sum_norm(values, mask, num_sequences=4, length=8))
    2.375
    """
    _check(num_sequences, "num_sequences")
    _check(length, "length")
    return _kept(values, mask).sum() / (num_sequences * length)


def token_sum(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Sum over all tokens, without a denominator.

    Raises:
        ValueError: shapes differ.

    >>> values = torch.arange(1.0, 17.0).view(4, 4)
    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> float(token_sum(values, mask))
    76.0
    """
    return _kept(values, mask).sum()


def reduction_weights(
    mask: Bool[Tensor, "B T"],
    *,
    reduction: Reduction,
    num_tokens: int | float | None = None,
    num_sequences: int | float | None = None,
    length: int | float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "B T"]:
    """Return the weight of each token in a reduction, 0 at padding: the sum of weight x value is the reduction.

    token_mean 1 / num_tokens;  sequence_mean 1 / (the row's tokens x num_sequences);  sequence_sum 1 / num_sequences;
    sequence_sum_norm 1 / (num_sequences x length);  token_sum 1

    Args:
        mask: `[B, T]`, one sequence a row.
        reduction: a name of `Reduction`.
        num_tokens: tokens of the whole update, for token_mean.
        num_sequences: sequences of the whole update, for the reductions over sequences.
        length: the constant length, in tokens, for sequence_sum_norm.
        dtype: of the result.

    Raises:
        ValueError: an unknown name, or a denominator that it needs is missing or not above 0.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> reduction_weights(mask, reduction="sequence_mean", num_sequences=2).tolist()
    [[0.25, 0.25], [0.5, 0.0]]
    """
    known = {"num_tokens": num_tokens, "num_sequences": num_sequences, "length": length}
    denominator = 1.0
    for name in _denominators(reduction):
        count = known[name]
        if count is None:
            raise ValueError(f"the reduction '{reduction}' needs {name} of the whole update")
        _check(count, name)
        denominator *= count
    weights = mask.to(dtype) / denominator
    return weights / mask.sum(dim=1, keepdim=True).clamp(min=1) if reduction == "sequence_mean" else weights


def _denominators(reduction: str) -> tuple[str, ...]:
    match reduction:
        case "token_mean":
            return ("num_tokens",)
        case "sequence_mean" | "sequence_sum":
            return ("num_sequences",)
        case "sequence_sum_norm":
            return ("num_sequences", "length")
        case "token_sum":
            return ()
    raise ValueError(f"unknown reduction {reduction!r}; choose one of {', '.join(get_args(Reduction))}")
