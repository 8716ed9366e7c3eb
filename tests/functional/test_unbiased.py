"""Expected gradients, exactly: every completion of a toy policy is enumerated, with its probability.

Three tokens, three positions: 27 completions of a softmax policy with 1 + 3 + 9 rows of free logits, in float64. Each
estimator's expected gradient is compared with the gradient of the quantity it is said to follow: no sampling, no
tolerance but rounding. `local` means: at each prefix the token's own divergence, with the distribution of prefixes held
fixed.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from swerve.functional.advantages import (
    Moments,
    dr_grpo_advantages,
    gae,
    grpo_advantages,
    grpo_loo_advantages,
    reinforce_pp_advantages,
    reward_to_go,
    rloo_advantages,
)
from swerve.functional.kl_divergence import kl_estimate
from swerve.functional.losses import cispo_loss, clip_loss, dual_clip_loss, gspo_loss, reinforce_loss
from swerve.functional.token_weights import (
    importance_weights,
    sequence_mean,
    sequence_sum,
    sequence_sum_norm,
    token_mean,
)

BETA = 0.7
EOS = 2
SEQUENCES = torch.tensor(list(itertools.product(range(3), repeat=3)))
PREFIXES = torch.stack(  # the row of logits that each position reads: 1 + 3 + 9 of them
    [torch.zeros(27, dtype=torch.long), 1 + SEQUENCES[:, 0], 4 + 3 * SEQUENCES[:, 0] + SEQUENCES[:, 1]], dim=1
)
FULL = torch.ones(27, 3, dtype=torch.bool)
LENGTHS = torch.where((SEQUENCES == EOS).any(dim=1), (SEQUENCES == EOS).int().argmax(dim=1) + 1, 3)
UNTIL_EOS = torch.arange(3) < LENGTHS[:, None]


def random(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LOGITS = random(13, 3, seed=1).requires_grad_()
REF_LOGITS = random(13, 3, seed=2)
REWARDS = random(27, seed=3) + 1.0
PREFIX_VALUES = random(13, seed=4)
TOKEN_REWARDS = random(13, 3, seed=5)[PREFIXES, SEQUENCES]  # a token's reward depends on nothing after it
# What is the same until the end-of-sequence token has the same reward.
EOS_REWARDS = REWARDS[(torch.where(UNTIL_EOS, SEQUENCES, EOS) * torch.tensor([9, 3, 1])).sum(dim=1)]


def logprobs_of(logits):
    return torch.log_softmax(logits, dim=-1)[PREFIXES, SEQUENCES]


def gradient_of(value):
    return torch.autograd.grad(value, LOGITS)[0]


def objective_gradient(rewards=REWARDS):
    """Of -E[R]: what a loss that maximises the expected reward should follow."""
    return gradient_of(-(logprobs_of(LOGITS).sum(dim=1).exp() * rewards).sum())


def every_group(size):
    """Indices `[27^size, size]` of all groups of completions, and the probability of each."""
    indices = torch.cartesian_prod(*[torch.arange(27)] * size).view(-1, size)
    probs = logprobs_of(LOGITS).detach().sum(dim=1).exp()
    return indices, probs[indices].prod(dim=1)


def expected_gradient(size, advantages, loss, reduce, *, rewards=REWARDS, mask=FULL):
    """E over all groups of the gradient of one update that sees just that group.

    advantages: [groups, size] -> [groups, size]; loss: (logprobs, old, advantages, mask) -> `[B, T]`; reduce: (values,
    mask, weights of the rows) -> a number, summed over groups.
    """
    indices, probs = every_group(size)
    rows = indices.flatten()
    logprobs = logprobs_of(LOGITS)[rows]
    spread = advantages(rewards[indices]).flatten()[:, None].expand(logprobs.shape)
    values = loss(logprobs, logprobs.detach(), spread, mask[rows])
    weights = probs.repeat_interleave(size)[:, None]
    return gradient_of(reduce(values * weights, mask[rows]))


def by_sequence_sum(size):
    return lambda values, mask: sequence_sum(values, mask, num_sequences=size)


def plain_reinforce(logprobs, old, advantages, mask):
    return reinforce_loss(logprobs, advantages)


def cosine(left, right):
    return torch.nn.functional.cosine_similarity(left.flatten(), right.flatten(), dim=0).item()


def close(left, right):
    return torch.allclose(left, right, atol=1e-12, rtol=0)


# Advantages


@pytest.mark.parametrize("baseline", [0.0, 2.5])
def test_reinforce_with_any_constant_baseline_is_unbiased(baseline):
    found = expected_gradient(1, lambda rewards: rewards - baseline, plain_reinforce, by_sequence_sum(1))
    assert close(found, objective_gradient())


@pytest.mark.parametrize("size", [2, 3])
def test_leave_one_out_is_unbiased(size):
    found = expected_gradient(size, rloo_advantages, plain_reinforce, by_sequence_sum(size))
    assert close(found, objective_gradient())


@pytest.mark.parametrize("size", [2, 3])
def test_the_groups_mean_shrinks_the_gradient_by_n_minus_1_over_n(size):
    """The completion's own reward is in its baseline; the direction is exact."""
    found = expected_gradient(size, dr_grpo_advantages, plain_reinforce, by_sequence_sum(size))
    assert close(found, (size - 1) / size * objective_gradient())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("std", ["sample", "population"])
