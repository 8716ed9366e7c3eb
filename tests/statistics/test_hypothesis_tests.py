from __future__ import annotations

import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control, rankdata, t, ttest_1samp, ttest_rel, wilcoxon

from swerve.statistics import (
    benjamini_hochberg,
    cliffs_delta,
    cohens_d_paired,
    detectable_difference,
    false_positive_rate,
    holm,
    mcnemar,
    paired_interval,
    paired_t_test,
    paired_wilcoxon,
    samples_for_false_positive_rate,
    sign_flip_test,
)


def table(both: int, only_first: int, only_second: int, neither: int) -> tuple[list[bool], list[bool]]:
    first = [True] * (both + only_first) + [False] * (only_second + neither)
    second = [True] * both + [False] * only_first + [True] * only_second + [False] * neither
    return first, second


def test_mcnemar_by_hand() -> None:
    found = mcnemar(*table(12, 2, 8, 8))
    assert (found.num, found.num_first_only, found.num_second_only) == (30, 2, 8)
    assert found.p_value == pytest.approx((2 * (1 + 10 + 45) - 45) / 1024)  # mid-p: half of what was seen
    # Of ten that differ and twenty that do not the kurtosis is 2.89: 29 degrees of freedom, 6/29 of each added case.
    weight = 6 / 29
    num = 30 + 2 * weight
    centre = 6 / num
    half = t.ppf(0.975, num - 1) * math.sqrt((10 + 2 * weight - num * centre**2) / (num - 1) / num)
    assert asdict(found.difference) == pytest.approx({"mean": 0.2, "low": centre - half, "high": centre + half})
    assert found.difference.low == pytest.approx(paired_interval([-1] * 2 + [1] * 8 + [0] * 20).low)


def test_mcnemar_of_equals_and_of_nothing() -> None:
    same = mcnemar([True, False], [True, False])
    assert same.p_value == 1.0
    # Of as many on both sides it is 1, not 1 but for rounding, which corrections for many tests would refuse.
    assert {mcnemar(*table(0, num, num, 0)).p_value for num in range(1, 200)} == {1.0}
    assert same.difference is not None
    assert same.difference.low < 0 == same.difference.mean < same.difference.high
    nothing = {"num": 0, "num_first_only": 0, "num_second_only": 0, "difference": None, "p_value": None}
    assert asdict(mcnemar([], [])) == nothing
    with pytest.raises(ValueError, match="the same cases are needed twice, got 2 and 1"):
        mcnemar([True, True], [True])


def test_mcnemar_interval_covers_by_exact_enumeration() -> None:
    num, chances = 25, (0.1, 0.3)  # only first, only second
    covered = 0.0
    for first in range(num + 1):
        for second in range(num + 1 - first):
            chance = binom.pmf(first, num, chances[0]) * binom.pmf(second, num - first, chances[1] / 0.9)
            interval = mcnemar(*table(0, first, second, num - first - second)).difference
            assert interval is not None
            covered += chance * (interval.low <= 0.2 <= interval.high)
    assert 0.94 < covered < 0.975


def test_the_interval_of_a_difference_stays_within_its_bounds() -> None:
    difference = mcnemar(*table(0, 0, 3, 0)).difference
    assert difference is not None
    assert difference.high == 1.0


def brute_force_p(differences: list[float]) -> float:
    """Every sign pattern of the differences that are not zero, equally likely; ranks with zeros (Pratt)."""
    array = np.array(differences)
    ranks = rankdata(np.abs(array))[array != 0]
    observed = ranks[array[array != 0] > 0].sum()
    middle = ranks.sum() / 2
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product([0, 1], repeat=len(ranks))]
    return float(np.mean([abs(one - middle) >= abs(observed - middle) - 1e-9 for one in sums]))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-4, 6), min_size=1, max_size=9))
def test_signed_ranks_against_all_sign_patterns(differences: list[int]) -> None:
    found = paired_wilcoxon([0] * len(differences), differences)
    assert found is not None
    assert found.p_value == pytest.approx(brute_force_p([float(one) for one in differences]))


def test_signed_ranks_against_scipy() -> None:
    differences = np.random.default_rng(3).normal(0.3, 1.0, 30)
    found = paired_wilcoxon(np.ones(30), 1 + differences)
    assert found is not None
    assert found.p_value == pytest.approx(wilcoxon(differences, method="exact").pvalue)
    assert found.statistic == wilcoxon(differences, alternative="greater").statistic
    assert found.median_difference == pytest.approx(np.median(differences))
    assert found.effect_size == pytest.approx(2 * found.statistic / (30 * 31 / 2) - 1)


