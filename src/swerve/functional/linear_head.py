"""A linear output head, and its logits a chunk of positions at a time in a buffer that is used again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["PADDING", "HeadLogits", "LinearHead"]

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
    multiplier: int | float = 1.0
    softcap: int | float | None = None
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
            self._multiply(hidden.to(self._dtype), tokens)
        if self._bias is not None:
            tokens.add_(self._bias)
        if self._head.multiplier != 1:
            tokens.mul_(self._head.multiplier)
        if self._head.softcap is not None:
            tokens.div_(self._head.softcap).tanh_().mul_(self._head.softcap)
        return logits

    def _multiply(self, hidden: Tensor, out: Tensor) -> None:
        for start in range(0, self._size, self._tile_rows):
            columns = slice(start, min(start + self._tile_rows, self._size))
            weight = self._weight[columns]
            if self._tile is not None:
                weight = self._tile[: len(weight)].copy_(weight)
            torch.mm(hidden, weight.T, out=out[:, columns])
