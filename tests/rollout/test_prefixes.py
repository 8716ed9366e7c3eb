from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from swerve.rollout.prefixes import prefix_hosts

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12)


def brute_force(prompts: list[list[int]]) -> list[int] | None:
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    hosts = list(range(len(prompts)))
    for place, index in enumerate(order):
        head = prompts[index][:-1]
        for earlier in order[:place]:
            if head and hosts[earlier] == earlier and prompts[earlier][: len(head)] == head:
                hosts[index] = earlier
                break
    saved = sum(len(prompts[index]) - 1 for index in range(len(prompts)) if hosts[index] != index)
    return hosts if saved and 3 * saved >= sum(map(len, prompts)) else None


@given(PROMPTS)
def test_equals_brute_force(prompts: list[list[int]]) -> None:
    assert prefix_hosts(prompts) == brute_force(prompts)


def test_prefixes_of_a_rollout_with_two_forced_tokens_each() -> None:
    rollout = [1, 5, 6, 7, 8, 9, 2]
    prompts = [[*rollout[:t], token] for t in (3, 5) for token in (rollout[t], 0)]
    assert prefix_hosts(prompts) == [2, 2, 2, 2]  # the longest prompt, its twin, and both shorter ones


def test_unrelated_prompts_and_single_tokens_are_not_shared() -> None:
    assert prefix_hosts([[1, 2, 3], [4, 2, 3], [5]]) is None
    assert prefix_hosts([[1], [1], [1]]) is None
    assert prefix_hosts([]) is None


def test_little_saving_is_left_alone() -> None:
    assert prefix_hosts([[1, 2, 3, 4, 5, 6], [1, 2, 9]]) is None  # 2 of 9 tokens
    assert prefix_hosts([[1, 2, 3, 4, 5], [1, 2, 3, 9]]) == [0, 0]  # 3 of 9
