from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from swerve.functional import token_head
from swerve.functional.head_logits import LinearHead
from swerve.functional.token_head import ChunkLoss, ChunkMap, rows_per_chunk
from tests.cases import each

NUM_ROWS, VOCABULARY, WIDTH = 11, 23, 5
IDS = torch.arange(NUM_ROWS) * 7 % VOCABULARY
WEIGHTS = torch.linspace(-1.0, 2.0, NUM_ROWS, dtype=torch.float64)


def chunked_head_loss(
    hidden: Tensor, weight: Tensor, loss: ChunkLoss, *, rows: int | None = None, **head: object
) -> Tensor:
    return token_head.chunked_head_loss(hidden, LinearHead(weight=weight, **head), loss, rows=rows)


def chunked_head_map(
    hidden: Tensor, weight: Tensor, function: ChunkMap, *, rows: int | None = None, **head: object
) -> Tensor:
    return token_head.chunked_head_map(hidden, LinearHead(weight=weight, **head), function, rows=rows)


def cross_entropy(logits: Tensor, chunk: slice) -> Tensor:
    return -(torch.log_softmax(logits, dim=-1).gather(-1, IDS[chunk, None])[:, 0] * WEIGHTS[chunk]).sum()


def negative_entropy(logits: Tensor, chunk: slice) -> Tensor:
    logprobs = torch.log_softmax(logits, dim=-1)
    return ((logprobs.exp() * logprobs).sum(dim=-1) * WEIGHTS[chunk]).sum()


def clipped(logits: Tensor, chunk: slice) -> Tensor:
    ratio = (torch.log_softmax(logits, dim=-1).gather(-1, IDS[chunk, None])[:, 0] + 3.0).exp()
    return -torch.minimum(ratio * WEIGHTS[chunk], ratio.clamp(0.8, 1.2) * WEIGHTS[chunk]).sum()


def nonlinear(logits: Tensor, chunk: slice) -> Tensor:
    return (logits.sin() * logits.square()).sum(dim=-1).tanh().mul(WEIGHTS[chunk]).sum()


def plain_sum(logits: Tensor, chunk: slice) -> Tensor:
    return logits.sum()


LOSSES = [cross_entropy, negative_entropy, clipped, nonlinear, plain_sum]


def statistics(logits: Tensor, chunk: slice) -> Tensor:
    logprobs = torch.log_softmax(logits, dim=-1)
    return torch.stack([logprobs.gather(-1, IDS[chunk, None])[:, 0], (logprobs.exp() * logprobs).sum(-1)], dim=-1)


def inputs(seed: int = 0, *, rows: int = NUM_ROWS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    hidden, weight, bias = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()


def plain_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, multiplier: float = 1.0, softcap: float | None = None
) -> Tensor:
    z = hidden @ weight.T
    z = multiplier * (z if bias is None else z + bias)
    return z if softcap is None else softcap * torch.tanh(z / softcap)


