"""The loss of some tokens and its gradient against plain formulas, where the policy has moved since sampling."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from swerve.config.objectives import ADVANTAGES, LOSSES
from swerve.config.stages import RlStage
from swerve.functional import fixed_target_kl, max_prob_js, max_prob_kl, rank_promotion_js
from swerve.recipes.custom import load
from swerve.settings import Custom
from swerve.train.columns import TokenColumns
from swerve.train.kl import kl_term
from swerve.train.policy_update import TokenObjective
from tests.cases import each

N, V = 12, 5
CHECKED = slice(2, 12)


def _draw(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOGITS, REF_LOGITS = _draw(N, V, seed=1), _draw(N, V, seed=2)
TOKENS = TokenColumns(
    ids=torch.randint(0, V, (N,), generator=torch.Generator().manual_seed(3)),
    weights=_draw(N, seed=4).abs(),
    policy_weights=_draw(N, seed=5).abs(),
    advantages=_draw(N, seed=6),
    sampler_logprobs=-1.5 + _draw(N, seed=7, scale=0.8),
    old_logprobs=-1.5 + _draw(N, seed=8, scale=0.8),
    log_ratio=_draw(N, seed=9, scale=0.4),
    ref_logprobs=REF_LOGITS.log_softmax(-1)[:, 0],
)
REINFORCE = {"loss": {"kind": "reinforce"}}


def _objective(kl_coef: float = 0.0, entropy_coef: float = 0.0, **keys: Any) -> TokenObjective:
    stage = RlStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, "samples_per_prompt": 4, **keys})
    return TokenObjective(
        stage=stage,
        tokens=TOKENS,
        kl=kl_term(stage.kl, coef=kl_coef, temperature=stage.temperature),
        entropy_coef=entropy_coef,
        ref_logits=lambda rows: REF_LOGITS[rows],
    )


class _Plain:
    """What a formula is written in: rows `CHECKED` of the tokens, and the policy's distributions."""

    def __init__(self, logits: Tensor, temperature: float = 1.0) -> None:
        self.logits = logits / temperature
        self.rows = self.logits.log_softmax(-1)
        here = TOKENS.map(lambda column: column[CHECKED])
        self.ids, self.w, self.v, self.a = here.ids, here.weights, here.policy_weights, here.advantages
        self.old, self.sampler, self.ref = here.old_logprobs, here.sampler_logprobs, here.ref_logprobs
        self.sequence_ratio = here.log_ratio.exp()
        self.logp = self.rows.gather(-1, self.ids[:, None])[:, 0]
        self.ratio = (self.logp - self.old).exp()
        self.ref_rows = (REF_LOGITS[CHECKED] / temperature).log_softmax(-1)


def _assert_agree(objective: TokenObjective, formula: Callable[[_Plain], Tensor]) -> None:
    logits = LOGITS[CHECKED].clone().requires_grad_()
    plain = LOGITS[CHECKED].clone().requires_grad_()
    found = objective(logits, CHECKED)
    expected = formula(_Plain(plain, objective.stage.temperature))
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    found.backward()
    expected.backward()
    assert plain.grad is not None
    assert plain.grad.norm() > 1e-3
    assert torch.allclose(logits.grad, plain.grad, rtol=1e-7, atol=1e-10)


def _clip(p: _Plain, ratio: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * p.a, ratio.clamp(1 - low, 1 + high) * p.a)


def _dual(p: _Plain) -> Tensor:
    loss = _clip(p, p.ratio, 0.1, 0.3)
    return torch.where(p.a < 0, torch.minimum(loss, -1.4 * p.a), loss)


def _clamped(p: _Plain) -> Tensor:
    return _clip(p, (p.logp - p.old).clamp(-0.05, 0.05).exp(), 0.1, 0.3)


def _gspo(p: _Plain) -> Tensor:
    live = p.sequence_ratio * (p.logp - p.logp.detach()).exp()
    return _clip(p, live, 0.1, 0.3)


