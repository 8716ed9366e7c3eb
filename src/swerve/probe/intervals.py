"""How intervals of a probe's metrics are made: over problems, at one level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate, SkewedMean
from swerve.statistics.clusters import Clusters
from swerve.statistics.intervals import mean_interval, skewed_mean_interval
from swerve.statistics.jackknife import UNBOUNDED, Bounds
from swerve.statistics.ratios import divided, ratio_interval, statistic_interval

Array = NDArray[np.float64]

Mask = NDArray[np.bool_]

NOTABLE = 0.01
"""Nats per token: beside a mean divergence stands the fraction of problems whose own is larger."""

MOST: Mapping[str, float] = {"js": math.log(2)}
"""Largest value of a divergence, where there is one."""


def mean_if_any(values: Sequence[float]) -> float | None:
    """Return the mean of some values; None if there are none."""
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals over problems, at one level (`swerve.statistics.intervals`).

    A figure over values of which one is infinite does not exist: None.

    >>> Intervals().mean(np.array([1.0, np.inf]), np.array([0, 1])) is None
    True
    """

    confidence: float = 0.95
    max_entropy: float = math.inf
    """ln V, nats."""

    def mean(
        self, values: ArrayLike, clusters: Clusters | None = None, *, bounds: Bounds = UNBOUNDED, padded: bool = True
    ) -> Estimate | None:
        """Return the mean of values with its t interval; None if empty. See `mean_interval`."""
        if not np.isfinite(values).all():
            return None
        return mean_interval(values, clusters=clusters, bounds=bounds, padded=padded, confidence=self.confidence)

    def entropy(self, values: ArrayLike, clusters: Clusters, *, is_change: bool = False) -> Estimate | None:
        """Return the mean of entropies, or of their changes (nats)."""
        bounds = (-self.max_entropy if is_change else 0.0, self.max_entropy)
        return self.mean(values, clusters, bounds=bounds, padded=False)

    def skewed_mean(
        self, values: ArrayLike, clusters: Clusters | None = None, *, most: float = math.inf
    ) -> SkewedMean | None:
        """Return the mean of nats that are not negative, many small and few large (`skewed_mean_interval`)."""
        if not np.isfinite(values).all():
            return None
        return skewed_mean_interval(values, clusters=clusters, confidence=self.confidence, most=most, threshold=NOTABLE)

    def share(self, marks: ArrayLike, clusters: Clusters | None = None) -> Estimate | None:
        """Return the share of marked rows; None if empty.

        Of rows of their own it is a mean between 0 and 1; of the tokens of problems a ratio, for a problem all of whose
        tokens are marked, which `mean_interval` would add, is no plausible one.
        """
        if clusters is None or len(np.unique(clusters)) == len(clusters):
            return self.mean(marks, bounds=(0.0, 1.0))
        return self.ratio(np.asarray(marks, dtype=np.float64), np.ones(len(clusters)), clusters)

    def ratio(self, numerators: NDArray[Any], denominators: NDArray[Any], clusters: Clusters) -> Estimate | None:
        """Return the share sum(numerators) / sum(denominators); None where the denominators sum to 0."""
        if not (np.isfinite(numerators).all() and np.isfinite(denominators).all()):
            return None
        return ratio_interval(numerators, denominators, clusters=clusters, confidence=self.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIntervals:
    """Metrics over some of N tokens (a mask), with intervals over their problems."""

    problems: NDArray[np.int64]
    """`[N]`: the problem of each token, as an index."""
    intervals: Intervals

    @property
    def everywhere(self) -> Mask:
        """The mask of all tokens."""
        return np.ones(self.problems.size, dtype=np.bool_)

    def mean(self, values: NDArray[Any], inside: Mask, *, bounds: Bounds = UNBOUNDED) -> Estimate | None:
        """Return the mean of the values inside; None if empty, and where one is infinite."""
        return self.intervals.mean(values[inside], self.problems[inside], bounds=bounds)

    def entropy(self, values: NDArray[Any], inside: Mask, *, is_change: bool = False) -> Estimate | None:
        """Return the mean inside of entropies, or of their changes (nats)."""
        return self.intervals.entropy(values[inside], self.problems[inside], is_change=is_change)

    def skewed_mean(self, values: NDArray[Any], inside: Mask, *, most: float = math.inf) -> SkewedMean | None:
        """Return the mean inside of values that are not negative, many small and few large."""
        return self.intervals.skewed_mean(values[inside], self.problems[inside], most=most)

    def share(self, marks: NDArray[np.bool_], inside: Mask | None = None) -> Estimate | None:
        """Return the share of marked tokens among those inside, or among all."""
        chosen = self.everywhere if inside is None else inside
        return self.intervals.share(marks[chosen], self.problems[chosen])

    def share_of(self, values: NDArray[Any], inside: Mask) -> Estimate | None:
        """Return the part of the summed values that lies inside; None where they sum to 0 or one is infinite."""
        # Not a product, which would make NaN of infinities.
        return self.intervals.ratio(np.where(inside, values, 0), values, self.problems)

    def statistic(
        self, function: Callable[[Array], Array], columns: Sequence[NDArray[Any]], bounds: Bounds = UNBOUNDED
    ) -> Estimate | None:
        """Return a function of sums of columns with its jackknife interval; None where it has no value.

        Args:
            function: `[R, K]` sums of K columns -> `[R]` values, NaN where the statistic is not defined.
            columns: one number a token.
            bounds: of the statistic.
        """
        if self.problems.size == 0 or not all(np.isfinite(column).all() for column in columns):
            return None
        confidence = self.intervals.confidence
        return statistic_interval(function, columns, clusters=self.problems, confidence=confidence, bounds=bounds)

    def share_difference(self, *columns: NDArray[Any], bounds: Bounds = (-1.0, 1.0)) -> Estimate | None:
        """Return the ratio of the sums of two columns minus that of two others; None where one does not exist."""
        function = lambda sums: divided(sums[:, 0], sums[:, 1]) - divided(sums[:, 2], sums[:, 3])  # noqa: E731
        return self.statistic(function, columns, bounds)

    def mean_difference(
        self, values: NDArray[Any], first: Mask, second: Mask, *, bounds: Bounds = UNBOUNDED
    ) -> Estimate | None:
        """Return the mean over the first tokens minus the mean over the second; None where either are missing."""
        columns = [column for mask in (first, second) for column in (np.where(mask, values, 0.0), 1.0 * mask)]
        return self.share_difference(*columns, bounds=bounds)
