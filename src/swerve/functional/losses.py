"""Losses, unreduced."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["dpo_loss", "reinforce_loss"]


def reinforce_loss(logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Per-token policy-gradient loss, unreduced (REINFORCE, Williams 1992).

    loss = -A logp; its gradient is -A grad logp. With A = 1 it is cross-entropy.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        advantages: `[B, T]`, no gradient flows through them.

    >>> reinforce_loss(torch.tensor([[-0.5]]), torch.tensor([[2.0]])).tolist()
    [[1.0]]
    """
    return -advantages.detach() * logprobs


def dpo_loss(
    chosen_logprobs: Float[Tensor, " B"],
    rejected_logprobs: Float[Tensor, " B"],
    ref_chosen_logprobs: Float[Tensor, " B"],
    ref_rejected_logprobs: Float[Tensor, " B"],
    *,
    beta: float,
) -> Float[Tensor, " B"]:
    """Per-pair loss of direct preference optimisation, unreduced (arXiv:2305.18290, equation 7).

    loss = -log sigmoid(beta ((chosen - ref_chosen) - (rejected - ref_rejected)))

    Args:
        chosen_logprobs: `[B]`, nats, summed over the preferred completion's tokens, under the policy.
        rejected_logprobs: `[B]`, the same of the other completion.
        ref_chosen_logprobs: `[B]`, under the reference.
        ref_rejected_logprobs: `[B]`, under the reference.
        beta: strength of the pull towards the reference, above 0.

    Raises:
        ValueError: beta is not above 0.

    >>> zero = torch.zeros(1)
    >>> round(float(dpo_loss(zero, zero, zero, zero, beta=0.1)), 6)
    0.693147
    """
    if not beta > 0:
        raise ValueError(f"beta must be above 0, got {beta}")
    margin = (chosen_logprobs - ref_chosen_logprobs) - (rejected_logprobs - ref_rejected_logprobs)
    return -torch.nn.functional.logsigmoid(beta * margin)