def test_division_by_the_groups_deviation_is_biased(size, std):
    """The deviation depends on the completion it divides: not even the direction is that of the expected reward."""
    found = expected_gradient(
        size, lambda rewards: grpo_advantages(rewards, std=std), plain_reinforce, by_sequence_sum(size)
    )
    assert 0.5 < cosine(found, objective_gradient()) < 0.999


@pytest.mark.parametrize("size", [2, 3])
def test_division_by_the_others_deviation_keeps_the_direction(size):
    """It is independent of the completion it divides, so a prompt's gradient is scaled by one number."""
    found = expected_gradient(size, grpo_loo_advantages, plain_reinforce, by_sequence_sum(size))
    scale = found.norm() / objective_gradient().norm()
    assert close(found, scale * objective_gradient())
    assert (abs(scale - 1) < 1e-9) == (size == 2)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda logprobs, old, advantages, mask: clip_loss(logprobs, old, advantages), id="clip"),
        pytest.param(lambda logprobs, old, advantages, mask: dual_clip_loss(logprobs, old, advantages), id="dual_clip"),
        pytest.param(lambda logprobs, old, advantages, mask: cispo_loss(logprobs, old, advantages, cap=1), id="cispo"),
    ],
)
def test_on_policy_the_ratio_losses_are_unbiased(loss):
    found = expected_gradient(2, rloo_advantages, loss, by_sequence_sum(2))
    assert close(found, objective_gradient())


def test_on_policy_gspo_is_unbiased_up_to_the_length():
    """Its sequence ratio is a geometric mean over 3 tokens: a third of the gradient, or all of it by sequence_sum."""

    def loss(logprobs, old, advantages, mask):
        return gspo_loss(logprobs, old, advantages, mask, low=0.2, high=0.2)

    found = expected_gradient(2, rloo_advantages, loss, lambda v, m: sequence_mean(v, m, num_sequences=2))
    assert close(found, objective_gradient() / 3)
    assert close(expected_gradient(2, rloo_advantages, loss, by_sequence_sum(2)), objective_gradient())


def test_a_cap_below_one_scales_cispos_gradient():
    def loss(logprobs, old, advantages, mask):
        return cispo_loss(logprobs, old, advantages, cap=0.5)

    found = expected_gradient(2, rloo_advantages, loss, by_sequence_sum(2))
    assert close(found, 0.5 * objective_gradient())


# A sampler with other weights


def corrected_gradient(mask=FULL, rewards=REWARDS, **correction):
    """E under another policy than the one that learns, over all completions, of the corrected gradient."""
    logprobs, sampler = logprobs_of(LOGITS), logprobs_of(REF_LOGITS)
    probs = sampler.where(mask, 0.0).sum(dim=1).exp()
    twins = torch.ones(27)
    if mask is not FULL:  # completions that are the same until the end-of-sequence token are one
        twins = 3.0 ** (3 - mask.sum(dim=1))
    weights = importance_weights(logprobs, sampler, mask, **correction)
    values = weights * reinforce_loss(logprobs, rewards[:, None].expand(logprobs.shape))
    return gradient_of(((values * mask).sum(dim=1) * probs / twins).sum())


