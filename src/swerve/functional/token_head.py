"""Losses and statistics of the output head, without ever holding the logits of more than one chunk of tokens.

A language model's logits, `[tokens, vocabulary]`, are by far its largest tensor. Here they are formed from the hidden
states a few rows at a time, and gone before the next rows:

- `chunked_head_loss` takes the gradient of each chunk while its logits are there: three products (logits, gradient of
  the hidden states, gradient of the weight), nothing computed twice. For losses that are a sum over tokens.
- `chunked_head_map` returns per-token statistics and forms the logits again in its backward pass: four products. For
  losses that need a whole sequence's statistics before any gradient is known.

Memory beyond the inputs, forward and backward: two chunks (logits and their gradient), what the caller's function
makes of one chunk, and one buffer each of the size of `hidden`, `weight` and `bias` for those that require grad. A
weight in 16 bits is multiplied in float32, 8,192 rows of it widened at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from swerve.functional.head_logits import LinearHead
from swerve.functional.types import Number, Positive

ChunkLoss = Callable[[Tensor, slice], Tensor]
"""(logits `[n, V]`, which rows they are) -> the sum of these rows' losses, already weighted, a scalar."""
ChunkMap = Callable[[Tensor, slice], Tensor]
"""(logits `[n, V]`, which rows they are) -> `[n, K]`, K statistics of each row."""

# 16 MiB of float32: passes over a chunk stay near the processor's caches, and the allocator keeps blocks of this size
# where it hands larger ones back to the system. Below 128 rows the matrix products slow down (32 rows: by a third).
_CHUNK_LOGITS = 1 << 22
_MIN_ROWS = 128
# Weights narrower than the logits are widened this many vocabulary rows at a time.
_TILE = 8192


