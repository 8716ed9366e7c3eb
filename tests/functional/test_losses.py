"""REINFORCE, the value head's loss and preference pairs: literal values and gradients."""

from __future__ import annotations

import math

import pytest
import torch

from swerve.functional.losses import dpo_loss, reinforce_loss, value_loss


def test_no_gradient_flows_through_the_advantages():
    logprobs = torch.tensor([[-0.5, -2.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -3.0]], requires_grad=True)
    losses = reinforce_loss(logprobs, advantages)
    assert losses.tolist() == [[0.5, -6.0]]
    losses.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-1.0, 3.0]]
    assert advantages.grad is None


def test_low_precision_log_probabilities_are_multiplied_in_float32():
    found = reinforce_loss(torch.tensor([[-1.0078125]]).bfloat16(), torch.tensor([[1.0078125]]).bfloat16())
    assert found.dtype == torch.float32
    assert found.item() == 1.0078125**2


def test_wrong_shapes_are_named(unchecked_shapes):
    with pytest.raises(ValueError, match=r"must both be \[B, T\]; got \(2, 3\) and \(2, 1\)"):
        reinforce_loss(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"must all be \[B, T\]"):
        value_loss(torch.zeros(2, 3), torch.zeros(2, 1))


@pytest.mark.parametrize(
    ("value", "expected", "gradient"),
    [
        pytest.param(1.1, 0.5 * 1.9**2, -1.9, id="within the clip"),
        pytest.param(1.5, 0.5 * 1.75**2, 0.0, id="moved too far towards the return"),
        pytest.param(0.5, 0.5 * 2.5**2, -2.5, id="moved away: the unclipped error is the larger"),
        pytest.param(6.0, 0.5 * 3.0**2, 3.0, id="overshot by more than the clipped error"),
    ],
)
def test_clipped_value_loss_literal_values_and_gradients(value, expected, gradient):
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    old, returns = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[3.0]], dtype=torch.float64)
    loss = value_loss(values, returns, old_values=old, clip=0.25)
    (found,) = torch.autograd.grad(loss.sum(), values)
    assert (loss.item(), found.item()) == pytest.approx((expected, gradient), abs=1e-12)
    assert value_loss(values, returns).item() == pytest.approx(0.5 * (value - 3.0) ** 2, abs=1e-12)


def test_value_loss_gradient_against_finite_differences():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 4, 5, dtype=torch.float64, generator=generator)
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_loss(v, returns, old_values=old, clip=0.3), values)


def test_value_clipping_needs_both_of_its_arguments():
    values = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="give both or neither"):
        value_loss(values, values, clip=0.2)
    with pytest.raises(ValueError, match="give both or neither"):
        value_loss(values, values, old_values=values)
    with pytest.raises(ValueError, match="clip must be above 0, got 0"):
        value_loss(values, values, old_values=values, clip=0)


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
