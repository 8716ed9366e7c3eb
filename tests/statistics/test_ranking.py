from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, logit

from swerve.statistics import auc, auc_difference, auc_interval, average_precision, ranking_intervals
from swerve.statistics.jackknife import equal_values, jackknife_interval

ROWS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=15)


def brute_auc(scores: list[float], labels: list[bool]) -> float | None:
    pairs = [
        (p > n) + 0.5 * (p == n)
        for p, is_positive in zip(scores, labels, strict=True)
        if is_positive
        for n, other in zip(scores, labels, strict=True)
        if not other
    ]
    return sum(pairs) / len(pairs) if pairs else None


def brute_average_precision(scores: list[float], labels: list[bool]) -> float | None:
    total, found, before = sum(labels), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [label for score, label in zip(scores, labels, strict=True) if score >= threshold]
        if total:
            recall, precision = sum(chosen) / total, sum(chosen) / len(chosen)
            found, before = found + (recall - before) * precision, recall
    return found if total else None


@settings(deadline=None)
@given(ROWS)
def test_against_the_definitions(rows: list[tuple[int, bool]]) -> None:
    scores, labels = [float(score) for score, _ in rows], [label for _, label in rows]
    for found, expected in (
        (auc(scores, labels), brute_auc(scores, labels)),
        (average_precision(scores, labels), brute_average_precision(scores, labels)),
    ):
        assert found == (None if expected is None else pytest.approx(expected))


def test_by_hand() -> None:
    assert auc([1, 2, 3, 4], [False, False, True, True]) == 1.0
    assert auc([4, 3, 2, 1], [False, False, True, True]) == 0.0
    assert auc([2, 2], [True, False]) == 0.5
    assert average_precision([4, 3, 2, 1], [False, True, False, True]) == 0.5
    assert average_precision([1, 1, 1, 1], [True, False, False, False]) == 0.25
    assert auc([math.inf, 1.0, -math.inf], [True, True, False]) == 1.0


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3)), min_size=2, max_size=14))
def test_average_precision_has_the_jackknife_interval(rows: list[tuple[int, bool, int]]) -> None:
    scores, labels = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    clusters = np.array([row[2] for row in rows])
    found = ranking_intervals(scores, labels, clusters=clusters).average_precision
    value = average_precision(scores, labels)
    kept = [clusters != one for one in np.unique(clusters)]
    without = np.array([average_precision(scores[keep], labels[keep]) for keep in kept], dtype=float)
    num = len(np.unique(clusters[labels]))
    expected = None if value is None else jackknife_interval(value, without, bounds=(0.0, 1.0), most_degrees=num - 1.0)
    if value == 1 or num == 1:  # of the clusters with positives the rule of three
        expected = equal_values(value, num, bounds=(0.0, 1.0))
    assert (found is None) == (expected is None)
    if expected is not None:
        assert asdict(found) == pytest.approx(asdict(expected), abs=1e-4)


def test_auc_has_delongs_variance() -> None:
    """By the formula of DeLong, DeLong and Clarke-Pearson, rows of their own, from placements by hand."""
    positives, negatives = np.array([3.0, 5.0, 6.0, 2.0, 9.0, 4.0]), np.array([1.0, 4.0, 2.5, 3.0, 0.0])
    wins = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    area = wins.mean()
    parts = wins.mean(axis=1).var(ddof=1) / 6, wins.mean(axis=0).var(ddof=1) / 5
    deviations = np.concatenate([(wins.mean(axis=1) - area) / 6, (wins.mean(axis=0) - area) / 5])
    welch = sum(parts) ** 2 / (parts[0] ** 2 / 5 + parts[1] ** 2 / 4)
    spread = 11 * (deviations**4).sum() / (deviations**2).sum() ** 2 - 1
    reach = math.sqrt(sum(parts)) * stats.t.ppf(0.975, min(welch, 10, 22 / spread) - 1) / (area * (1 - area))
    found = auc_interval(np.concatenate([positives, negatives]), np.arange(11) < 6)
    expected = {"mean": area, "low": expit(logit(area) - reach), "high": expit(logit(area) + reach)}
    assert asdict(found) == pytest.approx(expected)


