"""Advantages: how much better a completion, or a token, did than a baseline.

Group estimators take rewards `[G, N]`, one row a prompt with its N completions, and return `[G, N]`; each completion's
advantage applies to all of its tokens. The others take and return `[B, T]`. Where all rewards of a group are equal, its
advantages are exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from swerve.functional.logprobs import at_least_float32, check_same_shape
from swerve.functional.types import Groups, NonNegative, Number, Probability, Share, TokenMask, Tokens

Std = Literal["sample", "population"]
"""`sample` divides the sum of squares by n - 1 (Bessel), `population` by n."""


def check_std(std: str) -> None:
    """Raise ValueError for a standard deviation other than `sample` and `population`.

    Raises:
        ValueError: another name.

    >>> check_std("sample")
    """
    if std not in ("sample", "population"):
        raise ValueError(f"std must be 'sample' or 'population', got {std!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Count, sum and sum of squares of masked values, in float64; those of a whole are the sum of its parts'.

    Add them over micro-batches and processes before whitening, and the result does not depend on the split. The
    variance is the mean square minus the squared mean, which in float64 keeps 6 digits while the mean is below about
    1e4 deviations.

    >>> a = Moments(count=2.0, total=3.0, square_total=5.0)
    >>> a + Moments(count=1.0, total=3.0, square_total=9.0)
    Moments(count=3.0, total=6.0, square_total=14.0)
    """

    count: float
    total: float
    square_total: float

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of values together."""
        return Moments(
            count=self.count + other.count,
            total=self.total + other.total,
            square_total=self.square_total + other.square_total,
        )


def moments(values: Tokens, mask: TokenMask) -> Moments:
    """Return the moments of the unmasked values; masked positions are not read.

    Args:
        values: `[B, T]`.
        mask: `[B, T]`.

    >>> moments(torch.tensor([[1.0, 2.0, 5.0]]), torch.tensor([[True, True, False]]))
    Moments(count=2.0, total=3.0, square_total=5.0)
    """
    kept = values.detach().double().where(mask, 0.0)
    sums = torch.stack([mask.sum().double(), kept.sum(), kept.square().sum()]).tolist()  # one transfer from the device
    return Moments(count=sums[0], total=sums[1], square_total=sums[2])


MomentsOf: TypeAlias = Callable[[Tensor, Tensor], Moments]
"""(values, mask) -> the moments of the values of the whole update, of which these are a part."""


def whiten(
    values: Tokens,
    mask: TokenMask,
    moments: Moments,
    *,
    eps: NonNegative = 1e-8,
    std: Std = "sample",
) -> Tokens:
    """Shift and scale the unmasked values by a mean and deviation that the caller added up; 0 where masked.

    mean = total / n;  var = square_total / n - mean^2
    sample (verl):          (v - mean) rsqrt(var n / (n - 1) + eps)
    population (OpenRLHF):  (v - mean) rsqrt(max(var, eps))

    verl's `n + 1e-8` in place of n is the same number in its float32.

    Args:
        values: `[B, T]`; masked positions are not read.
        mask: `[B, T]`.
        moments: of all values of the update, see `Moments`.
        eps: guards the division.
        std: `sample` or `population`.

    Raises:
        ValueError: too few values (`sample` needs 2, `population` 1), or an unknown std.

    >>> values, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    >>> [round(value, 6) for value in whiten(values, mask, moments(values, mask), std="population")[0].tolist()]
    [-1.0, 1.0, 0.0]
    """
    check_std(std)
    count, needed = moments.count, 2 if std == "sample" else 1
    if not count >= needed:
        raise ValueError(f"whitening with std={std!r} needs at least {needed} unmasked values, got {count:g}")
    # The variance from the sums; rounding can leave it a little below 0.
    mean = moments.total / count
    variance = max(moments.square_total / count - mean * mean, 0.0)
    guarded = variance * count / (count - 1) + eps if std == "sample" else max(variance, eps)
    if not guarded > 0:
        raise ValueError("the values are all equal and eps is 0: there is no deviation to divide by")
    working = values if values.dtype == torch.float64 else values.float()
    return ((working - mean) / math.sqrt(guarded)).where(mask, 0.0)


def _check_factor(name: str, factor: Number) -> None:
    if not 0 <= factor <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {factor}")


def _grouped(rewards: Tensor) -> Tensor:
    if rewards.ndim != 2:
        raise ValueError(f"rewards must be [G, N], a row a prompt; got the shape {tuple(rewards.shape)}")
    if rewards.shape[1] < 2:
        raise ValueError(f"advantages relative to a group need at least 2 completions a prompt, got {rewards.shape[1]}")
    return at_least_float32(rewards)


def _centred(rewards: Tensor) -> Tensor:
    # The mean of equal numbers may be one rounding off them, and a tiny eps would make that an advantage of order 1;
    # differences to the row's first reward are exactly 0 there.
    shifted = rewards - rewards[:, :1]
    return shifted - shifted.mean(dim=1, keepdim=True)


def grpo_advantages(rewards: Groups, *, eps: NonNegative = 1e-4, std: Std = "sample") -> Groups:
    """Return rewards standardised within their group (GRPO, arXiv:2402.03300).

    A = (r - mean_group(r)) / (std_group(r) + eps)

    The deviation depends on the completion it divides, so the expected gradient is not that of the mean reward.

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each.
        eps: added to the deviation: TRL 1e-4, verl 1e-6, RL2 1.1920929e-7 (float32's spacing at 1), OpenRLHF 1e-9.
        std: deviation from n - 1 (`sample`) or from n (`population`, in open-instruct, with eps 1e-8).

    Raises:
        ValueError: groups of one, a negative eps, or an unknown std.

    >>> advantages = grpo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), eps=1e-6)
    >>> [round(value, 5) for value in advantages[0].tolist()]
    [1.5, -0.5, -0.5, -0.5]
    """
    check_std(std)
    if not eps >= 0:
        raise ValueError(f"eps must be at least 0, got {eps}")
    # Groups of equal rewards have no deviation, and their advantages are 0 whatever eps is.
    centred = _centred(_grouped(rewards))
    num_free = centred.shape[1] - (1 if std == "sample" else 0)
    deviation = centred.square().sum(dim=1, keepdim=True).div(num_free).sqrt()
    return torch.where(deviation > 0, centred / (deviation + eps), 0.0)


def dr_grpo_advantages(rewards: Groups) -> Groups:
    """Return rewards minus their group's mean (Dr. GRPO, arXiv:2503.20783, without the division by the deviation).

    A = r - mean_group(r)

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each.

    Raises:
        ValueError: groups of one, whose advantage would always be 0.

    >>> dr_grpo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).tolist()
    [[0.75, -0.25, -0.25, -0.25]]
    """
    return _centred(_grouped(rewards))


def rloo_advantages(rewards: Groups) -> Groups:
    """Return rewards minus the mean of the group's other rewards (RLOO, arXiv:2402.14740).

    A_i = r_i - mean_{j != i}(r_j) = (N r_i - sum_j r_j) / (N - 1)

    This is N / (N - 1) times `dr_grpo_advantages`. The baseline does not depend on the completion that it is subtracted
    from, so the policy gradient is unbiased.

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each.

    Raises:
        ValueError: groups of one.

    >>> [round(value, 6) for value in rloo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))[0].tolist()]
    [1.0, -0.333333, -0.333333, -0.333333]
    """
    num_completions = rewards.shape[-1]
    return _centred(_grouped(rewards)) * (num_completions / (num_completions - 1))


def grpo_loo_advantages(rewards: Groups, *, eps: NonNegative = 1e-6) -> Groups:
    """Return rewards standardised by the mean and deviation of the group's other rewards (the default of NeMo-RL).

    A_i = (r_i - mean_{j != i}(r_j)) / (std_{j != i}(r_j) + eps), not divided where the others are all equal

    The deviation is Bessel-corrected. In a group of two the only other reward has none, so nothing is divided. Since
    neither number depends on the completion itself, a prompt's expected gradient keeps its direction, unlike in
    `grpo_advantages`.

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each. Works on `[G, N, N - 1]` numbers.
        eps: added to the deviation.

    Raises:
        ValueError: groups of one, or a negative eps.

    >>> [round(value, 6) for value in grpo_loo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))[0].tolist()]
    [1.0, -0.577349, -0.577349, -0.577349]
    """
    if not eps >= 0:
        raise ValueError(f"eps must be at least 0, got {eps}")
    baselined = rloo_advantages(rewards)
    num = rewards.shape[1]
    index = torch.arange(num, device=rewards.device)
    others = index.expand(num, num)[index[:, None] != index].view(num, num - 1)
    rest = at_least_float32(rewards)[:, others]  # [G, N, N - 1]
    equal = rest.amax(dim=2) == rest.amin(dim=2)  # a deviation computed of equal numbers may be a rounding above 0
    deviation = _centred(rest.flatten(0, 1)).square().sum(dim=1).div(max(num - 2, 1)).sqrt().view_as(baselined)
    return torch.where(equal, baselined, baselined / (deviation + eps))


def reward_advantages(rewards: Groups) -> Groups:
    """Return the rewards themselves.

    Args:
        rewards: `[G, N]`.

    >>> reward_advantages(torch.tensor([[1.0, 0.0]])).tolist()
    [[1.0, 0.0]]
    """
    return rewards


def _check_tokens(mask: Tensor, token_rewards: Tensor, values: Tensor | None = None) -> None:
    check_same_shape(mask=mask, token_rewards=token_rewards, values=values)
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError("each row of the mask must be a prefix: completions start at column 0 and are padded right")


def _discounted_suffix_sums(values: Tensor, factor: Number) -> Tensor:
    """Return s_t = sum_k factor^k values_{t+k}, by doubling the length of the sums: log2(T) steps instead of T."""
    total, stride = values, 1
    while stride < values.shape[1]:
        total = total + factor**stride * torch.nn.functional.pad(total[:, stride:], (0, stride))
        stride *= 2
    return total


def reward_to_go(token_rewards: Tokens, mask: TokenMask, *, gamma: Probability = 1.0) -> Tokens:
    """Return the discounted sum of each token's own and later rewards; 0 where masked.

    G_t = sum_{k >= 0} gamma^k r_{t+k}

    Args:
        token_rewards: `[B, T]`; masked positions are not read.
        mask: `[B, T]`, True on completion tokens, each row a prefix.
        gamma: discount per token, from 0 to 1.

    Raises:
        ValueError: shapes differ, a mask is not a prefix, or gamma is out of range.

    >>> rewards = torch.tensor([[0.0, 0.0, 1.0, 9.0]])
    >>> reward_to_go(rewards, torch.tensor([[True, True, True, False]]), gamma=0.5).tolist()
    [[0.25, 0.5, 1.0, 0.0]]
    """
    _check_factor("gamma", gamma)
    _check_tokens(mask, token_rewards)
    return _discounted_suffix_sums(at_least_float32(token_rewards).where(mask, 0.0), gamma)


def reinforce_pp_advantages(
    token_rewards: Tokens,
    mask: TokenMask,
    moments: Moments | MomentsOf | None = None,
    *,
    gamma: Share = 1.0,
    std: Std = "sample",
) -> Tokens:
    """Return whitened rewards-to-go (REINFORCE++, arXiv:2501.03262).

    A = whiten(reward_to_go(r, gamma)),  every token counted once

    Args:
        token_rewards: `[B, T]`, the completion's reward on its last token, KL penalties already subtracted.
        mask: `[B, T]`, each row a prefix.
        moments: of the rewards-to-go of the whole update, or a function that returns them; this batch's own without.
        gamma: discount per token.
        std: deviation from n - 1 (`sample`, as in verl) or from n (`population`, as in OpenRLHF).

    Raises:
        ValueError: as `reward_to_go` and `whiten`.

    >>> rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> advantages = reinforce_pp_advantages(rewards, torch.ones(2, 2, dtype=torch.bool))
    >>> [round(value, 6) for value in advantages[:, 0].tolist()]
    [0.866025, -0.866025]
    """
    # The one reward of a completion reaches all of its tokens, and each counts in the moments.
    returns = reward_to_go(token_rewards, mask, gamma=gamma)
    return _whitened(returns, mask, moments, std)


def reinforce_pp_baseline_advantages(
    rewards: Groups,
    mask: TokenMask,
    rows: Int[Tensor, " B"] | None = None,
    penalty: Tokens | None = None,
    moments: Moments | MomentsOf | None = None,
    *,
    std: Std = "sample",
) -> Tokens:
    """Return rewards minus their group's mean, given to every token and whitened (REINFORCE++, arXiv:2501.03262).

    A = whiten(r - mean_group(r) - penalty),  every token counted once

    Args:
        rewards: `[G, N]`, one row a prompt, N >= 2 completions each.
        mask: `[B, T]`, of the completions in `rows`.
        rows: `[B]`; g N + n is completion n of group g. None: all G N of them, in this order.
        penalty: `[B, T]`, subtracted from each token before whitening, such as a KL to go; none by default.
        moments: of what is whitened, over the whole update, or a function that returns them; this batch's own without.
        std: deviation from n - 1 (`sample`, as in verl) or from n (`population`, as in OpenRLHF).

    Raises:
        ValueError: groups of one, a mask with other than B rows, or as `whiten`.

    >>> mask = torch.arange(4) < torch.tensor([2, 3, 4, 1])[:, None]
    >>> advantages = reinforce_pp_baseline_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), mask, std="population")
    >>> [round(value, 6) for value in advantages[:, 0].tolist()]
    [2.0, -0.5, -0.5, -0.5]
    """
    # The baseline is of whole groups; this process may have only some of their completions.
    per_completion = dr_grpo_advantages(rewards).flatten()
    per_completion = per_completion if rows is None else per_completion[rows]
    if mask.ndim != 2 or len(mask) != len(per_completion):
        raise ValueError(f"the mask must have {len(per_completion)} rows, one per completion; got {tuple(mask.shape)}")
    values = per_completion[:, None].expand(mask.shape)
    return _whitened(values if penalty is None else values - penalty, mask, moments, std)


def _whitened(values: Tensor, mask: Tensor, known: Moments | MomentsOf | None, std: Std) -> Tensor:
    if not isinstance(known, Moments):
        known = (known or moments)(values, mask)
    return whiten(values, mask, known, std=std)


def gae(
    token_rewards: Tokens,
    values: Tokens,
    mask: TokenMask,
    *,
    gamma: Probability = 1.0,
    lam: Probability = 0.95,
) -> tuple[Tokens, Tokens]:
    """Return generalised advantage estimates and the returns the value head learns (arXiv:1506.02438).

    delta_t = r_t + gamma V_{t+1} - V_t, with V = 0 after the last token
    A_t = sum_{k >= 0} (gamma lam)^k delta_{t+k};  return_t = A_t + V_t

    Both are 0 where masked, carry no gradient, and are not whitened. V_t is the value before token t is chosen.

    Args:
        token_rewards: `[B, T]`; masked positions are not read.
        values: `[B, T]`, of the value head when the completions were sampled.
        mask: `[B, T]`, each row a prefix.
        gamma: discount per token, from 0 to 1.
        lam: 0 uses one step of the value head, 1 the whole return; from 0 to 1.

    Raises:
        ValueError: shapes differ, a mask is not a prefix, or gamma or lam is out of range.

    >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]])
    >>> [x.tolist() for x in gae(rewards, values, torch.tensor([[True, True]]), gamma=1.0, lam=0.5)]
    [[[0.125, 0.75]], [[0.625, 1.0]]]
    """
    _check_factor("gamma", gamma)
    _check_factor("lam", lam)
    _check_tokens(mask, token_rewards, values)
    # One-step errors of the value head, with nothing after the last token; the advantage is their discounted sum.
    known = at_least_float32(values).detach().where(mask, 0.0)
    following = torch.nn.functional.pad(known[:, 1:], (0, 1))
    deltas = (at_least_float32(token_rewards).detach() + gamma * following - known).where(mask, 0.0)
    advantages = _discounted_suffix_sums(deltas, gamma * lam)
    return advantages, advantages + known
