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
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from swerve.functional.divergence import divergence_stats
from swerve.functional.kl import KlEstimator, kl_estimate
from swerve.probe.teacher_forcing import ForcedStates, compare
from swerve.statistics import Estimate, bootstrap_mean

__all__ = [
    "CASES",
    "ESTIMATORS",
    "TARGETS",
    "GradientCase",
    "PositionFigures",
    "audit",
    "audit_positions",
    "summarise_audit",
]

ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3", "k3+", "abs")
TARGETS = ("reverse_kl", "forward_kl", "total_variation")
_TARGET_WORDS = {
    "reverse_kl": "KL(policy || reference)",
    "forward_kl": "KL(reference || policy)",
    "total_variation": "twice the total variation",
}
_TOLERANCE = 1e-6  # relative; float64 sums are good to about 1e-12
_ZERO = 1e-9  # of the size of one sample's gradient
_ROUNDING = 1e-15  # nats: what rounding log p and log q to float64 leaves in the mean of their difference
_NUM_GROUPS = 10
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
    return square, sample_square, dot, torch.stack([(pull - one).square().sum(dim=-1) for one in targets], dim=-1)


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


def _chunk_size(states: ForcedStates) -> int:
    weight = states.head.projection.weight
    assert isinstance(weight, Tensor)
    return _LOGITS_PER_CHUNK_CPU if weight.device.type == "cpu" else _LOGITS_PER_CHUNK_GPU


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
    compare(first, ref_first, ids[:1], tokens_per_chunk=1)  # refuses two models that cannot be compared
    rows = max(1, (logits_per_chunk or _chunk_size(policy)) // policy.head.vocabulary_size)
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


def _number(value: Tensor | float) -> float | None:
    """Return a figure for JSON: None where nothing was measured or the figure is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None


def _finite(figures: PositionFigures) -> Tensor:
    columns = (figures.mean, figures.variance, figures.realised, figures.sample_square, figures.reverse_kl[:, None])
    return torch.isfinite(torch.cat(columns, dim=1)).all(dim=1)


def _value_row(figures: PositionFigures, index: int) -> dict[str, Any]:
    mean, variance, kl = figures.mean[:, index], figures.variance[:, index], figures.reverse_kl
    return {
        "estimator": ESTIMATORS[index],
        "mean": _number(mean.mean()),
        "bias": _number((mean - kl).mean()),
        "relative_bias": _number((mean - kl).sum() / kl.sum()),
        "mean_absolute_bias": _number((mean - kl).abs().mean()),
        "variance": _number(variance.mean()),
        "sd": _number(variance.mean().sqrt()),
        "relative_standard_error": _number(variance.sum().sqrt() / kl.sum()),
        "share_negative": _number(figures.negative[:, index].mean()),
    }


def _value_verdict(row: dict[str, Any], kl: float) -> str:
    if not kl > 0:
        return "undecided: the two models do not differ"
    if kl < 1000 * _ROUNDING:
        return "undecided: the KL is hardly above the rounding of float64"
    if row["mean_absolute_bias"] <= _TOLERANCE * kl + _ROUNDING:
        return "unbiased"
    return f"biased: {100 * row['relative_bias']:+.3g}%"


def _mean_where(values: Tensor, known: Tensor) -> float | None:
    return _number(values[known].mean())  # the mean of nothing is NaN: None


def _against(figures: PositionFigures, case: int, target: int) -> dict[str, float | None]:
    """Compare a case with a target: means over positions, and `pooled`, all positions as one long vector."""
    square, dot = figures.square[:, case], figures.dot[:, case, target]
    goal, error = figures.target_square[:, target], figures.error_square[:, case, target]
    known = goal > 0
    pulls = known & (square > _ZERO**2 * figures.sample_square[:, case])
    zero = _is_zero(figures, case)
    return {
        "cosine": None if zero else _mean_where(dot / (square * goal).sqrt(), pulls),
        "relative_error": _mean_where((error / goal).sqrt(), known),
        "norm_ratio": _mean_where((square / goal).sqrt(), known),
        "pooled_cosine": None if zero else _number(dot.sum() / (square.sum() * goal.sum()).sqrt()),
        "pooled_relative_error": _number((error.sum() / goal.sum()).sqrt()),
        "pooled_norm_ratio": _number((square.sum() / goal.sum()).sqrt()),
    }


def _is_zero(figures: PositionFigures, case: int) -> bool:
    return bool(figures.square[:, case].sum() <= _ZERO**2 * figures.sample_square[:, case].sum())


def _gradient_row(figures: PositionFigures, index: int) -> dict[str, Any]:
    square, sample = figures.square[:, index], figures.sample_square[:, index]
    variance = (sample - square).clamp(min=0)
    return {
        **dataclasses.asdict(CASES[index]),
        "is_zero": _is_zero(figures, index),
        "variance": _number(variance.mean()),
        "variance_to_signal": None if _is_zero(figures, index) else _number(variance.sum() / square.sum()),
        "targets": {name: _against(figures, index, number) for number, name in enumerate(TARGETS)},
    }


def _gradient_verdict(row: dict[str, Any]) -> str:
    errors = {name: entry["pooled_relative_error"] for name, entry in row["targets"].items()}
    if errors["reverse_kl"] is None:
        return "undecided: the two models do not differ"
    if row["is_zero"]:
        return "zero: no pull at all"
    matches = [name for name, error in errors.items() if error is not None and error <= _TOLERANCE]
    if matches:
        return "gradient of " + " and of ".join(_TARGET_WORDS[name] for name in matches)
    entry = row["targets"]["reverse_kl"]
    return (
        f"none of the targets; against {_TARGET_WORDS['reverse_kl']}: cosine {entry['pooled_cosine']:.3f}, "
        f"relative error {entry['pooled_relative_error']:.3g}"
    )


def _group(figures: PositionFigures) -> dict[str, Any]:
    kl = figures.reverse_kl
    return {
        "num_tokens": len(kl),
        "kl_low": _number(kl.min()),
        "kl_high": _number(kl.max()),
        "kl_mean": _number(kl.mean()),
        "values": [_value_row(figures, index) for index in range(len(ESTIMATORS))],
        "gradients": [_gradient_row(figures, index) for index in range(len(CASES))],
    }


def _deciles(figures: PositionFigures) -> list[dict[str, Any]]:
    order = figures.reverse_kl.argsort(stable=True)
    groups = torch.tensor_split(order, min(_NUM_GROUPS, len(order)))
    return [_group(figures.select(rows)) for rows in groups]


def _notes(surprise: Estimate | None, num_left_out: int) -> list[str]:
    notes = []
    if surprise is not None and not surprise["low"] <= 0 <= surprise["high"]:
        notes.append(
            "the file's tokens are not what the checkpoint would write at this temperature: the realised estimates "
            "are of another distribution than the exact figures"
        )
    if num_left_out:
        notes.append(
            f"{num_left_out} positions are left out of every figure: there an estimate or its variance is not finite"
        )
    return notes


def summarise_audit(
    figures: PositionFigures, sequence_ids: Sequence[int], *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Any]:
    """Return the tables of an audit as JSON values: exact divergences, values, gradients, both by decile of KL.

    Verdicts follow from the figures. An estimator is unbiased if its mean absolute bias is at most 1e-6 of the mean
    KL (and 1e-15 nats for rounding). A gradient is a target's if, over all positions, it differs from it by at most
    1e-6 of its norm; it is zero if its norm is at most 1e-9 of one sample's.

    Args:
        figures: of N positions.
        sequence_ids: `[N]`, which sequence each position belongs to; the bootstrap resamples sequences.
        confidence: coverage of the intervals.
        seed: of the bootstrap.

    Raises:
        ValueError: another number of sequence ids than positions, or no position with finite figures.
    """
    if len(sequence_ids) != len(figures.reverse_kl):
        raise ValueError(f"{len(figures.reverse_kl)} positions need as many sequence ids, got {len(sequence_ids)}")
    finite = _finite(figures)
    kept = figures.select(finite)
    if not len(kept.reverse_kl):
        raise ValueError("no position has finite figures: the reference excludes what the policy writes, everywhere")
    clusters = [one for one, keep in zip(sequence_ids, finite.tolist(), strict=True) if keep]

    def estimate(values: Tensor) -> Estimate | None:
        return bootstrap_mean(values.numpy(), clusters=clusters, confidence=confidence, seed=seed)

    whole, surprise = _group(kept), estimate(kept.surprise)
    values = [
        {**row, "realised": estimate(kept.realised[:, index]), "verdict": _value_verdict(row, whole["kl_mean"])}
        for index, row in enumerate(whole["values"])
    ]
    num_left_out = len(sequence_ids) - len(clusters)
    return {
        "num_tokens": len(clusters),
        "num_sequences": len(set(clusters)),
        "num_left_out": num_left_out,
        "exact": {name: _number(getattr(kept, name).mean()) for name in ("reverse_kl", "forward_kl", "js")},
        "surprise": surprise,
        "values": values,
        "gradients": [{**row, "verdict": _gradient_verdict(row)} for row in whole["gradients"]],
        "deciles": _deciles(kept),
        "notes": _notes(surprise, num_left_out),
    }
