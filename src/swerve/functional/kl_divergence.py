"""KL divergence to a reference policy, estimated from the sampled token.

With x = logprobs - ref_logprobs of a token sampled from the policy pi (and ref the reference's distribution),

| estimator | value | its expectation | gradient (per token, times grad logp) | the expected gradient is that of |
|---|---|---|---|---|
| `k1` | x | KL(pi, ref) | 1 | nothing: 0 |
| `k2` | x^2 / 2 | about KL(pi, ref) where the two are near | x | KL(pi, ref), reverse |
| `k3` | exp(-x) - 1 + x | KL(pi, ref) | 1 - exp(-x) | KL(ref, pi), forward |
| `k3+` | that of k3 | KL(pi, ref) | x, that of k2 | KL(pi, ref), reverse |
| `abs` | abs(x) | E abs(log pi - log ref) | sign(x) | sum abs(pi - ref): twice the total variation |

and with `importance`, that is multiplied by w = exp(logprobs - old_logprobs), at w = 1:

| estimator | gradient | the expected gradient is that of |
|---|---|---|
| `k1` | 1 + x | KL(pi, ref), reverse |
| `k2` | x + x^2 / 2 | the value's expectation, E x^2 / 2 |
| `k3` | x | KL(pi, ref), reverse |
| `k3+` | x + exp(-x) - 1 + x | no divergence: the correction is applied twice |
| `abs` | sign(x) + abs(x) | the value's expectation, E abs(x) |

Expectations are over the token at a given context, sampled from pi itself; how a token changes the contexts after it is
not part of them. In the reward, where no gradient flows through the estimate, `k1` is the unbiased one
(arXiv:2512.21852). A clamp that is reached changes the expectations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from swerve.functional.divergence import Softmax, js_sum, kl_sum, log_ratio, log_share_of_mean, num_group_rows, softmax
from swerve.functional.logprobs import at_least_float32, check_same_shape
from swerve.functional.types import Logits, NonNegative, Number, Positive, Rows, Tokens

KlEstimator: TypeAlias = Literal["k1", "k2", "k3", "k3+", "abs"]
KlDirection: TypeAlias = Literal["reverse", "forward", "js"]

_SERIES_BELOW = 0.5
_SERIES_ORDER = 17  # the first term left out is below 1e-19 of the sum
_LARGEST_RELATIVE_ERROR = 0.2


def kl_estimate(
    logprobs: Tokens,
    ref_logprobs: Tokens,
    *,
    estimator: KlEstimator,
    input_clamp: Positive | None = None,
    output_clamp: Positive | None = None,
    importance: bool = False,
    old_logprobs: Tokens | None = None,
) -> Tokens:
    """Estimate each token's KL divergence to the reference, unreduced (Schulman 2020, joschu.net/blog/kl-approx.html).

    x = logprobs - ref_logprobs;  k1 = x,  k2 = x^2 / 2,  k3 = exp(-x) - 1 + x,  abs = |x|,  k3+ = k3 with k2's gradient

    No gradient flows through the reference or the old log-probabilities. `k3` keeps its digits where x is near 0. The
    gradient is 0 where a clamp is exceeded, except that of `k3+`: its clamps bound the value and leave the gradient x.
    Log-probabilities have to be finite, at masked positions too.

    Args:
        logprobs: `[B, T]`, nats, of the sampled tokens under the policy being trained.
        ref_logprobs: `[B, T]`, nats, under the reference.
        estimator: which estimator; the module's tables say what the gradient of each is the gradient of.
        input_clamp: x is limited to +- this many nats; None: it is not.
        output_clamp: the estimate is limited to +- this many nats, before it is weighted; None: it is not.
        importance: multiply by exp(logprobs - old_logprobs), through which the gradient flows.
        old_logprobs: `[B, T]`, nats, under the policy that sampled; by default the value of `logprobs`.

    Returns:
        `[B, T]`, nats, float32 (float64 for float64).

    Raises:
        ValueError: the estimator is unknown, a clamp is not above 0, the shapes differ, or there are old
            log-probabilities but no importance weight to use them in.

    >>> logprobs = torch.tensor([[-1.0]], requires_grad=True)
    >>> k3 = kl_estimate(logprobs, torch.tensor([[-1.5]]), estimator="k3")
    >>> round(float(k3.detach()), 6), round(float(torch.autograd.grad(k3.sum(), logprobs)[0]), 6)
    (0.106531, 0.393469)
    """
    _check(logprobs, ref_logprobs, estimator, (input_clamp, output_clamp), importance, old_logprobs)
    logprobs = at_least_float32(logprobs)
    x = logprobs - at_least_float32(ref_logprobs).detach()
    value = _clamp(_ESTIMATORS[estimator](_clamp(x, input_clamp)), output_clamp)
    if estimator == "k3+":  # (x - x) is 0 and carries the gradient
        value = value.detach() + x.detach() * (x - x.detach())
    if not importance:
        return value
    old_logprobs = logprobs if old_logprobs is None else at_least_float32(old_logprobs)
    return value * (logprobs - old_logprobs.detach()).exp()


def adaptive_kl_coef(coef: NonNegative, *, kl: Number, target: Positive, horizon: Positive, num_samples: int) -> float:
    """Return the next KL coefficient, moved towards the one that keeps KL at a target (arXiv:1909.08593, section 2.2).

    coef (1 + clip(kl / target - 1, -0.2, 0.2) num_samples / horizon)

    Args:
        coef: the present coefficient, at least 0.
        kl: the KL divergence measured since the last change, nats, in the unit of `target`.
        target: the KL divergence to keep, nats, above 0.
        horizon: over how many samples the coefficient may change by about a fifth, above 0.
        num_samples: samples since the last change, fewer than 5 horizons.

    Raises:
        ValueError: a number is outside its range.

    >>> round(adaptive_kl_coef(0.2, kl=12.0, target=6.0, horizon=10_000, num_samples=256), 6)
    0.201024
    """
    if not (math.isfinite(kl) and coef >= 0 and target > 0 and horizon > 0):
        given = f"coef={coef}, kl={kl}, target={target}, horizon={horizon}"
        raise ValueError(f"coef must be at least 0, kl finite, target and horizon above 0; got {given}")
    if not 0 <= num_samples * _LARGEST_RELATIVE_ERROR < horizon:
        limits = f"at least 0 and below 5 horizons ({5 * horizon:g})"
        raise ValueError(f"num_samples must be {limits}, got {num_samples}: use a longer horizon or update more often")
    # However far off the KL is, it counts as a fifth at most: one noisy step moves the coefficient little.
    error = min(max(kl / target - 1, -_LARGEST_RELATIVE_ERROR), _LARGEST_RELATIVE_ERROR)
    return coef * (1 + error * num_samples / horizon)


def _check(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    estimator: str,
    clamps: tuple[Positive | None, Positive | None],
    importance: bool,
    old_logprobs: Tensor | None,
) -> None:
    if estimator not in _ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(_ESTIMATORS)}; got {estimator!r}")
    for name, limit in zip(("input_clamp", "output_clamp"), clamps, strict=True):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be above 0, or None for no limit; got {limit}")
    if old_logprobs is not None and not importance:
        raise ValueError("old_logprobs are used with importance=True only; leave them out, or set it")
    check_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs, old_logprobs=old_logprobs)


class _K3(torch.autograd.Function):
    """exp(-x) - 1 + x by its Taylor series where x is small: the plain sum has no digits left there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        powers = x.new_zeros(())
        for order in range(_SERIES_ORDER, 1, -1):  # x^2/2! - x^3/3! + ...
            powers = powers * x + (-1) ** order / math.factorial(order)
        return torch.where(x.abs() < _SERIES_BELOW, x * x * powers, torch.expm1(-x) + x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        # Beyond an output clamp no gradient arrives, and exp(-x) may be infinite: 0 times it would be NaN.
        return (grad_output * -torch.expm1(-x)).masked_fill(grad_output == 0, 0.0)


def _k3(x: Tensor) -> Tensor:
    k3: Tensor = _K3.apply(x)  # type: ignore[no-untyped-call]
    return k3


_ESTIMATORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda x: x,
    "k2": lambda x: x.square() / 2,
    "k3": _k3,
    "k3+": _k3,
    "abs": lambda x: x.abs(),
}
"""Each estimator's value from x; what its gradient is, the table above says."""


