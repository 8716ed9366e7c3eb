"""Losses of policy, value head and preference pairs: values, zero gradients, float64 checks, extremes."""

from __future__ import annotations

import math

import pytest
import torch

from swerve.functional.advantages import grpo_advantages
from swerve.functional.losses import (
    cispo_loss,
    clip_fraction,
    clip_loss,
    dpo_loss,
    dual_clip_loss,
    gspo_loss,
    gspo_token_loss,
    reinforce_loss,
    sequence_log_ratio,
    value_loss,
)
from swerve.functional.token_weights import sequence_mean, token_mean
from tests.cases import each

MASK = torch.arange(5) < torch.tensor([5, 3, 4, 1])[:, None]


def batch(seed=0, dtype=torch.float64):
    """Log-probabilities, old ones and advantages of 4 completions; ratios of about 0.4 to 2.5."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(4, 5, dtype=dtype, generator=generator) - 1.0
    logprobs = (old + 0.4 * torch.randn(4, 5, dtype=dtype, generator=generator)).requires_grad_()
    advantages = torch.tensor([1.5, -0.5, -1.0, 0.25], dtype=dtype)[:, None].expand(4, 5)
    return logprobs, old, advantages


def value_and_gradient(function, ratio, advantage, **options):
    """Of one token; with old_logprobs 0, and the gradient is with respect to its log-probability."""
    logprobs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    zero, advantages = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), float(advantage)).double()
    loss = function(logprobs, zero, advantages, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return loss.item(), gradient.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        pytest.param(1.0, 2.0, -2.0, -2.0, id="on policy"),
        pytest.param(1.1, 2.0, -2.2, -2.2, id="inside"),
        pytest.param(1.5, 2.0, -2.56, 0.0, id="clipped above"),
        pytest.param(0.5, 2.0, -1.0, -1.0, id="low ratio of a good token keeps its gradient"),
        pytest.param(0.9, -2.0, 1.8, 1.8, id="inside, negative"),
        pytest.param(0.5, -2.0, 1.6, 0.0, id="clipped below"),
        pytest.param(1.5, -2.0, 3.0, 3.0, id="high ratio of a bad token keeps its gradient"),
        pytest.param(5.0, -2.0, 10.0, 10.0, id="unbounded"),
        pytest.param(5.0, 0.0, 0.0, 0.0, id="no advantage"),
    ],
)
def test_clip_literal_values_and_gradients(ratio, advantage, loss, gradient):
    found = value_and_gradient(clip_loss, ratio, advantage, low=0.2, high=0.28)
    assert found == pytest.approx((loss, gradient), abs=1e-12)
    expected = (6.0, 0.0) if ratio == 5.0 and advantage < 0 else (loss, gradient)
    found = value_and_gradient(dual_clip_loss, ratio, advantage, low=0.2, high=0.28, c=3.0)
    assert found == pytest.approx(expected, abs=1e-12)


def test_the_clip_fraction_marks_where_the_gradient_is_removed():
    logprobs, old, advantages = batch()
    for low, high in ((0.2, 0.2), (0.1, 0.5), (1.0, math.inf), (0.0, 0.0)):
        (gradient,) = torch.autograd.grad(clip_loss(logprobs, old, advantages, low=low, high=high).sum(), logprobs)
        clipped = clip_fraction(logprobs, old, advantages, low=low, high=high)
        assert torch.equal(clipped, gradient == 0)
    assert clip_fraction(logprobs, old, torch.zeros_like(old)).sum() == 0


def plain_clip(logprobs, old, advantages, low, high):
    ratio = (logprobs - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def plain_dual_clip(logprobs, old, advantages, low, high):
    clipped = plain_clip(logprobs, old, advantages, low, high)
    return torch.where(advantages < 0, torch.minimum(clipped, -1.5 * advantages), clipped)


@pytest.mark.parametrize("seed", range(5))
def test_clip_has_the_value_and_gradient_of_the_plain_formula(seed):
    logprobs, old, advantages = batch(seed)
    weights = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for function, plain, options in (
        (clip_loss, plain_clip, {}),
        (dual_clip_loss, plain_dual_clip, {"c": 1.5}),
    ):
        found = function(logprobs, old, advantages, low=0.2, high=0.3, **options)
        expected = plain(logprobs, old, advantages, 0.2, 0.3)
        assert torch.allclose(found, expected, atol=1e-14)
        gradients = [torch.autograd.grad((loss * weights).sum(), logprobs)[0] for loss in (found, expected)]
        assert torch.allclose(*gradients, atol=1e-14)


@pytest.mark.parametrize("function", [clip_loss, dual_clip_loss])
def test_clip_gradient_against_finite_differences(function):
    logprobs, old, advantages = batch()
    assert torch.autograd.gradcheck(lambda x: function(x, old, advantages, low=0.2, high=0.3), logprobs)


def test_the_log_ratio_clamp_bounds_the_loss():
    logprobs = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = clip_loss(logprobs, torch.zeros(1, 2), torch.tensor([[-1.0, 1.0]]), log_ratio_clamp=20)
    assert loss[0].tolist() == pytest.approx([math.exp(20), -math.exp(-20)], rel=1e-6)
    assert torch.autograd.grad(loss.sum(), logprobs)[0].tolist() == [[0.0, 0.0]]


@each("dtype", [torch.float32, torch.bfloat16])
@each("log_ratio", [-1e4, -90.0, 90.0, 1e4])
@each("advantage", [-1.0, 0.0, 1.0])
def test_values_and_gradients_are_finite_at_extreme_ratios(dtype, log_ratio, advantage):
    old = torch.full((1, 2), min(0.0, -log_ratio), dtype=dtype)
    logprobs = torch.full((1, 2), min(0.0, log_ratio), dtype=dtype, requires_grad=True)
    advantages, mask = torch.full((1, 2), advantage, dtype=dtype), torch.ones(1, 2, dtype=torch.bool)
    losses = {
        "dual_clip": dual_clip_loss(logprobs, old, advantages),
        "clamped": clip_loss(logprobs, old, advantages, log_ratio_clamp=20),
        "cispo": cispo_loss(logprobs, old, advantages, cap=5.0),
    }
    if advantage >= 0 or log_ratio < 0:  # elsewhere the published formula itself is out of range
        losses["clip"] = clip_loss(logprobs, old, advantages)
        losses["gspo"] = gspo_loss(logprobs, old, advantages, mask, low=0.2, high=0.2)
    for name, loss in losses.items():
        (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
        assert loss.dtype == torch.float32, name
        assert bool(loss.isfinite().all() & gradient.isfinite().all()), name


def test_nan_is_not_hidden():
    logprobs = torch.tensor([[math.nan]])
    assert clip_loss(logprobs, torch.zeros(1, 1), torch.ones(1, 1)).isnan().all()


# CISPO


@pytest.mark.parametrize(
    ("ratio", "weight", "floored"), [(0.5, 0.5, 0.8), (1.0, 1.0, 1.0), (1.5, 1.5, 1.5), (4.0, 2.0, 2.0)]
)
def test_cispo_literal_values_and_gradients(ratio, weight, floored):
    for advantage in (1.5, -1.5):
        for options, expected in (({}, weight), ({"floor": 0.8}, floored)):
            found = value_and_gradient(cispo_loss, ratio, advantage, cap=2.0, **options)
            assert found == pytest.approx((-expected * advantage * math.log(ratio), -expected * advantage), abs=1e-12)


# GSPO


def test_the_sequence_log_ratio_is_the_mean_over_its_tokens():
    logprobs = torch.tensor([[-1.0, -2.0, math.nan], [-1.0, -1.0, -1.0], [0.0, 0.0, 0.0]])
    old = torch.tensor([[-1.5, -2.25, 0.0], [-1.0, -1.0, -1.75], [-9.0, -9.0, -9.0]])
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    assert sequence_log_ratio(logprobs, old, mask).tolist() == [0.375, 0.25, 0.0]


def published_gspo(logprobs, old, advantages, mask, low, high):
    """-1/B sum_i min(s_i A_i, clip(s_i) A_i), s_i = exp(mean_t log ratio): equation 5 of arXiv:2507.18071."""
    ratio = (((logprobs - old) * mask).sum(dim=1) / mask.sum(dim=1)).exp()
    scores = torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    return -scores.mean()


@pytest.mark.parametrize("seed", range(8))
def test_gspo_has_the_value_and_gradient_of_the_published_objective(seed):
    logprobs, old, advantages = batch(seed)
    found = sequence_mean(gspo_loss(logprobs, old, advantages, MASK, low=0.1, high=0.15), MASK, num_sequences=4)
    expected = published_gspo(logprobs, old, advantages[:, 0], MASK, 0.1, 0.15)
    assert found.item() == pytest.approx(expected.item(), abs=1e-14)
    gradients = [torch.autograd.grad(loss, logprobs)[0] for loss in (found, expected)]
    assert torch.allclose(*gradients, atol=1e-14)


def test_gspo_literal_values():
    """Sequence ratios exp(0.1), in range, and exp(0.3) = 1.35, clipped at 1.2 where A > 0."""
    logprobs = torch.tensor([[-1.0, -1.0], [-1.0, -0.4]], dtype=torch.float64, requires_grad=True)
    old, mask = torch.full((2, 2), -1.0, dtype=torch.float64), torch.ones(2, 2, dtype=torch.bool)
    old[0] = torch.tensor([-1.2, -1.0], dtype=torch.float64)
    loss = gspo_loss(logprobs, old, torch.full((2, 2), 2.0, dtype=torch.float64), mask, low=0.2, high=0.2)
    expected = -2 * math.exp(0.1)
    assert loss[0].tolist() == pytest.approx([expected] * 2, abs=1e-12)
    assert loss[1].tolist() == pytest.approx([-2.4] * 2, abs=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert gradient[0].tolist() == pytest.approx([expected] * 2, abs=1e-12)
    assert gradient[1].tolist() == [0.0, 0.0]


def test_flattened_tokens_of_many_sequences_give_the_same_gspo_loss():
    logprobs, old, advantages = batch()
    padded = gspo_loss(logprobs, old, advantages, MASK, low=0.1, high=0.1)[MASK]
    log_ratio = sequence_log_ratio(logprobs, old, MASK)[:, None].expand(4, 5)
    flat = [tensor[MASK][None] for tensor in (logprobs, log_ratio, advantages)]
    assert torch.allclose(gspo_token_loss(*flat, low=0.1, high=0.1)[0], padded, atol=1e-15)


# Together


def losses_of(logprobs, old, advantages, mask):
    return {
        "clip": clip_loss(logprobs, old, advantages),
        "dual_clip": dual_clip_loss(logprobs, old, advantages, c=1.5),
        "cispo": cispo_loss(logprobs, old, advantages, cap=1.5),
        "gspo": gspo_loss(logprobs, old, advantages, mask, low=0.1, high=0.1),
    }


def reduced(name, loss, mask):
    if name == "gspo":
        return sequence_mean(loss, mask, num_sequences=4)
    return token_mean(loss, mask, num_tokens=13)


def total_and_gradient(logprobs, old, rewards, pieces):
    """Reduce with the mask's denominators over pieces (rows, width); the advantages come from the whole group."""
    advantages = grpo_advantages(rewards).flatten()[:, None].expand(logprobs.shape)
    totals = {}
    for rows, width in pieces:
        piece = [tensor[rows][:, :width] for tensor in (logprobs, old, advantages, MASK)]
        for name, loss in losses_of(*piece).items():
            totals[name] = totals.get(name, 0.0) + reduced(name, loss, piece[3])
    return {name: (total, torch.autograd.grad(total, logprobs, retain_graph=True)[0]) for name, total in totals.items()}


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([([0, 1], 5), ([2, 3], 4)], id="two micro-batches"),
        pytest.param([([3, 1, 0, 2], 5)], id="order"),
        pytest.param([([1], 3), ([3], 1), ([0], 5), ([2], 4)], id="without padding, one by one"),
    ],
)
def test_splits_padding_and_order_change_neither_value_nor_gradient(pieces):
    logprobs, old, _ = batch(3)
    rewards = torch.tensor([[1.0, 0.0, 0.5, 0.0]], dtype=torch.float64)
    whole = total_and_gradient(logprobs, old, rewards, [([0, 1, 2, 3], 5)])
    for name, (total, gradient) in total_and_gradient(logprobs, old, rewards, pieces).items():
        assert total.item() == pytest.approx(whole[name][0].item(), abs=1e-12), name
        assert torch.allclose(gradient, whole[name][1], atol=1e-12), name
        assert gradient[~MASK].count_nonzero() == 0, name


