"""The sums over the vocabulary behind every statistic of two distributions, for a chunk of rows of float32 logits.

Rows are cut into sub-rows of about 1,300 columns: each is summed in float32, the sub-rows of a row in float64. Two
backends give the same sums. `EagerSums` makes plain passes over cache-sized groups of rows, through buffers that are
allocated once. `CompiledSums` has torch.compile fuse the passes into two row reductions.

With x = log p - log q, the terms are those of `divergence`; the eager backend takes them apart so that no
series and no branch is needed:

    J = sum (p - q) x,   R = sum (p - q) - q x,   L = sum (p + q) 2 log cosh(x / 2),   p - q = q expm1(x)
    KL(Q || P) = R,   KL(P || Q) = J - R,   JS = (J - L) / 4

Each part is exactly 0 where p = q, and the differences lose at most a factor of |x| in precision; rows where some |x|
passes 25 nats are marked for the slower way. Columns of padding must hold
`head_logits.PADDING` in both.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import os
import shutil
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from swerve.functional.head_logits import BLOCK

_SUB_ROW = 1280
_EAGER_ELEMENTS_CPU = 1 << 17
_COMPILED_ELEMENTS_CPU = 1 << 20
_ELEMENTS_ACCELERATOR = 1 << 25
_FAR = 25.0  # nats
_NEGLIGIBLE_SHIFT = 1e-6  # changes a divergence by less than its square
_TINY = 1e-30
_NEAR = 0.3  # below this |x| the compiled terms come from their series, exact there to 5e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How rows of `vocabulary` columns are cut: `num_sub_rows` sub-rows of `width` columns, the last ones padding.

    >>> Tiling.of(128256), Tiling.of(300).padded
    (Tiling(vocabulary=128256, num_sub_rows=101, width=1280), 320)
    """

    vocabulary: int
    num_sub_rows: int
    width: int

    @classmethod
    def of(cls, vocabulary: int) -> Tiling:
        """Return the sub-rows of a vocabulary, whose width is a multiple of 64."""
        num_sub_rows = math.ceil(vocabulary / _SUB_ROW)
        return cls(
            vocabulary=vocabulary, num_sub_rows=num_sub_rows, width=math.ceil(vocabulary / num_sub_rows / BLOCK) * BLOCK
        )

    @property
    def padded(self) -> int:
        """Columns of a row with its padding."""
        return self.num_sub_rows * self.width

    def group_rows(self, elements: int) -> int:
        """Return how many rows have about so many elements, at least 1."""
        return max(1, elements // self.padded)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSums:
    """One model's sums, each `[n]` in float64."""

    log_total: Float[Tensor, " n"]
    """Logsumexp of the logits minus the largest logit."""
    mean_shifted: Float[Tensor, " n"]
    """Expectation of the logits minus the largest logit; NaN for a row with an infinite logit."""
    num_above: Float[Tensor, " n"]
    """Number of logits above the realised token's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """Two models' sums and their divergences, each `[n]` in float64."""

    p: SideSums
    q: SideSums
    kl_forward: Float[Tensor, " n"]
    kl_reverse: Float[Tensor, " n"]
    js: Float[Tensor, " n"]
    far: Bool[Tensor, " n"]
    """Rows that this backend cannot tell exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsChunk:
    """One model's chunk: logits `[rows, padded]`, and per row its largest logit, where that is, the realised one."""

    logits: Float[Tensor, "n V"]
    largest: Float[Tensor, " n"]
    argmax: Tensor
    realised: Float[Tensor, " n"]


@runtime_checkable
class RowSums(Protocol):
    """A way to form the sums of a chunk."""

    group_rows: int
    """Chunks must have a multiple of so many rows (1: any number)."""

    def __call__(self, p: LogitsChunk, q: LogitsChunk) -> PairSums:
        """Return the sums of every row."""
        ...


class EagerSums:
    """Plain passes over groups of rows that stay near the processor, through buffers allocated once."""

    def __init__(self, tiling: Tiling, rows: int, device: torch.device) -> None:
        elements = _EAGER_ELEMENTS_CPU if device.type == "cpu" else _ELEMENTS_ACCELERATOR
        self._tiling = tiling
        self._rows = min(rows, tiling.group_rows(elements))
        self._buffers = torch.empty(6, self._rows, tiling.padded, device=device)
        self._sums = torch.empty(9, rows, tiling.num_sub_rows, device=device)
        self._tiny = torch.tensor(_TINY, device=device)
        self.group_rows = 1

    def __call__(self, p: LogitsChunk, q: LogitsChunk) -> PairSums:
        """Return the sums of every row of a chunk of at most the number of rows told at the start."""
        num_rows = len(p.logits)
        parts = [self._group(p, q, slice(i, min(i + self._rows, num_rows))) for i in range(0, num_rows, self._rows)]
        scale_p, scale_q, far = (torch.cat(column) for column in zip(*parts, strict=True))
        total = self._sums[:, :num_rows].sum(dim=-1, dtype=torch.float64)
        jeffreys, reverse, cosh = (total[6:] / total[3]).unbind()
        reverse = reverse.clamp(min=0.0).minimum(jeffreys)  # only rounding can pass these bounds
        return PairSums(
            p=SideSums(log_total=scale_p, mean_shifted=total[1] / total[0], num_above=total[2]),
            q=SideSums(log_total=scale_q, mean_shifted=total[4] / total[3], num_above=total[5]),
            kl_forward=jeffreys - reverse,
            kl_reverse=reverse,
            js=((jeffreys - cosh) / 4).clamp(min=0.0),
            far=far,
        )

    def _group(self, p: LogitsChunk, q: LogitsChunk, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        probs_p, probs_q, x, scratch, *_ = self._buffers[:, : rows.stop - rows.start].unbind()
        scale_p = self._one_side(p, rows, probs_p, scratch, 0)
        scale_q = self._one_side(q, rows, probs_q, scratch, 3)
        torch.sub(p.logits[rows], q.logits[rows], out=x)
        shift, rest = _shift(p.largest[rows], q.largest[rows], scale_p, scale_q)
        x.sub_(shift[:, None])
        if bool((rest.abs() > _NEGLIGIBLE_SHIFT).any()):
            x.sub_(rest[:, None])
        x[:, self._tiling.vocabulary :] = 0.0
        near = torch.abs(x, out=scratch).amax(dim=-1) < _FAR  # false for NaN
        self._two_sides(rows)
        return scale_p, scale_q, ~near

    def _one_side(self, side: LogitsChunk, rows: slice, probs: Tensor, scratch: Tensor, first: int) -> Tensor:
        """Fill `probs`, add up three sums and return log_total."""
        logits = side.logits[rows]
        torch.softmax(logits, dim=-1, out=probs)
        total = self._add_up(probs, first, rows).sum(dim=-1, dtype=torch.float64)
        torch.sub(logits, side.largest[rows, None], out=scratch)
        self._add_up(scratch.mul_(probs), first + 1, rows)
        self._add_up(torch.gt(logits, side.realised[rows, None], out=scratch), first + 2, rows)
        # The largest probability is 1 / (the total that softmax found); what it lost in summing is in `total`.
        return total.log() - probs.gather(-1, side.argmax[rows, None])[:, 0].double().log()

    def _two_sides(self, rows: slice) -> None:
        probs_p, probs_q, x, scratch, ratio, difference = self._buffers[:, : rows.stop - rows.start].unbind()
        torch.expm1(x, out=ratio)
        torch.mul(probs_q, ratio, out=difference)
        self._add_up(torch.mul(difference, x, out=scratch), 6, rows)
        self._add_up(torch.addcmul(difference, probs_q, x, value=-1.0, out=scratch), 7, rows)
        both = torch.add(difference, probs_q, alpha=2.0, out=probs_q)
        # 2 log cosh(x / 2) = log(1 + (p - q)^2 / (4 p q)), and (p - q) / q is the ratio.
        four_p = torch.add(self._tiny, probs_p, alpha=4.0, out=probs_p)
        square = difference.div_(four_p).mul_(ratio)
        self._add_up(square.log1p_().mul_(both), 8, rows)

    def _add_up(self, values: Tensor, place: int, rows: slice) -> Tensor:
        sub_rows = values.view(len(values), self._tiling.num_sub_rows, self._tiling.width)
        return torch.sum(sub_rows, dim=-1, out=self._sums[place, rows])


class CompiledSums:
    """Two row reductions fused by torch.compile: generated C++ on the CPU, Triton on CUDA.

    Raises:
        RuntimeError: there is no compiler for the device; see `compiled_available`.
    """

    def __init__(self, tiling: Tiling, rows: int, device: torch.device) -> None:
        if not compiled_available(device.type):
            needed = "a C++ compiler (g++ or clang++, or the one named by CXX)" if device.type == "cpu" else "triton"
            raise RuntimeError(
                f"the compiled backend needs {needed} on this machine; install it or use backend='eager'"
            )
        elements = _COMPILED_ELEMENTS_CPU if device.type == "cpu" else _ELEMENTS_ACCELERATOR
        self._tiling = tiling
        self.group_rows = min(rows, tiling.group_rows(elements))

    def __call__(self, p: LogitsChunk, q: LogitsChunk) -> PairSums:
        """Return the sums of every row of a chunk with a multiple of `group_rows` rows."""
        starts = range(0, len(p.logits), self.group_rows)
        parts = torch.cat([self._group(p, q, slice(start, start + self.group_rows)) for start in starts], dim=1)
        sides = [SideSums(log_total=parts[i], mean_shifted=parts[i + 1], num_above=parts[i + 2]) for i in (0, 3)]
        return PairSums(
            p=sides[0],
            q=sides[1],
            kl_forward=parts[6].clamp(min=0.0),
            kl_reverse=parts[7].clamp(min=0.0),
            js=parts[8].clamp(min=0.0) / 2,  # terms of less than 1e-30 may be negative
            far=torch.zeros(len(p.logits), dtype=torch.bool, device=parts.device),
        )

    def _group(self, p: LogitsChunk, q: LogitsChunk, rows: slice) -> Tensor:
        """Return `[9, rows]` in float64."""
        totals = [self._one_side(side, rows) for side in (p, q)]
        shift = _shift(p.largest[rows], q.largest[rows], *(total[0].log() for total in totals))
        factors = ((1 / total[0]).float() for total in totals)
        per_row = (p.largest[rows], q.largest[rows], *factors, *shift)
        logits = (self._sub_rows(p.logits[rows]), self._sub_rows(q.logits[rows]))
        divergences = _kernel(_pair_kernel, logits[0].shape)(*logits, *(self._spread(values) for values in per_row))
        sides = [part for total in totals for part in (total[0].log(), total[1] / total[0], total[2])]
        return torch.stack([*sides, *self._joined(divergences)])

    def _one_side(self, side: LogitsChunk, rows: slice) -> list[Tensor]:
        logits = self._sub_rows(side.logits[rows])
        per_row = (self._spread(values[rows]) for values in (side.largest, side.realised))
        return self._joined(_kernel(_side_kernel, logits.shape)(logits, *per_row))

    def _sub_rows(self, logits: Tensor) -> Tensor:
        return logits.view(-1, self._tiling.width)

    def _spread(self, per_row: Tensor) -> Tensor:
        return per_row.repeat_interleave(self._tiling.num_sub_rows)

    def _joined(self, sums: tuple[Tensor, ...]) -> list[Tensor]:
        return [part.view(-1, self._tiling.num_sub_rows).sum(dim=-1, dtype=torch.float64) for part in sums]


def compiled_available(device_type: str = "cpu") -> bool:
    """Return whether this machine has what the compiled backend needs: a C++ compiler, or triton for CUDA.

    >>> isinstance(compiled_available(), bool)
    True
    """
    if device_type != "cpu":
        return importlib.util.find_spec("triton") is not None
    chosen = os.environ.get("CXX")
    return any(shutil.which(name) is not None for name in ([chosen] if chosen else ["g++", "clang++"]))


def _shift(largest_p: Tensor, largest_q: Tensor, log_total_p: Tensor, log_total_q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the difference of the two logsumexp as a float32 and the float32 that is left of it."""
    shift = (largest_p.double() - largest_q.double()) + (log_total_p - log_total_q)
    return shift.float(), (shift - shift.float().double()).float()


@functools.cache
def _kernel(function: Callable[..., tuple[Tensor, ...]], shape: torch.Size) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function compiled, on its first call, for one shape of logits: that of a vocabulary's full groups."""
    plain = inspect.unwrap(function)  # decorators that check annotations cannot be compiled
    # torch.compile counts the shapes of a code object and gives up after eight, so every shape has a copy of its own.
    copy = types.FunctionType(plain.__code__.replace(), plain.__globals__)
    compiled: Callable[..., tuple[Tensor, ...]] = torch.compile(copy, dynamic=False, fullgraph=True)
    return compiled


def _side_kernel(logits: Tensor, largest: Tensor, realised: Tensor) -> tuple[Tensor, ...]:
    shifted = logits - largest[:, None]
    weights = shifted.exp()
    return weights.sum(-1), (weights * shifted).sum(-1), (logits > realised[:, None]).float().sum(-1)


def _pair_kernel(
    logits_p: Tensor,
    logits_q: Tensor,
    largest_p: Tensor,
    largest_q: Tensor,
    factor_p: Tensor,
    factor_q: Tensor,
    shift: Tensor,
    shift_rest: Tensor,
) -> tuple[Tensor, ...]:
    """Return the sums of p phi(x), of q phi(-x), and of 2 m g(u).

    Where x is small, terms come from series of phi and of 2 g(tanh(x / 2)) = x tanh(x / 2) - 2 log cosh(x / 2), even
    and odd powers apart; else from p - q and one logarithm.
    """
    p = (logits_p - largest_p[:, None]).exp() * factor_p[:, None]
    q = (logits_q - largest_q[:, None]).exp() * factor_q[:, None]
    x = ((logits_p - logits_q) - shift[:, None]) - shift_rest[:, None]
    square, size = x * x, x.abs()
    near, both, difference = size < _NEAR, p + q, p - q
    even = square * (1 / 2 + square * (1 / 24 + square * (1 / 720)))
    odd = square * x * (1 / 6 + square * (1 / 120 + square * (1 / 5040)))
    kl_forward = torch.where(near, p * (even - odd), p * x - difference)
    kl_reverse = torch.where(near, q * (even + odd), difference - q * x)
    series = square * (1 / 8 + square * (-1 / 64 + square * (1 / 576 + square * (-17 / 92160))))
    logarithm = ((2.0 * torch.maximum(p, q) + _TINY) / (both + _TINY)).log()
    js_twice = torch.where(near, both * series, both * logarithm - torch.minimum(p, q) * size)
    return kl_forward.sum(-1), kl_reverse.sum(-1), js_twice.sum(-1)
