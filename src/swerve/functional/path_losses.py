"""Losses that move a chosen token towards, or past, the most likely one ("Exploring Paths in Probabilistic Graphs").

At each position p_c is the probability of the chosen token (the sampled one, or the data's next token: then these are
alternatives to cross-entropy in supervised training) and p_m that of the most likely token. Each loss compares two
binary distributions (that token, or any other), or two distributions that differ in a few entries:

| loss | of | is 0, with no gradient, where |
|---|---|---|
| `max_prob_kl` | binary KL(p_m, p_c) | p_c = p_m |
| `max_prob_js` | binary JS(p_m, p_c) | p_c = p_m |
| `fixed_target_kl` | binary KL(q, p_c) | p_c = q, and outside its region |
| `rank_promotion_js` | JS(p, p with the chosen token promoted) | p_c = p_m |

Where several tokens are the most likely ones and the chosen token is among them, p_c = p_m.

Everything is computed from the odds p_c / (1 - p_c), accurate for p_c near 0 and near 1 alike: log p_c - log(1 - p_c)
is the token's logit minus the logsumexp of all others, which keeps its digits where 1 - p_c has none. Between forward
and backward the logits are kept and a few numbers a row (`rank_promotion_js`: also as many as the chosen tokens' ranks
add up to); the gradient is written a group of rows at a time into one buffer of the logits' shape and type. The
gradients can be taken once: there is no second derivative.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from swerve.functional.divergence import js_sum, kl_sum, log_share_of_mean, num_group_rows
from swerve.functional.logprobs import at_least_float32
from swerve.functional.types import Ids, InnerShare, Logits, Rows


def other_logsumexp(logits: Logits, ids: Ids) -> Rows:
    """Return log sum_{v != id} exp(logits_v), exact to rounding however likely or unlikely the token is.

    With it, log(1 - p_c) = other_logsumexp - logsumexp; its gradient is exp(logits_v - result), and 0 for the token.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N]`.

    Returns:
        `[N]`, float32 (float64 for float64 logits); minus infinity where every other logit is.

    Raises:
        ValueError: the shapes differ, or there are no other tokens.

    >>> logits = torch.tensor([[120.0, 1.0, 1.0]])
    >>> round(float(other_logsumexp(logits, torch.tensor([0]))), 6)
    1.693147
    """
    check_token_shapes(logits, ids)
    return _chosen_and_others(logits, ids[:, None])[1][:, 0]


def log_odds(logits: Logits, ids: Int[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Return log p - log(1 - p) of K tokens per row, nats; the gradient takes one buffer of the logits' shape.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N, K]`.

    >>> log_odds(torch.tensor([[120.0, 0.0]]), torch.tensor([[0, 1]])).tolist()
    [[120.0, -120.0]]
    """
    chosen, others = _chosen_and_others(logits, ids)
    return chosen - others


def _chosen_and_others(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    chosen, others = _ChosenAndOthers.apply(logits, ids.long())  # type: ignore[no-untyped-call]
    return chosen, others


class _ChosenAndOthers(torch.autograd.Function):
    """The logits of the tokens `ids [N, K]`, and for each of them the logsumexp of all other tokens."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows = num_group_rows(logits)
        parts = [_group_others(*group) for group in zip(logits.split(rows), ids.split(rows), strict=True)]
        others = torch.cat(parts)
        ctx.save_for_backward(logits, ids, others)
        return logits.gather(-1, ids).to(others.dtype), others

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_chosen: Tensor, grad_others: Tensor) -> tuple[Tensor, None]:
        logits, ids, others = ctx.saved_tensors
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        rows = num_group_rows(logits)
        tensors = (gradient, logits, ids, others, grad_chosen, grad_others)
        for out, group, *columns in zip(*(tensor.split(rows) for tensor in tensors), strict=True):
            out.copy_(_group_gradient(group, *columns))
        return gradient, None


def _group_others(logits: Tensor, ids: Tensor) -> Tensor:
    scratch = at_least_float32(logits).clone()  # of one group of rows
    columns = []
    for column in ids.split(1, dim=-1):
        chosen = scratch.gather(-1, column)
        columns.append(scratch.scatter_(-1, column, -math.inf).logsumexp(dim=-1))
        scratch.scatter_(-1, column, chosen)
    return torch.stack(columns, dim=-1)


def _group_gradient(logits: Tensor, ids: Tensor, others: Tensor, grad_chosen: Tensor, grad_others: Tensor) -> Tensor:
    logits = at_least_float32(logits)
    others = others.clamp(min=torch.finfo(others.dtype).min)  # where all others have probability 0 they stay at 0
    total = torch.zeros_like(logits)
    for index in range(ids.shape[1]):
        column = slice(index, index + 1)
        # At the token itself the exponent may be large; it is replaced.
        share = (logits - others[:, column]).clamp_(max=0.0).exp_().mul_(grad_others[:, column])
        total += share.scatter_(-1, ids[:, column], grad_chosen[:, column])
    return total


