from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.functional import entropy, token_logprobs
from tests.cases import each

ROW = [0.0, math.log(2.0), math.log(5.0)]  # probabilities 1/8, 2/8, 5/8


def test_literal_values():
    logits = torch.tensor([ROW, ROW, ROW])
    assert token_logprobs(logits, torch.tensor([0, 1, 2])).tolist() == pytest.approx(
        [math.log(1 / 8), math.log(2 / 8), math.log(5 / 8)], abs=1e-6
    )
    assert entropy(logits[:1]).item() == pytest.approx(0.900256, abs=1e-6)


def test_temperature_divides_the_logits():
    hot = token_logprobs(torch.tensor([ROW]), torch.tensor([2]), temperature=2.0)
    assert hot.item() == pytest.approx(math.log(5**0.5 / (1 + 2**0.5 + 5**0.5)), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature must be above 0"):
        token_logprobs(torch.zeros(1, 2), torch.tensor([0]), temperature=temperature)


@given(st.lists(st.floats(-200, 200), min_size=2, max_size=12), st.floats(-1e3, 1e3))
@settings(max_examples=50, deadline=None)
def test_agrees_with_float64_and_ignores_a_shift(row, shift):
    exact = torch.log_softmax(torch.tensor([row], dtype=torch.float64), dim=-1)
    ids = torch.zeros(1, dtype=torch.long)
    shifted = torch.tensor([row], dtype=torch.float64) + shift
    assert token_logprobs(shifted, ids).item() == pytest.approx(exact[0, 0].item(), abs=1e-9)
    assert token_logprobs(torch.tensor([row]), ids).item() == pytest.approx(exact[0, 0].item(), rel=1e-5, abs=1e-4)


def test_bfloat16_logits_accumulate_in_float32():
    logits = torch.zeros(1, 50_000, dtype=torch.bfloat16)
    assert token_logprobs(logits, torch.tensor([7])).item() == pytest.approx(-math.log(50_000), abs=1e-4)
    assert entropy(logits).item() == pytest.approx(math.log(50_000), abs=1e-3)


def test_impossible_tokens_do_not_spoil_the_entropy():
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    assert entropy(logits).item() == pytest.approx(math.log(2), abs=1e-6)


def test_gradient_is_one_hot_minus_probabilities():
    logits = torch.tensor([ROW], requires_grad=True)
    token_logprobs(logits, torch.tensor([1])).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-1 / 8, 6 / 8, -5 / 8], abs=1e-6)


@each("dtype", [torch.bfloat16, torch.float32, torch.float64])
@each("gap", [20.0, 120.0, 3e4, math.inf])
def test_the_gradient_of_the_entropy_is_finite_where_probabilities_underflow(dtype, gap):
    """-p_v (log p_v + H): at 0 for the certain token, and at p log p, which is 0, for the others."""
    logits = torch.tensor([[0.0, -gap, -gap], [0.0, 0.0, -gap]], dtype=dtype, requires_grad=True)
    values = entropy(logits)
    values.sum().backward()
    assert values.tolist() == pytest.approx([0.0, math.log(2)], abs=1e-6)
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx([0.0] * 6, abs=1e-6)


def test_the_gradient_of_the_entropy_is_the_closed_form():
    logits = torch.tensor([[*ROW, -130.0]], requires_grad=True)
    entropy(logits).sum().backward()
    assert logits.grad is not None
    probs = [1 / 8, 2 / 8, 5 / 8]
    expected = [-p * (math.log(p) + 0.900256) for p in probs]
    assert logits.grad[0].tolist() == pytest.approx([*expected, 0.0], abs=1e-6)
