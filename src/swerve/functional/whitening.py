"""Whitening of token values over a whole update: the sums of its parts first, then one mean and deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Moments", "Std", "check_std", "moments", "whiten"]

Std = Literal["sample", "population"]
"""`sample` divides the sum of squares by n - 1 (Bessel), `population` by n."""


def check_std(std: str) -> None:
    """Refuse a name of a standard deviation other than `sample` and `population`.

    Raises:
        ValueError: another name.

    >>> check_std("sample")
    """
    if std not in ("sample", "population"):
        raise ValueError(f"std must be 'sample' or 'population', got {std!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Count, sum and sum of squares of masked values, in float64; those of a whole are the sum of its parts'.

    Add them over micro-batches and processes before whitening, and the result does not depend on the split. The
    variance is the mean square minus the squared mean, which in float64 keeps 6 digits while the mean is below about
    1e4 deviations.

    >>> a = Moments(count=2.0, total=3.0, square_total=5.0)
    >>> a + Moments(count=1.0, total=3.0, square_total=9.0)
    Moments(count=3.0, total=6.0, square_total=14.0)
    """

    count: float
    total: float
    square_total: float

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of values together."""
        return Moments(
            count=self.count + other.count,
            total=self.total + other.total,
            square_total=self.square_total + other.square_total,
        )


def moments(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Moments:
    """Return the moments of the unmasked values; masked positions are not read.

    Args:
        values: `[B, T]`.
        mask: `[B, T]`.

    >>> moments(torch.tensor([[1.0, 2.0, 5.0]]), torch.tensor([[True, True, False]]))
    Moments(count=2.0, total=3.0, square_total=5.0)
    """
    kept = values.detach().double().where(mask, 0.0)
    sums = torch.stack([mask.sum().double(), kept.sum(), kept.square().sum()]).tolist()  # one transfer from the device
    return Moments(count=sums[0], total=sums[1], square_total=sums[2])


def whiten(
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    moments: Moments,
    *,
    eps: int | float = 1e-8,
    std: Std = "sample",
) -> Float[Tensor, "B T"]:
    """Shift and scale the unmasked values by a mean and deviation that the caller added up; 0 where masked.

    mean = total / n;  var = square_total / n - mean^2
    sample (verl):          (v - mean) rsqrt(var n / (n - 1) + eps)
    population (OpenRLHF):  (v - mean) rsqrt(max(var, eps))

    verl's `n + 1e-8` in place of n is the same number in its float32.

    Args:
        values: `[B, T]`; masked positions are not read.
        mask: `[B, T]`.
        moments: of all values of the update, see `Moments`.
        eps: guards the division.
        std: `sample` or `population`.

    Raises:
        ValueError: too few values (`sample` needs 2, `population` 1), or an unknown std.

    >>> values, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    >>> [round(value, 6) for value in whiten(values, mask, moments(values, mask), std="population")[0].tolist()]
    [-1.0, 1.0, 0.0]
    """
    check_std(std)
    count, needed = moments.count, 2 if std == "sample" else 1
    if not count >= needed:
        raise ValueError(f"whitening with std={std!r} needs at least {needed} unmasked values, got {count:g}")
    mean = moments.total / count
    variance = max(moments.square_total / count - mean * mean, 0.0)
    guarded = variance * count / (count - 1) + eps if std == "sample" else max(variance, eps)
    if not guarded > 0:
        raise ValueError("the values are all equal and eps is 0: there is no deviation to divide by")
    working = values if values.dtype == torch.float64 else values.float()
    return ((working - mean) / math.sqrt(guarded)).where(mask, 0.0)
