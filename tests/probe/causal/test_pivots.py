from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_causes import Pivots, Policy
from swerve.artifacts.tables import PREFIX_VALUES_SCHEMA
from swerve.config.probe import PivotConfig
from swerve.probe.causal.continuations import Outcome
from swerve.probe.causal.pivots import (
    Pivot,
    PivotSearch,
    find_pivots,
    num_samples,
    prefix_value_rows,
    prefix_values,
    summarise_pivots,
)
from swerve.probe.intervals import Intervals
from swerve.statistics import false_positive_rate

SETTINGS = PivotConfig(gap=0.2, num_continuations=300)


def decided_at(*positions: int):
    """Right where the words at all the positions are a."""
    return lambda words: all(words[position] == "a" for position in positions)


def test_the_sample_size_keeps_the_stated_rate() -> None:
    assert num_samples(PivotConfig(num_continuations=7)) == 7
    num = num_samples(PivotConfig(gap=0.3, false_positive_rate=0.01))
    assert false_positive_rate(num, 0.3) <= 0.01 < false_positive_rate(num - 1, 0.3)


def test_pivots_are_where_the_exact_value_jumps(toys) -> None:
    """V along a a b a a a a, with words 1 and 4 deciding: 1/4, 1/4, 1/2, 1/2, 1/2, 1, 1, 1."""
    toy = toys.fair(decided_at(1, 4), length=7)
    rollouts = [toys.rollout(0, "a a b a a a a"), toys.rollout(1, "a a b a b a a"), toys.rollout(2, "b b b b b b b")]
    search = find_pivots(rollouts, toy.sampler(), settings=SETTINGS)
    assert [(one.sequence.sequence_id, one.position) for one in search.pivots] == [
        (0, 1),
        (0, 4),
        (1, 1),
        (1, 4),
        (2, 1),
    ]
    jumps = [0.25, 0.5, 0.25, -0.5, -0.25]
    assert [one.search for one in search.pivots] == pytest.approx(jumps, abs=0.1)
    assert [one.estimate for one in search.pivots] == pytest.approx(jumps, abs=0.1)
    assert all(one.search != one.estimate for one in search.pivots)
    for value in search.values:
        exact = toy.value(rollouts[value.sequence_id].completion_ids[: value.position])
        assert abs(value.outcome.value - exact) <= 4 * np.sqrt(exact * (1 - exact) / 300)
    assert search.num_continuations == 300


def test_each_round_is_one_call_for_all_rollouts_and_no_prefix_is_measured_twice(toys) -> None:
    toy = toys.fair(decided_at(0), length=8)
    rollouts = [toys.rollout(0, "a a a a a a a a"), toys.rollout(1, "b b b b b b b b")]
    search = find_pivots(rollouts, toy.sampler(), settings=SETTINGS)
    # ends, then the middles 4, 2, 1 of the half with the jump (and of [4, 8] and [2, 4] nothing)
    lengths = [sorted(len(written) for written, _, _ in call) for call in toy.calls]
    assert lengths == [[0, 0], [4, 4], [2, 2], [1, 1], [0, 0, 1, 1]]  # the last: fresh continuations
    assert search.num_rounds == 4
    assert search.num_compared == 4  # tokens 0 and 1 of each
    searched = [(one.sequence_id, one.position) for one in search.values if one.sample_set == "search"]
    assert searched == [(i, t) for i in (0, 1) for t in (0, 1, 2, 4, 8)]
    seeds = [seed for call in toy.calls for written, seed, _ in call if not written]
    assert len(set(seeds)) == 4


def test_equal_ends_hide_what_is_between_and_the_curve_shows_it(toys) -> None:
    """Word 0 makes it sure, a later slip makes it even again."""
    toy = toys.fair(lambda words: words[0] == "a" if words[2] == "a" else words[3] == "a", length=4)
    rollout = toys.rollout(0, "a b b")  # unfinished: its last value is continued
    search = find_pivots([rollout], toy.sampler(), settings=SETTINGS)
    assert search.pivots == ()
    assert search.num_compared == 0
    curve = prefix_values([(rollout, length) for length in range(4)], toy.sampler(), 2000)
    assert [one.position for one in curve] == [0, 1, 2, 3]
    assert [one.outcome.value for one in curve] == pytest.approx([0.5, 0.75, 0.75, 0.5], abs=0.04)


