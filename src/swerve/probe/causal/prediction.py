"""Does divergence predict effect? Selectors' scores against the effects that the swaps measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.probe.causal.effects import MeasuredEffect
from swerve.seeds import derive_seed
from swerve.statistics import benjamini_hochberg, bootstrap_ranking, spearman

__all__ = ["prediction_summary"]


def prediction_summary(
    effects: Sequence[MeasuredEffect],
    scores: Mapping[str, Sequence[float] | NDArray[np.floating[Any]]],
    *,
    delta: float,
    confidence: float,
    num_bootstrap: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return, for each policy, how well each selector's score tells the positions with an effect; problems resampled.

    A position counts once for each policy however often it was selected. `auc` is of |effect| >= delta, `spearman` of
    |effect|; `p_adjusted` is Benjamini and Hochberg's over the selectors. None where there is nothing to tell apart.

    The effect is a difference of two sampled shares. Where the checkpoint chooses the rollout's own token it is exactly
    0, elsewhere it has noise: so any score that tells whether the tokens differ is above chance on all positions
    (`positions: all`) even if no token mattered. Among positions where they differ (`positions: different_tokens`)
    chance is 0.5 and 0, and noise in the effects draws the figures towards it.

    Args:
        effects: of the swaps (`measured_effects`).
        scores: by selector, one value a position, in the order of `effects`.
        delta: smallest effect of interest.
        confidence: coverage of the intervals.
        num_bootstrap: resamples.
        seed: of the resampling.

    Raises:
        ValueError: a selector has not as many scores as there are effects.
    """
    for name, values in scores.items():
        if len(values) != len(effects):
            raise ValueError(f"selector {name!r} needs a score for each of {len(effects)} positions, got {len(values)}")
    entries = []
    for policy in dict.fromkeys(one.policy for one in effects):
        first = {
            (one.sequence_id, one.position): i for i, one in reversed([*enumerate(effects)]) if one.policy == policy
        }
        rows = sorted(first.values())
        different = [index for index in rows if not effects[index].same_token]
        for positions, chosen in (("all", rows), ("different_tokens", different)):
            entries.append(
                {
                    "policy": policy,
                    "positions": positions,
                    "num_positions": len(chosen),
                    "num_effects": sum(_size(effects[index]) >= delta - 1e-9 for index in chosen),
                    "delta": delta,
                    "selectors": _selectors(
                        [effects[index] for index in chosen],
                        {name: np.asarray(values, dtype=np.float64)[chosen] for name, values in scores.items()},
                        delta=delta,
                        confidence=confidence,
                        num_bootstrap=num_bootstrap,
                        seed=seed,
                    ),
                }
            )
    return entries


def _size(one: MeasuredEffect) -> float:
    return abs(one.precise_effect)


def _selectors(
    effects: Sequence[MeasuredEffect],
    scores: Mapping[str, NDArray[np.float64]],
    *,
    delta: float,
    confidence: float,
    num_bootstrap: int,
    seed: int,
) -> list[dict[str, Any]]:
    sizes = np.array([_size(one) for one in effects])
    common: dict[str, Any] = {
        "clusters": [one.problem_id for one in effects],
        "confidence": confidence,
        "num_resamples": num_bootstrap,
        "seed": derive_seed(seed, "probe", "bootstrap", "prediction"),
    }
    found: list[dict[str, Any]] = []
    p_values: list[float | None] = []
    for name, values in scores.items():
        ranked = bootstrap_ranking(values, sizes >= delta - 1e-9, **common) if len(sizes) else None
        # a rank correlation needs numbers: the largest finite one stands for what is infinite
        correlation = spearman(np.nan_to_num(values), sizes, **common)
        found.append({"selector": name, "auc": ranked.auc if ranked else None, "spearman": correlation})
        p_values.append(correlation.p_value if correlation else None)
    adjusted, _ = benjamini_hochberg(p_values)
    return [{**one, "p_adjusted": value} for one, value in zip(found, adjusted, strict=True)]
