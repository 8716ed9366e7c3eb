"""Sampler correction and the top-entropy mask: literal values and edges."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swerve.functional.token_weights import entropy_threshold, importance_weights, top_entropy_mask

OLD = torch.tensor([[4.0, 2.0, 1.0, 0.25]]).log()
SAMPLER = torch.zeros(1, 4)


def test_truncated_and_masked_weights_literal_values():
    """Weights 4, 2, 1 and 1/4."""
    assert importance_weights(OLD, SAMPLER, kind="tis", cap=2.5)[0].tolist() == pytest.approx([2.5, 2, 1, 0.25])
    assert importance_weights(OLD, SAMPLER, kind="mis", cap=2.5)[0].tolist() == pytest.approx([0, 2, 1, 0.25])
    assert importance_weights(OLD, SAMPLER, kind="mis", cap=5, floor=0.5)[0].tolist() == pytest.approx([4, 2, 1, 0])


def test_weights_at_the_bounds_are_kept():
    zero = torch.zeros(1, 1)
    assert importance_weights(zero, zero, kind="mis", cap=1, floor=1).tolist() == [[1.0]]


def test_weights_are_finite_and_without_gradient_at_extreme_ratios():
    old = torch.tensor([[0.0, -200.0]], requires_grad=True)
    sampler = torch.tensor([[-200.0, 0.0]])
    for kind, expected in (("tis", [2.0, 0.0]), ("mis", [0.0, 0.0])):
        found = importance_weights(old, sampler, kind=kind, cap=2.0)
        assert found[0].tolist() == expected
        assert not found.requires_grad


def test_low_precision_log_probabilities_are_subtracted_in_float32():
    """In bfloat16 the difference of these two is exact, its exponential would not be."""
    found = importance_weights(torch.tensor([[-1.0]]).bfloat16(), torch.tensor([[-1.0078125]]).bfloat16(), cap=2.0)
    assert found.item() == pytest.approx(math.exp(0.0078125), abs=1e-7)


def test_wrong_options_of_the_correction_are_named():
    for options, message in (
        ({"cap": 0}, "cap must be above 0, got 0"),
        ({"cap": 2, "kind": "mis", "floor": 3}, "floor must be from 0 to cap, which is 2; got 3"),
        ({"cap": 2, "floor": 0.5}, "'tis' truncates from above only"),
    ):
        with pytest.raises(ValueError, match=message):
            importance_weights(OLD, SAMPLER, **options)


def test_wrong_kinds_and_shapes_are_named(unchecked_shapes):
    with pytest.raises(ValueError, match="kind must be 'tis' or 'mis', got 'is'"):
        importance_weights(OLD, SAMPLER, kind="is", cap=2)
    with pytest.raises(ValueError, match=r"one shape \[B, T\].*sampler_logprobs"):
        importance_weights(OLD, SAMPLER[:, :1], cap=2)
    with pytest.raises(ValueError, match=r"one shape \[B, T\].*mask"):
        top_entropy_mask(OLD, torch.ones(1, 1, dtype=torch.bool), share=0.5)


@pytest.mark.parametrize(
    ("share", "kept"), [(0.1, [0.9]), (0.2, [0.9]), (0.21, [0.9, 0.7]), (0.4, [0.9, 0.7]), (1, [0.9, 0.7, 0.5, 0.3, 0])]
)
def test_the_top_share_is_rounded_up(share, kept):
    entropies = torch.tensor([0.3, 0.9, 0.0, 0.7, 0.5])
    threshold = entropy_threshold(entropies, share=share)
    assert sorted(entropies[entropies >= threshold].tolist(), reverse=True) == pytest.approx(kept)


@given(num_tokens=st.integers(1, 300), percent=st.integers(1, 100))
def test_the_share_keeps_its_number_of_distinct_tokens(num_tokens, percent):
    entropies = torch.randperm(num_tokens, generator=torch.Generator().manual_seed(0)).float()
    kept = int((entropies >= entropy_threshold(entropies, share=percent / 100)).sum())
    assert kept == -(-percent * num_tokens // 100)


def test_ties_are_kept():
    mask = torch.tensor([[True, True, True, False]])
    found = top_entropy_mask(torch.tensor([[0.5, 0.5, 0.1, 0.5]]), mask, share=0.2)
    assert found.tolist() == [[True, True, False, False]]


def test_a_threshold_of_the_whole_update_makes_the_mask_independent_of_the_split():
    entropies = torch.tensor([[0.1, 2.0, math.nan], [1.0, 0.4, 3.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    whole = top_entropy_mask(entropies, mask, share=0.4)
    assert whole.tolist() == [[False, True, False], [False, False, True]]
    threshold = entropy_threshold(entropies[mask], share=0.4)
    parts = [top_entropy_mask(entropies[rows], mask[rows], share=0.4, threshold=threshold) for rows in ([0], [1])]
    assert torch.equal(torch.cat(parts), whole)


def test_an_empty_mask_or_share_is_an_error():
    mask = torch.zeros(1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="is every mask empty"):
        top_entropy_mask(OLD, mask, share=0.2)
    for share in (0, 1.5, math.nan):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            entropy_threshold(OLD[0], share=share)
