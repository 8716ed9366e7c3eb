"""Advantages, losses and reductions: literal values and the properties they are chosen for."""

from __future__ import annotations

import math

import pytest
import torch

from swerve.functional import dpo_loss, dr_grpo_advantages, reinforce_loss, sequence_mean, token_mean

LENGTHS = torch.tensor([2, 3, 4, 1])
MASK = torch.arange(4) < LENGTHS[:, None]
VALUES = torch.arange(1.0, 17.0).view(4, 4)


def test_advantages_are_rewards_minus_the_groups_mean():
    found = dr_grpo_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]]))
    assert found.tolist() == [[0.75, -0.25, -0.25, -0.25], [0.0, 0.0, 0.0, 0.0]]


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="at least 2 completions a prompt, got 1"):
        dr_grpo_advantages(torch.ones(3, 1))


def test_no_gradient_flows_through_the_advantages():
    logprobs = torch.tensor([[-0.5, -2.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -3.0]], requires_grad=True)
    reinforce_loss(logprobs, advantages).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-1.0, 3.0]]
    assert advantages.grad is None


def test_golden_reductions():
    assert token_mean(VALUES, MASK, num_tokens=10).item() == pytest.approx(7.6, abs=1e-6)
    assert sequence_mean(VALUES, MASK, num_sequences=4).item() == pytest.approx(7.75, abs=1e-6)


@pytest.mark.parametrize("reduce", [(token_mean, "num_tokens", 10), (sequence_mean, "num_sequences", 4)])
def test_reductions_do_not_see_padding_or_splits(reduce):
    function, name, count = reduce
    poisoned = VALUES.masked_fill(~MASK, math.nan)
    whole = function(poisoned, MASK, **{name: count})
    parts = [function(poisoned[rows, :4], MASK[rows], **{name: count}) for rows in (slice(0, 1), slice(1, 4))]
    assert whole.item() == pytest.approx(sum(part.item() for part in parts), abs=1e-6)
    assert whole.item() == pytest.approx(function(VALUES, MASK, **{name: count}).item(), abs=0)


def test_masked_positions_get_no_gradient():
    values = VALUES.masked_fill(~MASK, math.inf).requires_grad_()
    token_mean(values, MASK, num_tokens=10).backward()
    assert values.grad is not None
    assert torch.equal(values.grad, MASK * 0.1)


@pytest.mark.parametrize("denominator", [0, -1, math.nan])
def test_an_empty_mask_is_an_error(denominator):
    with pytest.raises(ValueError, match="is every mask empty"):
        token_mean(VALUES, MASK, num_tokens=denominator)
    with pytest.raises(ValueError, match="is every mask empty"):
        sequence_mean(VALUES, MASK, num_sequences=denominator)


def test_dpo_literal_value_and_gradient():
    chosen = torch.tensor([-10.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-12.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-11.0], dtype=torch.float64)
    loss = dpo_loss(chosen, rejected, reference, reference, beta=0.1)  # margin 2, so beta x margin = 0.2
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.2)), abs=1e-12)
    loss.sum().backward()
    expected = -0.1 / (1 + math.exp(0.2))
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert (chosen.grad.item(), rejected.grad.item()) == pytest.approx((expected, -expected), abs=1e-12)


def test_dpo_refuses_a_beta_that_is_not_positive():
    with pytest.raises(ValueError, match="beta must be above 0, got 0"):
        dpo_loss(*[torch.zeros(1)] * 4, beta=0.0)


def test_expected_policy_gradient_is_exact_on_an_enumerable_toy():
    """All outcomes of one three-way choice: E[-A grad log p] equals -grad E[r], whatever baseline is subtracted."""
    logits = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64)
    (exact,) = torch.autograd.grad(-(torch.softmax(logits, 0) * rewards).sum(), logits)
    for baseline in (0.0, 0.6):
        logprobs = torch.log_softmax(logits, 0)
        per_outcome = reinforce_loss(logprobs[None], (rewards - baseline)[None])[0]
        (found,) = torch.autograd.grad((logprobs.detach().exp() * per_outcome).sum(), logits)
        assert torch.allclose(found, exact, atol=1e-12)
