"""The type that objectives compute in."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["at_least_float32"]


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return float64 as it is, and everything narrower as float32.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return tensor if tensor.dtype == torch.float64 else tensor.float()
