"""KL estimates, the adapted coefficient, and the binary KL of one token."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from swerve.functional import bernoulli_kl, divergence_stats
from swerve.functional.kl_divergence import adaptive_kl_coef, kl_estimate
from tests.cases import each

CLAMPS = {
    "none": {},
    "input and output": {"input_clamp": 20, "output_clamp": 10},
    "output": {"output_clamp": 10},
}


def value_and_gradient(
    logprob: float, ref: float, dtype: torch.dtype = torch.float64, **options
) -> tuple[float, float]:
    logprobs = torch.tensor([[logprob]], dtype=dtype, requires_grad=True)
    value = kl_estimate(logprobs, torch.tensor([[ref]], dtype=dtype), **options)
    (gradient,) = torch.autograd.grad(value.sum(), logprobs)
    return float(value.detach()), float(gradient)


def distributions(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits, ref_logits = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(2))
    return logits.requires_grad_(), ref_logits


def expected_gradient(logits: Tensor, ref_logits: Tensor, **options) -> Tensor:
    """The gradient of each token's estimate, weighted by the token's probability: an expectation by enumeration."""
    logprobs = torch.log_softmax(logits, 0)
    estimate = kl_estimate(logprobs[None], torch.log_softmax(ref_logits, 0)[None], **options)[0]
    return torch.autograd.grad((logprobs.detach().exp() * estimate).sum(), logits)[0]


def gradient_of(divergence: str, logits: Tensor, ref_logits: Tensor) -> Tensor:
    p, q = torch.log_softmax(logits, 0), torch.log_softmax(ref_logits, 0)
    value = {
        "zero": lambda: 0 * p.sum(),
        "reverse": lambda: (p.exp() * (p - q)).sum(),
        "forward": lambda: (q.exp() * (q - p)).sum(),
        "absolute difference": lambda: (p.exp() - q.exp()).abs().sum(),
        "half square": lambda: (p.exp() * (p - q).square() / 2).sum(),
        "absolute log-ratio": lambda: (p.exp() * (p - q).abs()).sum(),
    }[divergence]()
    return torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("clamps", CLAMPS)
def test_k3_and_its_gradient_near_the_reference(clamps: str) -> None:
    value, gradient = value_and_gradient(-1.0, -1.5, estimator="k3", **CLAMPS[clamps])
    assert value == pytest.approx(0.1065307, abs=5e-8)
    assert gradient == pytest.approx(0.3934693, abs=5e-8)
    unbiased = value_and_gradient(-1.0, -1.5, estimator="k3", importance=True, **CLAMPS[clamps])
    assert unbiased == pytest.approx((0.1065307, 0.5), abs=5e-8)


@each("dtype", [torch.float32, torch.float64])
@each(
    ("logprob", "ref", "clamps", "value", "gradient"),
    [
        (-1.0, -30.0, "none", 28.0, 1.0),
        (-1.0, -30.0, "input and output", 10.0, 0.0),
        (-1.0, -30.0, "output", 10.0, 0.0),
        (-30.0, -1.0, "none", 3.931334e12, -3.931334e12),
        (-30.0, -1.0, "input and output", 10.0, 0.0),
        (-30.0, -1.0, "output", 10.0, 0.0),
    ],
)
def test_k3_far_from_the_reference(
    logprob: float, ref: float, clamps: str, value: float, gradient: float, dtype: torch.dtype
) -> None:
    got = value_and_gradient(logprob, ref, dtype, estimator="k3", **CLAMPS[clamps])
    assert got == pytest.approx((value, gradient), rel=2e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", 0.5, 1.0),
        ("k2", 0.125, 0.5),
        ("k3", 0.10653066, 0.39346934),
        ("k3+", 0.10653066, 0.5),
        ("abs", 0.5, 1.0),
    ],
)
def test_value_and_gradient_of_each_estimator(estimator: str, value: float, gradient: float) -> None:
    assert value_and_gradient(-1.0, -1.5, estimator=estimator) == pytest.approx((value, gradient), abs=5e-9)
    weighted = value_and_gradient(-1.0, -1.5, estimator=estimator, importance=True)
    assert weighted == pytest.approx((value, value + gradient), abs=5e-9)


def test_the_negative_side() -> None:
    assert value_and_gradient(-1.5, -1.0, estimator="k1") == (-0.5, 1.0)
    assert value_and_gradient(-1.5, -1.0, estimator="abs") == (0.5, -1.0)
    assert value_and_gradient(-1.5, -1.0, estimator="k3") == pytest.approx((0.14872127, -0.64872127), abs=5e-9)


@each(
    ("estimator", "importance", "divergence"),
    [
        ("k1", False, "zero"),
        ("k2", False, "reverse"),
        ("k3", False, "forward"),
        ("k3+", False, "reverse"),
        ("abs", False, "absolute difference"),
        ("k1", True, "reverse"),
        ("k2", True, "half square"),
        ("k3", True, "reverse"),
        ("abs", True, "absolute log-ratio"),
    ],
)
def test_what_the_expected_gradient_is_the_gradient_of(estimator: str, importance: bool, divergence: str) -> None:
    logits, ref_logits = distributions()
    got = expected_gradient(logits, ref_logits, estimator=estimator, importance=importance)
    torch.testing.assert_close(got, gradient_of(divergence, logits, ref_logits), rtol=1e-10, atol=1e-14)


def test_k3_plus_with_importance_is_corrected_twice() -> None:
    logits, ref_logits = distributions()
    got = expected_gradient(logits, ref_logits, estimator="k3+", importance=True)
    twice = gradient_of("reverse", logits, ref_logits) * 2 - gradient_of("zero", logits, ref_logits)
    surplus = expected_gradient(logits, ref_logits, estimator="k3")  # x + k3 = 2 x - (1 - exp(-x))
    torch.testing.assert_close(got, twice - surplus, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("estimator", ["k1", "k3", "k3+"])
def test_the_value_is_unbiased(estimator: str) -> None:
    logits, ref_logits = distributions(1)
    p, q = torch.log_softmax(logits.detach(), 0), torch.log_softmax(ref_logits, 0)
    mean = (p.exp() * kl_estimate(p[None], q[None], estimator=estimator)[0]).sum()
    torch.testing.assert_close(mean, (p.exp() * (p - q)).sum(), rtol=1e-12, atol=0.0)


def test_old_logprobs_weigh_the_estimate() -> None:
    options = {
        "estimator": "k1",
        "importance": True,
        "old_logprobs": torch.tensor([[-1.0 - math.log(3)]], dtype=torch.float64),
    }
    value, gradient = value_and_gradient(-1.0, -1.5, **options)
    assert (value, gradient) == pytest.approx((1.5, 4.5), rel=1e-7)  # 3 x and 3 (x + 1)


@each("x", [1e-7, -1e-7, 3e-5, -3e-3, 0.3, -0.49, 0.51, 2.0, -2.0, 40.0])
@each(("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.float64, 2e-15)])
def test_k3_keeps_its_digits(x: float, dtype: torch.dtype, tolerance: float) -> None:
    x = float(torch.tensor(x, dtype=dtype))
    # x^2/2 - x^3/6 + ..., summed from the smallest term
    terms = [(-x) ** order / math.factorial(order) for order in range(40, 1, -1)] if abs(x) < 1 else []
    expected = math.fsum(terms) if terms else math.expm1(-x) + x
    value, gradient = value_and_gradient(x, 0.0, dtype, estimator="k3")
    assert value == pytest.approx(expected, rel=tolerance)
    assert gradient == pytest.approx(-math.expm1(-x), rel=tolerance)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs"])
@pytest.mark.parametrize("importance", [False, True])
def test_gradients_against_finite_differences(estimator: str, importance: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logprobs, ref, old = (-3 * torch.rand(3, 5, generator=generator, dtype=torch.float64) for _ in range(3))
    old_logprobs = old if importance else None

    def estimate(logprobs: Tensor) -> Tensor:
        return kl_estimate(
            logprobs, ref, estimator=estimator, input_clamp=2.0, importance=importance, old_logprobs=old_logprobs
        )

    assert torch.autograd.gradcheck(estimate, (logprobs.requires_grad_(),))


def test_clamps_limit_every_estimator_and_its_gradient() -> None:
    assert value_and_gradient(0.0, -30.0, estimator="k1", output_clamp=10) == (10.0, 0.0)
    assert value_and_gradient(-30.0, 0.0, estimator="k1", output_clamp=10) == (-10.0, 0.0)
    assert value_and_gradient(0.0, -30.0, estimator="k2", input_clamp=20) == (200.0, 0.0)
    assert value_and_gradient(0.0, -3.0, estimator="k2", input_clamp=20, output_clamp=10) == (4.5, 3.0)
    # the clamps of k3+ bound its value; its gradient stays that of k2
    assert value_and_gradient(-30.0, -1.0, estimator="k3+", input_clamp=20, output_clamp=10) == (10.0, -29.0)


def test_no_gradient_flows_through_the_reference_and_the_old_logprobs() -> None:
    logprobs, ref, old = (torch.full((1, 2), value, requires_grad=True) for value in (-1.0, -2.0, -1.5))
    kl_estimate(logprobs, ref, estimator="k3", importance=True, old_logprobs=old).sum().backward()
    assert ref.grad is None
    assert old.grad is None
    assert logprobs.grad is not None


def test_bfloat16_is_worked_on_in_float32() -> None:
    logprobs, ref = torch.tensor([[-1.0]], dtype=torch.bfloat16), torch.tensor([[-1.5]], dtype=torch.bfloat16)
    value = kl_estimate(logprobs, ref, estimator="k3")
    assert value.dtype == torch.float32
    assert float(value) == pytest.approx(0.10653066, rel=1e-6)


@settings(deadline=None)
@given(st.floats(-60, 60), st.floats(-60, 60))
def test_k3_is_never_negative_and_zero_only_at_equality(logprob: float, ref: float) -> None:
    logprobs, ref_logprobs = torch.tensor([[[logprob]], [[ref]]], dtype=torch.float64)
    value = float(kl_estimate(logprobs, ref_logprobs, estimator="k3"))
    assert value >= 0
    if logprob == ref:
        assert value == 0
    if abs(logprob - ref) > 1e-150:  # the square of a smaller difference may underflow
        assert value > 0


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(12.0, 0.201024), (0.0, 0.198976), (6.0, 0.2), (6.6, 0.200512), (1e9, 0.201024)],
)
def test_adaptive_coefficient(kl: float, expected: float) -> None:
    assert adaptive_kl_coef(0.2, kl=kl, target=6.0, horizon=10_000, num_samples=256) == pytest.approx(
        expected, abs=1e-9
    )


def test_adaptive_coefficient_settles_where_kl_meets_the_target() -> None:
    coef = 1.0
    for _ in range(2000):
        coef = adaptive_kl_coef(coef, kl=3.0 / coef, target=0.5, horizon=100, num_samples=10)
    assert coef == pytest.approx(6.0, rel=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"kl": math.nan}, {"kl": math.inf}, {"target": 0.0}, {"horizon": 0}, {"num_samples": 500}, {"coef": -0.1}]
)
def test_adaptive_coefficient_refuses_numbers_out_of_range(wrong: dict[str, float]) -> None:
    numbers = {"coef": 0.2, "kl": 1.0, "target": 6.0, "horizon": 100, "num_samples": 10} | wrong
    with pytest.raises(ValueError, match="got "):
        adaptive_kl_coef(numbers.pop("coef"), **numbers)


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_input_is_refused() -> None:
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="estimator must be one of k1, k2, k3, k3\\+, abs; got 'k4'"):
        kl_estimate(zeros, zeros, estimator="k4")
    with pytest.raises(ValueError, match="output_clamp must be above 0"):
        kl_estimate(zeros, zeros, estimator="k3", output_clamp=0)
    with pytest.raises(ValueError, match="importance=True only"):
        kl_estimate(zeros, zeros, estimator="k3", old_logprobs=zeros)
    with pytest.raises(ValueError, match=r"one shape \[B, T\]; got .*\(2, 3\).*\(2, 1\)"):
        kl_estimate(zeros, zeros[:, :1], estimator="k3")


def test_beyond_an_output_clamp_the_gradient_is_zero_however_far_the_policies_are_apart():
    logprobs = torch.tensor([[-100.0, -1.0]], requires_grad=True)
    ref_logprobs = torch.tensor([[-1.0, -1.5]])
    value = kl_estimate(logprobs, ref_logprobs, estimator="k3", output_clamp=10.0)
    value.sum().backward()
    assert value.tolist() == [[10.0, pytest.approx(0.1065307, abs=1e-6)]]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, pytest.approx(0.3934693, abs=1e-6)]]


def test_values_by_hand() -> None:
    p, q = torch.tensor([0.9, 0.5, 0.25]), torch.tensor([0.5, 0.9, 0.25])
    expected = [0.368064, 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), 0.0]
    assert bernoulli_kl(p.double().log(), q.double().log()).tolist() == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.floats(-8, 8), min_size=4, max_size=4), st.lists(st.floats(-8, 8), min_size=4, max_size=4))
def test_it_is_at_most_the_divergence_of_the_whole_distributions(own: list[float], other: list[float]) -> None:
    logits_p, logits_q = torch.tensor([own]).double(), torch.tensor([other]).double()
    stats = divergence_stats(logits_p, logits_q, torch.tensor([2]))
    value = float(bernoulli_kl(stats.logprob, stats.logprob_ref)[0])
    assert 0 <= value <= float(stats.kl_forward[0]) + 1e-9


def test_it_is_the_whole_divergence_of_two_tokens() -> None:
    logits_p, logits_q = torch.tensor([[30.0, 0.0]]).double(), torch.tensor([[29.0, 0.0]]).double()
    stats = divergence_stats(logits_p, logits_q, torch.tensor([0]))
    assert float(bernoulli_kl(stats.logprob, stats.logprob_ref)) == pytest.approx(float(stats.kl_forward), rel=1e-6)


def test_certainty() -> None:
    zero, low, half = torch.tensor([0.0]), torch.tensor([-math.inf]), torch.tensor([0.5]).log()
    assert bernoulli_kl(zero, zero).tolist() == [0.0]
    assert bernoulli_kl(low, low).tolist() == [0.0]
    assert bernoulli_kl(zero, half).tolist() == pytest.approx([math.log(2)])
    assert bernoulli_kl(low, half).tolist() == pytest.approx([math.log(2)])
    assert bernoulli_kl(half, zero).tolist() == [math.inf]
    assert bernoulli_kl(half, low).tolist() == [math.inf]
    with pytest.raises(ValueError, match="above 0"):
        bernoulli_kl(torch.tensor([0.1]), zero)
