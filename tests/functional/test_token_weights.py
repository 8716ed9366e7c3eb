"""Reductions against the libraries' numbers, sampler correction and the top-entropy mask."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swerve.functional.token_weights import (
    entropy_threshold,
    importance_weights,
    reduction_weights,
    sequence_mean,
    sequence_sum,
    sequence_sum_norm,
    token_mean,
    token_sum,
    top_entropy_mask,
)
from tests.cases import each

LENGTHS = torch.tensor([2, 3, 4, 1])
MASK = torch.arange(4) < LENGTHS[:, None]
VALUES = torch.arange(1.0, 17.0).view(4, 4)
ALL = [
    (token_mean, {"num_tokens": 10}, 7.6),
    (sequence_mean, {"num_sequences": 4}, 7.75),
    (sequence_sum, {"num_sequences": 4}, 19.0),
    (sequence_sum_norm, {"num_sequences": 4, "length": 4}, 4.75),  # verl
    (sequence_sum_norm, {"num_sequences": 1, "length": 4}, 19.0),  # verl-before-2026
    (sequence_sum_norm, {"num_sequences": 4, "length": 8}, 2.375),  # trl-dr_grpo
    (token_sum, {}, 76.0),
]


@each(("function", "counts", "expected"), ALL)
@each("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_golden_reductions(function, counts, expected, dtype):
    found = function(VALUES.to(dtype), MASK, **counts)
    assert found.item() == pytest.approx(expected, abs=1e-6)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize(("function", "counts", "expected"), ALL)
def test_weights_give_the_same_number_and_are_its_gradient(function, counts, expected):
    values = VALUES.double().masked_fill(~MASK, math.nan).requires_grad_()
    weights = reduction_weights(MASK, reduction=function.__name__, **counts, dtype=torch.float64)
    assert (weights[MASK] * values.detach()[MASK]).sum().item() == pytest.approx(expected, abs=1e-12)
    (gradient,) = torch.autograd.grad(function(values, MASK, **counts), values)
    assert torch.allclose(gradient, weights, atol=1e-15)
    assert weights[~MASK].count_nonzero() == 0


@each(("function", "counts", "expected"), ALL)
@each("poison", [math.nan, math.inf])
def test_padding_splits_and_order_change_neither_value_nor_gradient(function, counts, expected, poison):
    wide = torch.nn.functional.pad(VALUES.double(), (0, 3))
    mask = torch.nn.functional.pad(MASK, (0, 3))
    values = wide.masked_fill(~mask, poison).requires_grad_()
    order = [2, 0, 3, 1]
    parts = [
        function(values[order][rows, :width], mask[order][rows, :width], **counts)
        for rows, width in ((slice(0, 1), 4), (slice(1, 3), 7), (slice(3, 4), 5))
    ]
    total = torch.stack(parts).sum()
    assert total.item() == pytest.approx(expected, abs=1e-12)
    (gradient,) = torch.autograd.grad(total, values)
    plain = VALUES.double().requires_grad_()
    (expected_gradient,) = torch.autograd.grad(function(plain, MASK, **counts), plain)
    assert torch.allclose(gradient[:, :4], expected_gradient, atol=1e-12)
    assert gradient[:, 4:].count_nonzero() == 0


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), seed=st.integers(0, 100))
def test_token_and_sequence_means_are_the_plain_averages(lengths, seed):
    values = torch.randn(len(lengths), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    rows = [row[:length] for row, length in zip(values, lengths, strict=True) if length]
    found = token_mean(values, mask, num_tokens=sum(lengths))
    assert found.item() == pytest.approx(torch.cat(rows).mean().item(), abs=1e-12)
    found = sequence_mean(values, mask, num_sequences=len(rows))
    assert found.item() == pytest.approx(torch.stack([row.mean() for row in rows]).mean().item(), abs=1e-12)


def test_masked_positions_get_no_gradient():
    values = VALUES.masked_fill(~MASK, math.inf).requires_grad_()
    token_mean(values, MASK, num_tokens=10).backward()
    assert values.grad is not None
    assert torch.equal(values.grad, MASK * 0.1)


@each("denominator", [0, -1, math.nan])
@each(("function", "counts", "expected"), ALL[:-1])
def test_an_empty_mask_is_an_error(function, counts, expected, denominator):
    for name in counts:
        with pytest.raises(ValueError, match=f"{name} is {denominator}; is every mask empty"):
            function(VALUES, MASK, **{**counts, name: denominator})
        with pytest.raises(ValueError, match=f"{name} is {denominator}; is every mask empty"):
            reduction_weights(MASK, reduction=function.__name__, **{**counts, name: denominator})


def test_a_missing_denominator_is_named():
    with pytest.raises(ValueError, match="'sequence_sum_norm' needs length of the whole update"):
        reduction_weights(MASK, reduction="sequence_sum_norm", num_sequences=4)


def test_wrong_shapes_and_names_are_named(unchecked_shapes):
    with pytest.raises(ValueError, match=r"one shape \[B, T\]; got .*values.*\(4, 1\).*\(4, 4\)"):
        token_mean(VALUES[:, :1], MASK, num_tokens=10)
    with pytest.raises(ValueError, match="unknown reduction 'mean'; choose one of token_mean, sequence_mean"):
        reduction_weights(MASK, reduction="mean", num_tokens=10)


OLD = torch.tensor([[4.0, 2.0, 1.0, 0.25]]).log()
SAMPLER = torch.zeros(1, 4)


def test_truncated_and_masked_weights_literal_values():
    """Weights 4, 2, 1 and 1/4."""
    assert importance_weights(OLD, SAMPLER, kind="tis", cap=2.5)[0].tolist() == pytest.approx([2.5, 2, 1, 0.25])
    assert importance_weights(OLD, SAMPLER, kind="mis", cap=2.5)[0].tolist() == pytest.approx([0, 2, 1, 0.25])
    assert importance_weights(OLD, SAMPLER, kind="mis", cap=5, floor=0.5)[0].tolist() == pytest.approx([4, 2, 1, 0])


def test_the_weights_of_whole_sequences_literal_values():
    """Ratios 4, 2, 1 and 1/4: their product is 2, of the first three 8, with the geometric mean 2."""
    full, three = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[True, True, True, False]])
    for level, mask, expected in (
        ("sequence", full, 2.0),
        ("geometric", full, 2.0**0.25),
        ("sequence", three, 8.0),
        ("geometric", three, 2.0),
    ):
        found = importance_weights(OLD, SAMPLER, mask, level=level, cap=10.0)
        assert found[0].tolist() == pytest.approx([expected] * 4)
    assert importance_weights(OLD, SAMPLER, three, level="sequence", cap=5.0)[0].tolist() == [5.0] * 4
    assert importance_weights(OLD, SAMPLER, three, level="sequence", kind="mis", cap=5.0)[0].tolist() == [0.0] * 4
    poisoned = SAMPLER.where(three, torch.nan)
    assert importance_weights(OLD, poisoned, three, level="geometric", cap=5.0)[0].tolist() == pytest.approx([2.0] * 4)


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
        ({"cap": 2, "level": "sequence"}, "level 'sequence' needs the mask of the sequences' tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            importance_weights(OLD, SAMPLER, **options)


def test_wrong_kinds_and_shapes_are_named(unchecked_shapes):
    with pytest.raises(ValueError, match="kind must be 'tis' or 'mis', got 'is'"):
        importance_weights(OLD, SAMPLER, kind="is", cap=2)
    with pytest.raises(ValueError, match="level must be 'token', 'sequence' or 'geometric', got 'batch'"):
        importance_weights(OLD, SAMPLER, level="batch", cap=2)
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


@pytest.mark.parametrize("share", [0.01, 0.3, 0.77, 1.0])
def test_the_threshold_of_several_processes_is_found_exactly_from_sums_of_counts(share):
    values = torch.cat(
        [torch.randn(150) * 10.0 ** torch.arange(-20, 10).repeat(5), torch.tensor([0.0, -0.0, 1.0, 1.0])]
    )
    num_sums = []

    def sum_counts(counts):
        num_sums.append(1)
        return counts

    assert entropy_threshold(values, share=share, sum_counts=sum_counts) == entropy_threshold(values, share=share)
    assert len(num_sums) == 5
    twice = entropy_threshold(values, share=share, sum_counts=lambda counts: 2 * counts)
    assert twice == entropy_threshold(values.repeat(2), share=share)


def test_an_empty_mask_or_share_is_an_error():
    mask = torch.zeros(1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="is every mask empty"):
        top_entropy_mask(OLD, mask, share=0.2)
    for share in (0, 1.5, math.nan):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            entropy_threshold(OLD[0], share=share)
