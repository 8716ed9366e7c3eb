"""Measurements -> the figures of `summary.json`, each with its interval or its chance rate."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from swerve.config import Config
from swerve.functional.divergence import DivergenceStats
from swerve.probe.population import ProbeSequence
from swerve.probe.tables import DIVERGENCES, Measurements, SpikeTable
from swerve.seeds import derive_seed
from swerve.statistics import Estimate, bootstrap_mean, share

__all__ = ["category_figures", "divergence_figures", "noise_floor", "notes", "spike_figures"]

_FLOOR_FACTOR = 10.0
_MOSTLY_SAME = 0.9


def divergence_figures(data: Measurements, config: Config) -> list[dict[str, Any]]:
    """Return each checkpoint's mean divergences and entropies over all tokens (nats), problems resampled.

    A divergence that is infinite somewhere has no mean: None.
    """
    problem_ids = data.problem_ids

    def estimate(name: str, index: int) -> Estimate | None:
        values = data.columns[name][index]
        if not np.isfinite(values).all():
            return None
        return bootstrap_mean(
            values,
            clusters=problem_ids,
            confidence=config.eval.confidence,
            num_resamples=config.probe.causal.num_bootstrap,
            seed=derive_seed(config.seed, "probe", "bootstrap", "divergences"),
        )

    names = (*DIVERGENCES, "entropy", "entropy_ref")
    return [
        {"checkpoint": checkpoint, **{name: estimate(name, index) for name in names}}
        for index, checkpoint in enumerate(data.checkpoints)
    ]


def spike_figures(data: Measurements, spikes: SpikeTable, *, confidence: float) -> list[dict[str, Any]]:
    """Return how often the highest divergence of a rollout falls on a wrong step, and on the first one, against chance.

    Only rollouts with a known wrong step count (`num_rollouts`). Chance is the expected share if the position were
    drawn uniformly from the rollout's own positions. Intervals are Wilson's: there is one rollout a problem.
    """
    known = [index for index, sequence in enumerate(data.sequences) if sequence.wrong]
    counts = Counter((row["checkpoint"], row["divergence"]) for row in spikes.rows)
    marked = [data.sequences[index] for index in known]
    chance_wrong = _mean([len(one.wrong) / len(one.completion_ids) for one in marked])
    chance_first = _mean([1 / len(one.completion_ids) for one in marked])

    def hits(tops: tuple[int, ...], *, first: bool) -> dict[str, float] | None:
        hit = [_is_hit(data.sequences[index], tops[index], first=first) for index in known]
        estimate = share(sum(hit), len(hit), confidence=confidence)
        return estimate and {"share": estimate["mean"], "low": estimate["low"], "high": estimate["high"]}

    return [
        {
            "checkpoint": checkpoint,
            "divergence": divergence,
            "num_rollouts": len(known),
            "num_spikes": counts[checkpoint, divergence],
            "top_on_wrong": hits(tops, first=False),
            "top_on_first_wrong": hits(tops, first=True),
            "chance_wrong": chance_wrong,
            "chance_first_wrong": chance_first,
        }
        for (checkpoint, divergence), tops in spikes.tops.items()
    ]


def _is_hit(sequence: ProbeSequence, position: int, *, first: bool) -> bool:
    return position == sequence.first_wrong if first else position in sequence.wrong


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def category_figures(data: Measurements, spikes: SpikeTable, *, divergence: str) -> list[dict[str, Any]]:
    """Return each category's share of tokens and of divergence, and its spikes against the base rate, by checkpoint.

    `spike_rate` is spikes a token of the category, `base_rate` spikes a token of any.
    """
    num_tokens = Counter(data.categories)
    at = {
        key: index for index, key in enumerate(zip(data.sequence_index.tolist(), data.positions.tolist(), strict=True))
    }
    found: Counter[tuple[str, str]] = Counter()
    for row in spikes.rows:
        if row["divergence"] == divergence:
            found[row["checkpoint"], data.categories[at[row["sequence_id"], row["position"]]]] += 1
    figures = []
    for index, checkpoint in enumerate(data.checkpoints):
        shares = _shares(data.columns[divergence][index], data.categories)
        total = sum(found[checkpoint, category] for category in num_tokens)
        figures += [
            {
                "checkpoint": checkpoint,
                "category": category,
                "num_tokens": count,
                "share_tokens": count / len(data.categories),
                "share_divergence": shares.get(category),
                "num_spikes": found[checkpoint, category],
                "spike_rate": found[checkpoint, category] / count,
                "base_rate": total / len(data.categories),
            }
            for category, count in sorted(num_tokens.items())
        ]
    return figures


def _shares(values: np.ndarray, categories: tuple[str, ...]) -> dict[str, float]:
    """Return each category's share of the sum; empty where the sum is 0 or infinite."""
    total = float(values.sum(dtype=np.float64))
    if not 0 < total < float("inf"):
        return {}
    sums: Counter[str] = Counter()
    for category, value in zip(categories, values.tolist(), strict=True):
        sums[category] += value
    return {category: value / total for category, value in sums.items()}


def noise_floor(stats: DivergenceStats) -> dict[str, dict[str, float]]:
    """Return mean and largest divergence (nats) of a model from itself, run with other batches."""
    columns = {name: getattr(stats, name).double() for name in DIVERGENCES}
    return {name: {"mean": float(values.mean()), "max": float(values.max())} for name, values in columns.items()}


def notes(summary: dict[str, Any], config: Config) -> list[str]:
    """Return the caveats that the figures themselves call for."""
    found = []
    num_rollouts, divergence = summary["num_rollouts"], summary["divergence"]
    if num_rollouts < config.probe.min_rollouts:
        found.append(
            f"only {num_rollouts} rollouts, fewer than the {config.probe.min_rollouts} asked for by "
            "probe.min_rollouts: the figures are not to be relied upon"
        )
    num_marked = summary["spikes"][0]["num_rollouts"] if summary["spikes"] else 0
    if num_marked < num_rollouts:
        found.append(f"{num_rollouts - num_marked} of {num_rollouts} rollouts have no step known to be wrong")
    floor = (summary["noise_floor"] or {}).get(divergence, {}).get("mean", 0.0)
    noisy = [
        entry["checkpoint"]
        for entry in summary["divergences"]
        if entry[divergence] is not None and entry[divergence]["mean"] <= _FLOOR_FACTOR * floor
    ]
    if noisy:
        found.append(
            f"the mean {divergence} of {', '.join(noisy)} is within {_FLOOR_FACTOR:.0f} times the rounding noise: "
            "its spikes are noise"
        )
    for entry in (summary["causal"] or {}).get("selections", ()):
        if entry["selection"] == "random" and entry["share_same_token"] >= _MOSTLY_SAME:
            found.append(
                f"at {100 * entry['share_same_token']:.0f}% of the random positions {summary['final']} chose the "
                "reference's own token, so the control says that nothing changed there, not what another token would do"
            )
    if num_rollouts:
        found.append(
            "problems were selected by the same greedy completions that are described here, so accuracies over them "
            "are not estimates for new problems"
        )
    return found