POLICY: dict[str, tuple[dict[str, Any], Callable[[_Plain], Tensor]]] = {
    "reinforce": ({"kind": "reinforce"}, lambda p: -p.a * p.logp),
    "clip": ({"kind": "clip", "low": 0.1, "high": 0.3}, lambda p: _clip(p, p.ratio, 0.1, 0.3)),
    "clip, clamped": ({"kind": "clip", "low": 0.1, "high": 0.3, "log_ratio_clamp": 0.05}, _clamped),
    "dual_clip": ({"kind": "dual_clip", "low": 0.1, "high": 0.3, "c": 1.4}, _dual),
    "dual_clip, clamped": ({"kind": "dual_clip", "low": 0.1, "high": 0.3, "log_ratio_clamp": 0.05}, _clamped),
    "cispo": (
        {"kind": "cispo", "cap": 1.2, "floor": 0.7},
        lambda p: -p.ratio.detach().clamp(0.7, 1.2) * p.a * p.logp,
    ),
    "gspo": ({"kind": "gspo", "low": 0.1, "high": 0.3}, _gspo),
    "max_prob_kl": ({"kind": "max_prob_kl"}, lambda p: max_prob_kl(p.logits, p.ids, target_gradient="live")),
    "max_prob_kl, detached": (
        {"kind": "max_prob_kl", "target_gradient": "detached"},
        lambda p: max_prob_kl(p.logits, p.ids, target_gradient="detached"),
    ),
    "max_prob_js": ({"kind": "max_prob_js"}, lambda p: max_prob_js(p.logits, p.ids, target_gradient="live")),
    "max_prob_js, detached": (
        {"kind": "max_prob_js", "target_gradient": "detached"},
        lambda p: max_prob_js(p.logits, p.ids, target_gradient="detached"),
    ),
    "fixed_target_kl": (
        {"kind": "fixed_target_kl", "q": 0.2, "region": "below"},
        lambda p: fixed_target_kl(p.logits, p.ids, q=0.2, region="below"),
    ),
    "rank_promotion_js": ({"kind": "rank_promotion_js"}, lambda p: rank_promotion_js(p.logits, p.ids)),
}


@each("temperature", [1.0, 0.7])
@each("name", POLICY)
def test_policy_losses(name: str, temperature: float) -> None:
    loss, formula = POLICY[name]
    _assert_agree(_objective(loss=loss, temperature=temperature), lambda p: (p.v * formula(p)).sum())


def _weight(p: _Plain, numerator: Tensor) -> Tensor:
    return (numerator.detach() - p.sampler).exp()


@pytest.mark.parametrize("scope", ["policy", "policy_and_kl"])
@pytest.mark.parametrize("numerator", ["old", "current"])
@pytest.mark.parametrize("kind", ["tis", "mis"])
def test_corrections(kind: str, numerator: str, scope: str) -> None:
    floor = {"floor": 0.6} if kind == "mis" else {}
    correction = {"kind": kind, "cap": 1.5, "numerator": numerator, "scope": scope, **floor}

    def formula(p: _Plain) -> Tensor:
        weight = _weight(p, p.old if numerator == "old" else p.logp)
        weight = weight.clamp(max=1.5) if kind == "tis" else weight * ((weight >= 0.6) & (weight <= 1.5))
        kl_weight = p.w * weight if scope == "policy_and_kl" else p.w
        return (p.v * weight * -p.a * p.logp).sum() + 0.4 * (kl_weight * (p.logp - p.ref).square() / 2).sum()

    objective = _objective(correction=correction, kl={"kind": "loss", "estimator": "k2"}, kl_coef=0.4)
    _assert_agree(objective, formula)
    plain = _Plain(LOGITS[CHECKED])
    weight = _weight(plain, plain.old if numerator == "old" else plain.logp)
    changed = (weight > 1.5) | (weight < (0.6 if kind == "mis" else 0.0))
    assert 0 < objective.metrics()["corrected_share"] == int(changed.sum()) < 10


def _k3(x: Tensor) -> Tensor:
    return (-x).exp() - 1 + x


KL: dict[str, tuple[dict[str, Any], Callable[[_Plain], Tensor]]] = {
    "k3": ({"estimator": "k3"}, lambda p: _k3(p.logp - p.ref)),
    "k3, input clamped": ({"estimator": "k3", "input_clamp": 0.5}, lambda p: _k3((p.logp - p.ref).clamp(-0.5, 0.5))),
    "k3, output clamped": ({"estimator": "k3", "output_clamp": 0.2}, lambda p: _k3(p.logp - p.ref).clamp(-0.2, 0.2)),
    "k1, by the ratio": ({"estimator": "k1", "importance": True}, lambda p: (p.logp - p.ref) * p.ratio),
    "exact_reverse": ({"estimator": "exact_reverse"}, lambda p: (p.rows.exp() * (p.rows - p.ref_rows)).sum(-1)),
    "exact_forward": ({"estimator": "exact_forward"}, lambda p: (p.ref_rows.exp() * (p.ref_rows - p.rows)).sum(-1)),
}


