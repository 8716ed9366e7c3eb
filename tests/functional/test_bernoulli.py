from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swerve.functional import bernoulli_kl, divergence_stats


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
