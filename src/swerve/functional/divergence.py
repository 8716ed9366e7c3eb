"""Exact divergences between two next-token distributions, over the full vocabulary, without cancellation.

Both KL divergences and the Jensen-Shannon divergence are sums of terms that are each at least 0 and exactly 0 where the
two distributions agree, so a divergence of 1e-7 nats keeps its leading digits in float32. (The usual `sum p (log p -
log q)` has terms of both signs that cancel, and comes out negative for a good part of the tokens.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.functional.types import Ids, Logits, Rows

_LN2 = math.log(2.0)
LN2_FLOAT32 = 0.693147122859954833984375  # the largest float32 that is not above ln 2
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

    largest: Rows
    """The row's largest logit."""
    shifted: Logits
    """Logits minus the row's largest."""
    probs: Logits
    log_total: Rows
    """float64: logsumexp of `shifted`."""


def num_group_rows(logits: Logits) -> int:
    """Return how many rows to work on at a time, at least 1, so that a temporary of one group stays small.

    >>> num_group_rows(torch.zeros(4, 32768))
    8
    """
    elements = _GROUP_ELEMENTS_CPU if logits.device.type == "cpu" else _GROUP_ELEMENTS_ACCELERATOR
    return max(1, elements // max(1, logits.shape[1]))


def softmax(logits: Logits) -> Softmax:
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


def log_ratio(p: Softmax, q: Softmax) -> Logits:
    """Return x = log p - log q, infinite where only one of the two excludes a token and NaN where both do.

    Differences of shifted logits are exact for near-equal models, where differences of log-probabilities are not.

    >>> p, q = softmax(torch.tensor([[0.0, 0.0]])), softmax(torch.tensor([[0.0, -torch.inf]]))
    >>> [round(value, 6) for value in log_ratio(p, q)[0].tolist()]
    [-0.693147, inf]
    """
    return (p.shifted - q.shifted) - (p.log_total - q.log_total).to(p.shifted.dtype)[:, None]


def kl_sum(p: Logits, q: Logits, x: Logits) -> Rows:
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


def js_sum(p: Logits, q: Logits, x: Logits) -> Rows:
    """Return sum_v m g(u), at most ln 2; g(u) is ln 2 minus the binary entropy of the probability sigmoid(x).

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
    return total.to(p.dtype).clamp(max=_LN2 if p.dtype == torch.float64 else LN2_FLOAT32)


def log_share_of_mean(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Return log(p / m), m = (p + q) / 2, for x = log p - log q: log(1 + tanh(x / 2)), at most ln 2.

    >>> [round(value, 6) for value in log_share_of_mean(torch.tensor([0.0, 1.0, -200.0])).tolist()]
    [0.0, 0.379885, -199.306854]
    """
    near = torch.log1p(torch.tanh(x.clamp(min=-1.0) / 2))
    return torch.where(x > -1.0, near, _LN2 - torch.nn.functional.softplus(-x))


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceStats:
    """What two distributions P and Q say of each position; everything in nats, every tensor `[N]`.

    Floats are float32 (float64 for float64 logits), ranks and ids int32.
    """

    kl_forward: Rows
    """KL(P || Q); infinite where P allows a token that Q excludes."""
    kl_reverse: Rows
    """KL(Q || P)."""
    js: Rows
    """(KL(P || M) + KL(Q || M)) / 2 with M = (P + Q) / 2; at most ln 2."""
    entropy: Rows
    entropy_ref: Rows
    logprob: Rows
    """log P of the realised token."""
    logprob_ref: Rows
    rank: Ids
    """1 + the number of tokens that P finds strictly more likely than the realised one."""
    rank_ref: Ids
    argmax: Ids
    argmax_ref: Ids

    @classmethod
    def of_sides(cls, own: Mapping[str, Tensor], reference: Mapping[str, Tensor], **of_both: Tensor) -> DivergenceStats:
        """Put together what P says, what Q says (by the same names, without `_ref`), and what is of both."""
        return cls(**of_both, **own, **{f"{name}_ref": values for name, values in reference.items()})

    @classmethod
    def of_parts(
        cls, parts: Sequence[DivergenceStats], function: Callable[[list[Tensor]], Tensor] = torch.cat
    ) -> DivergenceStats:
        """Return what a function, such as concatenation, makes of each statistic of some parts."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: function([getattr(part, name) for part in parts]) for name in names})


def divergence_stats(logits_p: Logits, logits_q: Logits, ids: Ids) -> DivergenceStats:
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
    # A group of rows at a time, so that the temporaries stay small; then each statistic of all groups together.
    rows = num_group_rows(logits_p)
    groups = zip(logits_p.split(rows), logits_q.split(rows), ids.split(rows), strict=True)
    return DivergenceStats.of_parts([_group_stats(*group) for group in groups])


def _group_stats(logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> DivergenceStats:
    # Where one side excludes a token that the other allows, a KL divergence is infinite.
    p, q = softmax(logits_p), softmax(logits_q)
    x = log_ratio(p, q)
    only_p, only_q = (x == math.inf).any(dim=-1), (x == -math.inf).any(dim=-1)
    huge = torch.finfo(x.dtype).max / 4
    x = x.nan_to_num(nan=0.0, posinf=huge, neginf=-huge)  # NaN: neither allows the token, its terms are 0
    return DivergenceStats.of_sides(
        _of_one(logits_p, p, ids),
        _of_one(logits_q, q, ids),
        kl_forward=kl_sum(p.probs, q.probs, x).masked_fill(only_p, math.inf),
        kl_reverse=kl_sum(q.probs, p.probs, -x).masked_fill(only_q, math.inf),
        js=js_sum(p.probs, q.probs, x),
    )


def _of_one(logits: Tensor, distribution: Softmax, ids: Tensor) -> dict[str, Tensor]:
    shifted = distribution.shifted.masked_fill(distribution.shifted == -math.inf, 0.0)  # such tokens have p = 0
    realised = logits.gather(-1, ids.long()[:, None])
    return one_sided(
        largest=distribution.largest,
        realised=realised[:, 0],
        argmax=logits.argmax(dim=-1),
        log_total=distribution.log_total,
        mean_shifted=(distribution.probs * shifted).sum(dim=-1, dtype=torch.float64),
        num_above=(logits > realised).sum(dim=-1),
        dtype=distribution.probs.dtype,
    )


def one_sided(
    *,
    largest: Rows,
    realised: Rows,
    argmax: Ids,
    log_total: Rows,
    mean_shifted: Rows,
    num_above: Float[Tensor, " N"] | Int[Tensor, " N"],
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Return what one model's distribution says of each position, by the names of its statistics.

    Args:
        largest: the largest logit.
        realised: the logit of the realised token, as it is: shifted ones have been rounded.
        argmax: id of the token with the largest logit.
        log_total: float64: logsumexp of the logits minus the largest.
        mean_shifted: float64: expectation of the logits minus the largest.
        num_above: number of logits above the realised one.
        dtype: of the statistics.
    """
    return {
        "entropy": (log_total - mean_shifted).clamp(min=0.0).to(dtype),
        "logprob": (realised.double() - largest.double() - log_total).to(dtype),
        "rank": 1 + num_above.int(),
        "argmax": argmax.int(),
    }


def topk_probs(logits: Logits, k: int) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
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
