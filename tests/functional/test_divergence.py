from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from swerve.functional.divergence import DivergenceStats, divergence_stats, topk_probs
from tests.cases import each

FLOATS = ("kl_forward", "kl_reverse", "js", "entropy", "entropy_ref", "logprob", "logprob_ref")
COUNTS = ("rank", "rank_ref", "argmax", "argmax_ref")


def oracle(logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """The textbook definitions in float64."""
    p, q = (torch.log_softmax(logits.double(), dim=-1) for logits in (logits_p, logits_q))
    m = torch.logaddexp(p, q) - math.log(2)

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a.exp() * torch.where(a == -math.inf, 0.0, a - b)).sum(-1)

    return {
        "kl_forward": kl(p, q),
        "kl_reverse": kl(q, p),
        "js": (kl(p, m) + kl(q, m)) / 2,
        "entropy": torch.special.entr(p.exp()).sum(-1),
        "entropy_ref": torch.special.entr(q.exp()).sum(-1),
        "logprob": p.gather(-1, ids[:, None]).squeeze(-1),
        "logprob_ref": q.gather(-1, ids[:, None]).squeeze(-1),
    }


def assert_agrees(stats: DivergenceStats, logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> None:
    expected = oracle(logits_p, logits_q, ids)
    for name in FLOATS:
        got, want = getattr(stats, name).double(), expected[name]
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    for name in ("kl_forward", "kl_reverse", "js"):
        want = expected[name]
        relative = ((getattr(stats, name).double() - want).abs() / want)[want > 1e-6]
        assert relative.numel() == 0 or float(relative.max()) <= 1e-4, name


def pair(rows: int, vocabulary: int, *, spread: float, change: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits_q = torch.randn(rows, vocabulary, generator=generator) * spread
    logits_p = logits_q + torch.randn(rows, vocabulary, generator=generator) * change
    return logits_p, logits_q, torch.randint(vocabulary, (rows,), generator=generator)


def test_literal_values() -> None:
    logits_p = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]).log()
    logits_q = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]).log()
    stats = divergence_stats(logits_p, logits_q, torch.tensor([0, 1]))
    # row 0: both KL = 0.25 ln 2; M = (3/8, 3/8, 1/4); JS = 0.5 ln(4/3) + 0.25 ln(2/3)
    assert stats.kl_forward.tolist() == pytest.approx([0.17328680, 1.80421532], rel=1e-6)
    assert stats.kl_reverse.tolist() == pytest.approx([0.17328680, 2.06766324], rel=1e-6)
    assert stats.js.tolist() == pytest.approx([0.04247476, 0.38778695], rel=1e-5)
    assert stats.entropy.tolist() == pytest.approx([1.03972077, 0.39439772], rel=1e-6)
    assert stats.entropy_ref.tolist() == pytest.approx([1.03972077, 0.63903186], rel=1e-6)
    assert stats.logprob.tolist() == pytest.approx([math.log(0.5), math.log(0.05)], rel=1e-6)
    assert stats.logprob_ref.tolist() == pytest.approx([math.log(0.25), math.log(0.8)], rel=1e-6)
    assert stats.rank.tolist() == [1, 2]
    assert stats.rank_ref.tolist() == [2, 1]
    assert stats.argmax.tolist() == [0, 0]
    assert stats.argmax_ref.tolist() == [1, 1]


@each("vocabulary", [2, 21, 1000, 32000])
@each("change", [1e-3, 1e-2, 0.1, 0.5, 3.0])
def test_agrees_with_a_float64_oracle(vocabulary: int, change: float) -> None:
    logits_p, logits_q, ids = pair(24, vocabulary, spread=3.0, change=change)
    assert_agrees(divergence_stats(logits_p, logits_q, ids), logits_p, logits_q, ids)


def test_nearly_identical_distributions_keep_their_digits() -> None:
    logits_p, logits_q, ids = pair(64, 32000, spread=3.0, change=4.5e-4, seed=1)
    stats, expected = divergence_stats(logits_p, logits_q, ids), oracle(logits_p, logits_q, ids)
    assert 5e-8 < float(expected["kl_forward"].mean()) < 2e-7
    for name in ("kl_forward", "kl_reverse", "js"):
        torch.testing.assert_close(getattr(stats, name).double(), expected[name], rtol=2e-3, atol=0.0)


