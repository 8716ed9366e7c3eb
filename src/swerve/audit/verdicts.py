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


def _notes(surprise: Estimate | None, num_left_out: int) -> list[str]:
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
    return notes


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
    finite = _finite(figures)
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
    return {
        "num_tokens": len(clusters),
        "num_sequences": len(set(clusters)),
        "num_left_out": num_left_out,
        "exact": {name: _number(getattr(kept, name).mean()) for name in ("reverse_kl", "forward_kl", "js")},
        "surprise": surprise,
        "values": values,
        "gradients": [{**row, "verdict": _gradient_verdict(row)} for row in whole["gradients"]],
        "deciles": [_group(kept.select(rows)) for rows in torch.tensor_split(order, min(_NUM_GROUPS, len(order)))],
        "notes": _notes(surprise, num_left_out),
    }
