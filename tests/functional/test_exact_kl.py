from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from swerve.functional.divergence import divergence_stats
from swerve.functional.kl_divergence import exact_kl
from tests.cases import each

DIRECTIONS = ("reverse", "forward", "js")


def plain(logits: Tensor, ref_logits: Tensor, direction: str) -> Tensor:
    """The textbook definitions in float64."""
    p, q = (torch.log_softmax(values.double(), dim=-1) for values in (logits, ref_logits))
    m = torch.logaddexp(p, q) - math.log(2)

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a.exp() * (a - b)).sum(-1)

    return {"reverse": lambda: kl(p, q), "forward": lambda: kl(q, p), "js": lambda: (kl(p, m) + kl(q, m)) / 2}[
        direction
    ]()


def gradient(function, logits: Tensor, ref_logits: Tensor, direction: str) -> Tensor:
    leaf = logits.clone().requires_grad_()
    (got,) = torch.autograd.grad(function(leaf, ref_logits, direction).sum(), leaf)
    return got


def exact(logits: Tensor, ref_logits: Tensor, direction: str) -> Tensor:
    return exact_kl(logits, ref_logits, direction=direction)


def pair(rows: int, vocabulary: int, *, change: float, spread: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ref_logits = torch.randn(rows, vocabulary, generator=generator) * spread
    return ref_logits + torch.randn(rows, vocabulary, generator=generator) * change, ref_logits


@pytest.mark.parametrize(
    ("direction", "value", "slope"),
    # p = (3/4, 1/4), q = (1/2, 1/2); reverse: 3/16 ln 3; forward: 1/4; JS: 3/32 (ln(6/5) - ln(2/3))
    [("reverse", 0.13081204, 0.20598980), ("forward", 0.14384104, 0.25), ("js", 0.03382208, 0.05510500)],
)
def test_literal_values(direction: str, value: float, slope: float) -> None:
    logits, ref_logits = torch.tensor([[0.75, 0.25]]).log().requires_grad_(), torch.zeros(1, 2)
    got = exact_kl(logits, ref_logits, direction=direction)
    assert float(got.detach()) == pytest.approx(value, rel=1e-6)
    assert torch.autograd.grad(got.sum(), logits)[0][0].tolist() == pytest.approx([slope, -slope], rel=1e-6)


@each("dtype", [torch.float32, torch.float64, torch.bfloat16])
@each("change", [0.0, 1e-3, 1.0, 30.0])
def test_values_are_those_of_divergence_stats(change: float, dtype: torch.dtype) -> None:
    logits, ref_logits = (values.to(dtype) for values in pair(30, 20000, change=change))
    stats = divergence_stats(logits, ref_logits, torch.zeros(30, dtype=torch.long))
    assert torch.equal(exact_kl(logits, ref_logits, direction="reverse"), stats.kl_forward)
    assert torch.equal(exact_kl(logits, ref_logits, direction="forward"), stats.kl_reverse)
    assert torch.equal(exact_kl(logits, ref_logits, direction="js"), stats.js)


@each("direction", DIRECTIONS)
@each("change", [0.01, 1.0, 20.0])
def test_gradients_against_finite_differences_and_autograd(change: float, direction: str) -> None:
    logits, ref_logits = (values.double() for values in pair(4, 6, change=change))
    assert torch.autograd.gradcheck(lambda z: exact_kl(z, ref_logits, direction=direction), (logits.requires_grad_(),))
    expected = gradient(plain, logits.detach(), ref_logits, direction)
    torch.testing.assert_close(gradient(exact, logits.detach(), ref_logits, direction), expected, rtol=1e-9, atol=1e-12)


@each("direction", DIRECTIONS)
@each("spread", [3.0, 10.0])
@each("change", [1e-4, 1e-2, 1.0])
def test_float32_gradients_keep_their_digits_near_the_reference(change: float, spread: float, direction: str) -> None:
    logits, ref_logits = pair(16, 4000, change=change, spread=spread)
    expected = gradient(plain, logits.double(), ref_logits, direction)
    got = gradient(exact, logits, ref_logits, direction)
    assert got.dtype == torch.float32
    relative = (got.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(relative.max()) < 2e-6


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_equal_models_have_no_divergence_and_no_gradient(direction: str) -> None:
    logits, _ = pair(3, 500, change=0.0)
    leaf = logits.clone().requires_grad_()
    value = exact_kl(leaf, logits, direction=direction)
    assert torch.equal(value.detach(), torch.zeros(3))
    assert float(torch.autograd.grad(value.sum(), leaf)[0].abs().max()) < 1e-9


@each("dtype", [torch.float32, torch.bfloat16])
@each("size", [120.0, 1e4])
@each("direction", DIRECTIONS)
def test_extreme_logits(direction: str, size: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[size, -size, 0.0], [size, -size, 0.0], [0.0, 0.0, 0.0], [-size, size, size]], dtype=dtype)
    ref_logits = torch.tensor([[-size, size, 0.0], [0.0, 0.0, 0.0], [size, -size, 0.0], [size, size, 0.0]], dtype=dtype)
    expected = plain(logits, ref_logits, direction)
    torch.testing.assert_close(exact(logits, ref_logits, direction).double(), expected, rtol=1e-6, atol=1e-6)
    got = gradient(exact, logits, ref_logits, direction)
    assert got.dtype == dtype
    wanted = gradient(plain, logits.double(), ref_logits, direction)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=1e-6)


