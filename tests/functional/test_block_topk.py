from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from swerve.functional.block_topk import argmax_by_blocks, block_maxima, topk_by_blocks


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
