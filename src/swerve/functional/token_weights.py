"""Weights and masks of single tokens' policy losses: sampler correction, and training on uncertain tokens only."""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from swerve.functional.precision import at_least_float32

__all__ = ["entropy_threshold", "importance_weights", "top_entropy_mask"]


def _check_shapes(**tensors: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"the tensors must have one shape [B, T]; got {shapes}")


def importance_weights(
    old_logprobs: Float[Tensor, "B T"],
    sampler_logprobs: Float[Tensor, "B T"],
    *,
    kind: Literal["tis", "mis"] = "tis",
    cap: int | float,
    floor: int | float | None = None,
) -> Float[Tensor, "B T"]:
    """Return detached weights that correct for a sampler whose log-probabilities differ from the trainer's.

    w = exp(old_logprobs - sampler_logprobs);  tis (truncated): min(w, cap);  mis (masked): w where floor <= w <= cap,
    else 0. To be multiplied with the policy loss (TRL); RL2 gives the current `logprobs` in place of the old ones and
    multiplies the KL term too.

    Args:
        old_logprobs: `[B, T]`, nats, the trainer's before the update.
        sampler_logprobs: `[B, T]`, nats, the sampling engine's.
        kind: `tis` or `mis`.
        cap: largest weight, above 0.
        floor: smallest weight that `mis` keeps; 0 without it.

    Raises:
        ValueError: an unknown kind, cap or floor out of range, or a floor for `tis`.

    >>> import torch
    >>> old, sampler = torch.tensor([[3.0, 0.5]]).log(), torch.zeros(1, 2)
    >>> importance_weights(old, sampler, kind="tis", cap=2.0).tolist()
    [[2.0, 0.5]]
    >>> importance_weights(old, sampler, kind="mis", cap=2.0).tolist()
    [[0.0, 0.5]]
    """
    if kind not in ("tis", "mis"):
        raise ValueError(f"kind must be 'tis' or 'mis', got {kind!r}")
    if kind == "tis" and floor is not None:
        raise ValueError("'tis' truncates from above only; leave floor out or take kind='mis'")
    if not cap > 0:
        raise ValueError(f"cap must be above 0, got {cap}")
    if floor is not None and not 0 <= floor <= cap:
        raise ValueError(f"floor must be from 0 to cap, which is {cap}; got {floor}")
    _check_shapes(old_logprobs=old_logprobs, sampler_logprobs=sampler_logprobs)
    weights = (at_least_float32(old_logprobs.detach()) - at_least_float32(sampler_logprobs.detach())).exp()
    if kind == "tis":
        return weights.clamp(max=cap)
    return weights.where((weights <= cap) & (weights >= (0.0 if floor is None else floor)), 0.0)


def entropy_threshold(entropies: Float[Tensor, " N"], *, share: int | float) -> float:
    """Return the entropy (nats) from which tokens belong to the top share, over all tokens of an update.

    The ceil(share N)-th largest entropy. Tokens equal to it are all kept, so ties can keep more than the share.

    Args:
        entropies: `[N]`, nats, of unmasked tokens only.
        share: above 0, at most 1.

    Raises:
        ValueError: no tokens, or share is out of range.

    >>> import torch
    >>> entropy_threshold(torch.tensor([0.1, 2.0, 0.5, 1.0, 0.2]), share=0.4)
    1.0
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    num_tokens = entropies.numel()
    if num_tokens == 0:
        raise ValueError("there is no token to rank by entropy; is every mask empty?")
    num_kept = math.ceil(share * num_tokens - 1e-9)  # 0.1 x 30 is a rounding above 3 and must keep 3
    return float(entropies.detach().flatten().kthvalue(num_tokens - max(num_kept, 1) + 1).values)


def top_entropy_mask(
    entropies: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, share: int | float, threshold: float | None = None
) -> Bool[Tensor, "B T"]:
    """Return the tokens to train on: the share with the highest entropy (arXiv:2506.01939, the 80/20 rule).

    mask and entropy >= threshold

    Args:
        entropies: `[B, T]`, nats, of the next-token distributions; masked positions are not read.
        mask: `[B, T]`.
        share: of the unmasked tokens to keep, above 0, at most 1; 0.2 in the paper.
        threshold: `entropy_threshold` of the whole update's tokens; of this batch's without it.

    Raises:
        ValueError: share is out of range, or the mask is empty and no threshold is given.

    >>> import torch
    >>> entropies, mask = torch.tensor([[0.1, 2.0, 0.5, 9.0]]), torch.tensor([[True, True, True, False]])
    >>> top_entropy_mask(entropies, mask, share=0.3).tolist()
    [[False, True, False, False]]
    """
    _check_shapes(entropies=entropies, mask=mask)
    if threshold is None:
        threshold = entropy_threshold(entropies[mask], share=share)
    return mask & (entropies >= threshold)
