"""An output head of which only the first rows are tokens, beside float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from swerve.models.head import Head

NUM_IDS = 5


def test_rows_beyond_the_tokens_are_in_no_distribution() -> None:
    torch.manual_seed(1)
    projection, hidden = nn.Linear(4, 9), torch.randn(6, 4)
    with torch.no_grad():
        projection.weight[NUM_IDS:] += 3  # likelier than any token
    head = Head(projection=projection, multiplier=0.5, softcap=2.0, num_ids=NUM_IDS)
    wide = 0.5 * (hidden.double() @ projection.weight.double().T + projection.bias.double())
    expected = torch.log_softmax(2.0 * torch.tanh(wide / 2.0), dim=-1)  # over all rows
    expected = expected[:, :NUM_IDS].log_softmax(dim=-1).detach()

    def entropies(logits: Tensor, _rows: slice) -> Tensor:
        logprobs = logits.log_softmax(dim=-1)
        return -(logprobs.exp() * logprobs).sum(-1, keepdim=True)

    assert head.vocabulary_size == NUM_IDS
    torch.testing.assert_close(head(hidden).double().log_softmax(dim=-1), expected, rtol=1e-6, atol=1e-6)
    exact = -(expected.exp() * expected).sum(-1)
    torch.testing.assert_close(head.map(hidden, entropies)[:, 0].double(), exact, rtol=1e-6, atol=1e-6)
    total = head.loss(hidden, lambda logits, rows: entropies(logits, rows).sum())
    assert float(total.detach()) == pytest.approx(float(exact.sum()), rel=1e-6)
    total.backward()
    for gradient in (projection.weight.grad, projection.bias.grad):
        assert gradient is not None
        assert not gradient[NUM_IDS:].any()
        assert gradient[:NUM_IDS].any()
    linear = head.linear()
    assert linear is not None
    assert linear.bias is not None
    assert (linear.weight.shape, linear.bias.shape) == ((NUM_IDS, 4), (NUM_IDS,))
