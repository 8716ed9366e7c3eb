"""Advantages and whitening: each library's numbers, and the properties they are chosen for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swerve.functional.advantages import (
    Moments,
    dr_grpo_advantages,
    gae,
    grpo_advantages,
    grpo_loo_advantages,
    moments,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    reward_to_go,
    rloo_advantages,
    whiten,
)
from tests.cases import each

LENGTHS = torch.tensor([2, 3, 4, 1])
MASK = torch.arange(4) < LENGTHS[:, None]
REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
AT_THE_END = torch.zeros(4, 4).index_put((torch.arange(4), LENGTHS - 1), REWARDS[0])
RELATIVE = [grpo_advantages, dr_grpo_advantages, rloo_advantages, grpo_loo_advantages]


@pytest.mark.parametrize(
    ("function", "options", "winner", "loser"),
    [
        pytest.param(grpo_advantages, {"eps": 1e-6}, 1.4999970, -0.4999990, id="verl"),
        pytest.param(grpo_advantages, {"eps": 1e-4}, 1.4997001, -0.4999000, id="trl"),
        pytest.param(grpo_advantages, {"eps": torch.finfo(torch.float32).eps}, 1.4999996, -0.4999999, id="rl2"),
        pytest.param(grpo_advantages, {"eps": 1e-9}, 1.5, -0.5, id="openrlhf"),
        pytest.param(grpo_advantages, {"eps": 1e-8, "std": "population"}, 1.7320509, -0.5773503, id="open-instruct"),
        pytest.param(grpo_loo_advantages, {}, 1.0, -0.5773493, id="nemo-rl"),
        pytest.param(rloo_advantages, {}, 1.0, -0.3333333, id="rloo"),
        pytest.param(dr_grpo_advantages, {}, 0.75, -0.25, id="dr_grpo"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_golden_group_advantages(function, options, winner, loser, dtype):
    found = function(REWARDS.to(dtype), **options)
    assert found.dtype == dtype
    assert found[0].tolist() == pytest.approx([winner, loser, loser, loser], abs=3e-7)


def test_golden_batch_whitened_advantages():
    """REINFORCE++ of verl, its baseline variant in verl and in OpenRLHF; a row a completion, 0 at padding."""
    for found in (reinforce_pp_advantages(AT_THE_END, MASK), reinforce_pp_baseline_advantages(REWARDS, MASK)):
        expected = torch.tensor([1.8973665, -0.4743416, -0.4743416, -0.4743416])[:, None] * MASK
        assert torch.allclose(found, expected, atol=3e-7, rtol=0)
    found = reinforce_pp_baseline_advantages(REWARDS, MASK, std="population")
    assert torch.allclose(found, torch.tensor([2.0, -0.5, -0.5, -0.5])[:, None] * MASK, atol=3e-7, rtol=0)


@pytest.mark.parametrize("function", [*RELATIVE, lambda rewards: reinforce_pp_baseline_advantages(rewards, MASK[:3])])
def test_a_group_of_one_is_refused(function):
    with pytest.raises(ValueError, match="at least 2 completions a prompt, got 1"):
        function(torch.ones(3, 1))


@each("function", RELATIVE)
@each("reward", [0.1, 0.7, 1e6 + 0.1, -3.3])
@each("num_completions", [2, 3, 5, 7, 16])
def test_equal_rewards_give_exactly_zero(function, reward, num_completions):
    assert function(torch.full((2, num_completions), reward)).count_nonzero() == 0


def test_equal_rewards_give_exactly_zero_at_the_smallest_eps():
    for eps in (0.0, 1e-9):
        assert grpo_advantages(torch.full((1, 3), 0.1), eps=eps).tolist() == [[0.0, 0.0, 0.0]]


def test_leave_one_out_is_not_divided_where_the_others_agree():
    """Seven others of 0.1: their computed deviation is a rounding above 0, and would blow the advantage up."""
    found = grpo_loo_advantages(torch.tensor([[1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]))
    assert found[0, 0].item() == pytest.approx(0.9, abs=1e-6)
    assert grpo_loo_advantages(torch.tensor([[1.0, 0.25]])).tolist() == [[0.75, -0.75]]


groups = st.lists(st.lists(st.floats(-5, 5, width=32), min_size=4, max_size=4), min_size=1, max_size=3)


@given(rewards=groups, order=st.permutations(range(4)))
def test_permuting_a_group_permutes_its_advantages(rewards, order):
    tensor = torch.tensor(rewards, dtype=torch.float64)
    for function in (dr_grpo_advantages, rloo_advantages):
        assert torch.allclose(function(tensor)[:, order], function(tensor[:, order]), atol=1e-12)
    spread = tensor + torch.arange(4) * 11.0  # a group without near ties, where no deviation is close to 0
    for function in (grpo_advantages, grpo_loo_advantages):
        assert torch.allclose(function(spread)[:, order], function(spread[:, order]), atol=1e-9)


@given(rewards=groups)
def test_leave_one_out_equals_its_definition(rewards):
    tensor = torch.tensor(rewards, dtype=torch.float64) + torch.arange(4) * 11.0
    for index in range(4):
        others = torch.cat([tensor[:, :index], tensor[:, index + 1 :]], dim=1)
        baselined = tensor[:, index] - others.mean(dim=1)
        assert torch.allclose(rloo_advantages(tensor)[:, index], baselined, atol=1e-12)
        expected = baselined / (others.std(dim=1) + 1e-6)
        assert torch.allclose(grpo_loo_advantages(tensor)[:, index], expected, atol=1e-12)


def test_groups_do_not_mix():
    both = torch.tensor([[1.0, 0.0, 0.0, 0.0], [3.0, 5.0, 4.0, 9.0]])
    for function in RELATIVE:
        assert torch.equal(function(both)[:1], function(both[:1]))


@pytest.mark.parametrize("function", RELATIVE)
def test_wrong_shapes_of_rewards_are_named(function, unchecked_shapes):
    with pytest.raises(ValueError, match=r"rewards must be \[G, N\].*\(4,\)"):
        function(torch.ones(4))


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match="eps must be at least 0, got -1"):
        grpo_advantages(REWARDS, eps=-1)
    with pytest.raises(ValueError, match="eps must be at least 0, got nan"):
        grpo_loo_advantages(REWARDS, eps=math.nan)


def test_unknown_deviation_is_named(unchecked_shapes):
    with pytest.raises(ValueError, match="'sample' or 'population', got 'bessel'"):
        grpo_advantages(REWARDS, std="bessel")


def test_low_precision_rewards_are_computed_in_float32():
    found = grpo_advantages(REWARDS.bfloat16(), eps=1e-4)
    assert found.dtype == torch.float32
    assert found[0, 0].item() == pytest.approx(1.4997001, abs=3e-7)


# Rewards of single tokens


def test_reward_to_go_literal_values():
    rewards = torch.tensor([[1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0]])
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    assert reward_to_go(rewards, mask).tolist() == [[15.0, 14.0, 12.0, 8.0], [3.0, 2.0, 0.0, 0.0]]
    assert reward_to_go(rewards, mask, gamma=0.5).tolist() == [[4.0, 6.0, 8.0, 8.0], [2.0, 2.0, 0.0, 0.0]]
    assert reward_to_go(rewards, mask, gamma=0).tolist() == (rewards * mask).tolist()


def backward_recursion(values, mask, factor):
    """The plain loop: s_t = v_t + factor s_{t+1}."""
    total, rows = torch.zeros(len(values), dtype=torch.float64), []
    for step in reversed(range(values.shape[1])):
        total = torch.where(mask[:, step], values[:, step] + factor * total, torch.zeros_like(total))
        rows.append(total)
    return torch.stack(rows[::-1], dim=1)


@given(
    width=st.integers(1, 19),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_reward_to_go_and_gae_equal_the_recursion(width, gamma, lam, seed):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 3, width, dtype=torch.float64, generator=generator)
    mask = torch.arange(width) < torch.randint(0, width + 1, (3, 1), generator=generator)
    poisoned = rewards.masked_fill(~mask, math.nan)
    assert torch.allclose(reward_to_go(poisoned, mask, gamma=gamma), backward_recursion(rewards, mask, gamma))
    known = values * mask
    deltas = rewards + gamma * torch.cat([known[:, 1:], torch.zeros(3, 1)], dim=1) - known
    advantages, returns = gae(poisoned, values.masked_fill(~mask, math.inf), mask, gamma=gamma, lam=lam)
    expected = backward_recursion(deltas, mask, gamma * lam)
    assert torch.allclose(advantages, expected)
    assert torch.allclose(returns, expected + known)


def test_gae_literal_values():
    """delta = [0 + .9 x .4 - .5, 1 - .4, 0]; A = [delta_0 + .9 x .5 x delta_1, delta_1, 0]."""
    rewards = torch.tensor([[0.0, 1.0, 7.0]], dtype=torch.float64)
    values = torch.tensor([[0.5, 0.4, 7.0]], dtype=torch.float64)
    advantages, returns = gae(rewards, values, torch.tensor([[True, True, False]]), gamma=0.9, lam=0.5)
    assert advantages[0].tolist() == pytest.approx([0.13, 0.6, 0.0], abs=1e-12)
    assert returns[0].tolist() == pytest.approx([0.63, 1.0, 0.0], abs=1e-12)


def test_gae_with_lam_one_is_the_whole_return_whatever_the_values():
    values = torch.tensor([[3.0, -1.0, 2.0, 5.0]] * 4)
    advantages, returns = gae(AT_THE_END, values, MASK, lam=1.0)
    assert torch.allclose(returns, reward_to_go(AT_THE_END, MASK))
    assert torch.allclose(advantages, returns - values * MASK)


def test_gae_carries_no_gradient():
    values = torch.zeros(4, 4, requires_grad=True)
    assert not any(tensor.requires_grad for tensor in gae(AT_THE_END, values, MASK))


def test_token_rewards_refuse_masks_that_are_no_prefix():
    gap = torch.tensor([[True, False, True]])
    for call in (lambda: reward_to_go(torch.ones(1, 3), gap), lambda: gae(torch.ones(1, 3), torch.ones(1, 3), gap)):
        with pytest.raises(ValueError, match="must be a prefix"):
            call()


def test_token_rewards_refuse_factors_out_of_range():
    with pytest.raises(ValueError, match="gamma must be from 0 to 1, got 1.1"):
        reward_to_go(AT_THE_END, MASK, gamma=1.1)
    with pytest.raises(ValueError, match="lam must be from 0 to 1, got -0.1"):
        gae(AT_THE_END, AT_THE_END, MASK, lam=-0.1)


def test_wrong_shapes_of_token_rewards_are_named(unchecked_shapes):
    with pytest.raises(ValueError, match=r"one shape \[B, T\]"):
        reward_to_go(torch.ones(4, 1), MASK)
    with pytest.raises(ValueError, match="4 rows, one per completion"):
        reinforce_pp_baseline_advantages(REWARDS, MASK[:3])


# Whitening


def test_whitening_does_not_depend_on_the_split_or_padding():
    values = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    mask = torch.arange(5) < torch.tensor([5, 1, 4, 2, 3, 5])[:, None]
    whole = whiten(values, mask, moments(values, mask))
    poisoned = values.masked_fill(~mask, math.nan)
    total = moments(poisoned[:2], mask[:2]) + moments(poisoned[2:3], mask[2:3]) + moments(poisoned[3:], mask[3:])
    parts = [whiten(poisoned[rows], mask[rows], total) for rows in (slice(0, 2), slice(2, 6))]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-12)
    wider = [torch.nn.functional.pad(tensor, (0, 3)) for tensor in (values, mask)]
    assert torch.allclose(whiten(*wider, moments(*wider))[:, :5], whole, atol=1e-12)


@given(offset=st.floats(-1e2, 1e2), scale=st.floats(0.1, 1e2), seed=st.integers(0, 1000))
def test_whitening_equals_verls_two_pass_formula(offset, scale, seed):
    values = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale + offset
    kept = values[MASK]
    count = len(kept)
    mean = kept.sum() / count
    variance = (kept - mean).square().sum() / count * count / (count - 1)
    found = whiten(values, MASK, moments(values, MASK))
    assert torch.allclose(found[MASK], (kept - mean) * torch.rsqrt(variance + 1e-8), atol=1e-7, rtol=0)
    assert found[~MASK].count_nonzero() == 0


def test_whitening_equal_values_gives_zero():
    for std in ("sample", "population"):
        values = torch.full((4, 4), 0.1)
        assert whiten(values, MASK, moments(values, MASK), std=std).abs().max() < 1e-6


def test_whitening_by_part_in_reinforce_pp():
    """Moments added up over two micro-batches give each the rows of the whole."""
    returns = reward_to_go(AT_THE_END, MASK)
    total = moments(returns[:1], MASK[:1]) + moments(returns[1:], MASK[1:])
    parts = [reinforce_pp_advantages(AT_THE_END[rows], MASK[rows], moments=total) for rows in (slice(1), slice(1, 4))]
    assert torch.allclose(torch.cat(parts), reinforce_pp_advantages(AT_THE_END, MASK), atol=1e-6)
    total = Moments(count=20.0, total=0.0, square_total=2 * 1.6)
    found = reinforce_pp_baseline_advantages(REWARDS, MASK, moments=total)
    assert found[0, 0].item() == pytest.approx(0.75 / math.sqrt(3.2 / 19 + 1e-8), abs=1e-6)


@pytest.mark.parametrize(("std", "count"), [("sample", 1), ("sample", 0), ("population", 0)])
def test_too_few_values_cannot_be_whitened(std, count):
    mask = torch.arange(3)[None] < count
    with pytest.raises(ValueError, match=f"needs at least .* unmasked values, got {count}"):
        whiten(torch.ones(1, 3), mask, moments(torch.ones(1, 3), mask), std=std)


def test_no_deviation_and_no_eps_is_an_error():
    with pytest.raises(ValueError, match="no deviation to divide by"):
        whiten(torch.ones(4, 4), MASK, moments(torch.ones(4, 4), MASK), eps=0)


def test_moments_are_those_given_or_measured_by_a_function() -> None:
    rewards, mask = torch.tensor([[1.0, 0.0]]), torch.ones(2, 3, dtype=torch.bool)
    known = moments(torch.tensor([[0.5] * 3, [-0.5] * 3]), mask)
    given = reinforce_pp_baseline_advantages(rewards, mask, moments=known)
    assert torch.equal(given, reinforce_pp_baseline_advantages(rewards, mask, moments=lambda *_: known))
    assert torch.equal(given, reinforce_pp_baseline_advantages(rewards, mask))


def test_a_penalty_is_taken_before_whitening() -> None:
    mask, penalty = torch.ones(2, 2, dtype=torch.bool), torch.tensor([[0.25, 0.0], [0.0, 0.5]])
    found = reinforce_pp_baseline_advantages(torch.tensor([[1.0, 0.0]]), mask, penalty=penalty)
    raw = torch.tensor([[0.25, 0.5], [-0.5, -1.0]], dtype=torch.float64)
    assert torch.allclose(found.double(), (raw - raw.mean()) / raw.std(), atol=1e-6)