@pytest.mark.parametrize(("mask", "rewards"), [(FULL, REWARDS), (UNTIL_EOS, EOS_REWARDS)])
def test_only_the_whole_sequences_weight_makes_another_sampler_unbiased(mask, rewards):
    exact = objective_gradient(rewards)
    assert close(corrected_gradient(mask, rewards, level="sequence", cap=1e30), exact)
    for level in ("token", "geometric"):
        assert 0.3 < cosine(corrected_gradient(mask, rewards, level=level, cap=1e30), exact) < 0.99


def test_a_bound_on_the_sequences_weight_is_a_bias():
    exact = objective_gradient()
    for kind in ("tis", "mis"):
        assert cosine(corrected_gradient(level="sequence", kind=kind, cap=2.0), exact) < 0.99


# Rewards of single tokens


def token_gradient(advantages):
    """E of the gradient with advantages `[27, 3]`."""
    logprobs = logprobs_of(LOGITS)
    probs = logprobs.detach().sum(dim=1, keepdim=True).exp()
    return gradient_of((reinforce_loss(logprobs, advantages) * probs).sum())


def values_of_prefixes(rewards):
    """The exact expected reward-to-go at each position, given the prefix."""
    probs = logprobs_of(LOGITS).detach().sum(dim=1).exp()
    returns = reward_to_go(rewards, FULL) * probs[:, None]
    totals = torch.zeros(13, dtype=torch.float64).index_add(0, PREFIXES.flatten(), returns.flatten())
    visits = torch.zeros(13, dtype=torch.float64).index_add(0, PREFIXES.flatten(), probs.repeat_interleave(3))
    return (totals / visits)[PREFIXES]


def test_reward_to_go_is_unbiased():
    exact = objective_gradient(TOKEN_REWARDS.sum(dim=1))
    assert close(token_gradient(reward_to_go(TOKEN_REWARDS, FULL)), exact)
    assert not close(token_gradient(TOKEN_REWARDS), exact)


def test_whitening_by_fixed_moments_keeps_the_direction():
    """A mean and deviation of other data: a constant baseline and a scale of 1 / sqrt(4 n / (n - 1) + 1e-8)."""
    fixed = Moments(count=100.0, total=50.0, square_total=425.0)  # mean 1/2, variance 4
    found = token_gradient(reinforce_pp_advantages(TOKEN_REWARDS, FULL, moments=fixed))
    scale = (4 * 100 / 99 + 1e-8) ** -0.5
    assert close(found, scale * objective_gradient(TOKEN_REWARDS.sum(dim=1)))


def test_gae_is_unbiased_with_lam_one_or_exact_values_and_biased_otherwise():
    exact = objective_gradient(TOKEN_REWARDS.sum(dim=1))
    wrong, right = PREFIX_VALUES[PREFIXES], values_of_prefixes(TOKEN_REWARDS)
    assert close(token_gradient(gae(TOKEN_REWARDS, wrong, FULL, lam=1)[0]), exact)
    for lam in (0.0, 0.3, 1.0):
        assert close(token_gradient(gae(TOKEN_REWARDS, right, FULL, lam=lam)[0]), exact)
    assert cosine(token_gradient(gae(TOKEN_REWARDS, wrong, FULL, lam=0.3)[0]), exact) < 0.99


# Reductions where completions differ in length: token 2 ends the sequence


def test_constant_denominators_are_unbiased_for_completions_of_any_length():
    exact = objective_gradient(EOS_REWARDS)
    options = {"rewards": EOS_REWARDS, "mask": UNTIL_EOS}

    def dr_grpo(values, mask):
        return sequence_sum_norm(values, mask, num_sequences=2, length=3)

    assert close(expected_gradient(2, rloo_advantages, plain_reinforce, by_sequence_sum(2), **options), exact)
    assert close(expected_gradient(2, rloo_advantages, plain_reinforce, dr_grpo, **options), exact / 3)
    fixed = expected_gradient(
        2, rloo_advantages, plain_reinforce, lambda v, m: token_mean(v, m, num_tokens=5), **options
    )
    assert close(fixed, exact * 2 / 5)