def check_token_shapes(logits: Float[Tensor, "*_"], ids: Int[Tensor, "*_"]) -> None:
    """Raise ValueError unless logits are `[N, V]` with V at least 2 and ids `[N]`.

    Raises:
        ValueError: the shapes differ, or there are no other tokens.

    >>> check_token_shapes(torch.zeros(3, 5), torch.zeros(3, dtype=torch.long))
    """
    if logits.dim() != 2 or ids.shape != logits.shape[:1]:
        raise ValueError(f"logits must be [N, V] and ids [N]; got {tuple(logits.shape)} and {tuple(ids.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"a token is compared with the other tokens: V must be at least 2, got {logits.shape[1]}")


TargetGradient = Literal["live", "detached"]
Region = Literal["all", "above", "below"]

_NEAR = 0.5  # log-ratios below this are formed without the difference of two rounded logarithms


def max_prob_kl(logits: Logits, ids: Ids, *, target_gradient: TargetGradient = "live") -> Rows:
    """Return the binary KL(p_m || p_c) at each position, unreduced.

    p_m log(p_m / p_c) + (1 - p_m) log((1 - p_m) / (1 - p_c))

    Exactly 0 with a gradient of exactly 0 where p_c = p_m. With a live target the most likely token also comes down.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N]`, the chosen tokens; their logits have to be finite.
        target_gradient: whether gradient flows through the most likely token's probability, p_m.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the shapes differ, there are no other tokens, or the option is unknown.

    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> [round(float(max_prob_kl(logits, torch.tensor([c]), target_gradient="live")), 6) for c in (0, 1, 2)]
    [0.0, 0.087177, 0.223144]
    """
    return _max_prob("kl", logits, ids, target_gradient)


def max_prob_js(logits: Logits, ids: Ids, *, target_gradient: TargetGradient = "live") -> Rows:
    """Return the binary Jensen-Shannon divergence of p_m and p_c at each position, unreduced; at most ln 2.

    JS(B(p_m), B(p_c)),  B(p) the distribution of p and 1 - p

    Exactly 0 with a gradient of exactly 0 where p_c = p_m. Its gradient vanishes as p_c goes to 0, where that of
    `max_prob_kl` does not.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N]`, the chosen tokens; their logits have to be finite.
        target_gradient: whether gradient flows through the most likely token's probability, p_m.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the shapes differ, there are no other tokens, or the option is unknown.

    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> [round(float(max_prob_js(logits, torch.tensor([c]), target_gradient="live")), 6) for c in (0, 1, 2)]
    [0.0, 0.021006, 0.050672]
    """
    return _max_prob("js", logits, ids, target_gradient)


def fixed_target_kl(logits: Logits, ids: Ids, *, q: InnerShare = 0.5, region: Region = "all") -> Rows:
    """Return the binary KL(q || p_c) at each position, unreduced.

    q log q + (1 - q) log(1 - q) - q log p_c - (1 - q) log(1 - p_c)

    At q = 0.5 that is log 0.5 - 0.5 (log p_c + log(1 - p_c)). It pulls p_c up where it is below q and pushes it down
    where it is above; `region` keeps one of the two.

    Args:
        logits: `[N, V]`, V at least 2.
        ids: `[N]`, the chosen tokens; their logits, and one other logit a row, have to be finite.
        q: the probability that the chosen token should have.
        region: everywhere, or only where p_c is above or below q: elsewhere loss and gradient are 0.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the shapes differ, there are no other tokens, q is out of range, or the region is unknown.

    >>> logits, ids = torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log(), torch.tensor([0, 1])
    >>> [round(value, 6) for value in fixed_target_kl(logits, ids).tolist()]
    [0.510826, 0.510826]
    >>> [round(value, 6) for value in fixed_target_kl(logits, ids, region="above").tolist()]
    [0.510826, 0.0]
    """
    check_token_shapes(logits, ids)
    if not 0 < q < 1:
        raise ValueError(f"q must be strictly between 0 and 1, got {q}")
    if region not in get_args(Region):
        raise ValueError(f"region must be one of {', '.join(get_args(Region))}; got {region!r}")
    # The divergence between two probabilities given by their log-odds, the target's a constant.
    chosen_odds = log_odds(logits, ids[:, None])[:, 0]
    target_odds = torch.full_like(chosen_odds, math.log(q) - math.log1p(-q))
    values = _binary_divergence("kl", target_odds, chosen_odds, *_log_ratios(target_odds, chosen_odds.detach()))
    if region == "all":
        return values
    inside = chosen_odds > target_odds if region == "above" else chosen_odds < target_odds
    return values.where(inside, 0.0)


def rank_promotion_js(logits: Logits, ids: Ids) -> Rows:
    """Return JS(p, t) at each position, t being p with the chosen token promoted to rank 1; unreduced, at most ln 2.

    t gives the chosen token the probability of rank 1 and each token above it the probability of the next rank; it is
    a constant. p and t agree beyond the chosen token's rank k (1 + the number of strictly more likely tokens), so only
    k terms count. Of tokens above it that are equally likely, the one with the smaller id ranks first. The gradient by
    the logits is p_v (a_v - sum p a), a = log(p / m) / 2, m = (p + t) / 2.

    Args:
        logits: `[N, V]`.
        ids: `[N]`, the chosen tokens; their logits have to be finite.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the shapes differ, or there are no other tokens.

    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> [round(float(rank_promotion_js(logits, torch.tensor([c]))), 6) for c in (0, 1, 2)]
    [0.0, 0.025267, 0.050875]
    """
    check_token_shapes(logits, ids)
    values: Tensor = _RankPromotion.apply(logits, ids.long())  # type: ignore[no-untyped-call]
    return values


def _max_prob(kind: str, logits: Tensor, ids: Tensor, target_gradient: TargetGradient) -> Tensor:
    check_token_shapes(logits, ids)
    if target_gradient not in get_args(TargetGradient):
        raise ValueError(
            f"target_gradient must be one of {', '.join(get_args(TargetGradient))}; got {target_gradient!r}"
        )
    # Log-odds of the two tokens; those of a live target carry a gradient.
    largest = logits.detach().argmax(dim=-1)
    if target_gradient == "live":
        target_odds, chosen_odds = log_odds(logits, torch.stack([largest, ids], dim=-1)).unbind(-1)
    else:
        target_odds = log_odds(logits.detach(), largest[:, None])[:, 0]
        chosen_odds = log_odds(logits, ids[:, None])[:, 0]
    pair = logits.detach().gather(-1, torch.stack([largest, ids], dim=-1)).to(chosen_odds.dtype)
    gap = pair[:, 0] - pair[:, 1]  # log(p_m / p_c), exact where the two are near
    # log((1 - p_m) / (1 - p_c)): the difference of two rounded logarithms has no digits where the two are near. Unless
    # it is the most likely, the chosen token's odds are at most 1.
    odds = chosen_odds.detach().clamp(max=0.0).exp()
    near = torch.log1p(-odds * torch.expm1(gap.clamp(max=_NEAR)))
    far = _log_sigmoid(-target_odds.detach()) - _log_sigmoid(-chosen_odds.detach())
    return _binary_divergence(kind, target_odds, chosen_odds, gap, torch.where(gap < _NEAR, near, far))


def _binary_divergence(
    kind: str, target_odds: Tensor, chosen_odds: Tensor, ratio: Tensor, ratio_rest: Tensor
) -> Tensor:
    arguments = (target_odds, chosen_odds, ratio, ratio_rest, kind)
    values: Tensor = _BinaryDivergence.apply(*arguments)  # type: ignore[no-untyped-call]
    return values


class _BinaryDivergence(torch.autograd.Function):
    """Binary KL(a || c) or JS by the log-odds of a and c, given log(a / c) and log((1 - a) / (1 - c))."""

    @staticmethod
    def forward(ctx: Any, target_odds: Tensor, chosen_odds: Tensor, ratio: Tensor, rest: Tensor, kind: str) -> Tensor:
        ctx.save_for_backward(target_odds, chosen_odds, ratio, rest)
        ctx.kind = kind
        target, chosen = (torch.stack([odds, -odds], dim=-1).sigmoid() for odds in (target_odds, chosen_odds))
        return (kl_sum if kind == "kl" else js_sum)(target, chosen, torch.stack([ratio, rest], dim=-1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        target_odds, chosen_odds, ratio, rest = ctx.saved_tensors
        target_slope = target_odds.sigmoid() * (-target_odds).sigmoid()
        chosen_slope = chosen_odds.sigmoid() * (-chosen_odds).sigmoid()
        if ctx.kind == "kl":
            by_target = target_slope * (ratio - rest)
            near = (-chosen_odds).sigmoid() * torch.expm1(rest.clamp(-_NEAR, _NEAR))
            by_chosen = torch.where(rest.abs() < _NEAR, near, chosen_odds.sigmoid() - target_odds.sigmoid())
        else:
            by_target = target_slope * (log_share_of_mean(ratio) - log_share_of_mean(rest)) / 2
            by_chosen = chosen_slope * (log_share_of_mean(-ratio) - log_share_of_mean(-rest)) / 2
        return grad_output * by_target, grad_output * by_chosen, None, None, None


def _log_ratios(target_odds: Tensor, chosen_odds: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(a / c) and log((1 - a) / (1 - c)) of two probabilities given by their log-odds."""
    difference = target_odds - chosen_odds
    near = difference.clamp(-_NEAR, _NEAR)
    ratio = torch.log1p((-target_odds).sigmoid() * torch.expm1(near))
    rest = torch.log1p(target_odds.sigmoid() * torch.expm1(-near))
    is_near = difference.abs() < _NEAR
    return (
        torch.where(is_near, ratio, _log_sigmoid(target_odds) - _log_sigmoid(chosen_odds)),
        torch.where(is_near, rest, _log_sigmoid(-target_odds) - _log_sigmoid(-chosen_odds)),
    )


class _RankPromotion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor) -> Tensor:
        num_rows = num_group_rows(logits)
        groups = zip(logits.split(num_rows), ids.split(num_rows), strict=True)
        parts = [_promote(group, chosen, first=index * num_rows) for index, (group, chosen) in enumerate(groups)]
        promotions = _Promotions(*(torch.cat(column) for column in zip(*parts, strict=True)))
        ctx.save_for_backward(logits, *promotions)
        return promotions.values.new_zeros(logits.shape[0]).index_copy(0, promotions.rows, promotions.values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        logits, *saved = ctx.saved_tensors
        promotions = _Promotions(*saved)
        gradient = torch.zeros_like(logits, memory_format=torch.contiguous_format)
        num_rows = num_group_rows(logits)
        columns = (promotions.rows, promotions.largest, promotions.log_total, promotions.mean)
        for rows, largest, log_total, mean in zip(*(column.split(num_rows) for column in columns), strict=True):
            probs = (at_least_float32(logits[rows]) - largest[:, None] - log_total[:, None]).exp_()
            gradient[rows] = probs.mul_(-(grad_output[rows] * mean)[:, None]).to(gradient.dtype)
        entries = promotions.entry_weights * grad_output[promotions.entry_rows]
        gradient[promotions.entry_rows, promotions.entry_columns] = entries.to(gradient.dtype)
        return gradient, None


class _Promotions(NamedTuple):
    """The rows `[R]` whose chosen token is not the most likely, and the entries `[E]` that its promotion changes."""

    rows: Tensor
    values: Tensor
    largest: Tensor
    log_total: Tensor
    """logsumexp of the logits minus the largest."""
    mean: Tensor
    """sum_v p_v a_v."""
    entry_rows: Tensor
    entry_columns: Tensor
    entry_weights: Tensor
    """p_v (a_v - mean)."""


def _promote(logits: Tensor, ids: Tensor, *, first: int) -> _Promotions:
    """Compare one group of rows, the first of which is row `first`, with their promoted distributions."""
    logits = at_least_float32(logits)
    num_above = (logits > logits.gather(-1, ids[:, None])).sum(dim=-1)
    rows = num_above.nonzero()[:, 0]
    logits, ids, last = logits[rows], ids[rows], num_above[rows][:, None]
    largest = logits.amax(dim=-1)
    logits = logits - largest[:, None]  # large logits leave their logsumexp, and so every probability, fewer digits
    log_total = logits.logsumexp(dim=-1)
    size = int(last.max()) + 1 if len(rows) else 1

    # The largest logits of each row and their ids; of equal ones the smaller id first, on any device.
    columns = logits.topk(size, dim=-1).indices.sort(dim=-1).values
    ranked, order = logits.gather(-1, columns).sort(dim=-1, descending=True, stable=True)
    columns = columns.gather(-1, order)
    columns = columns.scatter(-1, last, ids[:, None])  # it goes before others that are as likely
    position = torch.arange(size, device=logits.device)
    changed = position <= last
    promoted = torch.where(position == last, ranked[:, :1], ranked.roll(-1, dims=-1))
    p, t = ((values - log_total[:, None]).exp().where(changed, 0.0) for values in (ranked, promoted))
    x = (ranked - promoted).where(changed, 0.0)
    share = log_share_of_mean(x) / 2
    mean = (p * share).sum(dim=-1)
    return _Promotions(
        rows=rows + first,
        values=js_sum(p, t, x),
        largest=largest,
        log_total=log_total,
        mean=mean,
        entry_rows=(rows + first)[:, None].expand_as(columns)[changed],
        entry_columns=columns[changed],
        entry_weights=(p * (share - mean[:, None]))[changed],
    )


def _log_sigmoid(odds: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(odds)