def test_permuting_the_group_with_its_rewards_permutes_the_gradient():
    logprobs, old, _ = batch(4)
    rewards, order = torch.tensor([[1.0, 0.0, 0.5, 0.0]], dtype=torch.float64), [2, 0, 3, 1]
    for index, name in enumerate(["clip", "dual_clip", "cispo", "gspo"]):
        totals, gradients = [], []
        for rows in ([0, 1, 2, 3], order):
            moved = logprobs.detach()[rows].requires_grad_()
            advantages = grpo_advantages(rewards[:, rows]).flatten()[:, None].expand(4, 5)
            loss = list(losses_of(moved, old[rows], advantages, MASK[rows]).values())[index]
            totals.append(reduced(name, loss, MASK[rows]))
            gradients.append(torch.autograd.grad(totals[-1], moved)[0])
        assert totals[0].item() == pytest.approx(totals[1].item(), abs=1e-12)
        assert torch.allclose(gradients[0][order], gradients[1], atol=1e-12)


def test_gradients_reach_the_current_log_probabilities_alone():
    logprobs, old, advantages = (tensor.detach().clone().requires_grad_() for tensor in batch())
    for name, loss in losses_of(logprobs, old, advantages, MASK).items():
        gradients = torch.autograd.grad(loss.sum(), (logprobs, old, advantages), allow_unused=True)
        assert gradients[0].abs().sum() > 0, name
        assert gradients[1] is None, name
        assert gradients[2] is None, name