def _clamp(values: Tensor, limit: Positive | None) -> Tensor:
    return values if limit is None else values.clamp(-limit, limit)


def exact_kl(logits: Logits, ref_logits: Logits, *, direction: KlDirection) -> Rows:
    """Return each position's exact divergence between the policy pi = softmax(logits) and the reference, unreduced.

        reverse:  KL(pi || ref) = sum_v p log(p / q)            gradient  p (x - sum p x),  x = log(p / q)
        forward:  KL(ref || pi) = sum_v q log(q / p)            gradient  p - q
        js:       (KL(pi || m) + KL(ref || m)) / 2, m = (p + q) / 2       p (a - sum p a),  a = log(p / m) / 2

    with respect to the logits z; the reference is a constant. Values are those of `divergence_stats`. Between forward
    and backward only the two inputs are kept; the gradient is written a group of rows at a time into one buffer of the
    logits' shape and type. The gradient can be taken once: there is no second derivative.

    A divergence is infinite where one side excludes (logit of minus infinity) a token that the other allows: reverse
    where the reference excludes it, forward where the policy does. The gradient stays finite there.

    Args:
        logits: `[N, V]`, of the policy.
        ref_logits: `[N, V]`, of the reference or a teacher.
        direction: which of the three divergences.

    Returns:
        `[N]`, nats, float32 (float64 for float64 logits).

    Raises:
        ValueError: the direction is unknown, the shapes differ, or a row has NaN, plus infinity, or no finite logit.

    >>> logits, ref_logits = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, -1.0]])
    >>> [round(float(exact_kl(logits, ref_logits, direction=name)), 6) for name in ("reverse", "forward", "js")]
    [0.433781, 0.327813, 0.089541]
    """
    if direction not in get_args(KlDirection):
        raise ValueError(f"direction must be one of {', '.join(get_args(KlDirection))}; got {direction!r}")
    if logits.dim() != 2 or logits.shape != ref_logits.shape:
        shapes = f"{tuple(logits.shape)} and {tuple(ref_logits.shape)}"
        raise ValueError(f"logits and ref_logits must both be [N, V]; got {shapes}")
    values: Tensor = _ExactKl.apply(logits, ref_logits.detach(), direction)  # type: ignore[no-untyped-call]
    return values