def test_identical_inputs_are_exactly_zero() -> None:
    logits, _, ids = pair(16, 32000, spread=10.0, change=0.0)
    stats = divergence_stats(logits, logits.clone(), ids)
    for name in ("kl_forward", "kl_reverse", "js"):
        assert torch.equal(getattr(stats, name), torch.zeros(16)), name


def test_shifting_all_logits_changes_nothing() -> None:
    logits, _, ids = pair(16, 500, spread=3.0, change=0.0)
    shifted = (logits * 1024).round() / 1024  # values that survive adding 64 exactly
    stats = divergence_stats(shifted + 64, shifted, ids)
    assert torch.equal(stats.kl_forward, torch.zeros(16))


def test_extreme_logits() -> None:
    logits_p = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0], [0.0, 0.0, 0.0]])
    logits_q = torch.tensor([[0.0, 200.0, 0.0], [0.0, 200.0, 0.0], [200.0, 0.0, 0.0]])
    stats = divergence_stats(logits_p, logits_q, torch.tensor([1, 1, 1]))
    assert stats.kl_forward.tolist() == pytest.approx([200.0, 0.0, 400 / 3 - math.log(3)], rel=1e-6)
    assert stats.kl_reverse.tolist() == pytest.approx([200.0, 0.0, math.log(3)], rel=1e-6)
    assert stats.js[0] <= math.log(2)
    assert stats.js[0] == pytest.approx(math.log(2), rel=1e-6)
    assert stats.logprob.tolist() == pytest.approx([-200.0, 0.0, -math.log(3)], rel=1e-6)
    assert_agrees(stats, logits_p, logits_q, torch.tensor([1, 1, 1]))


def test_disjoint_supports_reach_but_do_not_pass_ln_2() -> None:
    logits_p = torch.full((1, 1000), -math.inf)
    logits_q = logits_p.clone()
    logits_p[:, :500], logits_q[:, 500:] = 0.0, 0.0
    stats = divergence_stats(logits_p, logits_q, torch.tensor([0]))
    assert float(stats.js) <= math.log(2)
    assert float(stats.js) == pytest.approx(math.log(2), rel=1e-6)
    assert float(stats.kl_forward) == float(stats.kl_reverse) == math.inf
    assert float(stats.entropy) == pytest.approx(math.log(500), rel=1e-6)
    assert float(stats.logprob_ref) == -math.inf


def test_padded_vocabulary_contributes_nothing() -> None:
    logits_p, logits_q, ids = pair(8, 50, spread=2.0, change=0.3)
    padding = torch.full((8, 14), -math.inf)
    padded = divergence_stats(torch.cat([logits_p, padding], 1), torch.cat([logits_q, padding], 1), ids)
    plain = divergence_stats(logits_p, logits_q, ids)
    for name in FLOATS:
        torch.testing.assert_close(getattr(padded, name), getattr(plain, name), rtol=1e-6, atol=1e-8)


def test_kl_is_infinite_only_towards_the_excluded_token() -> None:
    logits_p = torch.tensor([[0.0, -math.inf]])
    logits_q = torch.tensor([[0.0, 0.0]])
    stats = divergence_stats(logits_p, logits_q, torch.tensor([0]))
    assert float(stats.kl_forward) == pytest.approx(math.log(2), rel=1e-6)
    assert float(stats.kl_reverse) == math.inf
    assert float(stats.js) == pytest.approx(0.75 * math.log(4 / 3), rel=1e-5)


@pytest.mark.parametrize("change", [0.05, 1.0])
def test_bfloat16_logits_are_worked_on_in_float32(change: float) -> None:
    logits_p, logits_q, ids = pair(16, 4000, spread=3.0, change=change)
    halved_p, halved_q = logits_p.bfloat16(), logits_q.bfloat16()
    stats = divergence_stats(halved_p, halved_q, ids)
    assert stats.js.dtype == torch.float32
    assert_agrees(stats, halved_p, halved_q, ids)


