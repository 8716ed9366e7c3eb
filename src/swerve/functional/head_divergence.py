"""Everything two next-token distributions say of each position, from hidden states and two output heads, streamed.

The logits of a chunk of positions are formed in two buffers, reduced to a few numbers a position, and overwritten by
the next chunk's: memory does not depend on the number of positions. What is computed is that of `divergence_stats`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.functional.divergence import (
    LN2_FLOAT32,
    DivergenceStats,
    divergence_stats,
    num_group_rows,
    one_sided,
    topk_probs,
)
from swerve.functional.head_logits import (
    HeadLogits,
    LinearHead,
    argmax_by_blocks,
    block_maxima,
    topk_by_blocks,
)
from swerve.functional.row_sums import CompiledSums, EagerSums, LogitsChunk, RowSums, SideSums, Tiling
from swerve.functional.types import Ids, Logits

HeadBackend: TypeAlias = Literal["eager", "compiled"]

# Below this many tokens a row fits the caches however it is worked on, and `divergence_stats` is as good.
_MIN_STREAMED_VOCABULARY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TopProbs:
    """The most likely tokens of each position, the most likely first; equally likely ones in any order."""

    probs: Float[Tensor, "N K"]
    ids: Int[Tensor, "N K"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDivergence:
    """What P (a checkpoint) and Q (the reference) say of each position."""

    stats: DivergenceStats
    top: TopProbs | None
    """Of P; None where none were asked for."""
    top_ref: TopProbs | None
    """Of Q."""

    @classmethod
    def of_parts(
        cls, parts: Sequence[HeadDivergence], function: Callable[[list[Tensor]], Tensor] = torch.cat
    ) -> HeadDivergence:
        """Return what a function, such as concatenation, makes of each tensor of some parts."""

        def top(each: list[TopProbs | None]) -> TopProbs | None:
            some = [part for part in each if part is not None]
            if not some:
                return None
            return TopProbs(probs=function([part.probs for part in some]), ids=function([part.ids for part in some]))

        return cls(
            stats=DivergenceStats.of_parts([part.stats for part in parts], function),
            top=top([part.top for part in parts]),
            top_ref=top([part.top_ref for part in parts]),
        )


def head_divergence(
    hidden: Float[Tensor, "N D"],
    hidden_ref: Float[Tensor, "N E"],
    head: LinearHead,
    head_ref: LinearHead,
    ids: Ids,
    *,
    vocabulary_size: int | None = None,
    top_k: int = 0,
    rows_per_chunk: int = 256,
    backend: HeadBackend = "eager",
) -> HeadDivergence:
    """Compare P = softmax(head(hidden)) with Q = softmax(head_ref(hidden_ref)), a chunk of positions at a time.

    Every statistic of `divergence_stats`, with its meaning for logits of minus infinity: both KL divergences and JS as
    sums that are exactly 0 where the two agree, entropies, log-probabilities and ranks of the realised tokens.
    Logits come out of the products in float32 also for 16-bit weights (float64 if an input is), terms are formed in
    that type and added up in float64. Memory beyond inputs and results: two buffers `[rows_per_chunk, V]` and a few
    MiB, whatever N. No gradient flows.

    Args:
        hidden: `[N, D]`, P's states after the final norm.
        hidden_ref: `[N, E]`, Q's.
        head: P's head.
        head_ref: Q's head, on the same device.
        ids: `[N]`, the realised tokens, below the vocabulary size.
        vocabulary_size: only so many first rows of both heads are tokens; the rest is padding and takes no part. None:
            all, and the two heads must have the same number.
        top_k: how many of the most likely tokens of each model to return, at most V; 0 for none.
        rows_per_chunk: positions whose logits are held at a time; below about 128 the products slow down.
        backend: "compiled" fuses the passes over the logits (see `compiled_available`) and pays for itself after a few
            thousand positions; float64 and vocabularies below 256 tokens are computed the eager way with either.

    Returns:
        Results on the device of the heads; float32 (float64 for float64 inputs), ranks and ids int32, top ids int64.

    Raises:
        ValueError: shapes, sizes, devices or settings do not fit, or a row of logits has NaN, plus infinity, or no
            finite entry.
        RuntimeError: the compiled backend is not available on this machine.

    >>> head, states = LinearHead(weight=torch.tensor([[1.0], [-1.0]])), torch.tensor([[0.0], [1.0]])
    >>> found = head_divergence(states[:1], states[1:], head, head, torch.tensor([1]), top_k=1)
    >>> [round(float(value), 6) for value in (found.stats.kl_forward, found.stats.kl_reverse, found.stats.js)]
    [0.433781, 0.327813, 0.089541]
    >>> int(found.stats.rank_ref), round(float(found.top_ref.probs), 6), found.top_ref.ids.tolist()
    (2, 0.880797, [[0]])
    """
    size = _checked_size((head, head_ref), vocabulary_size)
    _check_rows(((hidden, head), (hidden_ref, head_ref)), ids, size)
    if backend not in get_args(HeadBackend):
        raise ValueError(f"backend must be one of {', '.join(get_args(HeadBackend))}; got {backend!r}")
    if top_k < 0 or rows_per_chunk < 1:
        raise ValueError(f"top_k must be at least 0 and rows_per_chunk at least 1; got {top_k} and {rows_per_chunk}")
    # Buffers are allocated once, for the largest chunk, and hold one chunk's logits after the other's.
    sources = (hidden, hidden_ref, head.weight, head_ref.weight)
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in sources) else torch.float32
    with torch.no_grad():
        sums = _row_sums(size, dtype, rows_per_chunk, len(ids), head.weight.device, backend)
        buffers = _buffers((head, head_ref), size, dtype, min(rows_per_chunk, len(ids)), sums)
        chunks = _Chunks(buffers, sums, size, min(top_k, size))
        # No positions are one empty chunk, so that results of none have their types.
        parts = []
        for start in range(0, max(len(ids), 1), rows_per_chunk):
            rows = slice(start, start + rows_per_chunk)
            parts.append(chunks(hidden[rows], hidden_ref[rows], ids[rows]))
        return HeadDivergence.of_parts(parts)


def logits_divergence(logits_p: Logits, logits_q: Logits, ids: Ids, top_k: int) -> HeadDivergence:
    """Compare P = softmax(logits_p) with Q = softmax(logits_q), whole rows at a time; see `divergence_stats`.

    Args:
        logits_p: `[N, V]`.
        logits_q: `[N, V]`.
        ids: `[N]`, the realised tokens.
        top_k: how many of the most likely tokens of each model to return; 0 for none.

    >>> logits = torch.tensor([[2.0, 0.0, 1.0]])
    >>> logits_divergence(logits, logits, torch.tensor([0]), 2).top.ids.tolist()
    [[0, 2]]
    """
    tops: list[TopProbs | None] = [None, None]
    if top_k:
        both = (topk_probs(logits, top_k) for logits in (logits_p, logits_q))
        tops = [TopProbs(probs=probs, ids=token_ids) for probs, token_ids in both]
    return HeadDivergence(stats=divergence_stats(logits_p, logits_q, ids), top=tops[0], top_ref=tops[1])


def _checked_size(heads: tuple[LinearHead, LinearHead], vocabulary_size: int | None) -> int:
    sizes = [head.weight.shape[0] for head in heads]
    if vocabulary_size is None:
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"the heads have {sizes[0]} and {sizes[1]} rows; give vocabulary_size, the number of tokens of the "
                "tokenizer they share, if the rest is padding"
            )
        vocabulary_size = sizes[0]
    if not 1 <= vocabulary_size <= min(sizes):
        raise ValueError(f"vocabulary_size must be 1 to {min(sizes)}, the rows of the heads; got {vocabulary_size}")
    return vocabulary_size


def _check_rows(sides: tuple[tuple[Tensor, LinearHead], ...], ids: Tensor, size: int) -> None:
    for hidden, head in sides:
        if hidden.dim() != 2 or hidden.shape[1] != head.weight.shape[1]:
            shapes = f"{tuple(hidden.shape)} and {tuple(head.weight.shape)}"
            raise ValueError(f"hidden must be [N, D] and the head's weight [V, D]; got {shapes}")
    devices = {head.weight.device for _, head in sides}
    if len(devices) > 1:
        raise ValueError(f"both heads must be on one device, got {' and '.join(sorted(map(str, devices)))}")
    if any(hidden.shape[:1] != ids.shape for hidden, _ in sides):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (*(hidden for hidden, _ in sides), ids))
        raise ValueError(f"hidden, hidden_ref and ids must have the same number of rows, got shapes {shapes}")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ValueError(f"ids must be 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")


def _row_sums(
    size: int, dtype: torch.dtype, rows: int, num_rows: int, device: torch.device, backend: HeadBackend
) -> RowSums | None:
    """Return how to form the sums; None where whole rows at a time are as good."""
    if dtype == torch.float64 or size < _MIN_STREAMED_VOCABULARY:
        return None
    tiling = Tiling.of(size)
    if backend == "compiled":
        return CompiledSums(tiling, rows, device)  # not the fewer rows there may be: shapes that stay need no compiling
    return EagerSums(tiling, min(rows, num_rows), device)


def _buffers(
    heads: tuple[LinearHead, LinearHead], size: int, dtype: torch.dtype, rows: int, sums: RowSums | None
) -> tuple[HeadLogits, HeadLogits]:
    padded = size if sums is None else Tiling.of(size).padded
    rows = rows if sums is None else math.ceil(rows / sums.group_rows) * sums.group_rows
    p, q = (HeadLogits(head, size=size, padded=padded, rows=rows, dtype=dtype) for head in heads)
    return p, q


class _Chunks:
    """Statistics of one chunk after the other."""

    def __init__(self, buffers: tuple[HeadLogits, HeadLogits], sums: RowSums | None, size: int, top_k: int) -> None:
        self._p, self._q = buffers
        self._sums, self._size, self._top_k = sums, size, top_k

    def __call__(self, hidden: Tensor, hidden_ref: Tensor, ids: Tensor) -> HeadDivergence:
        """Compare the rows of one chunk."""
        logits_p, logits_q = self._p(hidden), self._q(hidden_ref)
        ids = ids.to(logits_p.device)
        if self._sums is None or not len(ids):
            return logits_divergence(logits_p[:, : self._size], logits_q[:, : self._size], ids, self._top_k)
        return self._streamed(self._sums, ids)

    def _streamed(self, sums: RowSums, ids: Tensor) -> HeadDivergence:
        # Whole groups of rows: those beyond the chunk's hold what the chunk before left, and are dropped below.
        rows = math.ceil(len(ids) / sums.group_rows) * sums.group_rows
        all_ids = torch.nn.functional.pad(ids.long(), (0, rows - len(ids)))
        logits_p, logits_q = self._p.buffer[:rows], self._q.buffer[:rows]
        maxima_p, maxima_q = block_maxima(logits_p), block_maxima(logits_q)
        side_p, side_q = _side(logits_p, maxima_p, all_ids), _side(logits_q, maxima_q, all_ids)
        pair = sums(side_p, side_q)
        streamed = HeadDivergence(
            stats=DivergenceStats.of_sides(
                _of_one(side_p, pair.p),
                _of_one(side_q, pair.q),
                kl_forward=pair.kl_forward.float(),
                kl_reverse=pair.kl_reverse.float(),
                js=pair.js.float().clamp(max=LN2_FLOAT32),
            ),
            top=_top(side_p, maxima_p, pair.p, self._top_k),
            top_ref=_top(side_q, maxima_q, pair.q, self._top_k),
        )
        streamed = HeadDivergence.of_parts([streamed], lambda tensors: tensors[0][: len(ids)])

        # An infinite logit or NaN makes its side's mean NaN (0 times infinity). Such rows, and those that are too far
        # apart, are computed anew, which also refuses what is no distribution.
        unsure = pair.far | ~torch.isfinite(pair.p.mean_shifted) | ~torch.isfinite(pair.q.mean_shifted)
        again = unsure[: len(ids)].nonzero()[:, 0]
        if not len(again):
            return streamed
        logits_p, logits_q = logits_p[: len(ids), : self._size], logits_q[: len(ids), : self._size]
        parts = [
            logits_divergence(logits_p[some], logits_q[some], ids[some], self._top_k)
            for some in again.split(num_group_rows(logits_p))
        ]
        better = HeadDivergence.of_parts(parts)
        return HeadDivergence.of_parts([streamed, better], lambda tensors: tensors[0].index_copy(0, again, tensors[1]))


def _side(logits: Tensor, maxima: Tensor, ids: Tensor) -> LogitsChunk:
    argmax = argmax_by_blocks(logits, maxima)
    return LogitsChunk(
        logits=logits, largest=maxima.amax(dim=-1), argmax=argmax, realised=logits.gather(-1, ids[:, None])[:, 0]
    )


def _of_one(side: LogitsChunk, sums: SideSums) -> dict[str, Tensor]:
    return one_sided(
        largest=side.largest,
        realised=side.realised,
        argmax=side.argmax,
        log_total=sums.log_total,
        mean_shifted=sums.mean_shifted,
        num_above=sums.num_above,
        dtype=torch.float32,
    )


def _top(side: LogitsChunk, maxima: Tensor, sums: SideSums, k: int) -> TopProbs | None:
    if k == 0:
        return None
    values, ids = topk_by_blocks(side.logits, maxima, k)
    logprobs = values.double() - (side.largest.double() + sums.log_total)[:, None]
    return TopProbs(probs=logprobs.float().exp(), ids=ids)