def test_the_normal_approximation_of_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.rint(np.random.default_rng(4).normal(1.0, 8.0, 150))
    exact = paired_wilcoxon(np.zeros(150), differences)
    monkeypatch.setattr("swerve.statistics.hypothesis_tests._MAX_EXACT", 10)
    normal = paired_wilcoxon(np.zeros(150), differences)
    assert exact is not None
    assert normal is not None
    assert 0.001 < exact.p_value < 0.9
    assert normal.p_value == pytest.approx(exact.p_value, rel=0.01)


def test_values_of_a_cluster_are_averaged_to_one_pair() -> None:
    found = paired_wilcoxon([0, 0, 0, 0], [4, 2, -1, 5], clusters=["a", "a", "b", "c"])  # 3, -1, 5
    assert found is not None
    assert (found.num_pairs, found.median_difference, found.statistic) == (3, 3.0, 5.0)
    assert found.effect_size == pytest.approx((5 - 1) / 6)
    assert found.p_value == 0.5


def test_pratt_ranks_zeros_before_leaving_them_out() -> None:
    found = paired_wilcoxon([1, 1, 1, 1], [1, 0, 3, 1])  # 0, -1, 2, 0: ranks 1.5, 3, 4, 1.5
    assert found is not None
    assert (found.statistic, found.effect_size) == (4.0, pytest.approx(1 / 7))


def test_no_difference_and_nothing() -> None:
    same = paired_wilcoxon([1.0, 2.0], [1.0, 2.0])
    nothing = {"num_pairs": 2, "median_difference": 0, "statistic": 0, "p_value": 1.0, "effect_size": 0.0}
    assert asdict(same) == {**nothing, "sign_flip_p": 1.0, "p_adjusted": None}
    assert paired_wilcoxon([], []) is None
    with pytest.raises(ValueError, match="paired values are needed, got 1 and 2"):
        paired_wilcoxon([1.0], [1.0, 2.0])


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_benjamini_hochberg_against_scipy(p_values: list[float | None]) -> None:
    adjusted = benjamini_hochberg(p_values)
    known = [value for value in p_values if value is not None]
    expected = iter(false_discovery_control(known) if known else [])
    for value, one in zip(p_values, adjusted, strict=True):
        if value is None:
            assert one is None
        else:
            assert one == pytest.approx(next(expected))


def test_benjamini_hochberg_steps_up() -> None:
    adjusted = benjamini_hochberg([0.04, 0.045, 0.049, 0.01])
    assert adjusted == pytest.approx([0.049, 0.049, 0.049, 0.04])  # 0.04 x 4 / 2 = 0.08 alone
    with pytest.raises(ValueError, match="between 0 and 1"):
        benjamini_hochberg([1.2])


@pytest.mark.parametrize(("num", "gap"), [(7, 0.2), (10, 0.3), (9, 0.25), (5, 1.0)])
def test_false_positive_rate_by_enumeration(num: int, gap: float) -> None:
    chances = binom.pmf(np.arange(num + 1), num, 0.5)
    expected = sum(
        chances[x] * chances[y] for x in range(num + 1) for y in range(num + 1) if abs(x - y) >= gap * num - 1e-9
    )
    assert false_positive_rate(num, gap) == pytest.approx(expected, rel=1e-9)


def test_the_designs_of_the_literature() -> None:
    assert false_positive_rate(10, 0.2) == pytest.approx(1 - (184756 + 2 * 167960) / 2**20)
    assert false_positive_rate(64, 0.2) == pytest.approx(0.027, abs=5e-4)


@pytest.mark.parametrize(("gap", "limit"), [(0.2, 0.05), (0.3, 0.1), (0.25, 0.02)])
def test_least_number_of_samples_by_search(gap: float, limit: float) -> None:
    above = [num for num in range(1, 400) if false_positive_rate(num, gap) > limit]
    assert samples_for_false_positive_rate(gap, limit) == max(above) + 1


def test_the_sawtooth_is_minded() -> None:
    """Some smaller numbers keep the rate too, but not all that follow them."""
    least = samples_for_false_positive_rate(0.2, 0.05)
    smaller = [num for num in range(1, least) if false_positive_rate(num, 0.2) <= 0.05]
    assert smaller
    assert false_positive_rate(least - 1, 0.2) > 0.05
    assert samples_for_false_positive_rate(1.0, 0.5) == 1  # P(|X - Y| = 1) = 1/2


@pytest.mark.parametrize("arguments", [(0.0, 0.05), (1.5, 0.05), (0.2, 0.0), (0.2, 1.0)])
def test_impossible_designs_are_refused(arguments: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="above 0 and"):
        samples_for_false_positive_rate(*arguments)
    with pytest.raises(ValueError, match="at least one sample"):
        false_positive_rate(0, 0.2)


