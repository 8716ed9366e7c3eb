"""Values along rollouts, and pivotal tokens or sentences: those across which the value jumps, found by bisection.

Pivotal token search is of phi-4 (arXiv 2412.08905, section 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from swerve.artifacts.probe_causes import Breaks, PivotOverlap, Pivots, Policy
from swerve.artifacts.responses import Response
from swerve.config.probe import PivotConfig
from swerve.probe.causal.continuations import ContinuationSampler, Outcome, Prefix, RecordedSampler
from swerve.probe.intervals import Intervals
from swerve.probe.rollouts.tokenise import sentence_spans, starting_tokens
from swerve.statistics import difference_interval
from swerve.statistics.hypothesis_tests import false_positive_rate, samples_for_false_positive_rate

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
    """A token, or a sentence, across which the value of one policy jumps."""

    sequence: Response
    position: int
    """Of the token, or the sentence's first one."""
    stop: int
    """Of the token after it; its effect is V(stop) - V(position)."""
    lasts: bool
    """It is a fall, and no later value that was measured is back within the gap; of sentences all were."""
    search: float
    """The jump on the continuations by which it was found: the largest of many, so too large on average."""
    before: Outcome
    """Of fresh continuations of the prefix without the token."""
    after: Outcome
    """Of fresh continuations of the prefix with it."""

    @property
    def estimate(self) -> float:
        """The jump on fresh continuations."""
        return self.after.value - self.before.value

    @property
    def same_way(self) -> float:
        """The jump on fresh continuations, positive where it goes the way of the search's."""
        return self.estimate if self.search > 0 else -self.estimate

    def is_confirmed(self, gap: float, *, confidence: float) -> bool:
        """Return whether all of the interval of the jump on fresh continuations is at the gap or beyond, the same way.

        The interval is Newcombe's for two independent fractions. By enumeration of all outcomes of 10 to 200
        continuations a true jump below a gap of .2 or .3 passes with probability 2.7% or less at confidence .95: one
        side of the interval. With 51 continuations and a gap of .2 true jumps of .15 pass in .6%, of .4 in 53 to 80%,
        of .5 in 89 to 99%.
        """
        ends = (self.after, self.before) if self.search > 0 else (self.before, self.after)
        counts = (count for end in ends for count in (end.num_successes, end.num_continuations))
        interval = difference_interval(*counts, confidence=confidence)
        return interval is not None and interval.low >= gap - _EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class PivotSearch:
    """What a search with one policy found, and what it took."""

    policy: Policy
    sequences: tuple[Response, ...]
    unit: Literal["token", "sentence"]
    gap: float
    num_continuations: int
    """Of each prefix, in either sample set."""
    pivots: tuple[Pivot, ...]
    values: tuple[PrefixValue, ...]
    num_compared: int
    """Single tokens, or sentences, whose two values were compared."""
    num_rounds: int
    """Calls of the engine for the search."""

    @classmethod
    def of_parts(cls, searches: Sequence[PivotSearch]) -> PivotSearch:
        """Return searches of different rollouts, with the same settings, as one."""
        return replace(
            searches[0],
            sequences=tuple(sequence for search in searches for sequence in search.sequences),
            pivots=tuple(pivot for search in searches for pivot in search.pivots),
            values=tuple(value for search in searches for value in search.values),
            num_compared=sum(search.num_compared for search in searches),
            num_rounds=sum(search.num_rounds for search in searches),
        )


def num_samples(settings: PivotConfig) -> int:
    """Return the continuations of each prefix that the settings ask for.

    >>> num_samples(PivotConfig(gap=0.2, false_positive_rate=0.05))
    51
    """
    if settings.num_continuations is not None:
        return settings.num_continuations
    return samples_for_false_positive_rate(settings.gap, settings.false_positive_rate)


def piece_ends(sequence: Response, unit: Literal["token", "sentence"]) -> list[int]:
    """Return after how many tokens each piece of a rollout ends, from 0, the beginning, on.

    A token that stands for characters of two sentences is the last of the first one. The end-of-sequence token is of
    the last sentence.
    """
    length = len(sequence.completion_ids)
    if unit == "token":
        return list(range(length + 1))
    begins = [begin for begin, _ in sentence_spans(sequence.text or "")]
    return sorted({*starting_tokens(begins, sequence.spans), length})