def rows_per_chunk(vocabulary_size: int) -> int:
    """Return how many rows of logits to form at a time: about 2^22 logits (16 MiB in float32), at least 128 rows.

    Chosen by measurements on a processor; `rows` of the functions below overrides it.

    Raises:
        ValueError: the vocabulary is empty.

    >>> rows_per_chunk(512), rows_per_chunk(32000), rows_per_chunk(128256)
    (8192, 131, 128)
    """
    if vocabulary_size < 1:
        raise ValueError(f"the vocabulary must have at least 1 token, got {vocabulary_size}")
    return max(_MIN_ROWS, _CHUNK_LOGITS // vocabulary_size)


def chunked_head_loss(
    hidden: Float[Tensor, "N D"], head: LinearHead, loss: ChunkLoss, *, rows: int | None = None
) -> Float[Tensor, ""]:
    """Return the sum of a per-token loss over all rows, differentiable, one chunk of logits at a time.

        total = sum over chunks of loss(logits[chunk], chunk)
        logits = softcap tanh(z / softcap),  z = multiplier (hidden @ weight.T + bias);  logits = z without a softcap

    The gradients are formed during the forward pass, chunk by chunk, and only scaled in the backward pass, which can
    run once. Where nothing requires grad, or grad is disabled, only the value is computed. Logits are float64 if an
    input is, float32 otherwise; gradients are accumulated in that type and returned in their input's.

    Args:
        hidden: `[N, D]`, states after the final norm; N may be 0, which gives 0.
        head: the model's; its weight may be tied to the embeddings.
        loss: called as `loss(logits, chunk)` with `[n, V]` logits and the slice of 0..N they belong to. It returns the
            sum of the chunk's weighted losses, must not change the logits, and must not keep them or anything
            attached to their graph (detach the metrics it collects). Gradients flow to the logits only: every other
            tensor it uses must be detached.
        rows: rows in a chunk; None for `rows_per_chunk(V)`.

    Raises:
        ValueError: shapes or settings do not fit, `loss` does not return a scalar, or it uses another tensor that
            requires grad.

    >>> import math
    >>> hidden = torch.tensor([[0.0], [1.0]], requires_grad=True)
    >>> head = LinearHead(weight=torch.tensor([[0.0], [math.log(3.0)]]))
    >>> def surprise_of_token_1(logits: Tensor, chunk: slice) -> Tensor:
    ...     return -torch.log_softmax(logits, dim=-1)[:, 1].sum()
    >>> total = chunked_head_loss(hidden, head, surprise_of_token_1, rows=1)
    >>> round(total.item(), 6)  # ln 2 + ln(4/3)
    0.980829
    >>> total.backward()
    >>> [round(value, 6) for value in hidden.grad.flatten().tolist()]  # -ln(3)/2 and -ln(3)/4
    [-0.549306, -0.274653]
    """
    chunks = _chunks_of(hidden, head, rows)
    if _needs_gradient(hidden, head.weight, head.bias):
        return _apply(_Loss, hidden, head.weight, head.bias, chunks, loss)
    with torch.no_grad():
        total = hidden.new_zeros((), dtype=chunks.dtype)
        for chunk, logits, _ in chunks.of(hidden, head.weight, head.bias):
            total += _scalar(loss(logits, chunk))
        return total


def chunked_head_map(
    hidden: Float[Tensor, "N D"], head: LinearHead, function: ChunkMap, *, rows: int | None = None
) -> Float[Tensor, "N K"]:
    """Return K statistics of each row's logits, differentiable, one chunk of logits at a time.

        result[chunk] = function(logits[chunk], chunk),  logits as in `chunked_head_loss`

    The backward pass forms each chunk's logits again and calls `function` a second time, which must give the same
    result; it may run any number of times.

    Args:
        hidden: `[N, D]`; with N = 0 `function` is called once, with no rows, to learn K.
        head: the model's.
        function: called as `function(logits, chunk)`, returns `[n, K]`; under the rules of `chunked_head_loss`.
        rows: rows in a chunk; None for `rows_per_chunk(V)`.

    Raises:
        ValueError: shapes or settings do not fit, `function` does not return `[n, K]`, or it uses another tensor that
            requires grad.

    >>> import math
    >>> def logprob_and_entropy(logits: Tensor, chunk: slice) -> Tensor:
    ...     logprobs = torch.log_softmax(logits, dim=-1)
    ...     return torch.stack([logprobs[:, 1], -(logprobs.exp() * logprobs).sum(dim=-1)], dim=-1)
    >>> hidden, head = torch.tensor([[0.0], [1.0]]), LinearHead(weight=torch.tensor([[0.0], [math.log(3.0)]]))
    >>> [round(value, 6) for value in chunked_head_map(hidden, head, logprob_and_entropy).flatten().tolist()]
    [-0.693147, 0.693147, -0.287682, 0.562335]
    """
    # With a gradient the logits are formed again in the backward pass, else they are gone after the first.
    chunks = _chunks_of(hidden, head, rows)
    if _needs_gradient(hidden, head.weight, head.bias):
        return _apply(_Map, hidden, head.weight, head.bias, chunks, function)
    with torch.no_grad():
        return _mapped(chunks, hidden, head.weight, head.bias, function)


def _apply(function: Any, *arguments: object) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _chunks_of(hidden: Tensor, head: LinearHead, rows: int | None) -> _Chunks:
    weight = head.weight
    if hidden.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        shapes = f"{tuple(hidden.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"hidden must be [N, D] and weight [V, D]; got {shapes}")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, or None for the default; got {rows}")
    wide = torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)
    rows = rows_per_chunk(weight.shape[0]) if rows is None else rows
    return _Chunks(multiplier=head.multiplier, softcap=head.softcap, rows=rows, dtype=wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunks:
    """How logits come from hidden states. Tensors are passed to its methods, so that autograd owns them."""

    multiplier: Number
    softcap: Positive | None
    rows: int
    dtype: torch.dtype

    def of(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield each chunk's rows, logits and scaled hidden states; the next chunk overwrites the logits."""
        num_rows = hidden.shape[0]
        buffer = hidden.new_empty((min(self.rows, num_rows), weight.shape[0]), dtype=self.dtype)
        for start in range(0, num_rows, self.rows):
            chunk = slice(start, min(start + self.rows, num_rows))
            scaled = hidden[chunk] if self.is_narrow(hidden, weight) else hidden[chunk].to(self.dtype)
            scaled = scaled if self.multiplier == 1 else scaled * self.multiplier
            logits = buffer[: chunk.stop - start]
            self._project(scaled, weight, bias, logits)
            yield chunk, logits, scaled

    def is_narrow(self, hidden: Tensor, weight: Tensor) -> bool:
        """Whether 16-bit factors are multiplied as they are, with float32 results, as CUDA's library can."""
        return weight.is_cuda and hidden.dtype == weight.dtype != self.dtype == torch.float32

    def _project(self, scaled: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        if self.is_narrow(scaled, weight):
            torch.mm(scaled, weight.T, out_dtype=torch.float32, out=out)
        else:
            for tile, part in _tiles(weight, self.dtype):
                torch.mm(scaled, part.T, out=out[:, tile])  # `out=` is left alone by autocast
        if bias is not None:
            out.add_(bias.to(self.dtype), alpha=self.multiplier)
        if self.softcap is not None:
            out.div_(self.softcap).tanh_().mul_(self.softcap)

    def before_softcap(self, gradient: Tensor, logits: Tensor) -> Tensor:
        """Return the gradient with respect to z; overwrites the logits, which nobody needs any more."""
        if self.softcap is None:
            return gradient
        return logits.div_(self.softcap).square_().neg_().add_(1.0).mul_(gradient)


def _tiles(weight: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Yield the weight in `dtype`: whole where it has that type, else widened tile by tile, never as a whole copy."""
    size = weight.shape[0] if weight.dtype == dtype else _TILE
    for start in range(0, weight.shape[0], max(1, size)):
        tile = slice(start, min(start + size, weight.shape[0]))
        yield tile, weight[tile].to(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradients:
    """Buffers that collect the gradients of the inputs that require one."""

    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    @classmethod
    def zeros(
        cls, tensors: tuple[Tensor, Tensor, Tensor | None], needed: tuple[bool, ...], chunks: _Chunks
    ) -> _Gradients:
        types = (tensors[0].dtype, chunks.dtype, chunks.dtype)  # nothing is added to a row of hidden once it is written
        buffers = [
            torch.zeros(tensor.shape, dtype=dtype, device=tensor.device) if wanted and tensor is not None else None
            for tensor, wanted, dtype in zip(tensors, needed, types, strict=True)
        ]
        return cls(hidden=buffers[0], weight=buffers[1], bias=buffers[2])

    def add(self, chunk: slice, gradient: Tensor, scaled: Tensor, weight: Tensor, chunks: _Chunks) -> None:
        """Add one chunk's part, from its gradient with respect to z and its scaled hidden states."""
        if chunks.is_narrow(scaled, weight):
            # 16-bit factors with float32 results, as in the forward pass.
            gradient_16 = gradient.to(weight.dtype)
            if self.hidden is not None:
                product = torch.mm(gradient_16, weight, out_dtype=torch.float32)
                self.hidden[chunk].add_(product, alpha=chunks.multiplier)
            if self.weight is not None:
                torch.addmm(self.weight, gradient_16.T, scaled, out_dtype=torch.float32, out=self.weight)
        else:
            if self.hidden is not None:
                rows = self.hidden[chunk].to(chunks.dtype)
                for tile, part in _tiles(weight, chunks.dtype):
                    rows.addmm_(gradient[:, tile], part, alpha=chunks.multiplier)
                if self.hidden.dtype != chunks.dtype:
                    self.hidden[chunk] = rows
            if self.weight is not None:
                self.weight.addmm_(gradient.T, scaled)
        if self.bias is not None:
            self.bias.add_(gradient.sum(dim=0), alpha=chunks.multiplier)

    def scaled(self, factor: Tensor | None, dtypes: list[torch.dtype | None]) -> list[Tensor | None]:
        """Return the gradients, multiplied in place by `factor`, in the types of the inputs."""
        results = []
        for gradient, dtype in zip((self.hidden, self.weight, self.bias), dtypes, strict=True):
            if gradient is not None and factor is not None:
                gradient.mul_(factor)
            results.append(gradient if gradient is None else gradient.to(dtype))
        return results


def _logits_gradient(output: Tensor, logits: Tensor, grad_output: Tensor | None) -> Tensor | None:
    """Return the gradient of `output` with respect to the logits; None where it does not depend on them."""
    if not output.requires_grad:
        return None
    _refuse_other_leaves(output, logits)
    (gradient,) = torch.autograd.grad(output, logits, grad_output, allow_unused=True)
    return gradient


def _refuse_other_leaves(output: Tensor, logits: Tensor) -> None:
    """Raise if the graph of `output` starts anywhere but at the logits: that gradient would be lost silently."""
    leaves = [output] if output.grad_fn is None else []
    pending: list[Any] = [output.grad_fn]
    seen = {None}
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name().endswith("AccumulateGrad"):
            leaves.append(node.variable)
        pending.extend(parent for parent, _ in node.next_functions)
    if any(leaf is not logits for leaf in leaves):
        raise ValueError(
            "the function of the logits uses another tensor that requires grad, whose gradient would be lost: "
            "detach every tensor it uses besides the logits"
        )


def _scalar(value: Tensor) -> Tensor:
    if value.dim() != 0:
        raise ValueError(f"the loss of a chunk must be a scalar, the sum over its rows; got {tuple(value.shape)}")
    return value


def _mapped(chunks: _Chunks, hidden: Tensor, weight: Tensor, bias: Tensor | None, function: ChunkMap) -> Tensor:
    num_rows = hidden.shape[0]
    if num_rows == 0:
        return function(hidden.new_empty((0, weight.shape[0]), dtype=chunks.dtype), slice(0, 0))
    result: Tensor | None = None
    for chunk, logits, _ in chunks.of(hidden, weight, bias):
        statistics = function(logits, chunk)
        if statistics.dim() != 2 or statistics.shape[0] != logits.shape[0]:
            raise ValueError(
                f"a function of logits [n, V] must return [n, K] statistics; "
                f"got {tuple(statistics.shape)} for n = {logits.shape[0]}"
            )
        if result is None:
            result = statistics.new_empty((num_rows, statistics.shape[1]))
        result[chunk] = statistics  # a copy: the statistics may be a view of the logits
    assert result is not None
    return result


class _Loss(torch.autograd.Function):
    """The gradients are formed in `forward`, which knows them as soon as a chunk's logits are there."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, chunks: _Chunks, loss: ChunkLoss
    ) -> Tensor:
        gradients = _Gradients.zeros((hidden, weight, bias), ctx.needs_input_grad[:3], chunks)
        total = hidden.new_zeros((), dtype=chunks.dtype)
        for chunk, logits, scaled in chunks.of(hidden, weight, bias):
            leaf = logits.detach().requires_grad_()
            with torch.enable_grad():
                value = _scalar(loss(leaf, chunk))
            gradient = _logits_gradient(value, leaf, None)
            total += value.detach()
            del value  # and with it what its graph holds of the chunk
            if gradient is not None:
                gradients.add(chunk, chunks.before_softcap(gradient, logits), scaled, weight, chunks)
            del gradient
        ctx.gradients = gradients
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in (hidden, weight, bias)]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        gradients: _Gradients | None = ctx.gradients
        if gradients is None:
            raise RuntimeError("chunked_head_loss forms its gradients once: call it again for another backward pass")
        ctx.gradients = None  # scaled in place, so that no second buffer of the weight's size is needed
        return *gradients.scaled(grad_output, ctx.dtypes), None, None


class _Map(torch.autograd.Function):
    """The logits are formed again in `backward`, once the gradients of the statistics are known."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, chunks: _Chunks, function: ChunkMap
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.chunks, ctx.function = chunks, function
        return _mapped(chunks, hidden, weight, bias, function)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        gradients = _Gradients.zeros((hidden, weight, bias), ctx.needs_input_grad[:3], chunks)
        for chunk, logits, scaled in chunks.of(hidden, weight, bias):
            leaf = logits.detach().requires_grad_()
            with torch.enable_grad():
                statistics = ctx.function(leaf, chunk)
            gradient = _logits_gradient(statistics, leaf, grad_output[chunk])
            del statistics
            if gradient is not None:
                gradients.add(chunk, chunks.before_softcap(gradient, logits), scaled, weight, chunks)
            del gradient
        dtypes = [None if tensor is None else tensor.dtype for tensor in (hidden, weight, bias)]
        return *gradients.scaled(None, dtypes), None, None
