"""Losses without an importance ratio, unreduced: REINFORCE, the value head's regression, preference pairs."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.functional.precision import at_least_float32

__all__ = ["dpo_loss", "reinforce_loss", "value_loss"]


def reinforce_loss(logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Per-token policy-gradient loss, unreduced (REINFORCE, Williams 1992).

    loss = -A logp; its gradient is -A grad logp. With A = 1 it is cross-entropy.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        advantages: `[B, T]`, no gradient flows through them.

    Raises:
        ValueError: shapes differ.

    >>> reinforce_loss(torch.tensor([[-0.5]]), torch.tensor([[2.0]])).tolist()
    [[1.0]]
    """
    if logprobs.shape != advantages.shape:
        raise ValueError(
            f"logprobs and advantages must both be [B, T]; got {tuple(logprobs.shape)} and {tuple(advantages.shape)}"
        )
    return -at_least_float32(advantages.detach()) * at_least_float32(logprobs)


def value_loss(
    values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    *,
    old_values: Float[Tensor, "B T"] | None = None,
    clip: int | float | None = None,
) -> Float[Tensor, "B T"]:
    """Per-token squared error of the value head, unreduced, with PPO's clipped form (arXiv:1707.06347).

    loss = 0.5 max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2), without clip 0.5 (V - R)^2

    The larger of the two removes the gradient where V has moved more than `clip` towards R.

    Args:
        values: `[B, T]`, of the value head being trained.
        returns: `[B, T]`, the targets; no gradient flows through them.
        old_values: `[B, T]`, of the value head when the completions were sampled.
        clip: largest move in the values' unit, above 0; given together with `old_values`.

    Raises:
        ValueError: only one of `old_values` and `clip` is given, clip is not above 0, or shapes differ.

    >>> values, returns = torch.tensor([[1.5]]), torch.tensor([[3.0]])
    >>> value_loss(values, returns).tolist()
    [[1.125]]
    >>> value_loss(values, returns, old_values=torch.tensor([[1.0]]), clip=0.25).tolist()
    [[1.53125]]
    """
    if (old_values is None) != (clip is None):
        raise ValueError("clipping the values needs both old_values and clip; give both or neither")
    shapes = [tuple(tensor.shape) for tensor in (values, returns, old_values) if tensor is not None]
    if len(set(shapes)) > 1:
        raise ValueError(f"values, returns and old_values must all be [B, T]; got the shapes {shapes}")
    current, targets = at_least_float32(values), at_least_float32(returns.detach())
    error = (current - targets).square()
    if old_values is None or clip is None:
        return 0.5 * error
    if not clip > 0:
        raise ValueError(f"clip must be above 0, got {clip}")
    old = at_least_float32(old_values.detach())
    clipped = old + (current - old).clamp(-clip, clip)
    return 0.5 * torch.maximum(error, (clipped - targets).square())


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
