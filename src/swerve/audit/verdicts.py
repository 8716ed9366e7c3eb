"""Tables of the estimator audit, over all positions and by size of KL, and verdicts on each estimator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from swerve.audit.kl_estimators import CASES, ESTIMATORS, TARGETS, PositionFigures
from swerve.statistics import Estimate, mean_interval

_TARGET_WORDS = {
    "reverse_kl": "KL(policy || reference)",
    "forward_kl": "KL(reference || policy)",
    "total_variation": "twice the total variation",
}

_TOLERANCE = 1e-6  # relative; float64 sums are good to about 1e-12

_ZERO = 1e-9  # of the size of one sample's gradient

_ROUNDING = 1e-15  # nats: what rounding log p and log q to float64 leaves in the mean of their difference

_NUM_GROUPS = 10


def _numbers(**figures: Tensor) -> dict[str, float | None]:
    """Return figures for JSON: None where nothing was measured (the mean of nothing is NaN) or one is not finite."""
    numbers = {name: float(figure) for name, figure in figures.items()}
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}


def _value_row(figures: PositionFigures, index: int) -> dict[str, Any]:
    mean, variance, kl = figures.mean[:, index], figures.variance[:, index], figures.reverse_kl
    numbers = _numbers(
        mean=mean.mean(),
        bias=(mean - kl).mean(),
        relative_bias=(mean - kl).sum() / kl.sum(),
        mean_absolute_bias=(mean - kl).abs().mean(),
        variance=variance.mean(),
        sd=variance.mean().sqrt(),
        relative_standard_error=variance.sum().sqrt() / kl.sum(),
        share_negative=figures.negative[:, index].mean(),
    )
    return {"estimator": ESTIMATORS[index], **numbers}


def _value_verdict(row: dict[str, Any], kl: float) -> str:
    if not kl > 0:
        return "undecided: the two models do not differ"
    if kl < 1000 * _ROUNDING:
        return "undecided: the KL is hardly above the rounding of float64"
    if row["mean_absolute_bias"] <= _TOLERANCE * kl + _ROUNDING:
        return "unbiased"
    return f"biased: {100 * row['relative_bias']:+.3g}%"


def _gradient_row(figures: PositionFigures, index: int) -> dict[str, Any]:
    """Return a case: its variance, and per target the means over positions and of all positions as one long vector."""
    square, sample = figures.square[:, index], figures.sample_square[:, index]
    is_zero = bool(square.sum() <= _ZERO**2 * sample.sum())
    pulls = square > _ZERO**2 * sample
    variance = (sample - square).clamp(min=0)

    # Without a pull nothing has a direction.
    targets = {}
    for number, name in enumerate(TARGETS):
        dot, error = figures.dot[:, index, number], figures.error_square[:, index, number]
        goal = figures.target_square[:, number]
        known = goal > 0
        against = _numbers(
            cosine=(dot / (square * goal).sqrt())[known & pulls].mean(),
            relative_error=(error / goal).sqrt()[known].mean(),
            norm_ratio=(square / goal).sqrt()[known].mean(),
            pooled_cosine=dot.sum() / (square.sum() * goal.sum()).sqrt(),
            pooled_relative_error=(error.sum() / goal.sum()).sqrt(),
            pooled_norm_ratio=(square.sum() / goal.sum()).sqrt(),
        )
        targets[name] = {**against, **dict.fromkeys(("cosine", "pooled_cosine") if is_zero else ())}
    numbers = _numbers(variance=variance.mean(), variance_to_signal=variance.sum() / square.sum())
    return {
        **dataclasses.asdict(CASES[index]),
        "is_zero": is_zero,
        **numbers,
        **dict.fromkeys(("variance_to_signal",) if is_zero else ()),
        "targets": targets,
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
        **_numbers(kl_low=kl.min(), kl_high=kl.max(), kl_mean=kl.mean()),
        "values": [_value_row(figures, index) for index in range(len(ESTIMATORS))],
        "gradients": [_gradient_row(figures, index) for index in range(len(CASES))],
    }


def summarise_audit(
    figures: PositionFigures, sequence_ids: Sequence[int], *, confidence: float = 0.95
) -> dict[str, Any]:
    """Return the tables of an audit as JSON values: exact divergences, values, gradients, both by decile of KL.

    Verdicts follow from the figures. An estimator is unbiased if its mean absolute bias is at most 1e-6 of the mean
    KL (and 1e-15 nats for rounding). A gradient is a target's if, over all positions, it differs from it by at most
    1e-6 of its norm; it is zero if its norm is at most 1e-9 of one sample's.

    Args:
        figures: of N positions.
        sequence_ids: `[N]`, which sequence each position belongs to; intervals are over sequences.
        confidence: coverage of the intervals.

    Raises:
        ValueError: another number of sequence ids than positions, or no position with finite figures.
    """
    if len(sequence_ids) != len(figures.reverse_kl):
        raise ValueError(f"{len(figures.reverse_kl)} positions need as many sequence ids, got {len(sequence_ids)}")

    # A position without finite figures counts in none of them.
    columns = (figures.mean, figures.variance, figures.realised, figures.sample_square, figures.reverse_kl[:, None])
    finite = torch.isfinite(torch.cat(columns, dim=1)).all(dim=1)
    kept = figures.select(finite)
    if not len(kept.reverse_kl):
        raise ValueError("no position has finite figures: the reference excludes what the policy writes, everywhere")
    clusters = [number for number, keep in zip(sequence_ids, finite.tolist(), strict=True) if keep]

    def estimate(values: Tensor) -> Estimate | None:
        return mean_interval(values.numpy(), clusters=clusters, confidence=confidence)

    # Exact figures of all positions, with what the file's own tokens would have estimated.
    whole, surprise = _group(kept), estimate(kept.surprise)
    values = [
        {**row, "realised": estimate(kept.realised[:, index]), "verdict": _value_verdict(row, whole["kl_mean"])}
        for index, row in enumerate(whole["values"])
    ]
    num_left_out = len(sequence_ids) - len(clusters)
    order = kept.reverse_kl.argsort(stable=True)
    notes = []
    if surprise is not None and surprise.excludes(0):
        notes.append(
            "the file's tokens are not what the checkpoint would write at this temperature: the realised estimates "
            "are of another distribution than the exact figures"
        )
    if num_left_out:
        notes.append(
            f"{num_left_out} positions are left out of every figure: there an estimate or its variance is not finite"
        )
    return {
        "num_tokens": len(clusters),
        "num_sequences": len(set(clusters)),
        "num_left_out": num_left_out,
        "exact": _numbers(reverse_kl=kept.reverse_kl.mean(), forward_kl=kept.forward_kl.mean(), js=kept.js.mean()),
        "surprise": surprise,
        "values": values,
        "gradients": [{**row, "verdict": _gradient_verdict(row)} for row in whole["gradients"]],
        "deciles": [_group(kept.select(rows)) for rows in torch.tensor_split(order, min(_NUM_GROUPS, len(order)))],
        "notes": notes,
    }
