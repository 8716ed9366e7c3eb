"""Measurements -> the figures of `summary.json`, each with its interval or its chance rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from swerve.config import ProbeConfig
from swerve.probe.population import ProbeSequence
from swerve.probe.regions import Resampling, problem_clusters, spike_masks
from swerve.probe.tables import DIVERGENCES, Measurements, SpikeTable
from swerve.statistics import Estimate, bootstrap_mean, share
from swerve.statistics.resampling import membership

__all__ = ["category_figures", "divergence_figures", "noise_floor", "notes", "spike_figures"]

_FLOOR_FACTOR = 10.0
_MOSTLY_SAME = 0.9


def divergence_figures(data: Measurements, *, confidence: float, num_resamples: int, seed: int) -> list[dict[str, Any]]:
    """Return each pair's mean divergences and entropies over all tokens (nats), problems resampled.

    A divergence that is infinite somewhere has no mean: None.
    """
    _, problems = membership(data.problem_ids, len(data.categories))  # sorts names once, not once a figure

    def estimate(name: str, index: int) -> Estimate | None:
        values = data.columns[name][index]
        if not np.isfinite(values).all():
            return None
        return bootstrap_mean(values, clusters=problems, confidence=confidence, num_resamples=num_resamples, seed=seed)

    names = (*DIVERGENCES, "entropy", "entropy_ref")
    return [
        {
            "checkpoint": checkpoint,
            "reference": reference,
            **{name: estimate(name, index) for name in names},
        }
        for index, (checkpoint, reference) in enumerate(zip(data.checkpoints, data.references, strict=True))
    ]


def spike_figures(data: Measurements, spikes: SpikeTable, *, confidence: float) -> list[dict[str, Any]]:
    """Return how often the highest divergence of a rollout falls on a wrong step, and on the first one, against chance.

    Only rollouts with a known wrong step count (`num_rollouts`). Chance is the expected share if the position were
    drawn uniformly from the rollout's own positions. Intervals are Wilson's where there is one rollout a problem, else
    problems are resampled.
    """
    known = [index for index, sequence in enumerate(data.sequences) if sequence.wrong]
    marked = [data.sequences[index] for index in known]
    problems = [one.problem.id for one in marked]
    chance_wrong = _mean([len(one.wrong) / len(one.completion_ids) for one in marked])
    chance_first = _mean([1 / len(one.completion_ids) for one in marked])

    def hits(tops: tuple[int, ...], *, first: bool) -> dict[str, float] | None:
        hit = [_is_hit(data.sequences[index], tops[index], first=first) for index in known]
        if len(set(problems)) == len(problems):
            estimate = share(sum(hit), len(hit), confidence=confidence)
        else:
            estimate = bootstrap_mean(hit, clusters=problems, confidence=confidence, bounds=(0.0, 1.0))
        return None if estimate is None else {"share": estimate.mean, "low": estimate.low, "high": estimate.high}

    return [
        {
            "checkpoint": checkpoint,
            "divergence": divergence,
            "num_rollouts": len(known),
            "num_spikes": sum(map(len, spikes.positions(checkpoint, divergence))),
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


def category_figures(
    data: Measurements, spikes: SpikeTable, *, divergence: str, resampling: Resampling | None = None
) -> list[dict[str, Any]]:
    """Return each category's share of tokens and of divergence, and its spikes against the base rate, by checkpoint.

    `spike_rate` is spikes a token of the category, `base_rate` spikes a token of any. The intervals, of
    `share_divergence` and `spike_rate`, resample problems.
    """
    how, clusters = resampling or Resampling(), problem_clusters(data)
    names, index = np.unique(np.array(data.categories, dtype=np.str_), return_inverse=True)
    masks = spike_masks(data, spikes.rows(spikes.method))
    figures = []
    for number, checkpoint in enumerate(data.checkpoints):
        values = data.columns[divergence][number].astype(np.float64)
        mask = masks.get((checkpoint, divergence), np.zeros(len(index), dtype=np.bool_))
        for code, category in enumerate(names.tolist()):
            inside = index == code
            share_divergence = how.ratio(np.where(inside, values, 0.0), values, clusters)
            figures.append(
                {
                    "checkpoint": checkpoint,
                    "category": category,
                    "num_tokens": int(inside.sum()),
                    "share_tokens": float(inside.mean()),
                    "share_divergence": share_divergence and share_divergence.mean,
                    "share_divergence_interval": share_divergence,
                    "num_spikes": int(mask[inside].sum()),
                    "spike_rate": float(mask[inside].mean()),
                    "spike_rate_interval": how.share(mask[inside], clusters[inside]),
                    "base_rate": float(mask.mean()),
                }
            )
    return figures


def noise_floor(null: Measurements) -> dict[str, dict[str, float]]:
    """Return mean and largest divergence (nats) of a model from itself, run with other batches."""
    columns = {name: null.columns[name].astype(np.float64) for name in DIVERGENCES}
    return {name: {"mean": float(values.mean()), "max": float(values.max())} for name, values in columns.items()}


def notes(summary: Mapping[str, Any], settings: ProbeConfig) -> list[str]:
    """Return the caveats that the figures themselves call for."""
    found = []
    num_rollouts, divergence = summary["num_rollouts"], summary["divergence"]
    if num_rollouts < settings.min_rollouts:
        found.append(
            f"only {num_rollouts} rollouts, fewer than the {settings.min_rollouts} asked for by "
            "probe.min_rollouts: the figures are not to be relied upon"
        )
    num_marked = summary["spikes"][0]["num_rollouts"] if summary["spikes"] else 0
    if num_marked < num_rollouts:
        found.append(f"{num_rollouts - num_marked} of {num_rollouts} rollouts have no step known to be wrong")
    floor = (summary["noise_floor"] or {}).get(divergence, {}).get("mean", 0.0)
    noisy = [
        entry["checkpoint"]
        for entry in summary["divergences"]
        if entry[divergence] is not None and entry[divergence].mean <= _FLOOR_FACTOR * floor
    ]
    if noisy:
        found.append(
            f"the mean {divergence} of {', '.join(noisy)} is within {_FLOOR_FACTOR:.0f} times the rounding noise: "
            "its spikes are noise"
        )
    for entry in (summary["causal"] or {}).get("selections", ()):
        if entry["selection"] != "spike" and entry["share_same_token"] >= _MOSTLY_SAME:
            found.append(
                f"at {100 * entry['share_same_token']:.0f}% of the {entry['selection']} positions "
                f"{summary['final']} chose the "
                "reference's own token, so the control says that nothing changed there, not what another token would do"
            )
    num_problems = summary.get("num_rollout_problems", num_rollouts)
    if num_problems < settings.min_rollouts <= num_rollouts:
        found.append(
            f"the {num_rollouts} rollouts are of {num_problems} problem{'s' * (num_problems != 1)} only: intervals "
            "resample problems and are too narrow with so few"
        )
    found += _left_out(summary, settings) if num_rollouts else []
    if num_rollouts and summary.get("selection") == "greedy":
        found.append(
            "problems were selected by the same greedy completions that are described here, so accuracies over them "
            f"are not estimates for new problems{_again(summary)}"
        )
    return found


def _left_out(summary: Mapping[str, Any], settings: ProbeConfig) -> list[str]:
    """Say that figures which set right rollouts against wrong ones lack wrong ones, because of what the final did."""
    missing = (summary.get("num_reference_wrong") or 0) - (summary.get("num_reference_wrong_final_right") or 0)
    if missing <= 0 or "reference_wrong" in settings.populations or not summary.get("direction"):
        return []
    reference, final = summary["reference"], summary["final"]
    return [
        f"{missing} problems that both {reference} and {final} get wrong are not read, so the wrong rollouts are those "
        f"{final} moved away from, and direction and correlates say too much about right and wrong: add "
        "reference_wrong to probe.populations"
    ]


def _again(summary: Mapping[str, Any]) -> str:
    """Say how much of the selection another draw would make again."""
    again = summary.get("reselected")
    if again is None:
        return ""
    return (
        f": of those selected, another draw of sampled completions would select {100 * again['mean']:.0f}% "
        f"[{100 * again['low']:.0f}, {100 * again['high']:.0f}] again"
    )
