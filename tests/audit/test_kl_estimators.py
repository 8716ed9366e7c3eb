"""The estimator audit against brute force, and what its verdicts say."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from swerve.audit import kl_estimators as module
from swerve.audit.kl_estimators import CASES, ESTIMATORS, TARGETS, audit, audit_positions
from swerve.audit.verdicts import summarise_audit
from swerve.errors import MismatchError
from swerve.models.head import Head
from swerve.probe.engine.forward import ForcedStates

INF = math.inf


def draw(rows: int, vocabulary: int, *, seed: int, scale: float = 1.0, apart: float = 1.0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    change = apart * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    ids = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
    return logits, logits + change, ids


def value(name: str, x: Tensor) -> Tensor:
    """The definitions, written out; k3+ is k3 with the gradient of k2."""
    if name == "k3+":
        return value("k2", x) + (value("k3", x) - value("k2", x)).detach()
    return {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) - 1 + x, "abs": x.abs()}[name]


def sample_loss(case, logprobs: Tensor, ref_logprobs: Tensor, token: int) -> Tensor:
    """What one sampled token adds to the loss."""
    estimate = value(case.estimator, logprobs[token] - ref_logprobs[token])
    if case.placement == "reward":
        return estimate.detach() * logprobs[token]
    if case.placement == "loss_ratio":
        return estimate * torch.exp(logprobs[token] - logprobs[token].detach())
    return estimate


def gradient(logits: Tensor, function) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf.log_softmax(-1)), leaf)
    return found


def target(name: str, logits: Tensor, ref_logprobs: Tensor) -> Tensor:
    q = ref_logprobs.exp()
    return gradient(
        logits,
        {
            "reverse_kl": lambda logp: (logp.exp() * (logp - ref_logprobs)).sum(),
            "forward_kl": lambda logp: (q * (ref_logprobs - logp)).sum(),
            "total_variation": lambda logp: (logp.exp() - q).abs().sum(),
        }[name],
    )


@pytest.mark.parametrize(("seed", "scale", "apart"), [(0, 1.0, 1.0), (1, 3.0, 0.3), (2, 0.5, 3.0)])
def test_every_column_is_what_brute_force_finds(seed, scale, apart):
    logits, ref_logits, ids = draw(3, 5, seed=seed, scale=scale, apart=apart)
    figures = audit_positions(logits, ref_logits, ids)
    for row in range(3):
        p, logp, logq = logits[row].softmax(-1), logits[row].log_softmax(-1), ref_logits[row].log_softmax(-1)
        x = logp - logq
        assert figures.reverse_kl[row].item() == pytest.approx((p * x).sum().item(), rel=1e-9)
        assert figures.forward_kl[row].item() == pytest.approx(-(logq.exp() * x).sum().item(), rel=1e-9)
        assert figures.surprise[row].item() == pytest.approx((logp[ids[row]] - (p * logp).sum()).item(), abs=1e-12)
        for index, name in enumerate(ESTIMATORS):
            k = [value(name, one).item() for one in x]
            mean = sum(weight * one for weight, one in zip(p.tolist(), k, strict=True))
            variance = sum(weight * (one - mean) ** 2 for weight, one in zip(p.tolist(), k, strict=True))
            negative = sum(weight for weight, one in zip(p.tolist(), k, strict=True) if one < 0)
            found = [getattr(figures, key)[row, index].item() for key in ("mean", "variance", "negative", "realised")]
            assert found == pytest.approx([mean, variance, negative, k[ids[row]]], rel=1e-10, abs=1e-14)
        goals = {name: target(name, logits[row], logq) for name in TARGETS}
        for number, goal in enumerate(goals.values()):
            assert figures.target_square[row, number].item() == pytest.approx(goal.square().sum().item(), rel=1e-10)
        for index, case in enumerate(CASES):
            samples = [
                gradient(logits[row], lambda logp, case=case, v=v, logq=logq: sample_loss(case, logp, logq, v))
                for v in range(5)
            ]
            pull = sum(weight * sample for weight, sample in zip(p, samples, strict=True))
            size = sum(weight * sample.square().sum() for weight, sample in zip(p, samples, strict=True))
            assert figures.sample_square[row, index].item() == pytest.approx(size.item(), rel=1e-10)
            assert figures.square[row, index].item() == pytest.approx(pull.square().sum().item(), rel=1e-10, abs=1e-28)
            for number, goal in enumerate(goals.values()):
                expected = [(pull * goal).sum().item(), (pull - goal).square().sum().item()]
                assert [figures.dot[row, index, number].item(), figures.error_square[row, index, number].item()] == (
                    pytest.approx(expected, rel=1e-9, abs=1e-16)
                )


REVERSE, FORWARD = "gradient of KL(policy || reference)", "gradient of KL(reference || policy)"
VERDICTS = {
    ("k1", "loss"): "zero: no pull at all",
    ("k2", "loss"): REVERSE,
    ("k3", "loss"): FORWARD,
    ("k3+", "loss"): REVERSE,
    ("abs", "loss"): "gradient of twice the total variation",
    ("k1", "loss_ratio"): REVERSE,
    ("k2", "loss_ratio"): "none of the targets",
    ("k3", "loss_ratio"): REVERSE,
    ("abs", "loss_ratio"): "none of the targets",
    ("k1", "reward"): REVERSE,
    ("k2", "reward"): "none of the targets",
    ("k3", "reward"): "none of the targets",
    ("k3+", "reward"): "none of the targets",
    ("abs", "reward"): "none of the targets",
}


def summary(logits: Tensor, ref_logits: Tensor, ids: Tensor, *, tokens_per_sequence: int = 4):
    figures = audit_positions(logits, ref_logits, ids)
    return summarise_audit(figures, [number // tokens_per_sequence for number in range(len(ids))])


def verdicts(found) -> dict[tuple[str, str], str]:
    return {(row["estimator"], row["placement"]): row["verdict"].partition(";")[0] for row in found["gradients"]}


def biased(found) -> dict[str, str]:
    return {row["estimator"]: row["verdict"].partition(":")[0] for row in found["values"]}


@pytest.mark.parametrize(("scale", "apart"), [(1.0, 1.0), (2.0, 1e-2), (15.0, 1e-3)])
def test_verdicts_whatever_the_distance_of_the_models(scale, apart):
    found = summary(*draw(80, 12, seed=3, scale=scale, apart=apart))
    assert verdicts(found) == VERDICTS
    assert biased(found) == {"k1": "unbiased", "k2": "biased", "k3": "unbiased", "k3+": "unbiased", "abs": "biased"}
    assert found["notes"] == []


def test_verdicts_hold_for_float32_logits_of_almost_the_same_model():
    logits, _, ids = draw(80, 12, seed=4, scale=4.0)
    logits = logits.float()
    found = summary(logits, logits + 1e-5 * torch.randn(80, 12, generator=torch.Generator().manual_seed(5)), ids)
    assert 1e-12 < found["exact"]["reverse_kl"] < 1e-9
    assert {key: verdicts(found)[key] for key in VERDICTS if key[1] == "loss"} == {
        key: text for key, text in VERDICTS.items() if key[1] == "loss"
    }
    assert biased(found)["k1"] == biased(found)["k3"] == "unbiased"


def test_a_kl_of_the_size_of_rounding_decides_no_value():
    logits, _, ids = draw(8, 5, seed=16)
    found = summary(logits, logits + draw(8, 5, seed=17)[0] * 1e-8, ids)
    assert 0 < found["exact"]["reverse_kl"] < 1e-12
    assert {row["verdict"] for row in found["values"]} == {"undecided: the KL is hardly above the rounding of float64"}


def test_k1_in_the_loss_is_exactly_zero_and_has_no_direction():
    logits, ref_logits, ids = draw(20, 7, seed=6, scale=8.0)
    figures = audit_positions(logits, ref_logits, ids)
    assert figures.square[:, CASES.index(module.GradientCase("k1", "loss"))].tolist() == [0.0] * 20
    row = summary(logits, ref_logits, ids)["gradients"][0]
    assert (row["is_zero"], row["variance_to_signal"], row["targets"]["reverse_kl"]["cosine"]) == (True, None, None)
    assert row["targets"]["reverse_kl"]["pooled_relative_error"] == pytest.approx(1.0, abs=1e-12)


def test_positions_that_are_all_but_certain_keep_their_digits():
    # 1 - p is 2 exp(-40): nothing of it is left in a float64 p.
    logits = torch.tensor([[40.0, 0.0, 0.0], [40.0, 0.0, 0.0]], dtype=torch.float64)
    ref_logits = torch.tensor([[39.0, 0.0, 0.0], [41.0, 0.0, 0.5]], dtype=torch.float64)
    figures = audit_positions(logits, ref_logits, torch.tensor([0, 0]))
    rest, ref_rest = 2 * math.exp(-40), 2 * math.exp(-39)
    kl = rest * math.log(rest / ref_rest) - rest + ref_rest  # to first order in both
    assert figures.reverse_kl[0].item() == pytest.approx(kl, rel=1e-9)
    assert figures.mean[0, 0].item() == pytest.approx(kl, rel=1e-9)
    assert figures.mean[0, 2].item() == pytest.approx(kl, rel=1e-9)
    found = summary(logits, ref_logits, torch.tensor([0, 0]))
    assert {key: verdicts(found)[key] for key in [("k1", "loss"), ("k2", "loss"), ("k3", "loss")]} == {
        ("k1", "loss"): VERDICTS["k1", "loss"],
        ("k2", "loss"): REVERSE,
        ("k3", "loss"): FORWARD,
    }


def test_the_same_model_twice_decides_nothing():
    logits, _, ids = draw(8, 5, seed=7)
    found = summary(logits, logits, ids)
    texts = [row["verdict"] for row in found["values"] + found["gradients"]]
    assert set(texts) == {"undecided: the two models do not differ"}
    assert found["exact"] == {"reverse_kl": 0.0, "forward_kl": 0.0, "js": 0.0}
    assert found["values"][0]["relative_bias"] is None


def test_a_token_that_the_policy_excludes_biases_k3_only():
    # P = (1/2, 1/2, 0), Q = (1/3, 1/3, 1/3): KL = log 1.5, k3 loses the third of Q that is never sampled.
    logits, ref_logits = torch.tensor([[0.0, 0.0, -INF]]), torch.tensor([[0.0, 0.0, 0.0]])
    found = summary(logits, ref_logits, torch.tensor([1]))
    means = {row["estimator"]: row["mean"] for row in found["values"]}
    assert means["k1"] == pytest.approx(math.log(1.5), rel=1e-12)
    assert means["k3"] == pytest.approx(math.log(1.5) - 1 / 3, rel=1e-12)
    assert found["exact"]["reverse_kl"] == pytest.approx(math.log(1.5), rel=1e-9)
    assert found["exact"]["forward_kl"] is None  # infinite
    assert biased(found)["k1"] == "unbiased"
    assert biased(found)["k3"] == "biased"


def test_positions_where_the_reference_excludes_a_token_are_left_out_and_counted():
    logits, ref_logits, ids = draw(9, 5, seed=8)
    without = summary(logits[1:], ref_logits[1:], ids[1:], tokens_per_sequence=1)
    ref_logits[0, 2] = -INF
    found = summary(logits, ref_logits, ids, tokens_per_sequence=1)
    assert (found["num_tokens"], found["num_left_out"]) == (8, 1)
    assert found["exact"] == without["exact"]
    assert found["gradients"] == without["gradients"]
    assert "1 positions are left out" in found["notes"][-1]
    with pytest.raises(ValueError, match="no position has finite figures"):
        summary(logits[:1], ref_logits[:1], ids[:1])


@pytest.mark.parametrize(
    ("name", "wrong", "case", "verdict"),
    [
        ("k2", lambda x: x**2, ("k2", "loss"), "none of the targets"),  # the half forgotten
        ("k3", lambda x: torch.expm1(x) - x, ("k3", "loss"), "none of the targets"),  # the sign of x
        ("k1", lambda x: x.detach(), ("k1", "loss_ratio"), REVERSE),  # right once multiplied by the ratio
        ("k3+", lambda x: torch.expm1(-x) + x, ("k3+", "loss"), FORWARD),  # plain k3
    ],
)
def test_a_wrong_estimator_is_flagged(monkeypatch, name, wrong, case, verdict):
    right = module.kl_estimate

    def estimate(logprobs, ref_logprobs, *, estimator, importance=False):
        if estimator != name:
            return right(logprobs, ref_logprobs, estimator=estimator, importance=importance)
        values = wrong(logprobs - ref_logprobs)
        return values * torch.exp(logprobs - logprobs.detach()) if importance else values + 0 * logprobs

    monkeypatch.setattr(module, "kl_estimate", estimate)
    found = summary(*draw(40, 6, seed=9))
    assert verdicts(found)[case] == verdict
    others = {key: text for key, text in VERDICTS.items() if key[0] != name}
    assert {key: verdicts(found)[key] for key in others} == others
    if name == "k2":
        row = next(row for row in found["gradients"] if (row["estimator"], row["placement"]) == case)
        assert row["targets"]["reverse_kl"]["norm_ratio"] == pytest.approx(2.0)
    if name == "k3":
        assert biased(found)["k3"] == "biased"


def states(logits: Tensor, *, label: str = "rl-1", tokenizer: str = "same") -> ForcedStates:
    vocabulary = logits.shape[1]
    projection = nn.Linear(vocabulary, vocabulary, bias=False, dtype=logits.dtype)
    projection.weight.data = torch.eye(vocabulary, dtype=logits.dtype)
    return ForcedStates(label=label, head=Head(projection=projection), hidden=logits, tokenizer_sha256=tokenizer)


def test_chunks_and_temperature():
    logits, ref_logits, ids = draw(11, 6, seed=10)
    done: list[int] = []
    figures = audit(states(logits), states(ref_logits), ids, temperature=0.6, logits_per_chunk=24, on_chunk=done.append)
    whole = audit_positions(logits / 0.6, ref_logits / 0.6, ids)
    assert done == [4, 4, 3]
    for field in dataclasses.fields(whole):
        torch.testing.assert_close(getattr(figures, field.name), getattr(whole, field.name), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        audit(states(logits), states(ref_logits), ids, temperature=0)


def test_models_that_cannot_be_compared_are_refused():
    logits, ref_logits, ids = draw(3, 6, seed=11)
    with pytest.raises(MismatchError, match="tokenizers of rl-1 and sft-1 differ"):
        audit(states(logits), states(ref_logits, label="sft-1", tokenizer="other"), ids)
    with pytest.raises(MismatchError, match="vocabulary of 6 tokens and sft-1 one of 5"):
        audit(states(logits), states(ref_logits[:, :5], label="sft-1"), ids)


def test_groups_by_size_of_the_kl_share_the_tokens_out():
    found = summary(*draw(47, 6, seed=12))
    groups = found["deciles"]
    assert [group["num_tokens"] for group in groups] == [5] * 7 + [4] * 3
    assert all(one["kl_high"] <= two["kl_low"] for one, two in itertools.pairwise(groups))
    for index, row in enumerate(found["values"]):
        for key in ("mean", "bias", "variance"):
            parts = sum(group["num_tokens"] * group["values"][index][key] for group in groups)
            assert parts / 47 == pytest.approx(row[key], rel=1e-9, abs=1e-15)
    assert [group["num_tokens"] for group in summary(*draw(3, 6, seed=12))["deciles"]] == [1, 1, 1]


def test_pooled_figures_weigh_positions_by_their_gradient():
    # Two positions: at one abs pulls along with the KL's gradient, at the other it hardly counts.
    figures = audit_positions(*draw(2, 4, seed=13))
    index = CASES.index(module.GradientCase("abs", "loss"))
    entry = summarise_audit(figures, [0, 0])["gradients"][index]["targets"]["reverse_kl"]
    square, goal = figures.square[:, index].tolist(), figures.target_square[:, 0].tolist()
    dot, error = figures.dot[:, index, 0].tolist(), figures.error_square[:, index, 0].tolist()
    cosines = [dot[i] / math.sqrt(square[i] * goal[i]) for i in range(2)]
    assert entry == pytest.approx(
        {
            "cosine": sum(cosines) / 2,
            "relative_error": sum(math.sqrt(error[i] / goal[i]) for i in range(2)) / 2,
            "norm_ratio": sum(math.sqrt(square[i] / goal[i]) for i in range(2)) / 2,
            "pooled_cosine": sum(dot) / math.sqrt(sum(square) * sum(goal)),
            "pooled_relative_error": math.sqrt(sum(error) / sum(goal)),
            "pooled_norm_ratio": math.sqrt(sum(square) / sum(goal)),
        }
    )


def test_realised_estimates_and_the_note_on_tokens_of_another_policy():
    logits, ref_logits, ids = draw(400, 6, seed=14)
    own = summary(logits, ref_logits, ids)
    assert own["notes"] == []
    assert own["surprise"].low < 0 < own["surprise"].high
    for row in own["values"]:
        assert row["realised"].low < row["mean"] < row["realised"].high
    unlikely = summary(logits, ref_logits, logits.argmin(-1))
    assert unlikely["surprise"].high < 0
    assert "not what the checkpoint would write" in unlikely["notes"][0]
    assert unlikely["exact"] == own["exact"]


def test_standard_error_and_share_of_negative_values():
    # P = (1/2, 1/2), Q = (1/4, 3/4): x = log 2 and log 2/3.
    logits, ref_logits = torch.zeros(1, 2), torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64)
    row = summary(logits, ref_logits, torch.tensor([0]))["values"][0]
    kl, sd = math.log(4 / 3) / 2, math.log(3.0) / 2
    assert row["mean"] == pytest.approx(kl)
    assert row["sd"] == pytest.approx(sd)
    assert row["relative_standard_error"] == pytest.approx(sd / kl)
    assert row["share_negative"] == pytest.approx(0.5)
    assert row["realised"].mean == pytest.approx(math.log(2.0))


def test_sequence_ids_must_fit():
    figures = audit_positions(*draw(3, 4, seed=15))
    with pytest.raises(ValueError, match="3 positions need as many sequence ids, got 2"):
        summarise_audit(figures, [0, 1])


@settings(max_examples=60, deadline=None)
@given(
    vocabulary=st.integers(2, 9),
    seed=st.integers(0, 10**6),
    scale=st.floats(0.1, 30.0),
    apart=st.floats(1e-3, 10.0),
)
def test_what_holds_for_any_two_distributions(vocabulary, seed, scale, apart):
    figures = audit_positions(*draw(4, vocabulary, seed=seed, scale=scale, apart=apart))
    kl = figures.reverse_kl
    for name in ("k1", "k3", "k3+"):
        torch.testing.assert_close(figures.mean[:, ESTIMATORS.index(name)], kl, rtol=1e-7, atol=1e-17)
    # Pinsker: the expectation of abs is at least KL, and the square of the total variation at most KL / 2.
    assert bool((figures.mean[:, ESTIMATORS.index("abs")] >= kl * (1 - 1e-9)).all())
    assert bool((figures.square <= figures.sample_square * (1 + 1e-9) + 1e-300).all())
    limit = (figures.square[:, :, None] * figures.target_square[:, None, :]).sqrt()
    assert bool((figures.dot.abs() <= limit * (1 + 1e-9) + 1e-300).all())
