"""Values along rollouts, and pivotal tokens: those across which the value jumps, found by bisection.

Pivotal token search is of phi-4 (arXiv 2412.08905, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from swerve.config import PivotConfig
from swerve.probe.causal.continuations import ContinuationSampler, Outcome, Prefix
from swerve.probe.rollouts.population import ProbeSequence
from swerve.seeds import derive_seed
from swerve.statistics.hypothesis_tests import false_positive_rate, samples_for_false_positive_rate
from swerve.statistics.intervals import bootstrap_mean
from swerve.statistics.resampling import Estimate

SampleSet = Literal["search", "estimate"]

_LOOKS: Mapping[SampleSet, int] = {"search": 0, "estimate": 1}

_EXACT = 1e-9  # 0.3 - 0.1 is less than 0.2 in binary


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixValue:
    """What became of the continuations of the first `position` tokens of a rollout."""

    sequence_id: int
    position: int
    sample_set: SampleSet
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot:
    """A token across which the value jumps."""

    sequence: ProbeSequence
    position: int
    """Of the token; its effect is V(position + 1) - V(position)."""
    search: float
    """The jump on the continuations by which it was found: the largest of many, so too large on average."""
    estimate: float
    """The jump on fresh continuations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PivotSearch:
    """What a search found, and what it took."""

    sequences: tuple[ProbeSequence, ...]
    gap: float
    num_continuations: int
    """Of each prefix, in either sample set."""
    pivots: tuple[Pivot, ...]
    values: tuple[PrefixValue, ...]
    num_compared: int
    """Single tokens whose two values were compared."""
    num_rounds: int
    """Calls of the engine for the search."""


def num_samples(settings: PivotConfig) -> int:
    """Return the continuations of each prefix that the settings ask for.

    >>> num_samples(PivotConfig(gap=0.2, false_positive_rate=0.05))
    51
    """
    if settings.num_continuations is not None:
        return settings.num_continuations
    return samples_for_false_positive_rate(settings.gap, settings.false_positive_rate)


def prefix_values(
    sequences: Sequence[ProbeSequence],
    sampler: ContinuationSampler,
    num: int,
    *,
    positions: Sequence[Iterable[int]] | None = None,
    sample_set: SampleSet = "search",
    on_planned: Callable[[int], None] | None = None,
    on_finished: Callable[[int], None] | None = None,
) -> list[PrefixValue]:
    """Return the values of prefixes of rollouts, by rollout and position, all from one call of the engine.

    V(t) is the success probability of continuing the first t tokens; V of a finished completion is 0 or 1.

    Args:
        sequences: the rollouts.
        sampler: the policy that continues.
        num: continuations of each prefix.
        positions: lengths of the prefixes of each rollout; by default all, from 0 to the whole completion.
        sample_set: `search` and `estimate` draw different random numbers.
        on_planned: called with the number of continuations there will be.
        on_finished: called with the number of continuations finished since the last call.

    Raises:
        ValueError: a length is negative or beyond the completion, or positions are not given for each rollout.
    """
    if positions is None:
        positions = [range(len(sequence.completion_ids) + 1) for sequence in sequences]
    places = [(one, at) for one, lengths in zip(sequences, positions, strict=True) for at in sorted(set(lengths))]
    for sequence, at in places:
        if not 0 <= at <= len(sequence.completion_ids):
            raise ValueError(
                f"rollout {sequence.sequence_id} has {len(sequence.completion_ids)} tokens, so no prefix of {at}"
            )
    prefixes = [Prefix.of(sequence, at) for sequence, at in places]
    if on_planned is not None:
        on_planned(sampler.num_continued(prefixes) * num)
    outcomes = sampler.sample(prefixes, num, look=_LOOKS[sample_set], on_finished=on_finished)
    return [
        PrefixValue(sequence_id=sequence.sequence_id, position=at, sample_set=sample_set, outcome=outcome)
        for (sequence, at), outcome in zip(places, outcomes, strict=True)
    ]