def test_denominators_that_depend_on_the_sampled_lengths_are_biased():
    """sequence_mean always, token_mean with the tokens of each update (here a group of two, the smallest)."""
    exact = objective_gradient(EOS_REWARDS)
    options = {"rewards": EOS_REWARDS, "mask": UNTIL_EOS}

    def per_update(values, mask):
        num_tokens = mask.view(-1, 2, 3).sum(dim=(1, 2)).repeat_interleave(2)[:, None]
        return sequence_sum(values / num_tokens, mask, num_sequences=1)

    found = expected_gradient(2, rloo_advantages, plain_reinforce, per_update, **options)
    assert 0.5 < cosine(found, exact) < 0.999
    found = expected_gradient(
        2, rloo_advantages, plain_reinforce, lambda v, m: sequence_mean(v, m, num_sequences=2), **options
    )
    assert 0.5 < cosine(found, exact) < 0.999


# Updates of several prompts, some of whose groups have equal rewards


def expected_update(prompts, *, drop):
    """E of the `sequence_sum` gradient of one group of two per prompt; prompts: rewards `[27]` of each.

    Left out, a group whose rewards are equal is not in the denominator either.
    """
    indices, probs = every_group(2)
    differ = [rewards[indices[:, 0]] != rewards[indices[:, 1]] for rewards in prompts]
    rows, total = indices.flatten(), torch.zeros_like(LOGITS)
    for number, rewards in enumerate(prompts):
        counts = {1: 1.0}  # of groups in the update beside this one, and their probability
        for other in (number_ for number_ in range(len(prompts)) if number_ != number):
            share = float((probs * differ[other]).sum()) if drop else 1.0
            shifted = {count + 1: prob * share for count, prob in counts.items()}
            counts = {n: counts.get(n, 0.0) * (1 - share) + shifted.get(n, 0.0) for n in {*counts, *shifted}}
        logprobs = logprobs_of(LOGITS)[rows]
        advantages = rloo_advantages(rewards[indices]).flatten()[:, None].expand(logprobs.shape)
        losses = plain_reinforce(logprobs, logprobs.detach(), advantages, FULL[rows])
        weighted = losses * probs.repeat_interleave(2)[:, None]
        mean = sum(prob / count for count, prob in counts.items())
        total += mean * gradient_of(sequence_sum(weighted, FULL[rows], num_sequences=2))
    return total


def test_only_keeping_groups_of_equal_rewards_is_exact_with_several_prompts():
    easy, hard = (REWARDS > 1.0).double(), (REWARDS.roll(7) > 2.0).double()
    exact = (objective_gradient(easy) + objective_gradient(hard)) / 2
    assert close(expected_update([easy, hard], drop=False), exact)
    dropped = expected_update([easy, hard], drop=True)
    assert cosine(dropped, exact) == pytest.approx(0.99911, abs=1e-5)
    assert float(dropped.norm() / exact.norm()) == pytest.approx(1.9146, abs=1e-4)
    # With one prompt a group is the whole update or none of it.
    assert close(expected_update([hard], drop=True), objective_gradient(hard))


# KL to a reference


def reverse_kl_of_sequences():
    logprobs = logprobs_of(LOGITS)
    return (logprobs.sum(dim=1).exp() * (logprobs - logprobs_of(REF_LOGITS)).sum(dim=1)).sum()


def local_gradient(divergence):
    """The gradient of sum over prefixes of P(prefix) x divergence(pi, ref at the prefix), P held fixed."""
    probs = logprobs_of(LOGITS).detach().sum(dim=1).exp()
    visits = torch.zeros(13, dtype=torch.float64).index_add(0, PREFIXES.flatten(), probs.repeat_interleave(3))
    policy, reference = torch.log_softmax(LOGITS, dim=-1), torch.log_softmax(REF_LOGITS, dim=-1)
    return gradient_of((visits * divergence(policy, reference).sum(dim=-1)).sum())