@each("temperature", [1.0, 0.7])
@each("name", KL)
def test_kl_is_weighed_by_the_reduction_at_every_token(name: str, temperature: float) -> None:
    kl, formula = KL[name]
    objective = _objective(kl={"kind": "loss", **kl}, kl_coef=0.4, temperature=temperature)
    _assert_agree(objective, lambda p: (-p.v * p.a * p.logp).sum() + 0.4 * (p.w * formula(p)).sum())
    assert objective.metrics()["kl"] == pytest.approx(float(formula(_Plain(LOGITS[CHECKED], temperature)).sum()))


@pytest.mark.parametrize("coef", [0.3, -0.3])
def test_a_positive_coefficient_is_a_bonus_on_the_entropy(coef: float) -> None:
    def formula(p: _Plain) -> Tensor:
        return (-p.v * p.a * p.logp).sum() + coef * (p.w * (p.rows.exp() * p.rows).sum(-1)).sum()

    _assert_agree(_objective(entropy_coef=coef, temperature=0.7), formula)


def test_figures_are_sums_over_the_tokens_of_all_calls() -> None:
    objective = _objective(loss={"kind": "dual_clip", "low": 0.1, "high": 0.3, "c": 1.4}, temperature=0.7)
    for rows in (slice(2, 5), slice(5, 12)):
        objective(LOGITS[rows], rows)
    p = _Plain(LOGITS[CHECKED], 0.7)
    gone = ((p.a > 0) & (p.ratio > 1.3)) | ((p.a < 0) & ((p.ratio < 0.9) | (p.ratio > 1.4)))
    assert int(((p.a < 0) & (p.ratio > 1.4)).sum()) > 0
    figures = objective.metrics()
    assert figures["clipped_share"] == int(gone.sum())
    assert figures["logprob_gap"] == pytest.approx(float((p.old - p.sampler).abs().sum()))
    assert figures["entropy"] == pytest.approx(-float((p.rows.exp() * p.rows).sum()))


def test_gspo_counts_the_tokens_of_clipped_sequences() -> None:
    objective = _objective(loss={"kind": "gspo", "low": 0.1, "high": 0.3})
    objective(LOGITS[CHECKED], CHECKED)
    p = _Plain(LOGITS[CHECKED])
    gone = ((p.a > 0) & (p.sequence_ratio > 1.3)) | ((p.a < 0) & (p.sequence_ratio < 0.9))
    assert 0 < objective.metrics()["clipped_share"] == int(gone.sum()) < 10


def test_extreme_logits_of_a_single_update_give_a_finite_loss_and_gradient() -> None:
    tokens = TokenColumns(
        ids=torch.tensor([0, 1]),
        weights=torch.ones(2),
        policy_weights=torch.ones(2),
        advantages=torch.tensor([1.0, -1.0]),
        sampler_logprobs=torch.tensor([0.0, -120.0]),
        ref_logprobs=torch.tensor([-120.0, 0.0]),
    )
    for name in ("max_prob_kl", "fixed_target_kl", "max_prob_js", "rank_promotion_js", "clip", "reinforce"):
        stage = _objective(loss={"kind": name}, kl={"kind": "loss", "estimator": "exact_reverse"}).stage
        logits = torch.tensor([[120.0, 0.0, 0.0], [120.0, 0.0, 0.0]], requires_grad=True)
        kl = kl_term(stage.kl, coef=0.1)
        value = TokenObjective(
            stage=stage, tokens=tokens, kl=kl, entropy_coef=0.1, ref_logits=lambda rows: torch.zeros(2, 3)[rows]
        )(logits, slice(0, 2))
        value.backward()
        assert math.isfinite(float(value.detach())), name
        assert bool(torch.isfinite(logits.grad).all()), name


_BUILT_IN = [kind for kind in (*LOSSES.values(), *ADVANTAGES.values()) if not issubclass(kind, Custom)]


@each("kind", _BUILT_IN)
def test_the_keys_of_a_kind_are_the_keywords_of_its_function(kind: Any) -> None:
    function, config = load(kind.function), kind()
    parameters = inspect.signature(function).parameters.values()
    keywords = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    assert keywords == config.keywords
    assert tuple(one.name for one in parameters if one.kind is not one.KEYWORD_ONLY) == kind.takes


def test_only_the_path_losses_select_completions_by_their_reward() -> None:
    selectors = {kind for kind, loss in LOSSES.items() if loss.is_selector}
    assert selectors == {"max_prob_kl", "fixed_target_kl", "max_prob_js", "rank_promotion_js"}