def test_wrong_options_are_named():
    logprobs, old, advantages = batch()
    for call, message in (
        (lambda: clip_loss(logprobs, old, advantages, low=1.2), "low must be from 0 to 1, got 1.2"),
        (lambda: clip_loss(logprobs, old, advantages, high=-0.1), "high must be at least 0, got -0.1"),
        (lambda: clip_fraction(logprobs, old, advantages, low=-0.1), "low must be from 0 to 1, got -0.1"),
        (lambda: clip_loss(logprobs, old, advantages, log_ratio_clamp=0), "log_ratio_clamp must be above 0 nats"),
        (lambda: dual_clip_loss(logprobs, old, advantages, c=1.0), "c must be above 1, got 1.0"),
        (lambda: cispo_loss(logprobs, old, advantages, cap=0), "cap must be above 0, got 0"),
        (lambda: cispo_loss(logprobs, old, advantages, cap=1, floor=2), "floor must be from 0 to cap"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_wrong_shapes_are_named(unchecked_shapes):
    logprobs, old, advantages = batch()
    calls = [
        lambda: clip_loss(logprobs, old[:, :1], advantages),
        lambda: clip_loss(logprobs, old, advantages[:, :1]),
        lambda: clip_fraction(logprobs, old, advantages[:, :1]),
        lambda: cispo_loss(logprobs, old, advantages[:, :1], cap=2),
        lambda: gspo_loss(logprobs, old, advantages, MASK[:, :1], low=0.1, high=0.1),
        lambda: gspo_token_loss(logprobs, old[:, :1], advantages, low=0.1, high=0.1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"one shape \[B, T\]"):
            call()


def test_no_gradient_flows_through_the_advantages():
    logprobs = torch.tensor([[-0.5, -2.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -3.0]], requires_grad=True)
    losses = reinforce_loss(logprobs, advantages)
    assert losses.tolist() == [[0.5, -6.0]]
    losses.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-1.0, 3.0]]
    assert advantages.grad is None


def test_low_precision_log_probabilities_are_multiplied_in_float32():
    found = reinforce_loss(torch.tensor([[-1.0078125]]).bfloat16(), torch.tensor([[1.0078125]]).bfloat16())
    assert found.dtype == torch.float32
    assert found.item() == 1.0078125**2


def test_wrong_shapes_are_named_of_plain_losses(unchecked_shapes):
    with pytest.raises(ValueError, match=r"one shape \[B, T\]; got .*\(2, 3\).*\(2, 1\)"):
        reinforce_loss(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"one shape \[B, T\]"):
        value_loss(torch.zeros(2, 3), torch.zeros(2, 1))


@pytest.mark.parametrize(
    ("value", "expected", "gradient"),
    [
        pytest.param(1.1, 0.5 * 1.9**2, -1.9, id="within the clip"),
        pytest.param(1.5, 0.5 * 1.75**2, 0.0, id="moved too far towards the return"),
        pytest.param(0.5, 0.5 * 2.5**2, -2.5, id="moved away: the unclipped error is the larger"),
        pytest.param(6.0, 0.5 * 3.0**2, 3.0, id="overshot by more than the clipped error"),
    ],
)
def test_clipped_value_loss_literal_values_and_gradients(value, expected, gradient):
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    old, returns = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[3.0]], dtype=torch.float64)
    loss = value_loss(values, returns, old_values=old, clip=0.25)
    (found,) = torch.autograd.grad(loss.sum(), values)
    assert (loss.item(), found.item()) == pytest.approx((expected, gradient), abs=1e-12)
    assert value_loss(values, returns).item() == pytest.approx(0.5 * (value - 3.0) ** 2, abs=1e-12)


