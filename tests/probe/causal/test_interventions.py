from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from statistics import pvariance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.probe.causal.interventions import Control, ControlPool, random_positions


def test_a_random_position_is_any_other_than_the_top() -> None:
    drawn = {one for seed in range(100) for one in random_positions(7, top=3, seed=seed, problem_id="p")}
    assert drawn == {0, 1, 2, 4, 5, 6}
    assert random_positions(1, top=0, seed=0, problem_id="p") == []
    assert len({random_positions(50, top=0, seed=0, problem_id=f"p{i}")[0] for i in range(20)}) > 10
    several = random_positions(7, top=3, seed=0, problem_id="p", num=4)
    assert len(set(several)) == 4
    assert several[:2] == random_positions(7, top=3, seed=0, problem_id="p", num=2)
    assert sorted(random_positions(7, top=3, seed=0, problem_id="p", num=9)) == [0, 1, 2, 4, 5, 6]


def pool(categories, entropies, *, tops, spikes=(), differs=None, caliper: float | None = None) -> ControlPool:
    """By default the checkpoint chooses another token everywhere."""
    rows = spikes or [[] for _ in tops]
    marks = [[position in own for position in range(len(row))] for row, own in zip(categories, rows, strict=True)]
    found = ControlPool.of(
        lengths=[len(row) for row in categories],
        categories=[name for row in categories for name in row],
        entropy=np.array(list(chain(*entropies))),
        is_spike=np.array(list(chain(*marks))),
        tops=tops,
        differs=np.array(list(chain(*(differs or [[True] * len(row) for row in categories])))),
    )
    return found if caliper is None else replace(found, caliper=caliper)