def test_a_jump_of_exactly_the_gap_counts(toys) -> None:
    toy = toys.given(
        lambda written: {toys.a: 1.0} if not written else {toys.a: 0.5, toys.b: 0.5}, decided_at(1), length=2
    )
    rollout = toys.rollout(0, "b a")
    (before,) = prefix_values([(rollout, 1)], toy.sampler(), 10)
    size = 1 - before.outcome.value  # such as 1 - 0.7, in binary more or less than 0.3
    for gap, expected in ((round(size, 3), 1), (round(size, 3) + 0.05, 0)):
        search = find_pivots([rollout], toy.sampler(), settings=PivotConfig(gap=gap, num_continuations=10))
        assert sum(one.position == 1 for one in search.pivots) == expected


def test_values_at_given_positions(toys) -> None:
    toy = toys.fair(decided_at(0), length=3)
    rollout = toys.rollout(0, "a b a")
    values = prefix_values([(rollout, 1), (rollout, 3)], toy.sampler(), 8, sample_set="estimate")
    assert [(one.sequence_id, one.position, one.sample_set) for one in values] == [
        (0, 1, "estimate"),
        (0, 3, "estimate"),
    ]
    assert len(toy.calls) == 1
    assert prefix_value_rows(values)[0] == {
        "sequence_id": 0,
        "position": 1,
        "policy": "reference",
        "sample_set": "estimate",
        "num_continuations": 8,
        "num_successes": 8,
        "num_failures": 0,
    }
    assert prefix_value_rows(values)[0].keys() == set(PREFIX_VALUES_SCHEMA.names)
    with pytest.raises(ValueError, match="same sequence_id"):
        find_pivots([rollout] * 2, toy.sampler(), settings=SETTINGS)


def test_values_without_effect_differ_by_the_gap_at_the_stated_rate(toys) -> None:
    """Word 1 decides alone, so the values before it are all 1/2."""
    toy = toys.fair(decided_at(1), length=2)
    rollouts = [toys.rollout(index, "a b") for index in range(1500)]
    values = prefix_values([(rollout, length) for rollout in rollouts for length in (0, 1)], toy.sampler(), 10)
    jumps = [
        after.outcome.value - before.outcome.value for before, after in zip(values[::2], values[1::2], strict=True)
    ]
    expected = false_positive_rate(10, 0.2)
    found = np.mean(np.abs(jumps) >= 0.2 - 1e-9)
    assert abs(found - expected) <= 3 * np.sqrt(expected * (1 - expected) / 1500)


def test_the_winners_curse_shows_and_the_confirmed_are_few(toys) -> None:
    """With 10 continuations noise is often a pivot; fresh continuations say so."""
    toy = toys.given(lambda written: {toys.a: 0.52, toys.b: 0.48}, decided_at(5), length=6)
    rollouts = [toys.rollout(index, "a a a a a a") for index in range(60)]
    search = find_pivots(rollouts, toy.sampler(), settings=PivotConfig(gap=0.3, num_continuations=10))
    false = [one for one in search.pivots if one.position != 5]
    assert len(false) >= 10
    assert np.mean([abs(one.search) for one in false]) >= 0.3
    assert abs(np.mean([one.estimate * np.sign(one.search) for one in false])) <= 0.15
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert summary.size_search.mean > summary.size_estimate.mean
    assert summary.max_confirmed_below_gap == pytest.approx(0.05 * len(search.pivots))
    dump_json(summary)