def prefix_values(
    places: Sequence[tuple[Response, int]],
    sampler: ContinuationSampler | RecordedSampler,
    num: int,
    *,
    sample_set: SampleSet = "search",
) -> list[PrefixValue]:
    """Return the values of prefixes of rollouts, all from one call of the engine.

    V(t) is the success probability of continuing the first t tokens; V of a finished completion is 0 or 1.

    Args:
        places: rollouts, and how many of their tokens the prefix has.
        sampler: the policy that continues.
        num: continuations of each prefix.
        sample_set: `search` and `estimate` draw different random numbers.
    """
    prefixes = [Prefix.of(sequence, length) for sequence, length in places]
    sampler.on_planned(sampler.num_continued(prefixes) * num)
    outcomes = sampler.sample(prefixes, num, look=_LOOKS[sample_set])
    return [
        PrefixValue(sequence_id=sequence.sequence_id, position=length, sample_set=sample_set, outcome=outcome)
        for (sequence, length), outcome in zip(places, outcomes, strict=True)
    ]


def find_pivots(
    sequences: Sequence[Response],
    sampler: ContinuationSampler | RecordedSampler,
    *,
    settings: PivotConfig,
    policy: Policy = "reference",
) -> PivotSearch:
    """Find the tokens (or sentences) across which a policy's value jumps by `gap` or more, and estimate each jump anew.

    From V(0) and V(n) on, a stretch of tokens [a, b] is halved while |V(a) - V(b)| >= gap, down to single tokens; these
    are the pivots. All rollouts advance together, so that each round is one call of the engine. A rise and a fall
    within one stretch cancel and stay unfound; `prefix_values` at all lengths misses nothing. Of sentences there
    are few: the values at all their ends are measured.

    Simulated with the default settings (51 continuations, gap .2) along wrong rollouts of 12 to 100 tokens whose value
    is one constant up to the last token, which ends at 0: the search stops at a token without an effect in 5 to 8% of
    rollouts at a constant of .5, in 2 to 3% at .3, in .2% or less at .2, and confirms (`Pivot.is_confirmed`) none in
    48,000 rollouts.

    Args:
        sequences: the rollouts.
        sampler: the policy that continues.
        settings: the unit, the gap and the continuations.
        policy: which of the two models it is.

    Raises:
        ValueError: two rollouts have the same `sequence_id`.
    """
    if len({sequence.sequence_id for sequence in sequences}) < len(sequences):
        raise ValueError("two rollouts have the same sequence_id; their values would be mixed up")
    num = num_samples(settings)

    def measure(ends: set[tuple[int, int]], sample_set: SampleSet) -> dict[tuple[int, int], PrefixValue]:
        """Return the values of prefixes: (index of the rollout, length), in that order."""
        ordered = sorted(ends)
        places = [(sequences[index], length) for index, length in ordered]
        values = prefix_values(places, sampler, num, sample_set=sample_set)
        return dict(zip(ordered, values, strict=True))

    # Stretches of a rollout (its index, and of which piece's end to which) are halved while the values there differ.
    known: dict[tuple[int, int], PrefixValue] = {}
    pieces = [piece_ends(sequence, settings.unit) for sequence in sequences]
    stretches = [
        (index, first, last)
        for index, ends in enumerate(pieces)
        for first, last in ([(0, len(ends) - 1)] if settings.unit == "token" else pairwise(range(len(ends))))
    ]
    singles: list[tuple[int, int, int]] = []
    num_compared = num_rounds = 0
    while stretches:
        ends = {(index, pieces[index][end]) for index, *both in stretches for end in both}
        known.update(measure(ends - known.keys(), "search"))
        num_rounds += 1
        halves: list[tuple[int, int, int]] = []
        for index, first, last in stretches:
            start, stop = pieces[index][first], pieces[index][last]
            num_compared += last - first == 1
            if abs(known[index, stop].outcome.value - known[index, start].outcome.value) < settings.gap - _EXACT:
                continue
            if last - first == 1:
                singles.append((index, start, stop))
            else:
                middle = (first + last) // 2
                halves += [(index, first, middle), (index, middle, last)]
        stretches = halves

    # The jumps by which the pivots were found are too large: they are measured again.
    fresh = measure({(index, length) for index, *both in singles for length in both}, "estimate")
    pivots: list[Pivot] = []
    for index, start, stop in sorted(singles):
        before, after = known[index, start].outcome.value, known[index, stop].outcome.value
        later = [value.outcome.value for (own, length), value in known.items() if own == index and length >= stop]
        pivots.append(
            Pivot(
                sequence=sequences[index],
                position=start,
                stop=stop,
                lasts=max(later) <= before - settings.gap + _EXACT,
                search=after - before,
                before=fresh[index, start].outcome,
                after=fresh[index, stop].outcome,
            )
        )
    return PivotSearch(
        policy=policy,
        sequences=tuple(sequences),
        unit=settings.unit,
        gap=settings.gap,
        num_continuations=num,
        pivots=tuple(pivots),
        values=(*(value for _, value in sorted(known.items())), *fresh.values()),
        num_compared=num_compared,
        num_rounds=num_rounds,
    )