def test_only_positions_as_undecided_as_the_spike_are_controls() -> None:
    """The number in the same third and rollout is decided, the far word is not."""
    found = pool(["nnnwww", "wwwwww"], [[0.6, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 5 + [0.58]], tops=[0, 0]).matched(0, 0)
    assert found == Control(
        index=1,
        position=5,
        same_rollout=False,
        same_category=False,
        same_third=False,
        entropy_gap=pytest.approx(0.02),
    )
    assert pool(["nnnn"], [[0.6, 0.3, 0.1, 0.0]], tops=[0]).matched(0, 0) is None


def test_the_caliper_is_a_fifth_of_the_standard_deviation_and_not_too_narrow() -> None:
    entropies = [[2.0, 0.0, 1.0, 0.0], [4.0, 1.0, 2.0, 2.0]]
    tops, others = [2.0, 4.0], [0.0, 1.0, 0.0, 1.0, 2.0, 2.0]
    found = pool(["nnnn", "nnnn"], entropies, tops=[0, 0])
    assert found.caliper == pytest.approx(0.2 * math.sqrt((pvariance(tops) + pvariance(others)) / 2))
    assert pool(["nn"], [[0.1, 0.1]], tops=[0]).caliper == 0.05
    assert pool(["n"], [[0.1]], tops=[0]).caliper == 0.05


def test_positions_where_the_tokens_differ_come_first() -> None:
    same = [[True, False, False, True]]
    assert pool(["nnnw"], [[0.5, 0.5, 0.5, 0.52]], tops=[0], differs=same).matched(0, 0).position == 3
    nowhere = [[True, False, False, False]]
    assert pool(["nnnw"], [[0.5, 0.5, 0.5, 0.52]], tops=[0], differs=nowhere).matched(0, 0).position == 1


def test_within_the_caliper_category_and_third_come_before_nearness() -> None:
    entropies = [[0.5, 0.9, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]
    found = pool(["nnnwnn", "nnnnnn"], entropies, tops=[0, 5], caliper=1).matched(0, 0)
    assert found == Control(
        index=0, position=1, same_rollout=True, same_category=True, same_third=True, entropy_gap=pytest.approx(0.4)
    )
    assert pool(["nnnwnn", "nnnnnn"], entropies, tops=[0, 5], caliper=0.3).matched(0, 0).index == 1


def test_category_and_third_come_before_the_rollout() -> None:
    # rollout 0 has its only other number late; rollout 1 has one early
    found = pool(["nwwwwn", "wnwwww"], [[0.1] * 6, [0.1, 0.7] + [0.1] * 4], tops=[0, 5], caliper=1).matched(0, 0)
    assert found == Control(
        index=1, position=1, same_rollout=False, same_category=True, same_third=True, entropy_gap=pytest.approx(0.6)
    )


def test_the_category_comes_before_the_third() -> None:
    found = pool(["nwwwwn"], [[0.1] * 6], tops=[0]).matched(0, 0)
    assert (found.position, found.same_category, found.same_third) == (5, True, False)
    found = pool(["nwwwww"], [[0.1] * 6], tops=[0]).matched(0, 0)
    assert (found.position, found.same_category, found.same_third) == (1, False, True)
    found = pool(["nw", "nw"], [[0.1, 0.2], [0.1, 0.9]], tops=[0, 0], caliper=1).matched(0, 0)
    assert (found.index, found.position, found.same_category, found.same_third) == (0, 1, False, False)


def test_no_spike_and_no_top_is_a_control() -> None:
    where = pool(["nnnn", "nnnn"], [[0.1] * 4] * 2, spikes=[[1], [0]], tops=[0, 2])
    assert (where.matched(0, 0).index, where.matched(0, 0).position) == (1, 1)
    assert pool(["n", "n"], [[0.1]] * 2, tops=[0, 0]).matched(0, 0) is None
    assert pool(["nn"], [[0.1, 0.1]], spikes=[[1]], tops=[0]).matched(0, 0) is None
    assert (
        pool(["nnn"], [[0.1, 0.5, 0.1]], tops=[0], caliper=1).matched(0, 1).position == 2
    )  # a free position is not its own control
    alone = pool(["n", "ww"], [[0.1], [0.1, 0.3]], tops=[0, 0], caliper=1).matched(0, 0)  # a rollout of one token
    assert (alone.index, alone.position, alone.same_category, alone.same_third) == (1, 1, False, False)


def test_a_control_is_that_of_one_spike() -> None:
    """Three spikes, of which two would have the same nearest control; the third rollout has one for the second."""
    where = pool(
        ["nnn", "nww", "nwn"], [[0.5, 0.5, 0.1], [0.5, 0.1, 0.1], [0.5, 0.1, 0.52]], tops=[0, 0, 0], caliper=0.1
    )
    assert (where.matched(0, 0).index, where.matched(0, 0).position) == (0, 1)
    assert (where.matched(1, 0).index, where.matched(1, 0).position) == (0, 1)
    second = where.matched(1, 0, taken={(0, 1)})
    assert (second.index, second.position) == (2, 2)
    assert where.matched(2, 0, taken={(0, 1), (2, 2)}) is None


@given(st.data())
def test_no_other_position_is_a_better_control(data) -> None:
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    categories = [data.draw(st.lists(st.sampled_from("nw"), min_size=n, max_size=n)) for n in lengths]
    entropies = [data.draw(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.1]), min_size=n, max_size=n)) for n in lengths]
    differs = [data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in lengths]
    tops = [data.draw(st.integers(0, n - 1)) for n in lengths]
    spikes = [data.draw(st.sets(st.integers(0, n - 1))) for n in lengths]
    caliper = data.draw(st.sampled_from([0.05, 0.25, 2.0]))
    places = [(index, position) for index, length in enumerate(lengths) for position in range(length)]
    taken = data.draw(st.sets(st.sampled_from(places)))
    top = tops[0]

    def gap(index: int, position: int) -> float:
        return abs(entropies[index][position] - entropies[0][top])

    def badness(index: int, position: int) -> tuple[bool, int, float]:
        same = (
            categories[index][position] == categories[0][top],
            3 * position // lengths[index] == 3 * top // lengths[0],
            index == 0,
        )
        order = [(1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
        return not differs[index][position], order.index(tuple(map(int, same))), gap(index, position)

    free = [
        (index, position)
        for index, length in enumerate(lengths)
        for position in range(length)
        if position not in spikes[index] and position != tops[index] and gap(index, position) <= caliper
        if (index, position) not in taken
    ]
    found = pool(categories, entropies, spikes=spikes, tops=tops, differs=differs, caliper=caliper)
    found = found.matched(0, top, taken=taken)
    if not free:
        assert found is None
        return
    best = min(free, key=lambda place: (badness(*place), place))
    assert (found.index, found.position) == best
    assert math.isclose(found.entropy_gap, gap(*best))
