"""pass@k, pass^k and maj@k against the enumeration of all subsets."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.statistics.pass_at_k import chance_of_turning, majority_at_k, pass_at_k, pass_hat_k, sampling_curve


@st.composite
def samples_and_k(draw):
    samples = draw(
        st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.booleans()), min_size=1, max_size=7)
    )
    return samples, draw(st.integers(1, len(samples)))


@given(samples_and_k())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case):
    samples, k = case
    right = [is_right for _, is_right in samples]
    subsets = list(itertools.combinations(right, k))
    assert pass_at_k(len(right), sum(right), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_hat_k(len(right), sum(right), k) == pytest.approx(sum(map(all, subsets)) / len(subsets))


def _chance_of_majority(subset, share):
    counts = {}
    for answer in subset:
        if answer is not None:
            counts[answer] = counts.get(answer, 0) + 1
    first = [answer for answer, num in counts.items() if num == max(counts.values())]
    return sum((share[answer] for answer in first), Fraction(0)) / len(first) if first else Fraction(0)


@given(samples_and_k())
def test_majority_at_k_is_the_mean_over_subsets(case):
    samples, k = case
    answers = [answer for answer, _ in samples]
    verdicts = {answer: [is_right for other, is_right in samples if other == answer] for answer in answers}
    share = {answer: Fraction(sum(given), len(given)) for answer, given in verdicts.items()}
    subsets = list(itertools.combinations(answers, k))
    expected = sum(_chance_of_majority(subset, share) for subset in subsets) / len(subsets)
    assert majority_at_k(answers, [is_right for _, is_right in samples], k) == pytest.approx(float(expected), abs=1e-9)


def test_literal_values():
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - math.comb(7, 5) / math.comb(10, 5))
    assert pass_at_k(4, 0, 4) == 0.0
    assert pass_at_k(4, 1, 4) == 1.0
    assert pass_hat_k(4, 4, 3) == 1.0
    assert majority_at_k([None, None], [False, False], 1) == 0.0
    # Two votes for a right answer, one each for two wrong ones: of 4 subsets of 3 two have both right votes; in the
    # others three answers tie.
    assert majority_at_k(["x", "x", "y", "z"], [True, True, False, False], 3) == pytest.approx(2 / 4 + 2 / 4 / 3)


def test_right_answers_without_text_have_no_vote():
    assert majority_at_k([None, "x"], [True, False], 2) == 0.0


def test_large_numbers_stay_exact():
    # 1 - C(n-c, k) / C(n, k) as integers would need numbers of thousands of digits.
    n, c, k = 100_000, 1, 10
    assert pass_at_k(n, c, k) == pytest.approx(k / n, rel=1e-12)
    assert pass_at_k(20_000, 10_000, 10_000) == 1.0
    assert pass_hat_k(100_000, 99_999, 10) == pytest.approx(1 - 10 / 100_000, rel=1e-12)
    exact = 1 - Fraction(math.comb(1500, 300), math.comb(2000, 300))
    assert pass_at_k(2000, 500, 300) == pytest.approx(float(exact), rel=1e-12)


def test_majority_of_many_samples():
    answers = ["right"] * 120 + [f"wrong {number}" for number in range(80)]
    right = [answer == "right" for answer in answers]
    assert majority_at_k(answers, right, 1) == pytest.approx(0.6)
    assert majority_at_k(answers, right, 50) == pytest.approx(1.0, abs=1e-9)
    assert majority_at_k(["x", "y"] * 60, [True, False] * 60, 61) == pytest.approx(0.5)


@pytest.mark.parametrize("arguments", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_impossible_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match=r"cannot be right|k must be from 1"):
        pass_at_k(*arguments)


def test_as_many_verdicts_as_answers():
    with pytest.raises(ValueError, match="2 answers need as many verdicts, got 1"):
        majority_at_k(["a", "b"], [True], 1)


def test_a_curve_leaves_out_problems_with_too_few_samples():
    problems = [
        {"answers": ["a", "b", "b", "c"], "right": [True, False, False, False]},
        {"answers": ["a", "b"], "right": [True, True]},
    ]
    curve = sampling_curve(problems)
    assert [(entry.k, entry.num_problems) for entry in curve] == [(1, 2), (2, 2), (4, 1)]
    assert curve[1].pass_at_k.mean == pytest.approx((0.5 + 1.0) / 2)
    assert curve[1].pass_hat_k.mean == pytest.approx((0.0 + 1.0) / 2)
    assert curve[2].majority_at_k.mean == 0.0
    assert curve[0].pass_at_k.low < curve[0].pass_at_k.mean < curve[0].pass_at_k.high


def test_one_sample_says_accuracy_three_times():
    (entry,) = sampling_curve([{"answers": ["a"], "right": [True]}, {"answers": [None], "right": [False]}])
    assert entry.pass_at_k == entry.pass_hat_k == entry.majority_at_k
    assert entry.pass_at_k.mean == 0.5
    assert sampling_curve([]) == []


def test_no_majority_where_answers_were_not_recorded():
    (entry,) = sampling_curve([{"answers": [None], "right": [True]}])
    assert entry.majority_at_k is None
    assert entry.pass_at_k.mean == 1.0


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (3, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("right", range(6))
def test_the_chance_of_turning_by_enumeration(right, sizes):
    """Every way to draw m samples and m' others of five; a tie is decided by a coin."""
    verdicts = [1] * right + [0] * (5 - right)
    first, second = sizes

    def is_right(drawn):
        return {-1: 0.0, 0: 0.5, 1: 1.0}[np.sign(2 * sum(drawn) - len(drawn))]

    chances = [
        (1 - is_right(order[:first])) * is_right(order[first : first + second])
        for order in itertools.permutations(verdicts)
    ]
    assert chance_of_turning(5, right, sizes) == pytest.approx(np.mean(chances))


def test_too_few_samples_do_not_say_how_often_a_problem_turns():
    assert (chance_of_turning(1, 1), chance_of_turning(3, 2, (2, 2)), chance_of_turning(0, 0)) == (None, None, None)
