"""Losses of the policy, the value head and preference pairs, unreduced: per token `[B, T]`, or per pair `[B]`.

rho = exp(logprobs - old_logprobs) compares the policy being trained with the one whose log-probabilities were taken
before the update. Gradients flow through `logprobs` alone. Where a clip decides the value the gradient is exactly 0,
and a ratio too large for its type cannot turn it into NaN.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.functional.logprobs import at_least_float32, check_same_shape
from swerve.functional.types import AboveOne, NonNegative, Positive, Probability, TokenMask, Tokens


def _check_clip(low: Probability, high: NonNegative) -> None:
    if not 0 <= low <= 1:
        raise ValueError(f"low must be from 0 to 1, got {low}; the ratio is kept above 1 - low")
    if not high >= 0:
        raise ValueError(f"high must be at least 0, got {high}; the ratio is kept below 1 + high")


def _log_ratio(logprobs: Tensor, old_logprobs: Tensor, clamp: Positive | None = None) -> Tensor:
    if clamp is not None and not clamp > 0:
        raise ValueError(f"log_ratio_clamp must be above 0 nats, got {clamp}")
    check_same_shape(logprobs=logprobs, old_logprobs=old_logprobs)
    log_ratio = at_least_float32(logprobs) - at_least_float32(old_logprobs.detach())
    return log_ratio if clamp is None else log_ratio.clamp(-clamp, clamp)


def _surrogate(log_ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float = math.inf) -> Tensor:
    """Return -A rho with rho kept below 1 + high where A >= 0, and within 1 - low and `dual` where A < 0."""
    _check_clip(low, high)
    check_same_shape(logprobs=log_ratio, advantages=advantages)
    advantages = at_least_float32(advantages.detach())
    ratio = log_ratio.detach().exp()
    negative = advantages < 0
    floor = torch.zeros_like(ratio).masked_fill(negative, 1.0 - low)
    ceiling = torch.full_like(ratio, 1.0 + high).masked_fill(negative, dual)
    inside = (ratio >= floor) & (ratio <= ceiling)
    # A min() over both branches would send 0 x infinity = NaN back through the exponential of a clipped ratio.
    live = log_ratio.where(inside, 0.0).exp()
    return -advantages * torch.where(inside, live, ratio.clamp(floor, ceiling))


def clip_loss(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    low: Probability = 0.2,
    high: NonNegative = 0.2,
    log_ratio_clamp: Positive | None = None,
) -> Tokens:
    """Per-token clipped surrogate, unreduced (PPO, arXiv:1707.06347; low and high apart: DAPO, arXiv:2503.14476).

    loss = -min(rho A, clip(rho, 1 - low, 1 + high) A),  rho = exp(logprobs - old_logprobs)

    The gradient is -A rho grad logp, and 0 where `clip_fraction` is True. Nothing bounds the loss where A < 0 and rho
    is large: in float32 it is infinite from a log-ratio of 89 unless `log_ratio_clamp` or `dual_clip_loss` bounds it.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        old_logprobs: `[B, T]`, nats, under the policy before the update.
        advantages: `[B, T]`, no gradient flows through them.
        low: the ratio counts down to 1 - low.
        high: the ratio counts up to 1 + high.
        log_ratio_clamp: log-ratios are clamped to plus or minus this many nats, without gradient beyond; verl 20.

    Raises:
        ValueError: low, high or log_ratio_clamp is out of range, or shapes differ.

    >>> logprobs = torch.tensor([[0.5, 1.5, 0.5, 1.5]]).log()  # ratios to a probability of 1
    >>> losses = clip_loss(logprobs, torch.zeros(1, 4), torch.tensor([[1.0, 1.0, -1.0, -1.0]]))
    >>> [round(value, 6) for value in losses[0].tolist()]
    [-0.5, -1.2, 0.8, 1.5]
    """
    return _surrogate(_log_ratio(logprobs, old_logprobs, log_ratio_clamp), advantages, low, high)


def dual_clip_loss(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    low: Probability = 0.2,
    high: NonNegative = 0.2,
    c: AboveOne = 3.0,
    log_ratio_clamp: Positive | None = None,
) -> Tokens:
    """Per-token clipped surrogate bounded for negative advantages too, unreduced (arXiv:1912.09729; on in verl).

    loss = min(clip_loss, -c A) where A < 0, else clip_loss

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        old_logprobs: `[B, T]`, nats, under the policy before the update.
        advantages: `[B, T]`, no gradient flows through them.
        low: the ratio counts down to 1 - low.
        high: the ratio counts up to 1 + high where A > 0.
        c: the ratio counts up to c where A < 0; the gradient is 0 beyond.
        log_ratio_clamp: as in `clip_loss`.

    Raises:
        ValueError: c is not above 1, low, high or log_ratio_clamp is out of range, or shapes differ.

    >>> logprobs = torch.tensor([[2.0, 4.0]]).log()
    >>> losses = dual_clip_loss(logprobs, torch.zeros(1, 2), torch.tensor([[-1.0, -1.0]]))
    >>> [round(value, 6) for value in losses[0].tolist()]
    [2.0, 3.0]
    """
    # Below 1 it would clip tokens whose probability has not moved.
    if not c > 1:
        raise ValueError(f"c must be above 1, got {c}; it bounds the ratio of tokens with negative advantages")
    return _surrogate(_log_ratio(logprobs, old_logprobs, log_ratio_clamp), advantages, low, high, c)


def clip_fraction(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    low: Probability = 0.2,
    high: NonNegative = 0.2,
    c: AboveOne = math.inf,
    log_ratio_clamp: Positive | None = None,
    log_ratio: Tokens | None = None,
) -> TokenMask:
    """Return where clipping removed the gradient; its mean over the mask is the clip fraction.

    (A > 0 and rho > 1 + high) or (A < 0 and (rho < 1 - low or rho > c)) or abs(log rho) > log_ratio_clamp

    Args:
        logprobs: `[B, T]`, nats.
        old_logprobs: `[B, T]`, nats.
        advantages: `[B, T]`.
        low: as in `clip_loss`.
        high: as in `clip_loss`.
        c: as in `dual_clip_loss`; infinity for the losses without such a bound.
        log_ratio_clamp: as in `clip_loss`.
        log_ratio: `[B, T]`, nats, log rho itself, as in `gspo_loss`; that of each token without it.

    Raises:
        ValueError: low or high is out of range, or shapes differ.

    >>> logprobs = torch.tensor([[0.5, 1.5, 0.5, 1.5]]).log()
    >>> clip_fraction(logprobs, torch.zeros(1, 4), torch.tensor([[1.0, 1.0, -1.0, -1.0]])).tolist()
    [[False, True, True, False]]
    """
    # A clip acts only where it would stop the advantage from moving the ratio on: above where A > 0, else below.
    _check_clip(low, high)
    check_same_shape(logprobs=logprobs, advantages=advantages)
    size = _log_ratio(logprobs.detach(), old_logprobs) if log_ratio is None else at_least_float32(log_ratio.detach())
    ratio = size.exp()
    clipped = ((advantages > 0) & (ratio > 1.0 + high)) | ((advantages < 0) & ((ratio < 1.0 - low) | (ratio > c)))
    return clipped if log_ratio_clamp is None else clipped | (size.abs() > log_ratio_clamp)


def cispo_loss(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    cap: Positive = 5.0,
    floor: NonNegative | None = None,
) -> Tokens:
    """Per-token policy gradient with a capped weight, unreduced (CISPO, arXiv:2506.13585).

    loss = -sg(clamp(rho, floor, cap)) A logp

    Unlike in `clip_loss`, every token keeps a gradient.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        old_logprobs: `[B, T]`, nats, under the policy before the update.
        advantages: `[B, T]`, no gradient flows through them.
        cap: largest weight, the bound itself: TRL's epsilon_high, verl's 1 + high.
        floor: smallest weight: verl's 1 - low, none in TRL.

    Raises:
        ValueError: cap is not above 0, floor is not from 0 to cap, or shapes differ.

    >>> loss = cispo_loss(torch.tensor([[-0.5]]), torch.tensor([[-2.0]]), torch.tensor([[1.0]]), cap=2.0)
    >>> loss.tolist()
    [[1.0]]
    """
    if not cap > 0:
        raise ValueError(f"cap must be above 0, got {cap}")
    if floor is not None and not 0 <= floor <= cap:
        raise ValueError(f"floor must be from 0 to cap, which is {cap}; got {floor}")
    # The weight is a constant, so that a capped token keeps the gradient of its log-probability.
    check_same_shape(logprobs=logprobs, advantages=advantages)
    weight = _log_ratio(logprobs.detach(), old_logprobs).exp().clamp(min=0.0 if floor is None else floor, max=cap)
    return -weight * at_least_float32(advantages.detach()) * at_least_float32(logprobs)


def sequence_log_ratio(logprobs: Tokens, old_logprobs: Tokens, mask: TokenMask) -> Float[Tensor, " B"]:
    """Return each sequence's mean log-ratio over its tokens, nats (GSPO, arXiv:2507.18071, equation 7).

    log s = mean_t(logp_t - old_logp_t); 0 for a row without tokens

    Args:
        logprobs: `[B, T]`, nats; masked positions are not read. The gradient flows through them.
        old_logprobs: `[B, T]`, nats.
        mask: `[B, T]`.

    >>> logprobs, mask = torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[True, True, False]])
    >>> sequence_log_ratio(logprobs, torch.tensor([[-1.5, -2.0, 0.0]]), mask).tolist()
    [0.25]
    """
    check_same_shape(logprobs=logprobs, mask=mask)
    log_ratio = _log_ratio(logprobs, old_logprobs).where(mask, 0.0)
    return log_ratio.sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def gspo_token_loss(
    logprobs: Tokens,
    log_ratio: Tokens,
    advantages: Tokens,
    *,
    low: Probability,
    high: NonNegative,
) -> Tokens:
    """Per-token clipped surrogate with a given sequence ratio, unreduced (GSPO-token, arXiv:2507.18071, section 4.3).

    loss = -min(s A, clip(s, 1 - low, 1 + high) A),  s = sg(exp(log_ratio)) exp(logp - sg(logp))

    The value is the sequence's, the gradient -s A grad logp is the token's (straight-through).

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        log_ratio: `[B, T]`, nats, `sequence_log_ratio` of each token's own sequence; no gradient flows through it.
        advantages: `[B, T]`, no gradient flows through them.
        low: the sequence ratio counts down to 1 - low (3e-4 in the paper).
        high: the sequence ratio counts up to 1 + high (4e-4 in the paper).

    Raises:
        ValueError: low or high is out of range, or shapes differ.

    >>> log_ratio = torch.tensor([[1.1]]).log()
    >>> loss = gspo_token_loss(torch.tensor([[-2.0]]), log_ratio, torch.tensor([[1.0]]), low=0.2, high=0.2)
    >>> round(float(loss), 6)
    -1.1
    """
    # (current - current.detach()) is 0 and carries the token's gradient into the sequence's ratio.
    check_same_shape(logprobs=logprobs, log_ratio=log_ratio)
    current = at_least_float32(logprobs)
    straight_through = at_least_float32(log_ratio.detach()) + (current - current.detach())
    return _surrogate(straight_through, advantages, low, high)


def gspo_loss(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    mask: TokenMask | None = None,
    log_ratio: Tokens | None = None,
    *,
    low: Probability = 3e-4,
    high: NonNegative = 4e-4,
) -> Tokens:
    """Clipped surrogate of the sequence ratio, given to every token, unreduced (GSPO, arXiv:2507.18071).

    loss_t = -min(s A, clip(s, 1 - low, 1 + high) A),  s = exp(mean_t(logp - old_logp))

    With equal advantages along a sequence, its `sequence_mean` has the value and gradient of the published objective.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        old_logprobs: `[B, T]`, nats, under the policy before the update.
        advantages: `[B, T]`, no gradient flows through them.
        mask: `[B, T]`; masked positions do not count in s. Not needed with `log_ratio`.
        log_ratio: `[B, T]`, nats, log s of each token's sequence, where these tokens are only a part of it.
        low: the sequence's ratio counts down to 1 - low.
        high: the sequence's ratio counts up to 1 + high.

    Raises:
        ValueError: low or high is out of range, shapes differ, or neither mask nor log_ratio is given.

    >>> logprobs, mask = torch.tensor([[-1.0, -1.4]]), torch.tensor([[True, True]])
    >>> loss = gspo_loss(logprobs, torch.tensor([[-1.2, -1.2]]), torch.ones(1, 2), mask, low=0.2, high=0.2)
    >>> loss.tolist()
    [[-1.0, -1.0]]
    """
    # Whole sequences give their own ratio; parts of them have to be told it.
    if log_ratio is None:
        if mask is None:
            raise ValueError("the ratio of a sequence needs the mask of its tokens, or log_ratio; give one of them")
        log_ratio = sequence_log_ratio(logprobs.detach(), old_logprobs, mask)[:, None].expand(logprobs.shape)
    return gspo_token_loss(logprobs, log_ratio, advantages, low=low, high=high)


def reinforce_loss(logprobs: Tokens, advantages: Tokens) -> Tokens:
    """Per-token policy-gradient loss, unreduced (REINFORCE, Williams 1992).

    loss = -A logp

    Its gradient is -A grad logp; with A = 1 it is cross-entropy.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        advantages: `[B, T]`, no gradient flows through them.

    Raises:
        ValueError: shapes differ.

    >>> reinforce_loss(torch.tensor([[-0.5]]), torch.tensor([[2.0]])).tolist()
    [[1.0]]
    """
    check_same_shape(logprobs=logprobs, advantages=advantages)
    return -at_least_float32(advantages.detach()) * at_least_float32(logprobs)


def value_loss(
    values: Tokens,
    returns: Tokens,
    *,
    old_values: Tokens | None = None,
    clip: Positive | None = None,
) -> Tokens:
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
    check_same_shape(values=values, returns=returns, old_values=old_values)
    # The larger of the plain and the clipped error: a value that moved too far towards its target has no gradient.
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
    # How much more the policy prefers the chosen completion than the reference does.
    margin = (chosen_logprobs - ref_chosen_logprobs) - (rejected_logprobs - ref_rejected_logprobs)
    return -torch.nn.functional.logsigmoid(beta * margin)