def test_value_loss_gradient_against_finite_differences():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 4, 5, dtype=torch.float64, generator=generator)
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_loss(v, returns, old_values=old, clip=0.3), values)


def test_value_clipping_needs_both_of_its_arguments():
    values = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="give both or neither"):
        value_loss(values, values, clip=0.2)
    with pytest.raises(ValueError, match="give both or neither"):
        value_loss(values, values, old_values=values)
    with pytest.raises(ValueError, match="clip must be above 0, got 0"):
        value_loss(values, values, old_values=values, clip=0)


def test_dpo_literal_value_and_gradient():
    chosen = torch.tensor([-10.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-12.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-11.0], dtype=torch.float64)
    loss = dpo_loss(chosen, rejected, reference, reference, beta=0.1)  # margin 2, so beta x margin = 0.2
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.2)), abs=1e-12)
    loss.sum().backward()
    expected = -0.1 / (1 + math.exp(0.2))
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert (chosen.grad.item(), rejected.grad.item()) == pytest.approx((expected, -expected), abs=1e-12)


def test_dpo_refuses_a_beta_that_is_not_positive():
    with pytest.raises(ValueError, match="beta must be above 0, got 0"):
        dpo_loss(*[torch.zeros(1)] * 4, beta=0.0)


def test_a_sequence_ratio_is_given_or_made_from_the_mask() -> None:
    logprobs, old, mask = torch.tensor([[-1.0, -1.4]]), torch.tensor([[-1.2, -1.3]]), torch.tensor([[True, True]])
    log_ratio = sequence_log_ratio(logprobs, old, mask)[:, None].expand(1, 2)
    keywords = {"low": 0.2, "high": 0.2}
    given = gspo_loss(logprobs, old, torch.ones(1, 2), log_ratio=log_ratio, **keywords)
    assert torch.equal(given, gspo_loss(logprobs, old, torch.ones(1, 2), mask, **keywords))
    with pytest.raises(ValueError, match="needs the mask of its tokens, or log_ratio"):
        gspo_loss(logprobs, old, torch.ones(1, 2), **keywords)


def test_clip_fraction_knows_the_bounds_of_every_loss() -> None:
    logprobs, zeros, losing = torch.tensor([[0.5, 1.0, 4.0]]).log(), torch.zeros(1, 3), -torch.ones(1, 3)
    assert clip_fraction(logprobs, zeros, losing).tolist() == [[True, False, False]]
    assert clip_fraction(logprobs, zeros, losing, c=3.0).tolist() == [[True, False, True]]
    assert clip_fraction(logprobs, zeros, zeros, log_ratio_clamp=1.0).tolist() == [[False, False, True]]
    assert clip_fraction(zeros, zeros, losing, log_ratio=logprobs).tolist() == [[True, False, False]]
