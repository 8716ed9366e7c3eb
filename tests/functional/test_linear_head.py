from __future__ import annotations

import math

import pytest
import swerve.functional.linear_head as linear_head
import torch
from swerve.functional.linear_head import PADDING, HeadLogits, LinearHead


def test_logits_are_capped_after_the_multiplier_and_the_multiplier_takes_the_bias() -> None:
    head = LinearHead(
        weight=torch.tensor([[1.0, 2.0], [0.0, -1.0]]), bias=torch.tensor([0.5, 1.0]), multiplier=2, softcap=4
    )
    logits = HeadLogits(head, size=2, padded=3, rows=5, dtype=torch.float32)(torch.tensor([[1.0, 1.0]]))
    # 2 (3 + 0.5) = 7 and 2 (-1 + 1) = 0
    assert logits.tolist() == [[pytest.approx(4 * math.tanh(7 / 4)), 0.0, pytest.approx(PADDING)]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_16_bit_weights_are_multiplied_in_the_wider_type_tile_by_tile(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_head, "_TILE_ELEMENTS", 16 * 7)  # 7 rows a tile; 50 rows end in part of one
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(60, 16, generator=generator).bfloat16()
    hidden = torch.randn(4, 16, generator=generator)
    head = LinearHead(weight=weight, bias=torch.arange(60.0).bfloat16())
    logits = HeadLogits(head, size=50, padded=64, rows=4, dtype=dtype)(hidden)
    expected = hidden.double() @ weight[:50].double().T + torch.arange(50.0).double()
    assert logits.dtype == dtype
    torch.testing.assert_close(logits[:, :50].double(), expected, rtol=1e-6, atol=1e-5)
    assert logits[:, 50:].eq(PADDING).all()


def test_the_next_chunk_uses_the_same_memory() -> None:
    logits = HeadLogits(LinearHead(weight=torch.eye(3)), size=3, padded=3, rows=2, dtype=torch.float32)
    first = logits(torch.ones(2, 3))
    second = logits(torch.full((1, 3), 2.0))
    assert first.data_ptr() == second.data_ptr() == logits.buffer.data_ptr()
    assert first.tolist() == [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": torch.zeros(3)}, r"weight must be \[V, D\], got \(3,\)"),
        ({"bias": torch.zeros(3)}, r"bias must be \[V\] = \[4\], got \(3,\)"),
        ({"multiplier": math.inf}, "multiplier must be finite, got inf"),
        ({"softcap": 0.0}, "softcap must be finite and above 0"),
    ],
)
def test_settings_that_make_no_head_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearHead(**{"weight": torch.zeros(4, 2), **settings})
