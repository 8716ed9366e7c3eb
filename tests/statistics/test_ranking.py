from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.statistics import auc, average_precision, bootstrap_ranking, bootstrap_statistic

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
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3)), min_size=2, max_size=14),
    st.integers(0, 99),
)
def test_intervals_against_rows_resampled_one_by_one(rows: list[tuple[int, bool, int]], seed: int) -> None:
    scores, labels = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    clusters = [row[2] for row in rows]
    options = {"clusters": clusters, "confidence": 0.8, "num_resamples": 60, "seed": seed}
    found = bootstrap_ranking(scores, labels, **options)
    assert (found["num"], found["num_positive"]) == (len(rows), labels.sum())
    for name, function in (("auc", auc), ("average_precision", average_precision)):
        expected = bootstrap_statistic(
            lambda chosen, use=function: use(scores[chosen], labels[chosen]), len(rows), **options
        )
        one = found[name]
        if expected is None:
            # a statistic defined on all rows but on few resamples has no interval, unless they all agree
            assert one is None or one["low"] <= one["mean"] <= one["high"]
        elif expected["low"] < expected["high"] - 1e-12:
            assert one == pytest.approx(expected, abs=1e-6)
        else:
            assert one["mean"] == pytest.approx(expected["mean"])


def test_a_perfect_score_leaves_room() -> None:
    found = bootstrap_ranking([9.0, 1.0] * 20, [True, False] * 20, clusters=np.repeat(np.arange(20), 2))
    reach = 1 - 0.05 ** (1 / 20)
    assert found["auc"] == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1.0})
    assert found["average_precision"] == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1.0})


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=40), rng.random(40) < 0.4
    whole = bootstrap_ranking(scores, labels, num_resamples=50)
    monkeypatch.setattr("swerve.statistics.resampling._MAX_DRAWS", 300)
    assert bootstrap_ranking(scores, labels, num_resamples=50) == whole


def test_nothing_to_rank_is_none() -> None:
    nothing = {"num": 2, "num_positive": 0, "auc": None, "average_precision": None}
    assert bootstrap_ranking([1, 2], [False, False]) == nothing
    assert bootstrap_ranking([], []) == {**nothing, "num": 0}
    only = bootstrap_ranking([1, 2], [True, True])
    assert only["auc"] is None
    assert only["average_precision"] is not None
    assert only["average_precision"]["mean"] == 1.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one label per score"):
        auc([1.0, 2.0], [True])
    with pytest.raises(ValueError, match="NaN"):
        average_precision([math.nan], [True])