def prefix_value_rows(values: Iterable[PrefixValue], policy: Policy = "reference") -> list[dict[str, Any]]:
    """Return the rows of `prefix_values.parquet` that one policy's values give."""
    return [
        {
            "sequence_id": value.sequence_id,
            "position": value.position,
            "policy": policy,
            "sample_set": value.sample_set,
            "num_continuations": value.outcome.num_continuations,
            "num_successes": value.outcome.num_successes,
            "num_failures": value.outcome.num_failures,
        }
        for value in values
    ]


def summarise_pivots(
    search: PivotSearch,
    *,
    spikes: Mapping[int, Collection[int]],
    tops: Mapping[int, tuple[int, int]],
    intervals: Intervals,
) -> Pivots | None:
    """Return how many pivots a policy has, how large and where; None without rollouts.

    The pivots of one policy say nothing of the other's, and are never pooled or chosen between: of both together on
    average at most the sum of their `max_confirmed_below_gap` is confirmed with a smaller true jump. `num_could_fall`
    says in how many rollouts the policy is right often enough for a fall to be found at all.

    `size_search` is the mean |jump| on the continuations by which the pivots were found, `size_estimate` the mean jump
    in the same direction on fresh ones: the difference is the winner's curse. `false_positive_rate` is the exact
    probability that two equal success rates differ by the gap in continuations drawn once, at rate 1/2, where it is
    largest. The search compares many tokens and goes where differences were seen, so more of what it finds is false,
    and a loss spread over several tokens makes pivots of tokens that each lose less than the gap. Of `num_confirmed`
    pivots the fresh continuations' interval excludes jumps below the gap (`Pivot.is_confirmed`); on average at most
    `max_confirmed_below_gap`, 1 - confidence of the pivots, are confirmed with a smaller true jump. The fractions of
    pivots on spikes and on wrong steps are beside their chance: what to expect were each pivot anywhere in its rollout.

    `breaks` is about the largest fall of each rollout that lasts: where the chance of a right answer falls for good.

    Args:
        search: what was found.
        spikes: positions of the spikes by `sequence_id`; a rollout that is missing has none.
        tops: the position of the highest divergence, and of the reference's highest entropy, by `sequence_id`.
        intervals: how intervals are made.
    """
    if not search.sequences:
        return None
    # Only of marked rollouts is it known where the wrong tokens are.
    pivots, problems = search.pivots, _problems(search.pivots)
    marked = [pivot for pivot in pivots if pivot.sequence.wrong]
    # The values that the search saw, and of them those of the prompt alone, which it did not choose.
    searched = [value for value in search.values if value.sample_set == "search"]
    of_rollout = {sequence.sequence_id: sequence.problem.id for sequence in search.sequences}
    starts = [(one.outcome.value, of_rollout[one.sequence_id]) for one in searched if one.position == 0]
    return Pivots(
        policy=search.policy,
        unit=search.unit,
        num_rollouts=len(search.sequences),
        start=intervals.mean([value for value, _ in starts], [name for _, name in starts], bounds=(0.0, 1.0)),
        num_could_fall=len({one.sequence_id for one in searched if one.outcome.value >= search.gap - _EXACT}),
        num_rollouts_with_pivot=len({pivot.sequence.sequence_id for pivot in pivots}),
        gap=search.gap,
        num_continuations=search.num_continuations,
        num_rounds=search.num_rounds,
        num_prefixes=len(searched),
        num_compared=search.num_compared,
        false_positive_rate=false_positive_rate(search.num_continuations, search.gap),
        num_pivots=len(pivots),
        num_rises=sum(pivot.search > 0 for pivot in pivots),
        num_falls=sum(pivot.search < 0 for pivot in pivots),
        num_confirmed=sum(pivot.is_confirmed(search.gap, confidence=intervals.confidence) for pivot in pivots),
        max_confirmed_below_gap=(1 - intervals.confidence) * len(pivots),
        size_search=intervals.mean([abs(pivot.search) for pivot in pivots], problems, bounds=(0.0, 1.0)),
        size_estimate=intervals.mean([pivot.same_way for pivot in pivots], problems, bounds=(-1.0, 1.0)),
        on_spike=_overlap(pivots, [spikes.get(pivot.sequence.sequence_id, ()) for pivot in pivots], intervals),
        on_wrong=_overlap(marked, [pivot.sequence.wrong for pivot in marked], intervals),
        on_first_wrong=_overlap(marked, [[*pivot.sequence.wrong][:1] for pivot in marked], intervals),
        in_wrong_sentence=_in_wrong_sentence(pivots, intervals),
        breaks=_breaks(search, tops, intervals),
    )


