"""The divergence that is left of two next-token distributions when only one token is looked at: that or not that."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["bernoulli_kl"]


def bernoulli_kl(logprobs: Float[Tensor, "*N"], ref_logprobs: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Return KL(Bernoulli(p) || Bernoulli(q)) of a token's probabilities under two models, nats.

        p (log p - log q) + (1 - p) (log(1 - p) - log(1 - q))

    By the data processing inequality it is at most KL(P || Q) of the whole distributions; their difference is what the
    models disagree about among the other tokens. It needs log-probabilities only, which many logs keep.

    Args:
        logprobs: log p, at most 0; of any shape.
        ref_logprobs: log q, likewise.

    Returns:
        Values of the same shape, at least 0, in float64: 1 - p is formed by expm1, so that it is exact to the rounding
        of log p. Infinite where exactly one of the two models is certain of the token or of its absence.

    Raises:
        ValueError: a log-probability is above 0.

    >>> round(float(bernoulli_kl(torch.tensor(0.9).log(), torch.tensor(0.5).log())), 6)
    0.368064
    """
    if bool((logprobs > 0).any()) or bool((ref_logprobs > 0).any()):
        raise ValueError("a log-probability is above 0")
    log_p, log_q = logprobs.double(), ref_logprobs.double()
    p, rest = log_p.exp(), -torch.expm1(log_p)
    rest_q = -torch.expm1(log_q)
    chosen = torch.where(p > 0, p * (log_p - log_q), 0.0)
    others = torch.where(rest > 0, rest * (rest.log() - rest_q.log()), 0.0)
    return (chosen + others).clamp(min=0.0)
