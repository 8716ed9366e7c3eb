from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.probe.causal.interventions import Control, ControlPool, random_positions, third


def test_thirds_are_exact() -> None:
    assert [third(position, 6) for position in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [third(position, 100) for position in (33, 34, 66, 67)] == [0, 1, 1, 2]


def test_a_random_position_is_any_other_than_the_top() -> None:
    drawn = {one for seed in range(100) for one in random_positions(7, top=3, seed=seed, problem_id="p")}
    assert drawn == {0, 1, 2, 4, 5, 6}
    assert random_positions(1, top=0, seed=0, problem_id="p") == []
    assert len({random_positions(50, top=0, seed=0, problem_id=f"p{i}")[0] for i in range(20)}) > 10
    several = random_positions(7, top=3, seed=0, problem_id="p", num=4)
    assert len(set(several)) == 4
    assert several[:2] == random_positions(7, top=3, seed=0, problem_id="p", num=2)
    assert sorted(random_positions(7, top=3, seed=0, problem_id="p", num=9)) == [0, 1, 2, 4, 5, 6]


def pool(categories, entropies, *, spikes=(), tops) -> ControlPool:
    return ControlPool.of(categories=categories, entropy_ref=entropies, spikes=spikes or [[] for _ in tops], tops=tops)


def test_the_nearest_in_entropy_of_the_same_category_and_third() -> None:
    found = pool(
        ["nnnwnn", "nnnnnn"],
        [[0.5, 0.9, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]],
        tops=[0, 5],
    ).matched(0, 0)
    assert found == Control(
        index=0, position=1, same_rollout=True, same_category=True, same_third=True, entropy_gap=pytest.approx(0.4)
    )


def test_category_and_third_come_before_the_rollout() -> None:
    # rollout 0 has its only other number late; rollout 1 has one early
    found = pool(["nwwwwn", "wnwwww"], [[0.1] * 6, [0.1, 0.7] + [0.1] * 4], tops=[0, 5]).matched(0, 0)
    assert found == Control(
        index=1, position=1, same_rollout=False, same_category=True, same_third=True, entropy_gap=pytest.approx(0.6)
    )


def test_the_category_comes_before_the_third() -> None:
    found = pool(["nwwwwn"], [[0.1] * 6], tops=[0]).matched(0, 0)
    assert (found.position, found.same_category, found.same_third) == (5, True, False)
    found = pool(["nwwwww"], [[0.1] * 6], tops=[0]).matched(0, 0)
    assert (found.position, found.same_category, found.same_third) == (1, False, True)
    found = pool(["nw", "nw"], [[0.1, 0.2], [0.1, 0.9]], tops=[0, 0]).matched(0, 0)
    assert (found.index, found.position, found.same_category, found.same_third) == (0, 1, False, False)


def test_no_spike_and_no_top_is_a_control() -> None:
    where = pool(["nnnn", "nnnn"], [[0.1] * 4] * 2, spikes=[[1], [0]], tops=[0, 2])
    assert (where.matched(0, 0).index, where.matched(0, 0).position) == (1, 1)
    assert pool(["n", "n"], [[0.1]] * 2, tops=[0, 0]).matched(0, 0) is None
    assert pool(["nn"], [[0.1, 0.1]], spikes=[[1]], tops=[0]).matched(0, 0) is None
    assert (
        pool(["nnn"], [[0.1, 0.5, 0.1]], tops=[0]).matched(0, 1).position == 2
    )  # a free position is not its own control
    alone = pool(["n", "ww"], [[0.1], [0.1, 0.3]], tops=[0, 0]).matched(0, 0)  # a rollout of one token
    assert (alone.index, alone.position, alone.same_category, alone.same_third) == (1, 1, False, False)


@given(st.data())
def test_no_other_position_is_a_better_control(data) -> None:
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    categories = [data.draw(st.lists(st.sampled_from("nw"), min_size=n, max_size=n)) for n in lengths]
    entropies = [data.draw(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.1]), min_size=n, max_size=n)) for n in lengths]
    tops = [data.draw(st.integers(0, n - 1)) for n in lengths]
    spikes = [data.draw(st.sets(st.integers(0, n - 1))) for n in lengths]
    top = tops[0]

    def badness(index: int, position: int) -> tuple[int, float]:
        same = (
            categories[index][position] == categories[0][top],
            3 * position // lengths[index] == 3 * top // lengths[0],
            index == 0,
        )
        order = [(1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
        return order.index(tuple(map(int, same))), abs(entropies[index][position] - entropies[0][top])

    free = [
        (index, position)
        for index, length in enumerate(lengths)
        for position in range(length)
        if position not in spikes[index] and position != tops[index]
    ]
    found = pool(categories, entropies, spikes=spikes, tops=tops).matched(0, top)
    if not free:
        assert found is None
        return
    best = min(free, key=lambda place: (badness(*place), place))
    assert (found.index, found.position) == best
    assert math.isclose(found.entropy_gap, badness(*best)[1])


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="position by position"):
        pool(["nn"], [[0.1]], tops=[0])
    with pytest.raises(ValueError, match="same rollouts"):
        pool(["nn"], [[0.1, 0.1]], tops=[0, 0])
