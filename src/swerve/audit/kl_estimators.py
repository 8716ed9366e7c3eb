"""The estimator audit: single-sample estimates of KL against the exact one, in value and in gradient.

At every completion position the prefix is given, so every expectation over the next token is a sum over the
vocabulary: nothing here is sampled. P is the policy (the checkpoint), Q the reference, x = log p - log q, k(x) an
estimator. Values and derivatives of the estimators are those of `swerve.functional.kl_estimate`, the derivatives by
autograd; the divergences are those of `divergence_stats`. Everything is in nats and in float64.

A gradient is one with respect to the position's logits. With the sampled token v and its unit vector e_v,

    placed in the loss             g = E_P[k'(x) (e_v - p)]
    times exp(logp - sg(logp))     g = E_P[(k'(x) + k(x)) (e_v - p)]
    placed in the reward           g = E_P[k(x) (e_v - p)]            (score function, no baseline)

and what it may be the gradient of

    KL(P || Q)   p (x - KL(P || Q))
    KL(Q || P)   p - q
    sum |p - q|  p (s - E_P[s]),  s = sign(x)                         (twice the total variation)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from swerve.functional.divergence import divergence_stats
from swerve.functional.kl_divergence import KlEstimator, kl_estimate
from swerve.probe.engine.forward import ForcedStates, compare_positions

ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3", "k3+", "abs")

TARGETS = ("reverse_kl", "forward_kl", "total_variation")

# About 50 float64 tensors of this size are alive at once; on a CPU small ones stay in its caches (3 times faster).
_LOGITS_PER_CHUNK_CPU = 1 << 18

_LOGITS_PER_CHUNK_GPU = 1 << 22


@dataclass(frozen=True, slots=True)
class GradientCase:
    """An estimator and where it is placed."""

    estimator: KlEstimator
    placement: Literal["loss", "loss_ratio", "reward"]
    """`loss_ratio`: in the loss, multiplied by exp(logp - sg(logp))."""


CASES = (
    *(GradientCase(name, "loss") for name in ESTIMATORS),
    *(GradientCase(name, "loss_ratio") for name in ESTIMATORS if name != "k3+"),
    *(GradientCase(name, "reward") for name in ESTIMATORS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFigures:
    """The audit of each position, float64; E estimators, C gradient cases, T targets."""

    reverse_kl: Float[Tensor, " N"]
    """KL(P || Q), exact."""
    forward_kl: Float[Tensor, " N"]
    """KL(Q || P), exact."""
    js: Float[Tensor, " N"]
    surprise: Float[Tensor, " N"]
    """log p of the file's token + entropy of P: 0 on average over tokens that P wrote."""
    mean: Float[Tensor, "N E"]
    variance: Float[Tensor, "N E"]
    negative: Float[Tensor, "N E"]
    """Probability of a negative value."""
    realised: Float[Tensor, "N E"]
    """The estimate at the file's token; infinite where P or Q excludes it."""
    square: Float[Tensor, "N C"]
    """||g||^2."""
    sample_square: Float[Tensor, "N C"]
    """E_P of the squared norm of one sample's gradient; less `square`, it is the trace of its variance."""
    dot: Float[Tensor, "N C T"]
    error_square: Float[Tensor, "N C T"]
    """||g - target||^2."""
    target_square: Float[Tensor, "N T"]

    def select(self, rows: Tensor) -> PositionFigures:
        """Return the figures of some positions."""
        return PositionFigures(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    probs: Float[Tensor, "N V"]
    logprobs: Float[Tensor, "N V"]  # 0 at tokens that P or Q excludes, like `ref_logprobs`
    ref_logprobs: Float[Tensor, "N V"]
    ref_probs: Float[Tensor, "N V"]
    allowed: Bool[Tensor, "N V"]
    top: Int[Tensor, "N 1"]  # P's most likely token
    spread: Float[Tensor, "N V"]  # ||e_v - p||^2


def _log_softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and the most likely token; accurate also for a probability that is nearly 1."""
    largest, top = logits.max(dim=-1, keepdim=True)
    shifted = logits - largest
    others = shifted.exp().scatter(-1, top, 0.0).sum(dim=-1, keepdim=True)
    return shifted - others.log1p(), top


def _states(logits: Tensor, ref_logits: Tensor) -> _States:
    (logprobs, top), (ref_logprobs, _) = _log_softmax(logits), _log_softmax(ref_logits)
    probs = logprobs.exp()
    allowed = (probs > 0) & torch.isfinite(ref_logprobs)
    square = probs.square()
    others = square.scatter(-1, top, 0.0).sum(dim=-1, keepdim=True)
    # Without 1 - p by subtraction: where p is nearly 1, that would leave nothing but rounding.
    rest = (others + square.gather(-1, top) - square).scatter(-1, top, others)
    return _States(
        probs=probs,
        logprobs=logprobs.where(allowed, 0.0),
        ref_logprobs=ref_logprobs.where(allowed, 0.0),
        ref_probs=ref_logprobs.exp(),
        allowed=allowed,
        top=top,
        spread=torch.expm1(logprobs).square() + rest,
    )


def _estimate(states: _States, estimator: KlEstimator, *, importance: bool = False) -> tuple[Tensor, Tensor]:
    """Return an estimator's value at every token and its derivative with respect to the token's log-probability."""
    with torch.enable_grad():
        logprobs = states.logprobs.detach().clone().requires_grad_()
        values = kl_estimate(logprobs, states.ref_logprobs, estimator=estimator, importance=importance)
        (derivative,) = torch.autograd.grad(values.sum(), logprobs)
    return values.detach(), derivative


def _pull(coefficients: Tensor, states: _States) -> Tensor:
    """Return E_P[c (e_v - p)] = p (c - E_P[c]), which is exactly 0 for a constant c."""
    relative = coefficients - coefficients.gather(-1, states.top)
    return states.probs * (relative - (states.probs * relative).sum(dim=-1, keepdim=True))


def _targets(states: _States) -> Tensor:
    x = states.logprobs - states.ref_logprobs
    # p - q, accurate also where the two hardly differ.
    difference = (-states.probs * torch.expm1(-x)).where(states.allowed, states.probs - states.ref_probs)
    return torch.stack([_pull(x, states), difference, _pull(x.sign(), states)])


def _moments(values: Tensor, states: _States, ids: Tensor) -> tuple[Tensor, ...]:
    mean = (states.probs * values).sum(dim=-1)
    variance = (states.probs * (values - mean[:, None]).square()).sum(dim=-1)
    negative = states.probs.where(values < 0, 0.0).sum(dim=-1)
    realised = values.masked_fill(~states.allowed, torch.inf).gather(-1, ids[:, None]).squeeze(-1)
    return mean, variance, negative, realised


def _gradient(coefficients: Tensor, states: _States, targets: Tensor) -> tuple[Tensor, ...]:
    pull = _pull(coefficients, states)
    square = pull.square().sum(dim=-1)
    sample_square = (states.probs * coefficients.square() * states.spread).sum(dim=-1)
    dot = (pull * targets).sum(dim=-1).T
    return square, sample_square, dot, torch.stack([(pull - target).square().sum(dim=-1) for target in targets], dim=-1)


def audit_positions(
    logits: Float[Tensor, "N V"], ref_logits: Float[Tensor, "N V"], ids: Int[Tensor, " N"]
) -> PositionFigures:
    """Audit every estimator at each position, all expectations summed over the vocabulary.

    Args:
        logits: `[N, V]`, of P, divided by the temperature; any float type.
        ref_logits: `[N, V]`, of Q.
        ids: `[N]`, the file's tokens.

    Raises:
        ValueError: the shapes differ, or a row is not a distribution.

    >>> figures = audit_positions(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, -1.0]]), torch.tensor([1]))
    >>> round(float(figures.reverse_kl), 6), [round(value, 6) for value in figures.mean[0].tolist()]
    (0.433781, [0.433781, 0.594083, 0.433781, 0.433781, 1.0])
    """
    logits, ref_logits = logits.double(), ref_logits.double()
    exact = divergence_stats(logits, ref_logits, ids)
    states = _states(logits, ref_logits)
    targets = _targets(states)
    plain = {name: _estimate(states, name) for name in ESTIMATORS}
    moments = [_moments(plain[name][0], states, ids) for name in ESTIMATORS]
    gradients = []
    for case in CASES:
        if case.placement == "loss_ratio":
            coefficients = _estimate(states, case.estimator, importance=True)[1]
        else:
            coefficients = plain[case.estimator][case.placement == "loss"]
        gradients.append(_gradient(coefficients, states, targets))
    mean, variance, negative, realised = (torch.stack(column, dim=1) for column in zip(*moments, strict=True))
    square, sample_square, dot, error = (torch.stack(column, dim=1) for column in zip(*gradients, strict=True))
    return PositionFigures(
        reverse_kl=exact.kl_forward,  # divergence_stats counts from P, objectives from the reference
        forward_kl=exact.kl_reverse,
        js=exact.js,
        surprise=exact.logprob + exact.entropy,
        mean=mean,
        variance=variance,
        negative=negative,
        realised=realised,
        square=square,
        sample_square=sample_square,
        dot=dot,
        error_square=error,
        target_square=targets.square().sum(dim=-1).T,
    )


def audit(
    policy: ForcedStates,
    reference: ForcedStates,
    ids: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    logits_per_chunk: int | None = None,
    on_chunk: Callable[[int], None] | None = None,
) -> PositionFigures:
    """Audit the estimators at every position of two models' states, one chunk of logits at a time.

    Args:
        policy: P.
        reference: Q, over the same sequences.
        ids: `[N]`, the file's tokens.
        temperature: divides the logits of both.
        logits_per_chunk: logits of one model formed at a time; by default 2^18 on a CPU and 2^22 elsewhere.
        on_chunk: called with the number of positions done since the last call.

    Raises:
        ValueError: the temperature is not above 0.
        MismatchError: vocabulary or tokenizer of the two differ; the message names them.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    assert len(policy.hidden) == len(reference.hidden) == len(ids)
    first, ref_first = (dataclasses.replace(states, hidden=states.hidden[:1]) for states in (policy, reference))
    compare_positions(first, ref_first, ids[:1], tokens_per_chunk=1)  # refuses two models that cannot be compared
    weight = policy.head.projection.weight
    assert isinstance(weight, Tensor)
    by_device = _LOGITS_PER_CHUNK_CPU if weight.device.type == "cpu" else _LOGITS_PER_CHUNK_GPU
    rows = max(1, (logits_per_chunk or by_device) // policy.head.vocabulary_size)
    parts = []
    with torch.no_grad():
        for hidden, ref_hidden, chunk in zip(
            *(torch.split(tensor, rows) for tensor in (policy.hidden, reference.hidden, ids)), strict=True
        ):
            logits, ref_logits = policy.head(hidden).double(), reference.head(ref_hidden).double()
            parts.append(audit_positions(logits / temperature, ref_logits / temperature, chunk.to(logits.device)))
            if on_chunk is not None:
                on_chunk(len(chunk))
    names = [field.name for field in dataclasses.fields(PositionFigures)]
    return PositionFigures(**{name: torch.cat([getattr(part, name).cpu() for part in parts]) for name in names})
