"""The logits of a head in chunks, and the largest entries of their rows through the maxima of blocks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import swerve.functional.head_logits as linear_head
from swerve.functional.head_logits import (
    PADDING,
    HeadLogits,
    LinearHead,
    argmax_by_blocks,
    block_maxima,
    topk_by_blocks,
)


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


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 70), st.sampled_from([3, 40, 10**6]))
def test_topk_and_argmax_are_those_of_the_whole_rows(seed: int, num_blocks: int, k: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # few distinct values: ties within and across blocks
    rows = torch.randint(-distinct, distinct, (5, num_blocks * 64), generator=generator).float()
    maxima = block_maxima(rows)
    k = min(k, rows.shape[1])
    values, columns = topk_by_blocks(rows, maxima, k)
    assert torch.equal(values, rows.topk(k).values)
    assert torch.equal(rows.gather(-1, columns), values)
    assert all(len(set(row)) == k for row in columns.tolist())
    first = [row.index(max(row)) for row in rows.tolist()]
    assert argmax_by_blocks(rows, maxima).tolist() == first


def test_topk_finds_neighbours_in_one_block_and_entries_at_the_edges() -> None:
    rows = torch.zeros(1, 64 * 64)
    rows[0, [63, 64, 4095, 1000, 1001]] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    values, columns = topk_by_blocks(rows, block_maxima(rows), 5)
    assert values.tolist() == [[5.0, 4.0, 3.0, 2.0, 1.0]]
    assert columns.tolist() == [[63, 64, 4095, 1000, 1001]]


def test_rows_that_are_no_whole_number_of_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 64, got 100: pad"):
        block_maxima(torch.zeros(2, 100))