def test_cohens_d_of_paired_values() -> None:
    assert cohens_d_paired([1, 1, 1, 1], [2, 4, 2, 4]) == pytest.approx(2 / math.sqrt(4 / 3))
    assert cohens_d_paired([2, 4, 2, 4], [1, 1, 1, 1]) == pytest.approx(-2 / math.sqrt(4 / 3))


def test_pairs_of_a_cluster_count_once() -> None:
    once = cohens_d_paired([0, 0, 0], [1, 2, 4])
    assert once == pytest.approx(7 / 3 / math.sqrt(7 / 3))
    assert cohens_d_paired([0, 0, 0, 0], [0, 2, 2, 4], clusters=["a", "a", "b", "c"]) == pytest.approx(once)


def test_effects_of_nothing_are_none() -> None:
    assert cohens_d_paired([], []) is None
    assert cohens_d_paired([1], [2]) is None
    assert cohens_d_paired([1, 1], [2, 3], clusters=["a", "a"]) is None
    assert cohens_d_paired([1, 1], [2, 2]) is None
    assert cliffs_delta([], [1]) is None
    assert cliffs_delta([1], []) is None
    with pytest.raises(ValueError, match="paired values are needed"):
        cohens_d_paired([1, 1], [2])


SMALL = st.lists(st.integers(-3, 3), min_size=1, max_size=8)


@given(SMALL, SMALL)
def test_cliffs_delta_over_all_pairs(values: list[int], others: list[int]) -> None:
    signs = [(value > other) - (value < other) for value in values for other in others]
    assert cliffs_delta(values, others) == pytest.approx(sum(signs) / len(signs))


def test_sign_flips_are_those_of_all_patterns() -> None:
    differences = [2.0, -1.0, 3.0, 0.0, 0.5, 4.0]
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product((-1, 1), repeat=6)
    ]
    expected = sum(abs(one) >= 8.5 for one in sums) / 64
    assert sign_flip_test(np.zeros(6), differences) == expected == paired_wilcoxon(np.zeros(6), differences).sign_flip_p
    names = ["a", "a", "b", "c", "d", "e", "f"]
    assert sign_flip_test(np.zeros(7), [3.0, 1.0, *differences[1:]], clusters=names) == expected
    assert sign_flip_test([1.0], [1.0]) == 1.0
    assert sign_flip_test([], []) is None


def test_drawn_sign_flips_are_close_to_the_exact_ones() -> None:
    differences = np.random.default_rng(5).normal(0.3, 1.0, size=18)
    signs = 2.0 * ((np.arange(2**18)[:, None] >> np.arange(18)) & 1) - 1
    exact = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean()
    assert sign_flip_test(np.zeros(18), differences) == pytest.approx(exact, abs=4 * math.sqrt(exact / 1999))


def test_holm_by_hand() -> None:
    # Of .005, .01, .03, .04: 4 x .005, 3 x .01, 2 x .03, and .04 no lower than the one before.
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.5])


def test_holm_rejects_what_the_step_down_procedure_does() -> None:
    random = np.random.default_rng(4)
    for _ in range(200):
        values = random.uniform(0, 0.05, size=int(random.integers(1, 7))).tolist()
        ordered, rejected = sorted(values), set()
        for place, value in enumerate(ordered):
            if value > 0.05 / (len(values) - place):
                break
            rejected.add(value)
        assert {value for value, p in zip(values, holm(values), strict=True) if p <= 0.05} == rejected


def test_paired_t_test_is_that_of_scipy() -> None:
    first, second = [0.2, 0.5, 0.4, 0.9], [0.3, 0.4, 0.7, 1.0]
    assert paired_t_test(first, second) == pytest.approx(ttest_rel(second, first).pvalue)
    assert paired_t_test([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert paired_t_test([0.5, 0.5], [0.6, 0.6]) is None  # without any spread nothing is tested
    assert paired_t_test([0.5], [0.6]) is None


@pytest.mark.parametrize("num", [2, 3, 5, 12])
def test_the_detectable_difference_is_found_as_often_as_it_says(num: int) -> None:
    difference = detectable_difference(num, 0.03, power=0.8)
    draws = np.random.default_rng(num).normal(difference, 0.03, size=(20_000, num))
    assert (ttest_1samp(draws, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.012)


def test_the_detectable_difference_needs_two_pairs_and_a_power() -> None:
    assert detectable_difference(1, 0.03) is None
    assert detectable_difference(9, 0.0) == 0.0
    with pytest.raises(ValueError, match="power"):
        detectable_difference(9, 0.1, power=1.0)
