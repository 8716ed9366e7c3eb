"""The logits of a linear output head a chunk of positions at a time, and the largest entries of their long rows.

The k largest entries of a row lie in the k blocks of columns with the largest maxima, so only those are searched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.functional.types import Ids, Logits, Number, Positive

PADDING = -1e30
"""The logit of columns that are no tokens: probability 0, and finite, so that no NaN comes of it."""
_TILE_ELEMENTS = 1 << 21  # of a 16-bit weight, widened at a time: 8 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearHead:
    """A linear output head: logits = cap(multiplier (h W^T + b)), cap(z) = softcap tanh(z / softcap).

    Raises:
        ValueError: the bias does not fit, the multiplier is not finite, or the softcap not above 0.
    """

    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, " V"] | None = None
    multiplier: Number = 1.0
    softcap: Positive | None = None
    """None for no cap."""

    def __post_init__(self) -> None:
        if self.weight.dim() != 2:
            raise ValueError(f"weight must be [V, D], got {tuple(self.weight.shape)}")
        if self.bias is not None and self.bias.shape != self.weight.shape[:1]:
            raise ValueError(f"bias must be [V] = [{self.weight.shape[0]}], got {tuple(self.bias.shape)}")
        if not math.isfinite(self.multiplier):
            raise ValueError(f"multiplier must be finite, got {self.multiplier}")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise ValueError(f"softcap must be finite and above 0, or None for none; got {self.softcap}")


class HeadLogits:
    """Forms the logits of a chunk of positions in a buffer, which the next chunk overwrites.

    The products are in float32 (float64 where `dtype` is) also for a 16-bit weight: on CUDA the library's product of
    16-bit inputs with float32 results, elsewhere the weight is widened a tile at a time.
    """

    def __init__(self, head: LinearHead, *, size: int, padded: int, rows: int, dtype: torch.dtype) -> None:
        """Allocate.

        Args:
            head: the model's.
            size: how many of its rows are tokens.
            padded: columns of the buffer; those from `size` on hold `PADDING`.
            rows: of the buffer, the most positions of a chunk.
            dtype: of the logits, float32 or float64.
        """
        weight = head.weight[:size]
        self._head, self._size, self._weight, self._dtype = head, size, weight, dtype
        self._bias = None if head.bias is None else head.bias[:size].to(dtype)
        self.buffer = weight.new_empty((rows, padded), dtype=dtype)
        self.buffer[:, size:] = PADDING
        narrow = weight.dtype != dtype
        self._tile_rows = max(1, _TILE_ELEMENTS // weight.shape[1]) if narrow else size
        self._tile = weight.new_empty((min(self._tile_rows, size), weight.shape[1]), dtype=dtype) if narrow else None

    def __call__(self, hidden: Float[Tensor, "n D"]) -> Float[Tensor, "n V"]:
        """Return the buffer's first n rows `[n, padded]`, filled for hidden states `[n, D]`."""
        logits = self.buffer[: len(hidden)]
        tokens = logits[:, : self._size]
        hidden = hidden.to(self._weight.device)
        if self._weight.is_cuda and hidden.dtype == self._weight.dtype != self._dtype == torch.float32:
            torch.mm(hidden, self._weight.T, out_dtype=torch.float32, out=tokens)
        else:
            # A narrow weight is widened a tile at a time.
            wide = hidden.to(self._dtype)
            for start in range(0, self._size, self._tile_rows):
                columns = slice(start, min(start + self._tile_rows, self._size))
                weight = self._weight[columns]
                if self._tile is not None:
                    weight = self._tile[: len(weight)].copy_(weight)
                torch.mm(wide, weight.T, out=tokens[:, columns])
        if self._bias is not None:
            tokens.add_(self._bias)
        if self._head.multiplier != 1:
            tokens.mul_(self._head.multiplier)
        if self._head.softcap is not None:
            tokens.div_(self._head.softcap).tanh_().mul_(self._head.softcap)
        return logits


BLOCK = 64
"""Columns in a block: a few cache lines, and near the best for 20 of 32,000 to 128,000 columns."""
# Narrower rows are searched whole: the blocks to search would be a good part of them.
_MIN_BLOCKS_PER_ENTRY = 4


def block_maxima(rows: Logits) -> Float[Tensor, "N B"]:
    """Return the largest entry of each block of 64 columns; NaN where a block has one.

    Raises:
        ValueError: the number of columns is not a multiple of 64.

    >>> block_maxima(torch.arange(128.0)[None]).tolist()
    [[63.0, 127.0]]
    """
    if rows.shape[1] % BLOCK:
        raise ValueError(f"the number of columns must be a multiple of {BLOCK}, got {rows.shape[1]}: pad the rows")
    return _blocks(rows).amax(dim=-1)


def argmax_by_blocks(rows: Logits, maxima: Float[Tensor, "N B"]) -> Ids:
    """Return each row's first column with the largest entry.

    >>> rows = torch.zeros(1, 192).index_fill(1, torch.tensor([70, 150]), 2.0)
    >>> argmax_by_blocks(rows, block_maxima(rows)).tolist()
    [70]
    """
    block = maxima.argmax(dim=-1, keepdim=True)
    return (block * BLOCK + _gather_blocks(rows, block).argmax(dim=-1, keepdim=True)).squeeze(-1)


def topk_by_blocks(
    rows: Logits, maxima: Float[Tensor, "N B"], k: int
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