def test_float64_logits_stay_float64() -> None:
    logits_p, logits_q, ids = pair(8, 300, spread=3.0, change=0.2)
    stats = divergence_stats(logits_p.double(), logits_q.double(), ids)
    for name in FLOATS:
        torch.testing.assert_close(
            getattr(stats, name), oracle(logits_p, logits_q, ids)[name], rtol=1e-8, atol=1e-12, check_dtype=True
        )


def test_js_is_symmetric_and_the_two_kl_change_places() -> None:
    logits_p, logits_q, ids = pair(32, 700, spread=3.0, change=1.0)
    stats, swapped = divergence_stats(logits_p, logits_q, ids), divergence_stats(logits_q, logits_p, ids)
    assert torch.equal(stats.js, swapped.js)
    assert torch.equal(stats.kl_forward, swapped.kl_reverse)
    assert torch.equal(stats.rank, swapped.rank_ref)


def test_order_of_the_vocabulary_does_not_matter() -> None:
    logits_p, logits_q, ids = pair(32, 700, spread=3.0, change=1.0)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(3))
    stats = divergence_stats(logits_p, logits_q, ids)
    permuted = divergence_stats(logits_p[:, order], logits_q[:, order], order.argsort()[ids])
    for name in FLOATS:
        torch.testing.assert_close(getattr(permuted, name), getattr(stats, name), rtol=1e-6, atol=1e-7)
    assert torch.equal(permuted.rank, stats.rank)
    assert torch.equal(order[permuted.argmax.long()].int(), stats.argmax)


def test_rows_do_not_depend_on_their_company() -> None:
    logits_p, logits_q, ids = pair(70, 32000, spread=3.0, change=0.1)
    whole = divergence_stats(logits_p, logits_q, ids)
    parts = [divergence_stats(logits_p[i : i + 7], logits_q[i : i + 7], ids[i : i + 7]) for i in range(0, 70, 7)]
    for name in (*FLOATS, *COUNTS):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts])), name


LOGITS = st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=12)


@settings(deadline=None)
@given(st.data())
def test_bounds_hold_for_any_logits(data: st.DataObject) -> None:
    row_p = data.draw(LOGITS)
    row_q = data.draw(st.lists(st.floats(-60, 60, width=32), min_size=len(row_p), max_size=len(row_p)))
    index = data.draw(st.integers(0, len(row_p) - 1))
    stats = divergence_stats(torch.tensor([row_p]), torch.tensor([row_q]), torch.tensor([index]))
    assert float(stats.kl_forward) >= 0
    assert float(stats.kl_reverse) >= 0
    assert 0 <= float(stats.js) <= math.log(2)
    assert 0 <= float(stats.entropy) <= math.log(len(row_p)) + 1e-6
    assert float(stats.logprob) <= 1e-6
    assert int(stats.rank) == 1 + sum(value > row_p[index] for value in row_p)
    assert_agrees(stats, torch.tensor([row_p]), torch.tensor([row_q]), torch.tensor([index]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_distribution_is_refused(bad: float) -> None:
    good = torch.zeros(1, 3)
    broken = torch.tensor([[0.0, bad, 0.0]])
    with pytest.raises(ValueError, match="not a distribution"):
        divergence_stats(good, broken, torch.tensor([0]))
    with pytest.raises(ValueError, match="not a distribution"):
        divergence_stats(torch.full((1, 3), -math.inf), good, torch.tensor([0]))


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(2, 4\) and \(2,\)"):
        divergence_stats(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))


def test_no_rows_give_empty_statistics() -> None:
    stats = divergence_stats(torch.zeros(0, 5), torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))
    assert {getattr(stats, field.name).numel() for field in dataclasses.fields(stats)} == {0}


def test_topk_probs_are_the_largest_probabilities_in_order() -> None:
    probs, ids = topk_probs(torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]).log(), 2)
    assert ids.tolist() == [[1, 2], [0, 2]]
    torch.testing.assert_close(probs, torch.tensor([[0.6, 0.3], [0.5, 0.3]]))
    assert topk_probs(torch.zeros(1, 3), 10)[1].shape == (1, 3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        topk_probs(torch.zeros(1, 3), 0)
