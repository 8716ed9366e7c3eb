"""What each token counts: reductions to one number, sampler correction, and training on uncertain tokens only.

A reduction takes `[B, T]` and a mask to one number with a named, explicit denominator, which counts the whole update,
over micro-batches and processes; the caller passes it. Then the sum of the parts' results is the result of the whole,
however it was split or padded. Masked positions are not read: NaN there changes neither the value nor the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.functional.logprobs import at_least_float32, check_same_shape
from swerve.functional.types import NonNegative, Number, Positive, Rows, Share, TokenMask, Tokens

Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "sequence_sum_norm", "token_sum"]
"""The names of the reductions."""
CorrectionLevel = Literal["token", "sequence", "geometric"]
"""What the weight of a token for a sampler's mismatch is taken over."""

_DENOMINATORS: Mapping[str, tuple[str, ...]] = {
    "token_mean": ("num_tokens",),
    "sequence_mean": ("num_sequences",),
    "sequence_sum": ("num_sequences",),
    "sequence_sum_norm": ("num_sequences", "length"),
    "token_sum": (),
}
"""What the reductions divide by."""


def _check(denominator: Number, name: str = "the denominator") -> None:
    if not denominator > 0:
        raise ValueError(f"nothing to average: {name} is {denominator}; is every mask empty?")


def _kept(values: Tensor, mask: Tensor) -> Tensor:
    check_same_shape(values=values, mask=mask)
    return at_least_float32(values).where(mask, 0.0)


def token_mean(values: Tokens, mask: TokenMask, *, num_tokens: Positive) -> Float[Tensor, ""]:
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


def sequence_mean(values: Tokens, mask: TokenMask, *, num_sequences: Positive) -> Float[Tensor, ""]:
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


def sequence_sum(values: Tokens, mask: TokenMask, *, num_sequences: Positive) -> Float[Tensor, ""]:
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
    values: Tokens, mask: TokenMask, *, num_sequences: Positive, length: Positive
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


def token_sum(values: Tokens, mask: TokenMask) -> Float[Tensor, ""]:
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
    mask: TokenMask,
    *,
    reduction: Reduction,
    num_tokens: Positive | None = None,
    num_sequences: Positive | None = None,
    length: Positive | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tokens:
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
    # The product of the reduction's denominators; only a mean over tokens also divides each row by its own length.
    known = {"num_tokens": num_tokens, "num_sequences": num_sequences, "length": length}
    if reduction not in _DENOMINATORS:
        raise ValueError(f"unknown reduction {reduction!r}; choose one of {', '.join(_DENOMINATORS)}")
    denominator = 1.0
    for name in _DENOMINATORS[reduction]:
        count = known[name]
        if count is None:
            raise ValueError(f"the reduction '{reduction}' needs {name} of the whole update")
        _check(count, name)
        denominator *= count
    weights = mask.to(dtype) / denominator
    return weights / mask.sum(dim=1, keepdim=True).clamp(min=1) if reduction == "sequence_mean" else weights


def importance_weights(
    old_logprobs: Tokens,
    sampler_logprobs: Tokens,
    mask: TokenMask | None = None,
    *,
    kind: Literal["tis", "mis"] = "tis",
    cap: Positive,
    floor: NonNegative | None = None,
    level: CorrectionLevel = "token",
) -> Tokens:
    """Return detached weights that correct for a sampler whose log-probabilities differ from the trainer's.

    tis (truncated):  min(w, cap),  w = exp(importance_log_ratio(..., level=level))
    mis (masked):     w where floor <= w <= cap, else 0

    To be multiplied with the policy loss (TRL); RL2 gives the current `logprobs` in place of the old ones and
    multiplies the KL term too.

    Args:
        old_logprobs: `[B, T]`, nats, the trainer's before the update.
        sampler_logprobs: `[B, T]`, nats, the sampling engine's.
        mask: `[B, T]`; only the levels of whole sequences need it.
        kind: `tis` or `mis`.
        cap: largest weight, above 0.
        floor: smallest weight that `mis` keeps; 0 without it.
        level: see `importance_log_ratio`.

    Raises:
        ValueError: an unknown kind or level, cap or floor out of range, a floor for `tis`, or the mask is missing.

    >>> old, sampler = torch.tensor([[3.0, 0.5]]).log(), torch.zeros(1, 2)
    >>> importance_weights(old, sampler, kind="tis", cap=2.0).tolist()
    [[2.0, 0.5]]
    >>> importance_weights(old, sampler, kind="mis", cap=2.0).tolist()
    [[0.0, 0.5]]
    >>> importance_weights(old, sampler, old < 9, level="sequence", cap=2.0).tolist()
    [[1.5, 1.5]]
    """
    if kind not in ("tis", "mis"):
        raise ValueError(f"kind must be 'tis' or 'mis', got {kind!r}")
    if kind == "tis" and floor is not None:
        raise ValueError("'tis' truncates from above only; leave floor out or take kind='mis'")
    if not cap > 0:
        raise ValueError(f"cap must be above 0, got {cap}")
    if floor is not None and not 0 <= floor <= cap:
        raise ValueError(f"floor must be from 0 to cap, which is {cap}; got {floor}")
    # Truncated weights stay at the bound; masked ones leave the token out.
    weights = importance_log_ratio(old_logprobs, sampler_logprobs, mask, level=level).exp()
    if kind == "tis":
        return weights.clamp(max=cap)
    return weights.where((weights <= cap) & (weights >= (floor or 0.0)), 0.0)


