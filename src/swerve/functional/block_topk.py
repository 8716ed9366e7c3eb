"""The largest entries of long rows, exactly, without sorting the rows: through the maxima of blocks of columns.

The k largest entries of a row lie in the k blocks with the largest maxima, so only those blocks are searched.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["BLOCK", "argmax_by_blocks", "block_maxima", "topk_by_blocks"]

BLOCK = 64
"""Columns in a block: a few cache lines, and near the best for 20 of 32,000 to 128,000 columns."""
# Narrower rows are searched whole: the blocks to search would be a good part of them.
_MIN_BLOCKS_PER_ENTRY = 4


def block_maxima(rows: Float[Tensor, "N V"]) -> Float[Tensor, "N B"]:
    """Return the largest entry of each block of 64 columns; NaN where a block has one.

    Raises:
        ValueError: the number of columns is not a multiple of 64.

    >>> block_maxima(torch.arange(128.0)[None]).tolist()
    [[63.0, 127.0]]
    """
    if rows.shape[1] % BLOCK:
        raise ValueError(f"the number of columns must be a multiple of {BLOCK}, got {rows.shape[1]}: pad the rows")
    return _blocks(rows).amax(dim=-1)


def argmax_by_blocks(rows: Float[Tensor, "N V"], maxima: Float[Tensor, "N B"]) -> Int[Tensor, " N"]:
    """Return each row's first column with the largest entry.

    >>> rows = torch.zeros(1, 192).index_fill(1, torch.tensor([70, 150]), 2.0)
    >>> argmax_by_blocks(rows, block_maxima(rows)).tolist()
    [70]
    """
    block = maxima.argmax(dim=-1, keepdim=True)
    return (block * BLOCK + _gather_blocks(rows, block).argmax(dim=-1, keepdim=True)).squeeze(-1)


def topk_by_blocks(
    rows: Float[Tensor, "N V"], maxima: Float[Tensor, "N B"], k: int
) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
    """Return the k largest entries of each row and their columns, the largest first; equal ones in any order.

    Args:
        rows: `[N, V]`, without NaN.
        maxima: `[N, V / 64]`, of `block_maxima(rows)`.
        k: 1 to V.

    >>> rows = torch.arange(1024.0)[None]
    >>> [part.tolist() for part in topk_by_blocks(rows, block_maxima(rows), 2)]
    [[[1023.0, 1022.0]], [[1023, 1022]]]
    """
    assert 1 <= k <= rows.shape[1], "k is checked by the caller"
    if maxima.shape[1] < _MIN_BLOCKS_PER_ENTRY * k:
        values, columns = rows.topk(k, dim=-1)
        return values, columns
    blocks = maxima.topk(k, dim=-1, sorted=False).indices
    values, places = _gather_blocks(rows, blocks).topk(k, dim=-1)
    return values, blocks.gather(-1, places // BLOCK) * BLOCK + places % BLOCK


def _gather_blocks(rows: Tensor, blocks: Tensor) -> Tensor:
    """Return `[N, K 64]`: the entries of each row's blocks `[N, K]`, one block after the other."""
    row = torch.arange(len(rows), device=rows.device)[:, None]
    return _blocks(rows)[row, blocks].flatten(start_dim=1)


def _blocks(rows: Tensor) -> Tensor:
    return rows.view(len(rows), rows.shape[1] // BLOCK, BLOCK)
