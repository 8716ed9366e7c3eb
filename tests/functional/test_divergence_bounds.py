"""Bounds from the most likely tokens, against the exact kernel over the whole vocabulary."""

from __future__ import annotations

import math

import pytest
import torch

from swerve.functional import ToldLogprobs, divergence_bounds, divergence_stats, entropy_bounds

V = 300


def told(logprobs: torch.Tensor, tokens: torch.Tensor, k: int) -> ToldLogprobs:
    """Return what a server tells that gives the realised token and the most likely ones."""
    values, ids = logprobs.topk(k, dim=1)
    others = values[:, -1]
    values = torch.where(ids == tokens[:, None], math.inf, values)
    ids = ids.gather(1, values.argsort(dim=1, descending=True))
    is_told = (ids[:, :1] == tokens[:, None]).int()
    ids = torch.where(is_told.bool(), ids, torch.cat([tokens[:, None], ids[:, :-1]], dim=1))
    return ToldLogprobs(ids=ids, logprobs=logprobs.gather(1, ids), others=others)


def cases(kind: str, generator: torch.Generator, num: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits of two models, float64."""
    logits = torch.randn(num, V, generator=generator, dtype=torch.float64)
    spread = torch.rand(num, 1, generator=generator, dtype=torch.float64) * 6
    change = torch.randn(num, V, generator=generator, dtype=torch.float64)
    size = 10 ** (torch.rand(num, 1, generator=generator, dtype=torch.float64) * 6 - 5)
    p, q = logits * spread, logits * spread + change * size
    match kind:
        case "identical":
            q = p.clone()
        case "disjoint":
            p[:, : V // 2] += 30
            q[:, V // 2 :] += 30
        case "peaked":
            p[:, 3] += 40
            q[:, 5] += 20
        case "excluding":
            p[:, ::7] = -math.inf
            q[:, ::5] = -math.inf
        case "ties":
            p, q = p.round(), q.round()
    return p, q


@pytest.mark.parametrize("k", [1, 2, 20, V])
@pytest.mark.parametrize("kind", ["near", "identical", "disjoint", "peaked", "excluding", "ties"])
@pytest.mark.parametrize("rounding", [0.0, 1e-5])
def test_no_bound_is_on_the_wrong_side(kind, k, rounding):
    generator = torch.Generator().manual_seed(k)
    p, q = cases(kind, generator, 40 if k == V else 400)
    tokens = torch.distributions.Categorical(logits=q + 0.0).sample()
    exact = divergence_stats(p, q, tokens)
    sides = []
    for logits in (p, q):
        logprobs = logits.log_softmax(dim=1)
        if rounding:  # as a server computes, and by what a log-probability may be off besides
            noise = torch.rand(logprobs.shape, generator=generator, dtype=torch.float64) * 2 - 1
            logprobs = (logprobs + 0.9 * rounding * noise).float().double().clamp(max=0.0)
        sides.append(told(logprobs, tokens, k))
    kl_forward, kl_reverse, js = divergence_bounds(*sides)
    for bound, value in ((kl_forward, exact.kl_forward), (kl_reverse, exact.kl_reverse), (js, exact.js)):
        assert bool((bound >= 0).all())
        assert bool((bound <= value).all()), float((bound - value).max())
    for side, value in zip(sides, (exact.entropy, exact.entropy_ref), strict=True):
        lower, upper = entropy_bounds(side, vocabulary_size=V)
        assert bool((lower <= value).all()), float((lower - value).max())
        assert bool((upper >= value).all()), float((value - upper).max())


def test_a_bound_is_the_divergence_where_all_tokens_are_told_and_nothing_where_models_are_the_same():
    p, q = cases("near", torch.Generator().manual_seed(0), 40)
    tokens = p.argmax(dim=1)
    exact = divergence_stats(p, q, tokens)
    sides = [told(logits.log_softmax(dim=1), tokens, V) for logits in (p, q)]
    for bound, value in zip(
        divergence_bounds(*sides, tolerance=1e-9), (exact.kl_forward, exact.kl_reverse, exact.js), strict=True
    ):
        assert torch.allclose(bound, value, rtol=1e-3, atol=1e-12)
    lower, upper = entropy_bounds(sides[0], vocabulary_size=V, tolerance=1e-9)
    assert torch.allclose(lower, exact.entropy, atol=1e-6)
    assert torch.allclose(upper, exact.entropy, atol=1e-6)
    assert [float(bound.max()) for bound in divergence_bounds(sides[0], sides[0])] == [0.0, 0.0, 0.0]


def test_a_token_that_one_model_does_not_tell_counts_by_the_most_that_it_can_have():
    """By hand: P tells 0 (.9), Q tells 1 (.8) and no other token more than .1; the cells are 0, 1 and the rest."""
    p = ToldLogprobs(ids=torch.tensor([[0]]), logprobs=torch.tensor([[0.9]]).log(), others=torch.tensor([0.9]).log())
    q = ToldLogprobs(ids=torch.tensor([[1]]), logprobs=torch.tensor([[0.8]]).log(), others=torch.tensor([0.1]).log())
    terms = [(0.9, 0.1), (0.1, 0.8)]  # 1 can have .1 in P where 0 has .9; the rest .1 or less in both
    expected = sum(a * math.log(a / b) - a + b for a, b in terms)
    assert float(divergence_bounds(p, q, tolerance=0.0)[0]) <= expected + 1e-6
    p = ToldLogprobs(ids=p.ids, logprobs=p.logprobs, others=torch.tensor([0.1]).log())
    assert float(divergence_bounds(p, q, tolerance=0.0)[0]) == pytest.approx(expected, abs=1e-6)
