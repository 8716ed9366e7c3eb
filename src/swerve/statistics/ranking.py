"""AUC and average precision of a score, with intervals over clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from swerve.statistics.resampling import (
    Clusters,
    Estimate,
    cluster_counts,
    membership,
    percentile_estimate,
    ratio_or_nan,
    rule_of_three,
)

Labels = Sequence[bool] | NDArray[np.bool_]


class Ranking(TypedDict):
    """How well a score ranks the rows that are sought."""

    num: int
    num_positive: int
    auc: Estimate | None
    """0.5: no better than chance."""
    average_precision: Estimate | None
    """`num_positive / num` by chance."""


def auc(scores: ArrayLike, labels: Labels) -> float | None:
    """Return P(score of a positive > score of a negative), ties half: the area under the ROC curve.

    AUC = (R - n (n + 1) / 2) / (n m), R the sum of the mean ranks of the n positives among all. None where there is no
    positive or no negative. Scores may be infinite. Source: Hanley and McNeil, Radiology 143 (1982).

    Raises:
        ValueError: the lengths differ, or a score is NaN.

    >>> auc([0.1, 0.4, 0.4, 0.8], [False, True, False, True])
    0.875
    """
    values, positive = _scored(scores, labels)
    num_positive = int(positive.sum())
    num_negative = positive.size - num_positive
    if not num_positive or not num_negative:
        return None
    ranks = float(rankdata(values)[positive].sum())
    return (ranks - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def average_precision(scores: ArrayLike, labels: Labels) -> float | None:
    """Return the mean, over positives, of the precision among the rows scored at least as high.

    AP = sum over thresholds of (recall_k - recall_(k-1)) precision_k; rows of equal score enter together. None where
    there is no positive. Scores may be infinite. Source: Davis and Goadrich, ICML 2006 (no interpolation).

    Raises:
        ValueError: the lengths differ, or a score is NaN.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    values, positive = _scored(scores, labels)
    if not positive.any():
        return None
    at_least = _num_at_least(values, values[positive])
    found = _num_at_least(values[positive], values[positive])
    return float((found / at_least).mean())


def _num_at_least(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


def _scored(scores: ArrayLike, labels: Labels) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    if values.shape != positive.shape or values.ndim != 1:
        raise ValueError(f"one label per score is needed, got scores {values.shape} and labels {positive.shape}")
    if np.isnan(values).any():
        raise ValueError("a score is NaN; leave rows without a score out")
    return values, positive


def bootstrap_ranking(
    scores: ArrayLike,
    labels: Labels,
    *,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
) -> Ranking:
    """Return AUC and average precision with their percentile bootstrap intervals over clusters.

    Both are sums over the P positives of counts of rows above them; held by cluster, a resample reweighs them:
    `[R, C] x [C, P]`, so that rows are sorted once. Where every resample gives the same figure (all positives on top),
    the interval is that of `rule_of_three` over the clusters with a positive.

    Args:
        scores: one per row; may be infinite.
        labels: whether the row is sought.
        clusters: which rows belong together; by default each row is its own cluster.
        confidence: coverage of the intervals.
        num_resamples: R.
        seed: of the resampling.

    Raises:
        ValueError: the lengths differ, or a score is NaN.

    >>> found = bootstrap_ranking([3, 1, 4, 1, 5, 9], [False, False, True, False, True, True], num_resamples=100)
    >>> found["num_positive"], found["auc"]["mean"], round(found["auc"]["low"], 3), found["average_precision"]["mean"]
    (3, 1.0, 0.368, 1.0)
    """
    values, positive = _scored(scores, labels)
    area, precision = auc(values, positive), average_precision(values, positive)
    num_clusters, index = membership(clusters, values.size)
    result: Ranking = {
        "num": values.size,
        "num_positive": int(positive.sum()),
        "auc": None,
        "average_precision": None,
    }
    if precision is None:
        return result
    above, level, sought = _counts_by_cluster(values, positive, index, num_clusters)
    last = _last_of_level(np.sort(values[positive])[::-1])
    areas, precisions = [], []
    blocks = cluster_counts(num_clusters, num_resamples, seed, width=1 + int(positive.sum()) // num_clusters)
    for counts in blocks:
        weights = counts.astype(np.float32)  # whole numbers below 2^24 are exact
        higher, at_level = weights @ above.T, weights @ level.T  # [R, P]
        found = np.cumsum(weights[:, sought], axis=1)[:, last]
        areas.append(_weighted_auc(weights, sought, higher, at_level, index, positive))
        precisions.append(_weighted_precision(weights[:, sought], found, higher + at_level))
    ranked = len(np.unique(sought))  # clusters that have a positive
    if area is not None:
        result["auc"] = _estimate(area, np.concatenate(areas), ranked, confidence)
    result["average_precision"] = _estimate(precision, np.concatenate(precisions), ranked, confidence)
    return result


def _estimate(value: float, resampled: NDArray[np.float64], num_clusters: int, confidence: float) -> Estimate | None:
    defined = resampled[np.isfinite(resampled)]
    if len(defined) and np.abs(defined - value).max() < 1e-12:
        return rule_of_three(value, num_clusters, confidence=confidence, bounds=(0.0, 1.0))
    return percentile_estimate(value, resampled, confidence)


def _last_of_level(descending: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return, for each of some sorted values, the index of the last one equal to it."""
    return descending.size - 1 - np.searchsorted(descending[::-1], descending, side="left")


def _counts_by_cluster(
    values: NDArray[np.float64], positive: NDArray[np.bool_], index: NDArray[np.intp], num_clusters: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """Return how many negatives of each cluster score above, and equal to, each positive, and its cluster.

    Positives are ordered from the highest score to the lowest: `[P, C]`, `[P, C]`, `[P]`.
    """
    order = np.argsort(-values[positive], kind="stable")
    descending, sought = values[positive][order], index[positive][order]
    negatives, owners = values[~positive], index[~positive]
    ascending = descending[::-1]

    def counted(side: str) -> NDArray[np.float32]:
        # The number of positives (from the lowest) that a negative is above of: it counts for those from there on.
        beaten = np.searchsorted(ascending, negatives, side=side)  # type: ignore[call-overload]
        first = descending.size - beaten
        cells = np.bincount(first * num_clusters + owners, minlength=(descending.size + 1) * num_clusters)
        table = cells.reshape(descending.size + 1, num_clusters)[:-1]
        return np.cumsum(table, axis=0).astype(np.float32)

    above = counted("left")
    return above, counted("right") - above, sought


def _weighted_auc(
    weights: NDArray[np.float32],
    sought: NDArray[np.intp],
    higher: NDArray[np.float32],
    at_level: NDArray[np.float32],
    index: NDArray[np.intp],
    positive: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return each resample's AUC, NaN without positives or negatives: `[R]`."""
    num_clusters = weights.shape[1]
    num_negative = weights @ np.bincount(index[~positive], minlength=num_clusters).astype(np.float32)
    num_positive = weights[:, sought].sum(axis=1)
    won = weights[:, sought].astype(np.float64) * (num_negative[:, None] - higher - at_level / 2)
    pairs = num_positive.astype(np.float64) * num_negative
    return ratio_or_nan(won.sum(axis=1), pairs)


def _weighted_precision(
    weights: NDArray[np.float32], found: NDArray[np.float32], wrongly_found: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return each resample's average precision, NaN without positives: `[R]`."""
    selected = found + wrongly_found
    precision = np.divide(found, selected, out=np.zeros(found.shape), where=selected > 0)
    total = weights.sum(axis=1).astype(np.float64)
    return ratio_or_nan((weights * precision).sum(axis=1), total)
