from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from swerve.functional.token_odds import check_token_shapes, log_odds, other_logsumexp
from torch import Tensor


def plain(logits: Tensor, ids: Tensor) -> Tensor:
    """The definition in float64, by leaving the token out of each row."""
    rows = [
        torch.cat([row[:index], row[index + 1 :]]) for row, index in zip(logits.double(), ids.tolist(), strict=True)
    ]
    return torch.stack([row.logsumexp(0) for row in rows])


def gradient(function, logits: Tensor, ids: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(function(leaf, ids).sum(), leaf)[0]


def test_literal_values() -> None:
    logits = torch.tensor([[math.log(0.5), math.log(0.3), math.log(0.2)]] * 3)
    values = other_logsumexp(logits, torch.tensor([0, 1, 2]))
    assert values.tolist() == pytest.approx([math.log(0.5), math.log(0.7), math.log(0.8)], rel=1e-6)
    assert gradient(other_logsumexp, logits[:1], torch.tensor([0]))[0].tolist() == pytest.approx([0.0, 0.6, 0.4])
    odds = log_odds(logits[:1], torch.tensor([[0, 1, 2]]))
    assert odds[0].tolist() == pytest.approx([0.0, math.log(3 / 7), math.log(1 / 4)], abs=1e-6)


@pytest.mark.parametrize("gap", [-1e4, -240.0, -120.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 60.0, 120.0, 240.0, 1e4])
def test_exact_at_any_gap(gap: float) -> None:
    others = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    logits = torch.cat([others.amax(dim=1, keepdim=True) + gap, others], dim=1)
    ids = torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(other_logsumexp(logits, ids).double(), plain(logits, ids), rtol=2e-7, atol=2e-7)
    got = gradient(other_logsumexp, logits, ids)
    assert torch.equal(got[:, 0], torch.zeros(5))
    torch.testing.assert_close(got[:, 1:].double(), torch.softmax(others.double(), dim=-1), rtol=2e-6, atol=0.0)


def test_gradients_against_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(4, 6, generator=generator, dtype=torch.float64) * 3).requires_grad_()
    ids = torch.randint(6, (4, 3), generator=generator)
    ids[:, 1] = ids[:, 0]  # a token may come twice
    assert torch.autograd.gradcheck(lambda z: other_logsumexp(z, ids[:, 0]), (logits,))
    assert torch.autograd.gradcheck(lambda z: log_odds(z, ids), (logits,))


def test_bfloat16_logits_are_worked_on_in_float32() -> None:
    logits = (torch.randn(20, 3000, generator=torch.Generator().manual_seed(0)) * 5).bfloat16()
    ids = logits.argmax(dim=-1)
    values = other_logsumexp(logits, ids)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), plain(logits, ids), rtol=1e-6, atol=1e-6)
    assert gradient(other_logsumexp, logits, ids).dtype == torch.bfloat16


def test_excluded_tokens() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [0.0, -math.inf, -math.inf]])
    ids = torch.tensor([0, 0], dtype=torch.int32)
    assert other_logsumexp(logits, ids).tolist() == [0.0, -math.inf]
    assert gradient(other_logsumexp, logits, ids).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


@settings(deadline=None)
@given(st.lists(st.floats(-200, 200, width=32), min_size=2, max_size=12), st.data())
def test_agrees_with_the_definition_for_any_logits(row: list[float], data: st.DataObject) -> None:
    logits, ids = torch.tensor([row]), torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    torch.testing.assert_close(other_logsumexp(logits, ids).double(), plain(logits, ids), rtol=1e-6, atol=1e-6)
    rest = log_odds(logits, ids[:, None])[:, 0].neg().sigmoid()  # 1 - p
    expected = 1 - torch.softmax(logits.double(), dim=-1)[0, ids]
    torch.testing.assert_close(rest.double(), expected, rtol=1e-3, atol=1e-7)


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logits must be \[N, V\] and ids \[N\]; got \(2, 3\) and \(2, 1\)"):
        check_token_shapes(torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="V must be at least 2, got 1"):
        other_logsumexp(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))