def find_pivots(
    sequences: Sequence[ProbeSequence],
    sampler: ContinuationSampler,
    *,
    settings: PivotConfig,
    on_planned: Callable[[int], None] | None = None,
    on_finished: Callable[[int], None] | None = None,
) -> PivotSearch:
    """Find the tokens across which the value jumps by `gap` or more, and estimate each jump anew.

    From V(0) and V(n) on, a stretch of tokens [a, b] is halved while |V(a) - V(b)| >= gap, down to single tokens; these
    are the pivots. All rollouts advance together, so that each round is one call of the engine. A rise and a fall
    within one stretch cancel and stay unfound; `prefix_values` at all positions misses nothing.

    Raises:
        ValueError: two rollouts have the same `sequence_id`.
    """
    if len({sequence.sequence_id for sequence in sequences}) < len(sequences):
        raise ValueError("two rollouts have the same sequence_id; their values would be mixed up")
    num = num_samples(settings)
    known: dict[tuple[int, int], PrefixValue] = {}
    stretches = [(index, 0, len(sequence.completion_ids)) for index, sequence in enumerate(sequences)]
    found: list[tuple[int, int]] = []
    num_compared = num_rounds = 0
    while stretches:
        _measure(known, sequences, stretches, sampler, num, on_planned, on_finished)
        num_rounds += 1
        jumping = [one for one in stretches if abs(_jump(known, *one)) >= settings.gap - _EXACT]
        num_compared += sum(stop - start == 1 for _, start, stop in stretches)
        found += [(index, start) for index, start, stop in jumping if stop - start == 1]
        stretches = [half for one in jumping if one[2] - one[1] > 1 for half in _halves(*one)]
    pivots, fresh = _estimated(sorted(found), known, sequences, sampler, num, on_planned, on_finished)
    values = [value for _, value in sorted(known.items())]
    return PivotSearch(
        sequences=tuple(sequences),
        gap=settings.gap,
        num_continuations=num,
        pivots=tuple(pivots),
        values=(*values, *fresh),
        num_compared=num_compared,
        num_rounds=num_rounds,
    )


_Stretch = tuple[int, int, int]


def _halves(index: int, start: int, stop: int) -> tuple[_Stretch, _Stretch]:
    middle = (start + stop) // 2
    return (index, start, middle), (index, middle, stop)


def _jump(known: Mapping[tuple[int, int], PrefixValue], index: int, start: int, stop: int) -> float:
    return known[index, stop].outcome.value - known[index, start].outcome.value


def _measure(
    known: dict[tuple[int, int], PrefixValue],
    sequences: Sequence[ProbeSequence],
    stretches: Sequence[_Stretch],
    sampler: ContinuationSampler,
    num: int,
    on_planned: Callable[[int], None] | None,
    on_finished: Callable[[int], None] | None,
) -> None:
    """Add the values at the stretches' ends that are not known yet, in place."""
    ends = sorted({(index, at) for index, start, stop in stretches for at in (start, stop)} - known.keys())
    wanted = _by_rollout(ends, len(sequences))
    measured = prefix_values(sequences, sampler, num, positions=wanted, on_planned=on_planned, on_finished=on_finished)
    known.update(zip(ends, measured, strict=True))


def _by_rollout(ends: Iterable[tuple[int, int]], num: int) -> list[list[int]]:
    lengths: list[list[int]] = [[] for _ in range(num)]
    for index, at in ends:
        lengths[index].append(at)
    return lengths


def _estimated(
    found: Sequence[tuple[int, int]],
    known: Mapping[tuple[int, int], PrefixValue],
    sequences: Sequence[ProbeSequence],
    sampler: ContinuationSampler,
    num: int,
    on_planned: Callable[[int], None] | None,
    on_finished: Callable[[int], None] | None,
) -> tuple[list[Pivot], list[PrefixValue]]:
    """Measure the jumps that were found on fresh continuations."""
    ends = sorted({(index, at) for index, start in found for at in (start, start + 1)})
    wanted = _by_rollout(ends, len(sequences))
    values = prefix_values(
        sequences, sampler, num, positions=wanted, sample_set="estimate", on_planned=on_planned, on_finished=on_finished
    )
    fresh = dict(zip(ends, values, strict=True))
    pivots = [
        Pivot(
            sequence=sequences[index],
            position=start,
            search=_jump(known, index, start, start + 1),
            estimate=_jump(fresh, index, start, start + 1),
        )
        for index, start in found
    ]
    return pivots, values


def prefix_value_rows(values: Iterable[PrefixValue]) -> list[dict[str, Any]]:
    """Return the rows of `prefix_values.parquet`."""
    return [
        {
            "sequence_id": value.sequence_id,
            "position": value.position,
            "sample_set": value.sample_set,
            "num_continuations": value.outcome.num_continuations,
            "num_successes": value.outcome.num_successes,
            "num_failures": value.outcome.num_failures,
        }
        for value in values
    ]


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