def importance_log_ratio(
    old_logprobs: Tokens,
    sampler_logprobs: Tokens,
    mask: TokenMask | None = None,
    *,
    level: CorrectionLevel = "token",
) -> Tokens:
    """Return the detached log-ratio of trainer to sampler that weighs each token, nats.

    token  x_t = old_logprobs - sampler_logprobs;  sequence  sum_t x_t (the product of the ratios, as in verl and TRL);
    geometric  mean_t x_t (their geometric mean, as verl and OpenRLHF reject by)

    Only the whole sequence's ratio makes the expected gradient that of the trainer's policy; its variance grows with
    the length. The token's leaves out that the prefix was the sampler's, and is biased the more they differ.

    Raises:
        ValueError: an unknown level, shapes differ, or the mask is missing.

    >>> old, mask = torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[True, True, False]])
    >>> importance_log_ratio(old, torch.tensor([[-1.5, -2.5, 0.0]]), mask, level="sequence").tolist()
    [[1.0, 1.0, 1.0]]
    """
    check_same_shape(old_logprobs=old_logprobs, sampler_logprobs=sampler_logprobs)
    log_ratio = at_least_float32(old_logprobs.detach()) - at_least_float32(sampler_logprobs.detach())
    if level == "token":
        return log_ratio
    if level not in ("sequence", "geometric"):
        raise ValueError(f"level must be 'token', 'sequence' or 'geometric', got {level!r}")
    if mask is None:
        raise ValueError(f"level '{level}' needs the mask of the sequences' tokens")
    # All tokens of a sequence share one ratio: the product of theirs, or its root of their number.
    total = _kept(log_ratio, mask).sum(dim=1, keepdim=True)
    if level == "geometric":
        total = total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return total.expand_as(log_ratio)


def entropy_threshold(entropies: Rows, *, share: Share, sum_counts: Callable[[Tensor], Tensor] | None = None) -> float:
    """Return the entropy (nats) from which tokens belong to the top share, over all tokens of an update.

    the ceil(share N)-th largest entropy

    Tokens equal to it are all kept, so ties can keep more than the share.

    Args:
        entropies: `[N]`, nats, of unmasked tokens only.
        share: above 0, at most 1.
        sum_counts: returns the sums of integers over the processes, where others have tokens too; called five times.

    Raises:
        ValueError: no tokens, or share is out of range.

    >>> entropy_threshold(torch.tensor([0.1, 2.0, 0.5, 1.0, 0.2]), share=0.4)
    1.0
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    total = torch.tensor(entropies.numel())
    num_tokens = int(total if sum_counts is None else sum_counts(total))
    if num_tokens == 0:
        raise ValueError("there is no token to rank by entropy; is every mask empty?")
    num_kept = math.ceil(share * num_tokens - 1e-9)  # 0.1 x 30 is a rounding above 3 and must keep 3
    return _kth_smallest(entropies.detach().flatten(), num_tokens - max(num_kept, 1) + 1, sum_counts)


def _kth_smallest(values: Tensor, k: int, sum_counts: Callable[[Tensor], Tensor] | None) -> float:
    """Return the k-th smallest value of all processes, found byte by byte of its bits in four sums of counts."""
    if sum_counts is None:
        return float(values.kthvalue(k).values)
    bits = values.float().cpu().view(torch.int32).long()
    keys = torch.where(bits < 0, ~bits & 0xFFFFFFFF, bits | 0x80000000)  # in the order of the values
    found = 0
    for shift in (24, 16, 8, 0):
        digits = (keys >> shift) & 0xFF
        counts = sum_counts(digits.bincount(minlength=256))
        below = counts.cumsum(0)
        digit = int((below < k).sum())
        k -= int(below[digit] - counts[digit])
        keys, found = keys[digits == digit], (found << 8) | digit
    bits = torch.tensor(found ^ 0x80000000 if found & 0x80000000 else ~found)
    return float(bits.int().view(torch.float32))


def top_entropy_mask(entropies: Tokens, mask: TokenMask, *, share: Share, threshold: float | None = None) -> TokenMask:
    """Return the tokens to train on: the share with the highest entropy (arXiv:2506.01939, the 80/20 rule).

    mask and entropy >= threshold

    Args:
        entropies: `[B, T]`, nats, of the next-token distributions; masked positions are not read.
        mask: `[B, T]`.
        share: of the unmasked tokens to keep, above 0, at most 1; 0.2 in the paper.
        threshold: `entropy_threshold` of the whole update's tokens; of this batch's without it.

    Raises:
        ValueError: share is out of range, or the mask is empty and no threshold is given.

    >>> entropies, mask = torch.tensor([[0.1, 2.0, 0.5, 9.0]]), torch.tensor([[True, True, True, False]])
    >>> top_entropy_mask(entropies, mask, share=0.3).tolist()
    [[False, True, False, False]]
    """
    # A threshold of the whole update keeps the share of all its tokens, not of each batch's.
    check_same_shape(entropies=entropies, mask=mask)
    if threshold is None:
        threshold = entropy_threshold(entropies[mask], share=share)
    return mask & (entropies >= threshold)
