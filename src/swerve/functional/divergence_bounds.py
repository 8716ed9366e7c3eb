"""Bounds of divergences and entropies from the most likely tokens alone, as servers give them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.functional.divergence import js_sum, kl_sum
from swerve.functional.types import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldLogprobs:
    """What is known of one model's distribution at each of N positions."""

    ids: Int[Tensor, "N M"]
    """The tokens that the model tells, each once, in any order."""
    logprobs: Float[Tensor, "N M"]
    """Nats."""
    others: Rows
    """What no other token's log-probability exceeds: that of the K-th most likely token, where K are told."""


def divergence_bounds(
    p: ToldLogprobs, q: ToldLogprobs, *, tolerance: float = 1e-5
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return lower bounds of KL(P || Q), KL(Q || P) and JS at each position, in nats, float64.

    To merge tokens into cells makes no f-divergence larger (data processing inequality; Csiszar, 1967). A cell here is
    a token that P or Q tells, or all others together. Each adds a term that is at least 0 and grows as p and q part:

        KL(P || Q) = sum of p log(p / q) - p + q,   JS = sum of (p log(p / m) + q log(q / m)) / 2,   m = (p + q) / 2

    So where p and q are known within intervals (a token that only one model tells has at most `others` in the other),
    they are taken as near to each other as these allow.

    Args:
        p: of a checkpoint.
        q: of the reference, at the same positions.
        tolerance: nats that a log-probability may be off by; servers compute in float32.

    >>> p = ToldLogprobs(ids=torch.tensor([[0, 1]]), logprobs=torch.tensor([[0.5, 0.3]]).log(), others=torch.zeros(1))
    >>> q = ToldLogprobs(ids=torch.tensor([[0, 1]]), logprobs=torch.tensor([[0.6, 0.1]]).log(), others=torch.zeros(1))
    >>> [round(float(bound), 3) for bound in divergence_bounds(p, q)]  # exact: .169 for others of .1, .1 and .2, .1
    [0.157, 0.121, 0.033]
    """
    ids = torch.cat([p.ids, q.ids], dim=1)
    repeats = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(dim=-1)
    p_low, p_high = _cells(p, ids, repeats, tolerance)
    q_low, q_high = _cells(q, ids, repeats, tolerance)
    near_p = torch.minimum(torch.maximum(q_low, p_low), p_high)
    near_q = torch.minimum(torch.maximum(near_p, q_low), q_high)

    # As of whole distributions: infinite where one excludes what the other allows, nothing where both exclude it.
    x, huge = near_p - near_q, torch.finfo(torch.float64).max / 4
    only_p, only_q = (x == math.inf).any(dim=1), (x == -math.inf).any(dim=1)
    x = x.nan_to_num(nan=0.0, posinf=huge, neginf=-huge)
    probs_p, probs_q = near_p.exp(), near_q.exp()
    return (
        kl_sum(probs_p, probs_q, x).masked_fill(only_p, math.inf),
        kl_sum(probs_q, probs_p, -x).masked_fill(only_q, math.inf),
        js_sum(probs_p, probs_q, x),
    )


def _cells(told: ToldLogprobs, ids: Tensor, repeats: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest log-probability of each cell: the ids, and last all others together."""
    same = ids[:, :, None] == told.ids[:, None, :]
    values = torch.where(same, told.logprobs.double()[:, None, :], -math.inf).amax(dim=-1)
    low = (values - tolerance).masked_fill(repeats, -math.inf)
    high = torch.where(same.any(dim=-1), values, told.others.double()[:, None]) + tolerance
    high = high.clamp(max=0.0).masked_fill(repeats, -math.inf)
    least, most = [(1 - side.exp().sum(dim=1, keepdim=True)).clamp(min=0.0).log() for side in (high, low)]
    return torch.cat([low, least], dim=1), torch.cat([high, most], dim=1)


def entropy_bounds(
    told: ToldLogprobs, *, vocabulary_size: int, tolerance: float = 1e-5
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return a lower and an upper bound of the entropy at each position, in nats, float64.

    The tokens that are not told have a probability together that is known. Their entropy is least where as few as can
    be have it (each at most `others`), and most where it is spread evenly.

    Args:
        told: of one model.
        vocabulary_size: tokens that the model can say, or more.
        tolerance: see `divergence_bounds`.

    >>> p = ToldLogprobs(ids=torch.tensor([[0, 1]]), logprobs=torch.tensor([[0.5, 0.3]]).log(), others=torch.zeros(1))
    >>> [round(float(bound), 3) for bound in entropy_bounds(p, vocabulary_size=4)]
    [0.708, 1.168]
    """
    probs = told.logprobs.double().exp()
    of_told, rest = torch.special.entr(probs).sum(dim=1), 1 - probs.sum(dim=1)
    slack = 1.01 * tolerance * (1 + of_told)
    least, most = (rest - tolerance).clamp(min=0.0), (rest + tolerance).clamp(min=0.0)
    lower = of_told - slack - least * (told.others.double() + tolerance).clamp(min=-1e4, max=0.0)
    num_others = max(1, vocabulary_size - told.ids.shape[1])
    spread = most.clamp(max=num_others / math.e)
    return lower.clamp(min=0.0), of_told + slack + torch.special.entr(spread) + spread * math.log(num_others)