class _ExactKl(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ref_logits: Tensor, direction: KlDirection) -> Tensor:
        ctx.save_for_backward(logits, ref_logits)
        ctx.direction = direction
        rows = num_group_rows(logits)
        groups = zip(logits.split(rows), ref_logits.split(rows), strict=True)
        return torch.cat([_values(softmax(group), softmax(ref), direction) for group, ref in groups])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        logits, ref_logits = ctx.saved_tensors
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        rows = num_group_rows(logits)
        groups = zip(*(tensor.split(rows) for tensor in (logits, ref_logits, grad_output, gradient)), strict=True)
        for group, ref, scale, out in groups:
            out.copy_(scale[:, None] * _gradient(group, ref, ctx.direction))
        return gradient, None, None


def _values(p: Softmax, q: Softmax, direction: KlDirection) -> Tensor:
    x = log_ratio(p, q)
    finite = _finite(x)
    if direction == "reverse":
        return kl_sum(p.probs, q.probs, finite).masked_fill((x == math.inf).any(dim=-1), math.inf)
    if direction == "forward":
        return kl_sum(q.probs, p.probs, -finite).masked_fill((x == -math.inf).any(dim=-1), math.inf)
    return js_sum(p.probs, q.probs, finite)


def _gradient(logits: Tensor, ref_logits: Tensor, direction: KlDirection) -> Tensor:
    """Return the derivative by the logits; taking the mean off also removes what rounding adds to every log-ratio."""
    p, q = softmax(logits), softmax(ref_logits)
    # From the difference of the logits themselves: the shifted ones have been rounded once more.
    dtype = p.probs.dtype
    shifts, totals = (p.largest - q.largest)[:, None], (p.log_total - q.log_total).to(dtype)[:, None]
    x = _finite(((logits.to(dtype) - ref_logits.to(dtype)) - shifts) - totals)
    if direction == "forward":
        difference = (p.probs + q.probs) * torch.tanh(x / 2)  # p - q, to relative precision where the two are near
        return difference - p.probs * _total(difference)
    slopes = log_share_of_mean(x) / 2 if direction == "js" else x
    # Measured from the most likely token, so that a probability near 1 does not multiply a difference of large numbers.
    slopes = slopes - slopes.gather(-1, p.probs.argmax(dim=-1, keepdim=True))
    return p.probs * (slopes - _total(p.probs * slopes))


def _finite(x: Tensor) -> Tensor:
    huge = torch.finfo(x.dtype).max / 4
    return x.nan_to_num(nan=0.0, posinf=huge, neginf=-huge)  # NaN: neither allows the token, its terms are 0


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=-1, keepdim=True, dtype=torch.float64).to(values.dtype)


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
    # 1 - p by expm1, and terms of probability 0 are 0 whatever their logarithm.
    log_p, log_q = logprobs.double(), ref_logprobs.double()
    p, rest = log_p.exp(), -torch.expm1(log_p)
    rest_q = -torch.expm1(log_q)
    chosen = torch.where(p > 0, p * (log_p - log_q), 0.0)
    others = torch.where(rest > 0, rest * (rest.log() - rest_q.log()), 0.0)
    return (chosen + others).clamp(min=0.0)
