"""Advantages: how much better a completion did than its prompt's group."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["dr_grpo_advantages"]


def dr_grpo_advantages(rewards: Float[Tensor, "G N"]) -> Float[Tensor, "G N"]:
    """Return rewards minus their group's mean (Dr. GRPO, arXiv:2503.20783, without the division by the deviation).

    A = r - mean_group(r)

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each.

    Raises:
        ValueError: groups of one, whose advantage would always be 0.

    >>> import torch
    >>> dr_grpo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).tolist()
    [[0.75, -0.25, -0.25, -0.25]]
    """
    if rewards.shape[1] < 2:
        raise ValueError("advantages relative to a group need at least 2 completions a prompt, got 1")
    return rewards - rewards.mean(dim=1, keepdim=True)