def test_summary_by_hand(toys) -> None:
    toy = toys.fair(decided_at(1), length=4)
    rollouts = [
        toys.rollout(0, "b a a a", wrong={1: "x", 2: "x"}),
        toys.rollout(1, "b b a a", wrong={0: "x", 1: "x"}),
        toys.rollout(2, "a b a a"),
    ]
    search = find_pivots(rollouts, toy.sampler(), settings=SETTINGS)
    assert [(one.sequence.sequence_id, one.position) for one in search.pivots] == [(0, 1), (1, 1), (2, 1)]
    summary = summarise_pivots(
        search,
        spikes={0: [1], 1: [0, 2], 2: [1, 3]},
        tops={0: (1, 0), 1: (1, 0), 2: (3, 3)},
        intervals=Intervals(),
    )
    assert (summary.num_pivots, summary.num_rises, summary.num_falls) == (3, 1, 2)
    assert (summary.num_rollouts, summary.num_rollouts_with_pivot, summary.num_confirmed) == (3, 3, 3)
    assert summary.size_search.mean == pytest.approx(0.5, abs=0.05)
    assert summary.size_estimate.mean == pytest.approx(0.5, abs=0.05)
    assert summary.on_spike.share.mean == pytest.approx(2 / 3)
    assert summary.on_spike.chance == pytest.approx((1 / 4 + 2 / 4 + 2 / 4) / 3)
    assert summary.on_spike.above_chance.mean == pytest.approx(2 / 3 - 5 / 12)
    assert summary.on_wrong.num == 2  # the third rollout has no known wrong step
    assert (summary.on_wrong.share.mean, summary.on_wrong.chance) == (1.0, 0.5)
    assert (summary.on_first_wrong.share.mean, summary.on_first_wrong.chance) == (0.5, 0.25)
    assert summary.false_positive_rate == false_positive_rate(300, 0.2)
    # The first two fall at word 1 for good: the highest divergence is there in one, the highest entropy in none.
    assert (summary.breaks.num_rollouts, summary.breaks.num_confirmed) == (2, 2)
    assert (summary.breaks.top_divergence.share.mean, summary.breaks.top_divergence.chance) == (0.5, 0.25)
    assert (summary.breaks.top_entropy.share.mean, summary.breaks.above_entropy.mean) == (0.0, 0.5)


def test_pivots_of_a_rollout_whose_wrong_sentence_is_known_are_set_against_its_sentences(toys) -> None:
    toy = toys.fair(decided_at(1), length=4)
    rollouts = [
        replace(toys.rollout(0, "b b a a"), sentence_starts=(0, 1, 3), wrong_sentence=1),
        replace(toys.rollout(1, "a b a a"), sentence_starts=(0, 3), wrong_sentence=1),
        toys.rollout(2, "b b a a", wrong={1: "x"}),
    ]
    search = find_pivots(rollouts, toy.sampler(), settings=SETTINGS)
    assert [one.position for one in search.pivots] == [1, 1, 1]
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert (summary.on_first_wrong.num, summary.in_wrong_sentence.num) == (1, 2)
    assert (summary.in_wrong_sentence.share.mean, summary.in_wrong_sentence.chance) == (0.5, (1 / 3 + 1 / 2) / 2)


def test_sentences_are_searched_and_only_a_fall_without_a_later_rise_is_for_good(toys) -> None:
    """V at the ends of sentences is .6 .6 .1 .7 .2 0: it falls at the second, and comes back, and at the fourth."""
    text = "one two. " * 4 + "one two."
    rollout = replace(
        toys.rollout(0, "a b " * 5), text=text, spans=[*pairwise([0, 3, 8, 12, 17, 21, 26, 30, 35, 39, 44])]
    )
    course = Course([0.6, -1, 0.6, -1, 0.1, -1, 0.7, -1, 0.2, -1, 0.0], np.random.default_rng(3))  # only ends are asked
    search = find_pivots([rollout], course, settings=PivotConfig(unit="sentence", gap=0.4, num_continuations=300))
    assert [(one.position, one.stop, one.search > 0, one.lasts) for one in search.pivots] == [
        (2, 4, False, False),
        (4, 6, True, False),
        (6, 8, False, True),
    ]
    summary = summarise_pivots(search, spikes={0: [5, 7]}, tops={0: (7, 2)}, intervals=Intervals())
    assert (summary.unit, summary.on_spike.share.mean) == ("sentence", pytest.approx(2 / 3))
    # Of the nine places for a piece of two tokens, 4-5, 5-6, 6-7 and 7-8 have one of the spikes; two have the top.
    assert (summary.on_spike.chance, summary.breaks.top_divergence.chance) == pytest.approx((4 / 9, 2 / 9))
    assert (summary.breaks.num_rollouts, summary.breaks.above_entropy.mean) == (1, 1.0)


