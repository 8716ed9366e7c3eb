"""Losses of exploring paths, and the odds of a token that they are made of, against float64 formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swerve.functional.path_losses import (
    check_token_shapes,
    fixed_target_kl,
    log_odds,
    max_prob_js,
    max_prob_kl,
    other_logsumexp,
    rank_promotion_js,
)
from tests.cases import each

LN2 = math.log(2.0)


def kl(a: Tensor, b: Tensor) -> Tensor:
    """KL of distributions over the last axis, given by log-probabilities."""
    return torch.where(a > -math.inf, a.exp() * (a - b), 0.0).sum(-1)


def js(a: Tensor, b: Tensor) -> Tensor:
    m = torch.logaddexp(a, b) - LN2
    return (kl(a, m) + kl(b, m)) / 2


def coin(logits: Tensor, ids: Tensor) -> Tensor:
    """log p and log(1 - p) of the tokens, `[N, 2]`, by the definition; the rest is a sum without the token."""
    chosen = torch.nn.functional.one_hot(ids, logits.shape[-1]).bool()
    both = torch.stack([logits.masked_fill(~chosen, -math.inf), logits.masked_fill(chosen, -math.inf)], dim=1)
    return both.logsumexp(-1) - logits.logsumexp(-1, keepdim=True)


def plain_max_prob(divergence: Callable[[Tensor, Tensor], Tensor], live: bool) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(logits: Tensor, ids: Tensor) -> Tensor:
        target = coin(logits, logits.argmax(-1))
        return divergence(target if live else target.detach(), coin(logits, ids))

    return loss


def plain_fixed(q: float) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(logits: Tensor, ids: Tensor) -> Tensor:
        yes, no = coin(logits, ids).unbind(-1)
        return q * math.log(q) + (1 - q) * math.log(1 - q) - q * yes - (1 - q) * no

    return loss


def plain_promotion(logits: Tensor, ids: Tensor) -> Tensor:
    logprobs = torch.log_softmax(logits, dim=-1)
    rows = []
    for row, token in zip(logprobs, ids.tolist(), strict=True):
        above = [v for v in row.argsort(descending=True, stable=True).tolist() if row[v] > row[token]]
        target = row.detach().clone()
        for place, v in enumerate([token, *above]):
            target[v] = row.detach()[[*above, token][place]]
        rows.append(js(row, target))
    return torch.stack(rows)


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "max_prob_kl live": (lambda z, c: max_prob_kl(z, c, target_gradient="live"), plain_max_prob(kl, True)),
    "max_prob_kl detached": (lambda z, c: max_prob_kl(z, c, target_gradient="detached"), plain_max_prob(kl, False)),
    "max_prob_js live": (lambda z, c: max_prob_js(z, c, target_gradient="live"), plain_max_prob(js, True)),
    "max_prob_js detached": (lambda z, c: max_prob_js(z, c, target_gradient="detached"), plain_max_prob(js, False)),
    "fixed 0.5": (fixed_target_kl, plain_fixed(0.5)),
    "fixed 0.9": (lambda z, c: fixed_target_kl(z, c, q=0.9), plain_fixed(0.9)),
    "rank_promotion_js": (rank_promotion_js, plain_promotion),
}
ZERO_AT_THE_MAXIMUM = [name for name in LOSSES if not name.startswith("fixed")]


def value_and_gradient(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, ids)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def example(rows: int, vocabulary: int, *, spread: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64) * spread
    return logits, torch.randint(vocabulary, (rows,), generator=generator)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # coins 1/2 against 1/2, 0.3, 0.2: KL = -ln(4 p (1 - p)) / 2
        ("max_prob_kl live", [0.0, 0.08717669, 0.22314355]),
        ("max_prob_js detached", [0.0, 0.02100593, 0.05067184]),
        ("fixed 0.5", [0.0, 0.08717669, 0.22314355]),
        # q = 0.9: 0.9 ln(0.9 / p) + 0.1 ln(0.1 / (1 - p))
        ("fixed 0.9", [0.36806421, 0.79416004, 1.14572594]),
        # t = (0.3, 0.5, 0.2): 0.5 ln(5/4) + 0.3 ln(3/4); t = (0.3, 0.2, 0.5)
        ("rank_promotion_js", [0.0, 0.02526715, 0.05087452]),
    ],
)
def test_literal_values(name: str, values: list[float]) -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(3, 3)
    assert LOSSES[name][0](logits, torch.arange(3)).tolist() == pytest.approx(values, rel=2e-6, abs=1e-7)


def test_literal_gradients() -> None:
    logits, ids = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log(), torch.tensor([1])
    # detached: p_c - p_m of the log-odds, each of which has the gradient (1 at c, -p_v / (1 - p_c) elsewhere)
    _, detached = value_and_gradient(LOSSES["max_prob_kl detached"][0], logits, ids)
    assert detached[0].tolist() == pytest.approx([0.2 * 5 / 7, -0.2, 0.2 * 2 / 7], rel=1e-9)
    # live: and p_m (1 - p_m) ln(7/3) of the target's log-odds, which has the gradient (1, -0.6, -0.4)
    _, live = value_and_gradient(LOSSES["max_prob_kl live"][0], logits, ids)
    pull = 0.25 * math.log(7 / 3)
    assert (live - detached)[0].tolist() == pytest.approx([pull, -0.6 * pull, -0.4 * pull], rel=1e-9)
    # p_v (a_v - sum p a) with a = log(p / m) / 2, m = (0.4, 0.4, 0.2)
    _, promotion = value_and_gradient(rank_promotion_js, logits, ids)
    share = [math.log(1.25) / 2, math.log(0.75) / 2, 0.0]
    mean = 0.5 * share[0] + 0.3 * share[1]
    expected = [p * (a - mean) for p, a in zip([0.5, 0.3, 0.2], share, strict=True)]
    assert promotion[0].tolist() == pytest.approx(expected, rel=1e-9)


@each("name", LOSSES)
@each(("vocabulary", "spread"), [(2, 1.0), (7, 0.3), (7, 3.0), (300, 2.0)])
def test_value_and_gradient_of_the_plain_formula(name: str, vocabulary: int, spread: float) -> None:
    loss, plain = LOSSES[name]
    logits, ids = example(40, vocabulary, spread=spread)
    value, gradient = value_and_gradient(loss, logits, ids)
    expected, expected_gradient = value_and_gradient(plain, logits, ids)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-14)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("name", ["max_prob_kl live", "max_prob_js live", "fixed 0.5", "fixed 0.9"])
def test_gradients_against_finite_differences(name: str) -> None:  # the others hold a target that moves with the logits
    logits, ids = example(12, 6, spread=1.0, seed=2)
    assert torch.autograd.gradcheck(lambda z: LOSSES[name][0](z, ids), (logits.requires_grad_(),))


@each("name", LOSSES)
@each("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_agrees_with_float64(name: str, dtype: torch.dtype) -> None:
    logits, ids = example(30, 600, spread=4.0)
    logits = logits.to(dtype)
    value, gradient = value_and_gradient(LOSSES[name][0], logits, ids)
    expected, expected_gradient = value_and_gradient(LOSSES[name][1], logits.double(), ids)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
    tolerance = {"rtol": 1e-5, "atol": 1e-7} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 1e-7}
    torch.testing.assert_close(gradient.double(), expected_gradient, **tolerance)


@each("name", LOSSES)
@each("gap", [-120.0, -60.0, -20.0, 20.0, 60.0, 120.0])
@each("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_near_0_and_1(name: str, gap: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[gap, 0.0], [gap, 0.0]], dtype=dtype)
    wide = torch.tensor([[gap, 0.0, -1.0, 0.5], [gap, 0.0, -130.0, 0.0]], dtype=dtype)
    for values in (logits, wide):
        ids = torch.zeros(2, dtype=torch.long)
        value, gradient = value_and_gradient(LOSSES[name][0], values, ids)
        expected, expected_gradient = value_and_gradient(LOSSES[name][1], values.double(), ids)
        torch.testing.assert_close(value.double(), expected, rtol=2e-6, atol=1e-7)
        rounding = 1e-6 if dtype == torch.float32 else 4e-3
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=rounding, atol=1e-6)


@each("name", ZERO_AT_THE_MAXIMUM)
@each("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nothing_to_do_where_the_chosen_token_is_the_most_likely(name: str, dtype: torch.dtype) -> None:
    rows = [[3.0, 1.0, 2.0], [3.0, 3.0, 1.0], [1.0, 1.0, 1.0], [120.0, 0.0, 0.0], [1e4, 1e4, -1e4], [0.1, 0.1, -0.7]]
    logits = torch.tensor(rows, dtype=dtype)
    for choice in (0, 1):  # the second rows' maxima are shared by two tokens: either is the most likely
        chosen = torch.full((6,), choice)
        kept = logits.gather(-1, chosen[:, None])[:, 0] == logits.amax(-1)
        value, gradient = value_and_gradient(LOSSES[name][0], logits, chosen)
        assert int(kept.sum()) == (6, 4)[choice]
        assert not bool(value[kept].any())
        assert not bool(gradient[kept].any())


@each("name", ZERO_AT_THE_MAXIMUM)
@each("difference", [2.0**-20, 1e-4, 1e-2, 0.3])
def test_digits_are_kept_where_the_two_are_nearly_as_likely(name: str, difference: float) -> None:
    others = torch.tensor([[-4.0, 0.0, -2.0], [-4.0, 0.5, -50.0]])
    logits = torch.cat([torch.tensor([[0.75], [0.75]]), torch.full((2, 1), 0.75 - difference), others], dim=1)
    ids = torch.tensor([1, 1])
    value, gradient = value_and_gradient(LOSSES[name][0], logits, ids)
    # at the smallest difference the plain formula in float64 has only about three digits itself
    expected, expected_gradient = value_and_gradient(LOSSES[name][1], logits.double(), ids)
    torch.testing.assert_close(value.double(), expected, rtol=2e-6 if difference > 1e-5 else 1e-3, atol=0.0)
    scale = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=5e-5, atol=1e-6 * scale)


def test_regions_of_the_fixed_target() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]], dtype=torch.float64)
    logits, ids = probs.log(), torch.zeros(3, dtype=torch.long)
    full, gradient = value_and_gradient(fixed_target_kl, logits, ids)
    assert full.tolist() == pytest.approx([0.51082562, 0.08717669, 0.0], rel=1e-6)
    assert gradient[:, 0].tolist() == pytest.approx([0.4, -0.2, 0.0], rel=1e-6)  # p_c - q
    for region, row in (("above", 0), ("below", 1)):
        value, part = value_and_gradient(lambda z, c, r=region: fixed_target_kl(z, c, region=r), logits, ids)
        inside = torch.arange(3) == row
        assert torch.equal(value, full.where(inside, 0.0))
        assert torch.equal(part, gradient.where(inside[:, None], 0.0))


def test_region_follows_q() -> None:
    logits, ids = torch.tensor([[0.6, 0.4]]).log(), torch.tensor([0])
    assert float(fixed_target_kl(logits, ids, q=0.7, region="above")) == 0.0
    assert float(fixed_target_kl(logits, ids, q=0.7, region="below")) == pytest.approx(0.02160085, rel=1e-5)


def test_fixed_target_keeps_its_digits_near_the_target() -> None:
    logits = torch.tensor([[1e-4, 0.0], [-1e-3, 0.0]])
    value, gradient = value_and_gradient(fixed_target_kl, logits, torch.tensor([0, 0]))
    assert value.tolist() == pytest.approx([1.25e-9, 1.25e-7], rel=1e-5)  # (log-odds)^2 / 8
    assert gradient[:, 0].tolist() == pytest.approx([2.5e-5, -2.5e-4], rel=1e-5)


def test_promotion_follows_the_chosen_token_when_others_are_as_likely() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    for token in (1, 2, 3):
        value, gradient = value_and_gradient(rank_promotion_js, logits, torch.tensor([token]))
        expected, expected_gradient = value_and_gradient(plain_promotion, logits, torch.tensor([token]))
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("name", LOSSES)
def test_rows_do_not_depend_on_their_company(name: str) -> None:
    logits, ids = example(30, 20000)
    logits = logits.float()
    ids[::2] = logits.topk(30, dim=-1).indices[torch.arange(30), torch.arange(30)][::2]
    value, gradient = value_and_gradient(LOSSES[name][0], logits, ids)
    for row in range(0, 30, 3):
        alone, alone_gradient = value_and_gradient(LOSSES[name][0], logits[[row]], ids[[row]])
        torch.testing.assert_close(alone, value[[row]], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(alone_gradient, gradient[[row]], rtol=1e-5, atol=1e-10)


LOGIT = st.floats(-150, 150, width=32)


@settings(deadline=None)
@given(st.lists(LOGIT, min_size=2, max_size=8), st.data(), st.sampled_from(sorted(LOSSES)))
def test_bounds_and_gradients_for_any_logits(row: list[float], data: st.DataObject, name: str) -> None:
    logits, ids = torch.tensor([row]), torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    value, gradient = value_and_gradient(LOSSES[name][0], logits, ids)
    assert 0 <= float(value) <= (LN2 if "js" in name else 310)
    assert bool(gradient.isfinite().all())
    assert float(gradient.double().sum()) == pytest.approx(0.0, abs=1e-4)  # adding a number to all changes nothing
    expected, expected_gradient = value_and_gradient(LOSSES[name][1], logits.double(), ids)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=2e-5)


class _Allocations(TorchDispatchMode):
    """Counts the operations whose result is a new tensor of at least a given number of elements."""

    def __init__(self, at_least: int) -> None:
        super().__init__()
        self.at_least, self.storages = at_least, set()
        self.kept: list[Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if (
                isinstance(tensor, Tensor)
                and tensor.untyped_storage().nbytes() >= self.at_least * tensor.element_size()
            ):
                self.storages.add(tensor.untyped_storage().data_ptr())
                self.kept.append(tensor)  # so that no address is used twice
        return result


@pytest.mark.parametrize("name", LOSSES)
def test_memory(name: str) -> None:
    num_rows, vocabulary = 256, 4096  # four groups of rows
    logits, ids = example(num_rows, vocabulary)
    logits = logits.float()
    ids = logits.topk(20, dim=-1).indices[:, 19]
    leaf, saved = logits.requires_grad_(), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor
    )
    with hooks, _Allocations(num_rows * vocabulary // 2) as forward:
        value = LOSSES[name][0](leaf, ids).sum()
    # only views of the logits are as large as the logits, and only the logits themselves are kept
    assert forward.storages <= {leaf.untyped_storage().data_ptr()}
    assert {tensor.data_ptr() for tensor in saved if tensor.numel() > num_rows * 64} == {leaf.data_ptr()}
    with _Allocations(num_rows * vocabulary // 2) as backward:
        (gradient,) = torch.autograd.grad(value, leaf)
    own = {leaf.untyped_storage().data_ptr(), gradient.untyped_storage().data_ptr()}
    assert backward.storages <= own  # one buffer, which is the result
    assert gradient.untyped_storage().data_ptr() in backward.storages


def test_no_rows() -> None:
    for loss, _ in LOSSES.values():
        logits = torch.zeros(0, 5, requires_grad=True)
        value = loss(logits, torch.zeros(0, dtype=torch.long))
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert (value.tolist(), value.sum().item(), gradient.tolist()) == ([], 0.0, [])


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_input_is_refused() -> None:
    logits, ids = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"logits must be \[N, V\] and ids \[N\]; got \(2, 3\) and \(1,\)"):
        max_prob_kl(logits, ids[:1], target_gradient="live")
    with pytest.raises(ValueError, match="V must be at least 2, got 1"):
        rank_promotion_js(logits[:, :1], ids)
    with pytest.raises(ValueError, match="target_gradient must be one of live, detached; got 'frozen'"):
        max_prob_js(logits, ids, target_gradient="frozen")
    with pytest.raises(ValueError, match="region must be one of all, above, below; got 'middle'"):
        fixed_target_kl(logits, ids, region="middle")
    for q in (0, 1, 1.5):
        with pytest.raises(ValueError, match="q must be strictly between 0 and 1"):
            fixed_target_kl(logits, ids, q=q)


def plain(logits: Tensor, ids: Tensor) -> Tensor:
    """The definition in float64, by leaving the token out of each row."""
    rows = [
        torch.cat([row[:index], row[index + 1 :]]) for row, index in zip(logits.double(), ids.tolist(), strict=True)
    ]
    return torch.stack([row.logsumexp(0) for row in rows])


def gradient(function, logits: Tensor, ids: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(function(leaf, ids).sum(), leaf)[0]


def test_literal_values_of_odds() -> None:
    logits = torch.tensor([[math.log(0.5), math.log(0.3), math.log(0.2)]] * 3)
    values = other_logsumexp(logits, torch.tensor([0, 1, 2]))
    assert values.tolist() == pytest.approx([math.log(0.5), math.log(0.7), math.log(0.8)], rel=1e-6)
    assert gradient(other_logsumexp, logits[:1], torch.tensor([0]))[0].tolist() == pytest.approx([0.0, 0.6, 0.4])
    odds = log_odds(logits[:1], torch.tensor([[0, 1, 2]]))
    assert odds[0].tolist() == pytest.approx([0.0, math.log(3 / 7), math.log(1 / 4)], abs=1e-6)


@each("gap", [-1e4, -240.0, -120.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 60.0, 120.0, 240.0, 1e4])
def test_exact_at_any_gap(gap: float) -> None:
    others = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    logits = torch.cat([others.amax(dim=1, keepdim=True) + gap, others], dim=1)
    ids = torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(other_logsumexp(logits, ids).double(), plain(logits, ids), rtol=2e-7, atol=2e-7)
    got = gradient(other_logsumexp, logits, ids)
    assert torch.equal(got[:, 0], torch.zeros(5))
    torch.testing.assert_close(got[:, 1:].double(), torch.softmax(others.double(), dim=-1), rtol=2e-6, atol=0.0)


def test_gradients_against_finite_differences_of_odds() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(4, 6, generator=generator, dtype=torch.float64) * 3).requires_grad_()
    ids = torch.randint(6, (4, 3), generator=generator)
    ids[:, 1] = ids[:, 0]  # a token may come twice
    assert torch.autograd.gradcheck(lambda z: other_logsumexp(z, ids[:, 0]), (logits,))
    assert torch.autograd.gradcheck(lambda z: log_odds(z, ids), (logits,))


def test_bfloat16_logits_are_worked_on_in_float32() -> None:
    logits = (torch.randn(20, 3000, generator=torch.Generator().manual_seed(0)) * 5).bfloat16()
    ids = logits.argmax(dim=-1)
    values = other_logsumexp(logits, ids)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), plain(logits, ids), rtol=1e-6, atol=1e-6)
    assert gradient(other_logsumexp, logits, ids).dtype == torch.bfloat16


def test_excluded_tokens() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [0.0, -math.inf, -math.inf]])
    ids = torch.tensor([0, 0], dtype=torch.int32)
    assert other_logsumexp(logits, ids).tolist() == [0.0, -math.inf]
    assert gradient(other_logsumexp, logits, ids).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


@settings(deadline=None)
@given(st.lists(st.floats(-200, 200, width=32), min_size=2, max_size=12), st.data())
def test_agrees_with_the_definition_for_any_logits(row: list[float], data: st.DataObject) -> None:
    logits, ids = torch.tensor([row]), torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    torch.testing.assert_close(other_logsumexp(logits, ids).double(), plain(logits, ids), rtol=1e-6, atol=1e-6)
    rest = log_odds(logits, ids[:, None])[:, 0].neg().sigmoid()  # 1 - p
    expected = 1 - torch.softmax(logits.double(), dim=-1)[0, ids]
    torch.testing.assert_close(rest.double(), expected, rtol=1e-3, atol=1e-7)


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logits must be \[N, V\] and ids \[N\]; got \(2, 3\) and \(2, 1\)"):
        check_token_shapes(torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="V must be at least 2, got 1"):
        other_logsumexp(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))
