"""Pivotal tokens -> the `pivots` part of the summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from swerve.probe.causal.pivots import Pivot, PivotSearch
from swerve.probe.population import ProbeSequence
from swerve.seeds import derive_seed
from swerve.statistics import Estimate, bootstrap_mean, false_positive_rate

__all__ = ["pivot_summary"]


def pivot_summary(
    search: PivotSearch,
    *,
    spikes: Mapping[int, Collection[int]],
    confidence: float,
    num_bootstrap: int,
    seed: int,
) -> dict[str, Any] | None:
    """Return the `pivots` part of the summary, problems resampled; None without rollouts.

    `size_search` is the mean |jump| on the continuations by which the pivots were found, `size_estimate` the mean jump
    in the same direction on fresh ones: the difference is the winner's curse. `false_positive_rate` is the exact
    probability that two equal success rates differ by the gap in continuations drawn once, at rate 1/2, where it is
    largest. The search compares many tokens and goes where differences were seen, so more of what it finds is false;
    `num_confirmed` pivots have a jump of the gap in the same direction on fresh continuations too, which happens to at
    most `max_false_confirmed` tokens without effect on average (half the rate for each pivot). The shares of pivots on
    spikes and on wrong steps are beside their chance: the expected share were each pivot anywhere in its rollout.

    Args:
        search: what was found.
        spikes: positions of the spikes by `sequence_id`; a rollout that is missing has none.
        confidence: coverage of the intervals.
        num_bootstrap: resamples.
        seed: of the resampling.
    """
    if not search.sequences:
        return None
    rate = false_positive_rate(search.num_continuations, search.gap)
    pivots = search.pivots

    def estimate(values: Sequence[float], chosen: Sequence[Pivot], bounds: tuple[float, float]) -> Estimate | None:
        return bootstrap_mean(
            values,
            clusters=[pivot.sequence.problem.id for pivot in chosen],
            confidence=confidence,
            num_resamples=num_bootstrap,
            seed=derive_seed(seed, "probe", "bootstrap", "pivots"),
            bounds=bounds,
        )

    def landed(places: Mapping[int, Collection[int]], chosen: Sequence[Pivot]) -> dict[str, Any] | None:
        if not chosen:
            return None
        hits, chances = zip(*(_hit(pivot, places.get(pivot.sequence.sequence_id, ())) for pivot in chosen), strict=True)
        return {
            "num": len(chosen),
            "share": estimate(hits, chosen, (0.0, 1.0)),
            "chance": sum(chances) / len(chances),
            "above_chance": estimate([h - c for h, c in zip(hits, chances, strict=True)], chosen, (-1.0, 1.0)),
        }

    marked = [pivot for pivot in pivots if pivot.sequence.wrong]
    return {
        "num_rollouts": len(search.sequences),
        "num_rollouts_with_pivot": len({pivot.sequence.sequence_id for pivot in pivots}),
        "gap": search.gap,
        "num_continuations": search.num_continuations,
        "num_rounds": search.num_rounds,
        "num_prefixes": sum(value.sample_set == "search" for value in search.values),
        "num_compared": search.num_compared,
        "false_positive_rate": rate,
        "num_pivots": len(pivots),
        "num_rises": sum(pivot.search > 0 for pivot in pivots),
        "num_falls": sum(pivot.search < 0 for pivot in pivots),
        "num_confirmed": sum(_same_way(pivot) >= search.gap - 1e-9 for pivot in pivots),
        "max_false_confirmed": rate / 2 * len(pivots),
        "size_search": estimate([abs(pivot.search) for pivot in pivots], pivots, (0.0, 1.0)),
        "size_estimate": estimate([_same_way(pivot) for pivot in pivots], pivots, (-1.0, 1.0)),
        "on_spike": landed(spikes, pivots),
        "on_wrong": landed({p.sequence.sequence_id: list(p.sequence.wrong) for p in marked}, marked),
        "on_first_wrong": landed({p.sequence.sequence_id: _first(p.sequence) for p in marked}, marked),
    }


def _same_way(pivot: Pivot) -> float:
    """Return the estimated jump, positive where it goes the way of the search's."""
    return pivot.estimate if pivot.search > 0 else -pivot.estimate


def _hit(pivot: Pivot, places: Collection[int]) -> tuple[float, float]:
    """Return whether a pivot is at one of the places, and the chance of it."""
    return float(pivot.position in places), len(set(places)) / len(pivot.sequence.completion_ids)


def _first(sequence: ProbeSequence) -> list[int]:
    return [] if sequence.first_wrong is None else [sequence.first_wrong]
