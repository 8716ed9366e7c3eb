"""Exact divergences between two next-token distributions, over the full vocabulary, without cancellation.

Both KL divergences and the Jensen-Shannon divergence are sums of terms that are each at least 0 and exactly 0 where the
two distributions agree, so a divergence of 1e-7 nats keeps its leading digits in float32. (The usual `sum p (log p -
log q)` has terms of both signs that cancel, and comes out negative for a good part of the tokens.)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.functional.divergence_terms import Softmax, js_sum, kl_sum, log_ratio, num_group_rows, softmax

__all__ = ["DivergenceStats", "divergence_stats", "topk_probs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceStats:
    """What two distributions P and Q say of each position; everything in nats, every tensor `[N]`.

    Floats are float32 (float64 for float64 logits), ranks and ids int32.
    """

    kl_forward: Float[Tensor, " N"]
    """KL(P || Q); infinite where P allows a token that Q excludes."""
    kl_reverse: Float[Tensor, " N"]
    """KL(Q || P)."""
    js: Float[Tensor, " N"]
    """(KL(P || M) + KL(Q || M)) / 2 with M = (P + Q) / 2; at most ln 2."""
    entropy: Float[Tensor, " N"]
    entropy_ref: Float[Tensor, " N"]
    logprob: Float[Tensor, " N"]
    """log P of the realised token."""
    logprob_ref: Float[Tensor, " N"]
    rank: Int[Tensor, " N"]
    """1 + the number of tokens that P finds strictly more likely than the realised one."""
    rank_ref: Int[Tensor, " N"]
    argmax: Int[Tensor, " N"]
    argmax_ref: Int[Tensor, " N"]


def divergence_stats(
    logits_p: Float[Tensor, "N V"], logits_q: Float[Tensor, "N V"], ids: Int[Tensor, " N"]
) -> DivergenceStats:
    """Compare P = softmax(logits_p) (a checkpoint) with Q = softmax(logits_q) (the reference), row by row.

    With x = log p - log q and u = (p - q) / (p + q) = tanh(x / 2):

        KL(P || Q) = sum_v p phi(x),   phi(x) = x - 1 + exp(-x)
        JS(P, Q)   = sum_v m g(u),     g(u) = ((1 + u) log(1 + u) + (1 - u) log(1 - u)) / 2,   m = (p + q) / 2

    by their Taylor series where x is small. Whatever the type of the logits, the work is done in float32 (float64 for
    float64) and sums are accumulated in float64. Logits of minus infinity are tokens of probability 0.

    Args:
        logits_p: `[N, V]`.
        logits_q: `[N, V]`.
        ids: `[N]`, the realised tokens.

    Raises:
        ValueError: the shapes differ, or a row has NaN, plus infinity, or no finite logit.

    >>> stats = divergence_stats(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, -1.0]]), torch.tensor([1]))
    >>> [round(float(value), 6) for value in (stats.kl_forward, stats.kl_reverse, stats.js)]
    [0.433781, 0.327813, 0.089541]
    >>> int(stats.rank), int(stats.rank_ref)
    (1, 2)
    """
    if logits_p.shape != logits_q.shape or ids.shape != logits_p.shape[:1]:
        shapes = [tuple(tensor.shape) for tensor in (logits_p, logits_q, ids)]
        raise ValueError(f"logits must both be [N, V] and ids [N]; got {shapes[0]}, {shapes[1]} and {shapes[2]}")
    rows = num_group_rows(logits_p)
    groups = zip(*(torch.split(tensor, rows) for tensor in (logits_p, logits_q, ids)), strict=True)
    parts = [_group_stats(*group) for group in groups]
    names = [field.name for field in dataclasses.fields(DivergenceStats)]
    return DivergenceStats(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def _group_stats(logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> DivergenceStats:
    p, q = softmax(logits_p), softmax(logits_q)
    x = log_ratio(p, q)
    only_p, only_q = (x == math.inf).any(dim=-1), (x == -math.inf).any(dim=-1)
    huge = torch.finfo(x.dtype).max / 4
    x = x.nan_to_num(nan=0.0, posinf=huge, neginf=-huge)  # NaN: neither allows the token, its terms are 0
    return DivergenceStats(
        kl_forward=kl_sum(p.probs, q.probs, x).masked_fill(only_p, math.inf),
        kl_reverse=kl_sum(q.probs, p.probs, -x).masked_fill(only_q, math.inf),
        js=js_sum(p.probs, q.probs, x),
        entropy=_entropy(p),
        entropy_ref=_entropy(q),
        logprob=_logprob(logits_p, p, ids),
        logprob_ref=_logprob(logits_q, q, ids),
        rank=_rank(logits_p, ids),
        rank_ref=_rank(logits_q, ids),
        argmax=logits_p.argmax(dim=-1).int(),
        argmax_ref=logits_q.argmax(dim=-1).int(),
    )


def _entropy(distribution: Softmax) -> Tensor:
    shifted = distribution.shifted.masked_fill(distribution.shifted == -math.inf, 0.0)  # such tokens have p = 0
    mean = (distribution.probs * shifted).sum(dim=-1, dtype=torch.float64)
    return (distribution.log_total - mean).clamp(min=0.0).to(distribution.probs.dtype)


def _logprob(logits: Tensor, distribution: Softmax, ids: Tensor) -> Tensor:
    # From the logits themselves: the shifted ones have been rounded.
    realised = logits.gather(-1, ids.long()[:, None]).squeeze(-1).double()
    return (realised - distribution.largest.double() - distribution.log_total).to(distribution.probs.dtype)


def _rank(logits: Tensor, ids: Tensor) -> Tensor:
    realised = logits.gather(-1, ids.long()[:, None])
    return 1 + (logits > realised).sum(dim=-1, dtype=torch.int32)


def topk_probs(logits: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
    """Return the probabilities and ids of each row's `min(k, V)` most likely tokens, the most likely first.

    Raises:
        ValueError: k is below 1, or a row is not a distribution.

    >>> probs, ids = topk_probs(torch.tensor([[0.0, 2.0, 1.0]]), 2)
    >>> [round(value, 4) for value in probs[0].tolist()], ids[0].tolist()
    ([0.6652, 0.2447], [1, 2])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    distribution = softmax(logits)
    probs, ids = distribution.probs.topk(min(k, logits.shape[-1]), dim=-1)
    return probs, ids