def assert_same(got: Tensor, want: Tensor, tensors: tuple[Tensor, ...], **tolerance: float) -> None:
    """Compare two scalars and their gradients with respect to `tensors`."""
    tolerance = tolerance or {"rtol": 1e-11, "atol": 1e-12}
    torch.testing.assert_close(got, want, **tolerance)
    grads = torch.autograd.grad(got, tensors), torch.autograd.grad(want, tensors)
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_literal_value_and_gradients() -> None:
    hidden = torch.tensor([[0.0], [1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [math.log(3.0)]], requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)

    def surprise(logits: Tensor, chunk: slice) -> Tensor:
        return -torch.log_softmax(logits, dim=-1)[:, 1].sum()

    total = chunked_head_loss(hidden, weight, surprise, bias=bias, rows=1)
    total.backward()
    assert total.item() == pytest.approx(math.log(2) + math.log(4 / 3), rel=1e-6)
    # d / d logits is (1/2, -1/2) in row 0 and (1/4, -1/4) in row 1
    assert hidden.grad.flatten().tolist() == pytest.approx([-math.log(3) / 2, -math.log(3) / 4], rel=1e-6)
    assert weight.grad.flatten().tolist() == pytest.approx([0.25, -0.25], rel=1e-6)
    assert bias.grad.tolist() == pytest.approx([0.75, -0.75], rel=1e-6)


@each("multiplier", [1.0, 0.4, 2])
@each("softcap", [None, 2.5, 3])
@each("loss", LOSSES)
def test_value_and_gradients_are_those_of_the_whole(
    loss: Callable[[Tensor, slice], Tensor], softcap: float | None, multiplier: float
) -> None:
    hidden, weight, bias = inputs()
    settings = {"multiplier": multiplier, "softcap": softcap}
    for given_bias, tensors in ((bias, (hidden, weight, bias)), (None, (hidden, weight))):
        got = chunked_head_loss(hidden, weight, loss, bias=given_bias, rows=4, **settings)
        want = loss(plain_logits(hidden, weight, given_bias, **settings), slice(0, NUM_ROWS))
        assert_same(got, want, tensors)


@pytest.mark.parametrize("softcap", [None, 2.5])
def test_gradients_agree_with_finite_differences(softcap: float | None) -> None:
    tensors = inputs(3)

    def total(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        settings = {"bias": bias, "multiplier": 0.7, "softcap": softcap, "rows": 3}
        stats = chunked_head_map(hidden, weight, statistics, **settings)
        return stats[:, 0].sum().exp() + stats[:, 1].square().sum()

    assert torch.autograd.gradcheck(total, tensors)
    loss = chunked_head_loss(tensors[0], tensors[1], nonlinear, bias=tensors[2], softcap=softcap, rows=3)
    gradient = torch.autograd.grad(loss, tensors)
    generator, step = torch.Generator().manual_seed(0), 1e-6
    for index, tensor in enumerate(tensors):
        direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        moved = [[t + sign * step * direction if t is tensor else t for t in tensors] for sign in (1, -1)]
        ends = [chunked_head_loss(h, w, nonlinear, bias=b, softcap=softcap, rows=3).item() for h, w, b in moved]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx(float((gradient[index] * direction).sum()), rel=1e-6, abs=1e-8)


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, NUM_ROWS + 3), num_rows=st.integers(1, NUM_ROWS), which=st.sampled_from(LOSSES))
def test_rows_per_chunk_change_nothing(rows: int, num_rows: int, which: Callable[[Tensor, slice], Tensor]) -> None:
    hidden, weight, bias = inputs(1, rows=num_rows)
    got = chunked_head_loss(hidden, weight, which, bias=bias, rows=rows)
    assert_same(got, which(plain_logits(hidden, weight, bias), slice(0, num_rows)), (hidden, weight, bias))


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, NUM_ROWS + 3), num_rows=st.integers(1, NUM_ROWS))
def test_a_map_serves_losses_of_whole_sequences(rows: int, num_rows: int) -> None:
    hidden, weight, bias = inputs(2, rows=num_rows)

    def of_sequence(stats: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(stats[:, 0].sum() + 2.0) + stats.prod(dim=1).sum().tanh()

    options = {"multiplier": 1.5, "softcap": 4.0}
    got = chunked_head_map(hidden, weight, statistics, bias=bias, rows=rows, **options)
    want = statistics(plain_logits(hidden, weight, bias, **options), slice(0, num_rows))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    assert_same(of_sequence(got), of_sequence(want), (hidden, weight, bias))


def test_statistics_that_are_views_of_the_logits_are_kept() -> None:
    hidden, weight, _ = inputs()
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            got = chunked_head_map(hidden, weight, lambda logits, chunk: logits[:, 2:4], rows=3)
        torch.testing.assert_close(got, (hidden @ weight.T)[:, 2:4], rtol=1e-12, atol=1e-12)
    got = chunked_head_map(hidden, weight, lambda logits, chunk: logits, rows=3, softcap=2.0)
    assert_same(got.sin().sum(), plain_logits(hidden, weight, None, softcap=2.0).sin().sum(), (hidden, weight))


def test_chunks_cover_every_row_once_in_order() -> None:
    hidden, weight, _ = inputs()
    chunks: list[tuple[int, int, int]] = []

    def loss(logits: Tensor, chunk: slice) -> Tensor:
        chunks.append((chunk.start, chunk.stop, len(logits)))
        return logits.sum()

    chunked_head_loss(hidden, weight, loss, rows=4)
    assert chunks == [(0, 4, 4), (4, 8, 4), (8, 11, 3)]


def test_tied_weights_collect_both_gradients() -> None:
    _, weight, _ = inputs()

    def total(head: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        hidden = weight[IDS].tanh()
        return head(hidden, weight) + 0.5 * head(hidden * 2, weight)

    got = total(lambda hidden, head: chunked_head_loss(hidden, head, cross_entropy, rows=3))
    want = total(lambda hidden, head: cross_entropy(hidden @ head.T, slice(0, NUM_ROWS)))
    assert_same(got, want, (weight,))


def test_gradients_accumulate_over_calls_and_take_a_factor() -> None:
    hidden, weight, bias = inputs()
    for part in (slice(0, 6), slice(6, NUM_ROWS)):

        def of_part(logits: Tensor, chunk: slice, part: slice = part) -> Tensor:
            return cross_entropy(logits, slice(part.start + chunk.start, part.start + chunk.stop))

        (0.25 * chunked_head_loss(hidden[part], weight, of_part, bias=bias, rows=4)).backward()
    want = torch.autograd.grad(
        0.25 * cross_entropy(plain_logits(hidden, weight, bias), slice(0, NUM_ROWS)), (hidden, weight, bias)
    )
    for tensor, gradient in zip((hidden, weight, bias), want, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-11, atol=1e-12)


def test_only_what_requires_grad_gets_one() -> None:
    hidden, weight, bias = inputs()
    want = torch.autograd.grad(cross_entropy(plain_logits(hidden, weight, bias), slice(0, NUM_ROWS)), (hidden, weight))
    (of_hidden,) = torch.autograd.grad(
        chunked_head_loss(hidden, weight.detach(), cross_entropy, bias=bias.detach(), rows=4), hidden
    )
    (of_weight,) = torch.autograd.grad(
        chunked_head_loss(hidden.detach(), weight, cross_entropy, bias=bias.detach(), rows=4), weight
    )
    torch.testing.assert_close(of_hidden, want[0], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(of_weight, want[1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("frozen", [True, False])
def test_values_alone_where_no_gradient_is_wanted(frozen: bool) -> None:
    hidden, weight, bias = inputs()
    if frozen:
        hidden, weight, bias = hidden.detach(), weight.detach(), bias.detach()
    seen: list[bool] = []

    def loss(logits: Tensor, chunk: slice) -> Tensor:
        seen.append(torch.is_grad_enabled() or logits.requires_grad)
        return cross_entropy(logits, chunk)

    with torch.set_grad_enabled(frozen):
        total = chunked_head_loss(hidden, weight, loss, bias=bias, rows=4)
        stats = chunked_head_map(hidden, weight, statistics, bias=bias, rows=4)
        want = plain_logits(hidden, weight, bias)
    assert seen == [False] * 3
    assert not total.requires_grad
    assert not stats.requires_grad
    torch.testing.assert_close(total, cross_entropy(want, slice(0, NUM_ROWS)).detach(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(stats, statistics(want, slice(0, NUM_ROWS)).detach(), rtol=1e-12, atol=1e-12)


def test_no_rows_are_a_loss_of_zero_that_can_be_differentiated() -> None:
    hidden, weight, bias = inputs(rows=0)
    total = chunked_head_loss(hidden, weight, cross_entropy, bias=bias)
    stats = chunked_head_map(hidden, weight, statistics, bias=bias)
    assert total.item() == 0.0
    assert stats.shape == (0, 2)
    (total + stats.sum()).backward()
    assert hidden.grad.shape == (0, WIDTH)
    assert torch.equal(weight.grad, torch.zeros(VOCABULARY, WIDTH, dtype=torch.float64))
    assert torch.equal(bias.grad, torch.zeros(VOCABULARY, dtype=torch.float64))


def test_a_loss_that_ignores_the_logits_has_no_gradient() -> None:
    hidden, weight, _ = inputs()
    total = chunked_head_loss(hidden, weight, lambda logits, chunk: WEIGHTS[chunk].sum(), rows=4)
    total.backward()
    assert total.item() == pytest.approx(float(WEIGHTS.sum()), rel=1e-12)
    assert torch.equal(hidden.grad, torch.zeros_like(hidden))
    assert torch.equal(weight.grad, torch.zeros_like(weight))


def test_inputs_need_not_be_contiguous() -> None:
    hidden, weight, _ = inputs()
    loose, loose_weight = hidden.T.contiguous().T, weight.repeat_interleave(2, dim=1)[:, ::2]
    assert not loose.is_contiguous()
    got = chunked_head_loss(loose, loose_weight, negative_entropy, rows=4)
    assert_same(got, negative_entropy(hidden @ weight.T, slice(0, NUM_ROWS)), (hidden, weight))


@pytest.mark.parametrize("autocast", [False, True])
def test_float32_products_are_exact_to_rounding(autocast: bool) -> None:
    hidden, weight, bias = inputs(dtype=torch.float32)
    wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        total = chunked_head_loss(hidden, weight, nonlinear, bias=bias, rows=4, multiplier=1.3)
    total.backward()
    nonlinear(plain_logits(*wide, 1.3), slice(0, NUM_ROWS)).backward()
    assert total.dtype == torch.float32
    for tensor, exact in zip((hidden, weight, bias), wide, strict=True):
        torch.testing.assert_close(tensor.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden_type", [torch.bfloat16, torch.float32])
def test_bfloat16_heads_are_multiplied_and_summed_in_float32(hidden_type: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    vocabulary = 8192 + 300  # more than one tile of the weight
    hidden = torch.randn(6, 8, generator=generator).to(hidden_type).requires_grad_()
    weight = torch.randn(vocabulary, 8, generator=generator).bfloat16().requires_grad_()
    bias = torch.randn(vocabulary, generator=generator).bfloat16().requires_grad_()
    seen: list[torch.dtype] = []

    def loss(logits: Tensor, chunk: slice) -> Tensor:
        seen.append(logits.dtype)
        return -(torch.log_softmax(logits, dim=-1)[:, 8200] * WEIGHTS[chunk].float()).sum()

    total = chunked_head_loss(hidden, weight, loss, bias=bias, multiplier=0.5, rows=4)
    total.backward()
    wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    exact = -(torch.log_softmax(plain_logits(*wide, 0.5), dim=-1)[:, 8200] * WEIGHTS[:6]).sum()
    exact.backward()
    assert seen == [torch.float32] * 2
    assert total.item() == pytest.approx(exact.item(), rel=1e-6)
    for tensor, reference in zip((hidden, weight, bias), wide, strict=True):
        assert tensor.grad.dtype == tensor.dtype
        # one rounding to the type of the input, none before it
        rounding = 2.0**-8 if tensor.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(tensor.grad.double(), reference.grad, rtol=rounding, atol=1e-6)


class LargestAllocation(TorchDispatchMode):
    """Notes the size of every new tensor with a whole vocabulary in its last dimension."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, [0]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.dim() == 2 and self.vocabulary in leaf.shape:
                self.sizes.append(leaf.numel())
        return result


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("recomputed", [False, True])
def test_no_more_than_one_chunk_of_logits_at_a_time(recomputed: bool, softcap: float | None) -> None:
    vocabulary, width, num_rows, rows = 97, 3, 64, 8
    hidden = torch.randn(num_rows, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    with LargestAllocation(vocabulary) as allocations:
        if recomputed:
            stats = chunked_head_map(
                hidden, weight, lambda logits, _: logits.logsumexp(-1, keepdim=True), rows=rows, softcap=softcap
            )
            stats.sum().backward()
        else:
            chunked_head_loss(
                hidden, weight, lambda logits, _: logits.logsumexp(-1).sum(), rows=rows, softcap=softcap
            ).backward()
    assert max(allocations.sizes) == rows * vocabulary
    with LargestAllocation(vocabulary) as plain:
        (hidden @ weight.T).logsumexp(-1).sum().backward()
    assert max(plain.sizes) == num_rows * vocabulary  # the check sees what it is to see


def test_inputs_are_left_as_they_were() -> None:
    tensors = inputs()
    before = [tensor.detach().clone() for tensor in tensors]
    chunked_head_loss(tensors[0], tensors[1], nonlinear, bias=tensors[2], softcap=2.0, rows=4).backward()
    for tensor, old in zip(tensors, before, strict=True):
        assert torch.equal(tensor, old)


def test_a_lost_gradient_is_refused() -> None:
    hidden, weight, _ = inputs()
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    for captured in (scale, scale * 2):
        with pytest.raises(ValueError, match="detach every tensor"):
            chunked_head_loss(hidden, weight, lambda logits, _, c=captured: logits.sum() * c, rows=4)
        with pytest.raises(ValueError, match="detach every tensor"):
            chunked_head_loss(hidden, weight, lambda logits, _, c=captured: c, rows=4)
        with pytest.raises(ValueError, match="detach every tensor"):
            chunked_head_map(hidden, weight, lambda logits, _, c=captured: logits[:, :1] * c, rows=4).sum().backward()
    total = chunked_head_loss(hidden, weight, lambda logits, _: logits.sum() * scale.detach(), rows=4)
    assert total.item() == pytest.approx((hidden @ weight.T).sum().item(), rel=1e-10)


def test_the_gradients_of_a_loss_can_be_used_once() -> None:
    hidden, weight, _ = inputs()
    total = chunked_head_loss(hidden, weight, cross_entropy, rows=4)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        total.backward()


def test_a_map_can_be_differentiated_again() -> None:
    hidden, weight, _ = inputs()
    stats = chunked_head_map(hidden, weight, statistics, rows=4)
    first = torch.autograd.grad(stats[:, 0].sum(), weight, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(stats[:, 0].sum(), weight)[0])


def test_wrong_arguments_are_refused(unchecked_shapes: None) -> None:
    hidden, weight, _ = inputs()
    for message, arguments, options in [
        ("hidden must be", (hidden[:, 1:], weight), {}),
        ("hidden must be", (hidden[None], weight), {}),
        ("bias must be", (hidden, weight), {"bias": torch.zeros(3)}),
        ("multiplier must be finite", (hidden, weight), {"multiplier": math.inf}),
        ("softcap must be", (hidden, weight), {"softcap": 0.0}),
        ("rows must be at least 1", (hidden, weight), {"rows": 0}),
    ]:
        with pytest.raises(ValueError, match=message):
            chunked_head_loss(*arguments, plain_sum, **options)
        with pytest.raises(ValueError, match=message):
            chunked_head_map(*arguments, statistics, **options)
    with pytest.raises(ValueError, match="must be a scalar"):
        chunked_head_loss(hidden, weight, lambda logits, _: logits.sum(dim=-1), rows=4)
    for wrong in (lambda logits, _: logits.sum(dim=-1), lambda logits, _: logits[:1]):
        with pytest.raises(ValueError, match="statistics"):
            chunked_head_map(hidden, weight, wrong, rows=4)


def test_rows_per_chunk() -> None:
    assert [rows_per_chunk(size) for size in (1, 21, 32000, 128256, 262144)] == [4194304, 199728, 131, 128, 128]
    with pytest.raises(ValueError, match="at least 1 token"):
        rows_per_chunk(0)