SENTENCES = "one two. " * 5 + "one two."
ENDS = range(0, 13, 2)


def by_sentences(toys, values: Sequence[Sequence[float]], policy: Policy, *, seed: int = 0) -> Pivots:
    """Search rollouts of six sentences with a policy whose value at each of their seven ends is known."""
    edges = [0, *(at for start in range(0, len(SENTENCES), 9) for at in (start + 3, start + 8))]
    found = []
    for index, own in enumerate(values):
        rollout = replace(toys.rollout(index, "a b " * 6), text=SENTENCES, spans=[*pairwise(edges)])
        course = Course([own[at // 2] for at in range(13)], np.random.default_rng([seed, index]))
        settings = PivotConfig(unit="sentence", max_rollouts=len(values))
        found.append(find_pivots([rollout], course, settings=settings, policy=policy))
    search = PivotSearch.of_parts(found)
    breaks = [
        (one.sequence.sequence_id, one.position // 2) for one in search.pivots if one.is_confirmed(0.2, confidence=0.95)
    ]
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert summary is not None
    assert (summary.policy, summary.num_confirmed) == (policy, len(breaks))
    return summary.model_copy(update={"breaks": breaks})


def test_a_planted_break_is_found_by_the_policy_that_is_right_before_it_and_not_by_one_that_never_is(toys) -> None:
    """RL is right in .6 of its continuations up to a planted sentence and in none after it, the reference in none."""
    planted = [0, 1, 2, 3, 4, 2, 1, 3]
    falling = [[0.6] * (at + 1) + [0.0] * (6 - at) for at in planted]
    by_rl = by_sentences(toys, falling, "checkpoint")
    assert by_rl.breaks == [*enumerate(planted)]
    assert (by_rl.num_could_fall, by_rl.start.mean) == (8, pytest.approx(0.6, abs=0.1))
    by_reference = by_sentences(toys, [[0.0] * 7] * 8, "reference")
    assert (by_reference.num_pivots, by_reference.num_could_fall, by_reference.start.mean) == (0, 0, 0.0)


def test_where_no_break_is_planted_neither_policy_has_one(toys) -> None:
    for rate in (0.0, 0.35, 0.6):
        found = by_sentences(toys, [[rate] * 7] * 60, "checkpoint", seed=1)
        assert (found.num_confirmed, found.breaks) == (0, [])
        assert found.num_could_fall == (60 if rate else 0)


def test_the_policies_must_be_one_of_each() -> None:
    assert PivotConfig().policies == ("reference", "checkpoint")
    with pytest.raises(ValueError, match="policies is empty; give at least one value"):
        PivotConfig(policies=())
    with pytest.raises(ValueError, match="policies has a value twice"):
        PivotConfig(policies=("checkpoint", "checkpoint"))


def tops(search: PivotSearch) -> dict[int, tuple[int, int]]:
    return {sequence.sequence_id: (0, 0) for sequence in search.sequences}


def outcome(successes: int, num: int = 50) -> Outcome:
    return Outcome(num_continuations=num, num_successes=successes, num_failures=0)


def test_a_fresh_jump_the_other_way_counts_against_the_size(toys) -> None:
    jumps = [(0.3, (25, 20)), (-0.5, (35, 25)), (-0.4, (20, 50)), (-0.4, (45, 20)), (0.4, (20, 30)), (-0.3, (50, 20))]
    pivots = tuple(
        Pivot(
            sequence=toys.rollout(index, "a b"),
            position=0,
            stop=1,
            lasts=search < 0,
            search=search,
            before=before,
            after=after,
        )
        for index, (search, (before, after)) in enumerate((one, map(outcome, two)) for one, two in jumps)
    )
    search = PivotSearch(
        policy="reference",
        sequences=tuple(one.sequence for one in pivots),
        unit="token",
        gap=0.2,
        num_continuations=51,
        pivots=pivots,
        values=(),
        num_compared=6,
        num_rounds=2,
    )
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert summary.size_search.mean == pytest.approx(2.3 / 6)
    assert summary.size_estimate.mean == pytest.approx((-0.1 + 0.2 - 0.6 + 0.5 + 0.2 + 0.6) / 6)
    # Newcombe at 95% of 45 and 20 of 50: 0.5 [0.32, 0.64], of 50 and 20: 0.6 [0.44, 0.72]; of 35 and 25: [0.01, ...]
    assert summary.num_confirmed == 2
    assert [one.is_confirmed(0.4, confidence=0.95) for one in pivots] == [False] * 5 + [True]
    assert summary.max_confirmed_below_gap == pytest.approx(0.3)


def test_nothing_found_and_nothing_searched(toys) -> None:
    toy = toys.fair(lambda words: False, length=3)
    search = find_pivots([toys.rollout(0, "a a a")], toy.sampler(), settings=SETTINGS)
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert (summary.num_pivots, summary.size_search, summary.on_spike) == (0, None, None)
    nothing = find_pivots([], toy.sampler(), settings=SETTINGS)
    assert nothing.num_rounds == 0
    assert summarise_pivots(nothing, spikes={}, tops={}, intervals=Intervals()) is None


@dataclass(frozen=True)
class Course:
    """A policy with a known value at every length of a prefix; only the last is certain, as of a graded rollout."""

    values: Sequence[float]
    rng: np.random.Generator

    def on_planned(self, num):
        """Nothing is shown."""

    def sample(self, prefixes, num, *, look=0):
        rates = [self.values[len(one.completion_ids)] for one in prefixes]
        return [outcome(int(self.rng.binomial(num, rate)), num) for rate in rates]

    def num_continued(self, prefixes):
        return len(prefixes)


def searched(toys, values: Sequence[float], *, num: int, seed: int = 0) -> PivotSearch:
    rollouts = [toys.rollout(index, " ".join("b" * (len(values) - 1))) for index in range(num)]
    return find_pivots(rollouts, Course(values, np.random.default_rng(seed)), settings=PivotConfig(max_rollouts=num))


def test_a_loss_spread_over_four_tokens_has_no_confirmed_pivot(toys) -> None:
    """Four tokens lose .15 each: the search stops at single ones, but none of them loses .2."""
    search = searched(toys, [0.6, 0.6, 0.6, 0.6, 0.45, 0.3, 0.15, 0.0, 0.0, 0.0, 0.0], num=300)
    summary = summarise_pivots(search, spikes={}, tops=tops(search), intervals=Intervals())
    assert summary.num_pivots >= 150
    assert (
        sum(one.same_way >= 0.2 for one in search.pivots) >= 0.1 * summary.num_pivots
    )  # confirmed without an interval
    assert summary.num_confirmed <= 0.02 * summary.num_pivots


def test_one_decisive_token_is_confirmed(toys) -> None:
    search = searched(toys, [0.6] * 5 + [0.05] * 4 + [0.0], num=100)
    confirmed = [one for one in search.pivots if one.is_confirmed(0.2, confidence=0.95)]
    assert {one.position for one in confirmed} == {4}
    assert len(confirmed) >= 95


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "most"), [(0.5, 0.065), (0.3, 0.03), (0.2, 0.002)])
def test_false_pivots_where_only_the_end_decides_are_as_rare_as_stated(toys, rate: float, most: float) -> None:
    search = searched(toys, [rate] * 30 + [0.0], num=2000)
    false = [one for one in search.pivots if one.position < 29]
    share = len({one.sequence.sequence_id for one in false}) / 2000
    assert share <= most + 3 * np.sqrt(most * (1 - most) / 2000)
    assert sum(one.is_confirmed(0.2, confidence=0.95) for one in false) <= 1
