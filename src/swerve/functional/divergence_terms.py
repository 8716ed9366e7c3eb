"""Sums over the vocabulary that compare two distributions without cancellation: the parts of every exact divergence.

With x = log p - log q and u = (p - q) / (p + q) = tanh(x / 2):

    KL(P || Q) = sum_v p phi(x),   phi(x) = x - 1 + exp(-x)
    JS(P, Q)   = sum_v m g(u),     g(u) = ((1 + u) log(1 + u) + (1 - u) log(1 - u)) / 2,   m = (p + q) / 2

Every term is at least 0 and exactly 0 where p = q; where x is small, terms are summed from their Taylor series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Softmax", "js_sum", "kl_sum", "log_ratio", "log_share_of_mean", "num_group_rows", "softmax"]

_LN2 = math.log(2.0)
_LN2_FLOAT32 = 0.693147122859954833984375  # the largest float32 that is not above ln 2
_TOLERANCE = 1e-5
_KL_SERIES_BELOW = 0.5
_JS_SERIES_BELOW = 0.6
# Rows are worked on in groups of about this many logits: on the CPU so that the temporaries stay near the processor,
# elsewhere so that they stay below a small part of the memory.
_GROUP_ELEMENTS_CPU = 1 << 18
_GROUP_ELEMENTS_ACCELERATOR = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """Distributions given by logits, in float32 (float64 for float64 logits)."""

    largest: Float[Tensor, " N"]
    """The row's largest logit."""
    shifted: Float[Tensor, "N V"]
    """Logits minus the row's largest."""
    probs: Float[Tensor, "N V"]
    log_total: Float[Tensor, " N"]
    """float64: logsumexp of `shifted`."""


def num_group_rows(logits: Float[Tensor, "N V"]) -> int:
    """Return how many rows to work on at a time, at least 1, so that a temporary of one group stays small.

    >>> num_group_rows(torch.zeros(4, 32768))
    8
    """
    elements = _GROUP_ELEMENTS_CPU if logits.device.type == "cpu" else _GROUP_ELEMENTS_ACCELERATOR
    return max(1, elements // max(1, logits.shape[1]))


def softmax(logits: Float[Tensor, "N V"]) -> Softmax:
    """Return each row's distribution; logits of minus infinity are tokens of probability 0.

    Raises:
        ValueError: a row has NaN, plus infinity, or no finite logit.

    >>> softmax(torch.tensor([[0.0, 0.0]])).probs.tolist()
    [[0.5, 0.5]]
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    largest = logits.amax(dim=-1, keepdim=True)
    if not bool(torch.isfinite(largest).all()):
        raise ValueError("a row of logits has NaN, plus infinity, or no finite entry: it is not a distribution")
    shifted = logits - largest
    weights = shifted.exp()
    total = weights.sum(dim=-1, dtype=torch.float64)
    probs = weights / total.to(weights.dtype)[:, None]
    return Softmax(largest=largest[:, 0], shifted=shifted, probs=probs, log_total=total.log())


def log_ratio(p: Softmax, q: Softmax) -> Float[Tensor, "N V"]:
    """Return x = log p - log q, infinite where only one of the two excludes a token and NaN where both do.

    Differences of shifted logits are exact for near-equal models, where differences of log-probabilities are not.

    >>> p, q = softmax(torch.tensor([[0.0, 0.0]])), softmax(torch.tensor([[0.0, -torch.inf]]))
    >>> [round(value, 6) for value in log_ratio(p, q)[0].tolist()]
    [-0.693147, inf]
    """
    return (p.shifted - q.shifted) - (p.log_total - q.log_total).to(p.shifted.dtype)[:, None]


def kl_sum(p: Float[Tensor, "N V"], q: Float[Tensor, "N V"], x: Float[Tensor, "N V"]) -> Float[Tensor, " N"]:
    """Return sum_v p phi(x) for x = log p - log q, which is sum_v (p x - p + q).

    >>> p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    >>> round(float(kl_sum(p, q, (p / q).log())), 6)
    0.143841
    """
    powers = x.new_zeros(())
    for order in range(9, 1, -1):  # phi(x) = x^2/2! - x^3/3! + ... up to x^9/9!
        powers = powers * x + (-1) ** order / math.factorial(order)
    terms = torch.where(x.abs() < _KL_SERIES_BELOW, p * (x * x * powers), p * x - p + q)
    total = terms.clamp(min=0.0).sum(dim=-1, dtype=torch.float64)
    assert not bool((total < 0).any()), "a KL divergence came out negative"
    return total.to(p.dtype)


def js_sum(p: Float[Tensor, "N V"], q: Float[Tensor, "N V"], x: Float[Tensor, "N V"]) -> Float[Tensor, " N"]:
    """Return sum_v m g(u), at most ln 2; g(u) is ln 2 minus the entropy of a coin with probability sigmoid(x).

    >>> p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    >>> round(float(js_sum(p, q, (p / q).log())), 6)
    0.033822
    """
    square = torch.tanh(x / 2).square()
    powers = x.new_zeros(())
    for order in range(12, 0, -2):  # g(u) = u^2/(2 1) + u^4/(4 3) + u^6/(6 5) + ...
        powers = (powers + 1 / (order * (order - 1))) * square
    size = x.abs()
    tail = torch.exp(-size)
    direct = _LN2 - torch.log1p(tail) - size * tail / (1 + tail)
    terms = (p + q) / 2 * torch.where(size < _JS_SERIES_BELOW, powers, direct)
    total = terms.clamp(min=0.0).sum(dim=-1, dtype=torch.float64)
    assert not bool((total > _LN2 + _TOLERANCE).any()), "a Jensen-Shannon divergence came out above ln 2"
    return total.to(p.dtype).clamp(max=_LN2 if p.dtype == torch.float64 else _LN2_FLOAT32)


def log_share_of_mean(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Return log(p / m), m = (p + q) / 2, for x = log p - log q: log(1 + tanh(x / 2)), at most ln 2.

    >>> [round(value, 6) for value in log_share_of_mean(torch.tensor([0.0, 1.0, -200.0])).tolist()]
    [0.0, 0.379885, -199.306854]
    """
    near = torch.log1p(torch.tanh(x.clamp(min=-1.0) / 2))
    return torch.where(x > -1.0, near, _LN2 - torch.nn.functional.softplus(-x))