def local_reverse_kl():
    return local_gradient(lambda policy, reference: policy.exp() * (policy - reference))


def local_forward_kl():
    return local_gradient(lambda policy, reference: reference.exp() * (reference - policy))


def in_the_loss(estimator, **options):
    logprobs = logprobs_of(LOGITS)
    probs = logprobs.detach().sum(dim=1, keepdim=True).exp()
    return gradient_of((kl_estimate(logprobs, logprobs_of(REF_LOGITS), estimator=estimator, **options) * probs).sum())


def in_the_reward(estimator):
    with torch.no_grad():
        return kl_estimate(logprobs_of(LOGITS), logprobs_of(REF_LOGITS), estimator=estimator)


def test_the_two_gradients_of_reverse_kl_differ():
    """Through what a token makes of later prefixes; the statements below are sharp because of it."""
    assert cosine(gradient_of(reverse_kl_of_sequences()), local_reverse_kl()) < 0.99


def test_k1_in_the_reward_has_the_gradient_of_the_sequence_kl():
    exact = objective_gradient() + BETA * gradient_of(reverse_kl_of_sequences())
    per_token = in_the_reward("k1")
    penalised = REWARDS - BETA * per_token.sum(dim=1)
    for size, advantages in ((1, lambda rewards: rewards), (2, rloo_advantages)):
        found = expected_gradient(size, advantages, plain_reinforce, by_sequence_sum(size), rewards=penalised)
        assert close(found, exact)
    token_rewards = torch.cat([torch.zeros(27, 2), REWARDS[:, None]], dim=1) - BETA * per_token
    assert close(token_gradient(reward_to_go(token_rewards, FULL)), exact)


def test_k1_in_the_loss_has_no_expected_gradient():
    assert close(in_the_loss("k1"), torch.zeros(13, 3, dtype=torch.float64))


@pytest.mark.parametrize("estimator", ["k2", "k3+"])
def test_k2_and_k3_plus_in_the_loss_have_the_local_gradient_of_reverse_kl(estimator):
    found = in_the_loss(estimator)
    assert close(found, local_reverse_kl())
    assert not close(found, gradient_of(reverse_kl_of_sequences()))


def test_k3_in_the_loss_has_the_local_gradient_of_forward_kl():
    found = in_the_loss("k3")
    assert close(found, local_forward_kl())
    assert cosine(found, local_reverse_kl()) < 0.99


def test_abs_in_the_loss_has_the_local_gradient_of_twice_the_total_variation():
    assert close(in_the_loss("abs"), local_gradient(lambda policy, reference: (policy.exp() - reference.exp()).abs()))


def test_weighted_k1_and_k3_have_the_local_gradient_of_reverse_kl():
    for estimator in ("k1", "k3"):
        assert close(in_the_loss(estimator, importance=True), local_reverse_kl())


def test_weighted_k3_has_k2s_gradient_on_every_token():
    logprobs, reference = logprobs_of(LOGITS).detach().requires_grad_(), logprobs_of(REF_LOGITS)
    x = logprobs - reference
    plain = (torch.exp(-x) - 1 + x) * torch.exp(logprobs - logprobs.detach())
    for value in (plain, kl_estimate(logprobs, reference, estimator="k3", importance=True)):
        (gradient,) = torch.autograd.grad(value.sum(), logprobs)
        assert close(gradient, x.detach())


def test_k3_in_the_reward_misses_the_local_forward_kl():
    """Its value has the right expectation, its score-function gradient lacks the part that runs through the value."""
    penalty = in_the_reward("k3").sum(dim=1)
    probs = logprobs_of(LOGITS).detach().sum(dim=1).exp()
    assert (penalty * probs).sum().item() == pytest.approx(reverse_kl_of_sequences().item(), abs=1e-12)
    found = -objective_gradient(penalty)
    exact = gradient_of(reverse_kl_of_sequences())
    assert close(found, exact - local_forward_kl())
    assert cosine(found, exact) < 0.99