def _breaks(search: PivotSearch, tops: Mapping[int, tuple[int, int]], how: Intervals) -> Breaks:
    """Return how often the highest divergence, and the highest entropy, are where a rollout's value falls for good."""
    largest: dict[int, Pivot] = {}
    for pivot in sorted(search.pivots, key=lambda pivot: pivot.search):
        if pivot.lasts:
            largest.setdefault(pivot.sequence.sequence_id, pivot)
    breaks = list(largest.values())
    by_divergence, by_entropy = ([[tops[one][score]] for one in largest] for score in (0, 1))
    differences = [
        float(pivot.position <= divergence < pivot.stop) - float(pivot.position <= entropy < pivot.stop)
        for pivot, (divergence, entropy) in zip(breaks, map(tops.__getitem__, largest), strict=True)
    ]
    return Breaks(
        num_rollouts=len(breaks),
        num_confirmed=sum(pivot.is_confirmed(search.gap, confidence=how.confidence) for pivot in breaks),
        top_divergence=_overlap(breaks, by_divergence, how),
        top_entropy=_overlap(breaks, by_entropy, how),
        above_entropy=how.mean(differences, _problems(breaks), bounds=(-1.0, 1.0)) if breaks else None,
    )


def _problems(pivots: Sequence[Pivot]) -> list[str]:
    return [pivot.sequence.problem.id for pivot in pivots]


def _overlap(pivots: Sequence[Pivot], places: Sequence[Collection[int]], how: Intervals) -> PivotOverlap | None:
    """Return how often pivots are at one of their rollout's places, against chance; None without pivots."""
    if not pivots:
        return None
    hits: list[float] = []
    chances: list[float] = []
    for pivot, marked in zip(pivots, places, strict=True):
        is_marked = np.zeros(len(pivot.sequence.completion_ids))
        is_marked[list(marked)] = 1
        hits.append(float(is_marked[pivot.position : pivot.stop].any()))
        # By chance a piece of its length is anywhere in the rollout.
        anywhere = np.convolve(is_marked, np.ones(pivot.stop - pivot.position), mode="valid") > 0.5
        chances.append(float(anywhere.mean()))
    return _against(pivots, hits, chances, how)


def _in_wrong_sentence(pivots: Sequence[Pivot], how: Intervals) -> PivotOverlap | None:
    """Return how often pivots begin in the sentence that is labelled as the first wrong one; None without labels."""
    labelled = [pivot for pivot in pivots if pivot.sequence.wrong_sentence is not None]
    if not labelled:
        return None
    hits = [float(one.sequence.sentence_at(one.position) == one.sequence.wrong_sentence) for one in labelled]
    return _against(labelled, hits, [1 / len(one.sequence.sentence_starts) for one in labelled], how)


def _against(pivots: Sequence[Pivot], hits: Sequence[float], chances: Sequence[float], how: Intervals) -> PivotOverlap:
    above = [hit - chance for hit, chance in zip(hits, chances, strict=True)]
    return PivotOverlap(
        num=len(pivots),
        share=how.share(hits, _problems(pivots)),
        chance=sum(chances) / len(chances),
        above_chance=how.mean(above, _problems(pivots), bounds=(-1.0, 1.0)),
    )
