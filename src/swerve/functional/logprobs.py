"""Log-probabilities and entropy of next-token distributions, accumulated in float32 whatever the logits' type."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return float64 as it is, and everything narrower as float32.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def check_same_shape(**tensors: Tensor | None) -> None:
    """Raise ValueError if the shapes differ, those that are not given left out.

    >>> check_same_shape(logprobs=torch.zeros(1, 2), advantages=torch.zeros(1, 2))
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor is not None}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"the tensors must have one shape [B, T]; got {shapes}")


def token_logprobs(
    logits: Float[Tensor, "*N V"], ids: Int[Tensor, "*N"], *, temperature: float = 1.0
) -> Float[Tensor, "*N"]:
    """Return the log-probability (nats) of each id.

    logp = z[id] / T - logsumexp(z / T)

    Args:
        logits: `[..., V]`.
        ids: `[...]`.
        temperature: T, above 0.

    Raises:
        ValueError: the temperature is not above 0.

    >>> round(float(token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))), 6)
    -0.693147
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    # The realised logit minus the logsumexp: no [N, V] tensor of log-probabilities is made.
    scaled = at_least_float32(logits)
    if temperature != 1:
        scaled = scaled / temperature
    return scaled.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - scaled.logsumexp(dim=-1)


def entropy(logits: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Return the Shannon entropy (nats) of each distribution.

    H = -sum_v p_v log p_v,  gradient -p_v (log p_v + H)

    Both are 0 for tokens whose probability underflows and for logits of minus infinity.

    >>> round(float(entropy(torch.zeros(1, 4))), 6)
    1.386294
    """
    logprobs = torch.log_softmax(at_least_float32(logits), dim=-1)
    # The derivative of entr() is infinite at a probability of 0; 0 times a finite number is not NaN.
    bounded = logprobs.clamp(min=torch.finfo(logprobs.dtype).min)
    return 0.0 - (logprobs.exp() * bounded).sum(dim=-1)