def test_excluded_tokens() -> None:
    some, all_allowed = torch.tensor([[0.0, 0.0, -math.inf]]), torch.tensor([[0.0, 0.0, 0.0]])
    assert float(exact_kl(some, all_allowed, direction="reverse")) == pytest.approx(math.log(1.5), rel=1e-6)
    assert float(exact_kl(some, all_allowed, direction="forward")) == math.inf
    assert float(exact_kl(all_allowed, some, direction="reverse")) == math.inf
    assert exact_kl(some, some, direction="reverse").tolist() == [0.0]
    for direction in DIRECTIONS:
        for logits, ref_logits in ((some, all_allowed), (all_allowed, some), (some, some)):
            assert bool(gradient(exact, logits, ref_logits, direction).isfinite().all()), direction
    assert gradient(exact, some, all_allowed, "reverse")[0].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-7)
    assert gradient(exact, some, all_allowed, "forward")[0].tolist() == pytest.approx([1 / 6, 1 / 6, -1 / 3], rel=1e-6)


def test_the_reference_is_a_constant() -> None:
    logits, ref_logits = (values.requires_grad_() for values in pair(2, 5, change=1.0))
    exact_kl(logits, ref_logits, direction="js").sum().backward()
    assert logits.grad is not None
    assert ref_logits.grad is None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_the_inputs_are_kept_for_the_backward_pass(direction: str) -> None:
    logits, ref_logits = pair(64, 4096, change=1.0)
    leaf, kept = logits.requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        exact_kl(leaf, ref_logits, direction=direction)
    assert {tensor.data_ptr() for tensor in kept} == {logits.data_ptr(), ref_logits.data_ptr()}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rows_do_not_depend_on_their_company(direction: str) -> None:
    logits, ref_logits = pair(40, 20000, change=0.5)
    whole = gradient(exact, logits, ref_logits, direction)
    parts = [gradient(exact, logits[[i]], ref_logits[[i]], direction) for i in range(40)]
    assert torch.equal(whole, torch.cat(parts))


LOGIT = st.floats(-90, 90, width=32)


@settings(deadline=None)
@given(st.lists(st.tuples(LOGIT, LOGIT), min_size=2, max_size=10), st.sampled_from(DIRECTIONS))
def test_bounds_and_gradients_for_any_logits(rows: list[tuple[float, float]], direction: str) -> None:
    logits, ref_logits = torch.tensor(rows).T[:1].contiguous(), torch.tensor(rows).T[1:].contiguous()
    value = float(exact(logits, ref_logits, direction))
    assert 0 <= value <= (math.log(2) if direction == "js" else 200)
    got = gradient(exact, logits, ref_logits, direction)
    torch.testing.assert_close(
        got.double(), gradient(plain, logits.double(), ref_logits, direction), rtol=1e-4, atol=2e-5
    )
    assert float(got.sum()) == pytest.approx(0.0, abs=5e-5)  # adding a number to all logits changes nothing


def test_no_rows() -> None:
    assert torch.equal(exact_kl(torch.zeros(0, 5), torch.zeros(0, 5), direction="js"), torch.zeros(0))


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_input_is_refused() -> None:
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="direction must be one of reverse, forward, js; got 'both'"):
        exact_kl(zeros, zeros, direction="both")
    with pytest.raises(ValueError, match=r"must both be \[N, V\]; got \(2, 3\) and \(2, 1\)"):
        exact_kl(zeros, zeros[:, :1], direction="js")
    with pytest.raises(ValueError, match="not a distribution"):
        exact_kl(zeros * math.nan, zeros, direction="js")