def test_copies_within_a_cluster_add_no_certainty() -> None:
    rng = np.random.default_rng(4)
    labels = np.arange(40) % 2 == 0
    scores = rng.normal(size=40) + labels
    for name in ("auc", "average_precision"):
        once = getattr(ranking_intervals(scores, labels), name)
        names = np.repeat(np.arange(40), 7)
        copied = getattr(ranking_intervals(np.repeat(scores, 7), np.repeat(labels, 7), clusters=names), name)
        assert asdict(copied) == pytest.approx(asdict(once), rel=1e-4)


def test_one_cluster_with_all_positives_says_little() -> None:
    labels = np.arange(30) < 3
    found = auc_interval(np.where(labels, 2.0, np.arange(30) / 10), labels, clusters=np.maximum(np.arange(30), 2))
    assert (found.low, found.high) == pytest.approx((0.05 * found.mean, 1 - 0.05 * (1 - found.mean)))


def test_a_perfect_score_leaves_room() -> None:
    found = ranking_intervals([9.0, 1.0] * 20, [True, False] * 20, clusters=np.repeat(np.arange(20), 2))
    reach = 1 - 0.05 ** (1 / 20)
    assert asdict(found.auc) == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1.0})
    assert asdict(found.average_precision) == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1.0})


def test_nothing_to_rank_is_none() -> None:
    nothing = {"num": 2, "num_positive": 0, "auc": None, "average_precision": None}
    assert asdict(ranking_intervals([1, 2], [False, False])) == nothing
    assert asdict(ranking_intervals([], [])) == {**nothing, "num": 0}
    only = ranking_intervals([1, 2], [True, True])
    assert only.auc is None
    assert only.average_precision is not None
    assert only.average_precision.mean == 1.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one label per score"):
        auc([1.0, 2.0], [True])
    with pytest.raises(ValueError, match="NaN"):
        average_precision([math.nan], [True])


def test_the_difference_of_two_areas_is_delongs():
    """Rows of their own: variances of the differences of the structural components, by counting pairs."""
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 3 == 0
    common = rng.normal(size=80)
    first, second = (common + rng.normal(size=80) + shift * labels for shift in (1.5, 0.8))

    def components(scores):
        wins = (scores[labels][:, None] > scores[~labels]).astype(float)
        return wins.mean(axis=1), wins.mean(axis=0)

    above, below = (one - other for one, other in zip(components(first), components(second), strict=True))
    variance = above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below)
    found = auc_difference(first, [second], labels)
    value = auc(first, labels) - auc(second, labels)
    assert found.mean == pytest.approx(value)
    # On the logit between -1 and 1 the ends are as far away as the odds say.
    place = [logit((end + 1) / 2) for end in (found.low, found.mean, found.high)]
    assert place[2] - place[1] == pytest.approx(place[1] - place[0])
    reach = (place[2] - place[1]) * (1 - value**2) / 2
    assert 1.96 < reach / math.sqrt(variance) < 2.1


def test_the_difference_from_several_areas_is_that_from_their_mean():
    rng = np.random.default_rng(1)
    labels, names = np.arange(60) % 4 == 0, np.arange(60) // 6
    own, *others = rng.normal(size=(4, 60)) + labels
    found = auc_difference(own, others, labels, clusters=names)
    assert found.mean == pytest.approx(auc(own, labels) - np.mean([auc(other, labels) for other in others]))
    assert auc_difference(own, [others[0]] * 3, labels, clusters=names) == auc_difference(
        own, [others[0]], labels, clusters=names
    )
    nothing = auc_difference(own, [own], labels, clusters=names)
    assert nothing.mean == 0
    assert nothing.low == -nothing.high < 0
    assert auc_difference(own, others, [False] * 60) is None


def test_an_area_against_a_constant_score_is_that_against_chance():
    rng = np.random.default_rng(2)
    labels, names = np.arange(120) % 4 == 0, np.arange(120) // 6
    scores = rng.normal(size=120) + labels
    found, alone = (
        auc_difference(scores, [np.zeros(120)], labels, clusters=names),
        auc_interval(scores, labels, clusters=names),
    )
    assert found.mean == pytest.approx(alone.mean - 0.5)
    assert found.low == pytest.approx(alone.low - 0.5, abs=0.02)
