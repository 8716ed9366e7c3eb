"""The summary of cross-sampling: accuracy against the share of tokens taken, computed from the table's rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import (
    CrossSampling,
    CrossSamplingDirection,
    CrossSamplingPoint,
    CrossSamplingSelector,
)
from swerve.estimates import Estimate
from swerve.probe.findings.parts import Intervals
from swerve.statistics.intervals import mean_interval
from swerve.statistics.jackknife import jackknife_interval

_Array = NDArray[np.float64]


def summarise_cross_sampling(rows: Sequence[Mapping[str, Any]], *, intervals: Intervals) -> CrossSampling | None:
    """Return how much of the gap between two models a few tokens carry; None without rows.

    A selector's curve runs from (0, accuracy of the base) through the measured (share of swapped tokens, accuracy) of
    its budgets. `mean_accuracy` is its mean height up to `largest_common_share`, and

        auc = (mean_accuracy - base) / (other - base)

    is 0 for swaps that do nothing and 1 for swaps that have the whole effect from the first token on. The largest
    common share is the least of the selectors' largest measured shares; a selector that does not even reach the least
    budget (ranks are mostly 1) is not counted there, and its curve stays at its last height. `recovered` is the ratio
    at one budget. Intervals are over problems, all configurations of a problem drawn together; ratios are
    None where the interval of the gap `other - base` reaches 0, for then there is nothing to recover.

    Args:
        rows: of `CROSS_SAMPLES_SCHEMA`.
        intervals: how intervals are made.

    Raises:
        ValueError: a configuration lacks some of the samples of another, or a direction lacks an end.
    """
    if not rows:
        return None
    # Each direction is a comparison of its own.
    by_direction: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_direction.setdefault(str(row["direction"]), []).append(row)
    return CrossSampling(
        num_problems=len({row["problem_id"] for row in rows}),
        num_samples=1 + max(int(row["sample"]) for row in rows),
        directions=tuple(_Curves.of(name, part, intervals).summary() for name, part in by_direction.items()),
    )


def mean_height(
    shares: Sequence[float] | _Array, accuracies: Sequence[float] | _Array, *, base: float, limit: float
) -> float:
    """Return the mean height over [0, limit] of the straight lines from (0, base) through the points.

    Beyond the last point the curve stays at its height.

    >>> mean_height([0.1, 0.2], [0.5, 0.7], base=0.3, limit=0.2)  # 0.4 over the first half, 0.6 over the second
    0.5
    >>> round(mean_height([0.1, 0.2], [0.5, 0.7], base=0.3, limit=0.15), 6)
    0.45
    """
    order = np.argsort(shares, kind="stable")
    x = np.concatenate([[0.0], np.asarray(shares, dtype=np.float64)[order]])
    y = np.concatenate([[base], np.asarray(accuracies, dtype=np.float64)[order]])
    inside = x < limit
    grid = np.concatenate([x[inside], [limit]])
    heights = np.concatenate([y[inside], [np.interp(limit, x, y)]])
    return float((np.diff(grid) * (heights[1:] + heights[:-1]) / 2).sum() / limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dose:
    """One configuration as it was set."""

    selector: str
    budget: float
    threshold: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """Sums over the samples of some problems: `[D]`, of the base, the other model and every dose."""

    correct: _Array
    tokens: _Array
    swapped: _Array
    num_samples: int

    def accuracy(self, index: int) -> float:
        """Return the share of right samples."""
        return float(self.correct[index] / self.num_samples)

    def share(self, index: int) -> float:
        """Return the share of swapped tokens."""
        return float(self.swapped[index] / self.tokens[index])

    def of_gap(self, accuracy: float) -> float:
        """Return (accuracy - base) / (other - base); NaN where the ends are equal."""
        base, other = self.accuracy(0), self.accuracy(1)
        return (accuracy - base) / (other - base) if other != base else math.nan

    def height(self, doses: Sequence[int], limit: float) -> float:
        """Return the mean height of the curve through some doses, up to `limit`, as an accuracy."""
        shares, accuracies = [self.share(index) for index in doses], [self.accuracy(index) for index in doses]
        return mean_height(shares, accuracies, base=self.accuracy(0), limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curves:
    """All configurations of one direction, by problem."""

    name: str
    doses: tuple[_Dose, ...]
    """D of them: the base, the other model, then the doses."""
    sums: Mapping[str, _Array]
    """`[D, C]`: correct samples, tokens, swapped and changed tokens of each configuration and problem."""
    num_samples: int
    """Of each problem."""
    whole: _Sums
    """Over all problems."""
    without: tuple[_Sums, ...]
    """Without each problem in turn; a single one cannot be left out."""
    how: Intervals

    @classmethod
    def of(cls, name: str, rows: Sequence[Mapping[str, Any]], intervals: Intervals) -> _Curves:
        """Sort the rows of one direction into configurations."""
        groups: dict[tuple[float, str], list[Mapping[str, Any]]] = {(0.0, ""): [], (1.0, ""): []}
        for row in rows:
            budget = _short(row["share"])
            groups.setdefault((budget, "" if budget in (0.0, 1.0) else str(row["selector"])), []).append(row)
        if not groups[0.0, ""] or not groups[1.0, ""]:
            raise ValueError(f"{name}: the rows of an end, share 0 or 1, are missing; run it again")
        expected = {(row["problem_id"], row["sample"]) for row in rows}
        for key, group in groups.items():
            if len(group) != len(expected) or {(row["problem_id"], row["sample"]) for row in group} != expected:
                raise ValueError(
                    f"{name}: the samples of {key} are not those of the other configurations; run it again"
                )
        # Add up the samples of each problem.
        problems = {problem: index for index, problem in enumerate(dict.fromkeys(row["problem_id"] for row in rows))}
        shape = (len(groups), len(problems))
        sums = {column: np.zeros(shape) for column in ("correct", "tokens", "swapped", "changed")}
        for place, group in enumerate(groups.values()):
            for row in group:
                at = place, problems[row["problem_id"]]
                sums["correct"][at] += row["correct"]
                sums["tokens"][at] += len(row["completion_ids"])
                sums["swapped"][at] += len(row["swapped"])
                sums["changed"][at] += row["num_changed"]
        num_samples = len(expected) // len(problems)

        def added(weights: _Array) -> _Sums:
            columns = {column: sums[column] @ weights for column in ("correct", "tokens", "swapped")}
            return _Sums(**columns, num_samples=int(weights.sum()) * num_samples)

        left_out = 1 - np.eye(len(problems)) if len(problems) > 1 else ()
        return cls(
            name=name,
            doses=tuple(_dose(group[0]) for group in groups.values()),
            sums=sums,
            num_samples=num_samples,
            whole=added(np.ones(len(problems))),
            without=tuple(added(weights) for weights in left_out),
            how=intervals,
        )

    def summary(self) -> CrossSamplingDirection:
        """Return accuracies at the ends and the curve of each selector."""
        gap, limit = self._gain(1), self._common_share()
        # Where there may be no gap there is nothing to be a ratio of.
        with_ratios = gap is not None and gap.excludes(0)
        return CrossSamplingDirection(
            direction=self.name,
            base=self._accuracy(0),
            other=self._accuracy(1),
            gap=gap,
            largest_common_share=limit,
            selectors=tuple(self._selector(name, limit, with_ratios) for name in self._selectors),
        )

    @property
    def _selectors(self) -> dict[str, list[int]]:
        """The doses of each selector, by index."""
        selectors: dict[str, list[int]] = {}
        for index, dose in enumerate(self.doses):
            if index > 1:
                selectors.setdefault(dose.selector, []).append(index)
        return selectors

    def _selector(self, name: str, limit: float | None, with_ratios: bool) -> CrossSamplingSelector:
        doses, random = self._selectors[name], self._selectors.get("random", [])
        # Without a swap there is no curve, and without a gap no ratio.
        curves: dict[str, Estimate | None] = {}
        if limit is not None and max(self.whole.share(index) for index in doses) > 0:

            def height(sums: _Sums) -> float:
                return sums.height(doses, limit)

            def over_random(sums: _Sums) -> float:
                return sums.height(doses, limit) - sums.height(random, limit)

            def ratio_over_random(sums: _Sums) -> float:
                return sums.of_gap(sums.height(doses, limit)) - sums.of_gap(sums.height(random, limit))

            compared = name != "random" and bool(random)
            curves["mean_accuracy"] = self._jackknife(height)
            curves["mean_accuracy_over_random"] = self._jackknifed_difference(over_random) if compared else None
            if with_ratios:
                curves["auc"] = self._jackknife(lambda sums: sums.of_gap(height(sums)))
                curves["auc_over_random"] = self._jackknife(ratio_over_random) if compared else None
        names = ("mean_accuracy", "auc", "mean_accuracy_over_random", "auc_over_random")
        return CrossSamplingSelector(
            selector=name,
            points=tuple(self._point(index, with_ratios) for index in doses),
            **{**dict.fromkeys(names), **curves},
        )

    def _point(self, index: int, with_ratios: bool) -> CrossSamplingPoint:
        dose, tokens = self.doses[index], self.sums["tokens"][index].sum()
        return CrossSamplingPoint(
            budget=dose.budget,
            threshold=dose.threshold,
            share_swapped=self.whole.share(index),
            share_changed=float(self.sums["changed"][index].sum() / tokens),
            accuracy=self._accuracy(index),
            gain=self._gain(index),
            recovered=self._jackknife(lambda sums: sums.of_gap(sums.accuracy(index))) if with_ratios else None,
        )

    def _common_share(self) -> float | None:
        """Return the least of the selectors' largest shares, of those that reach the least budget if any does."""
        reached = [max(self.whole.share(index) for index in doses) for doses in self._selectors.values()]
        least = min((dose.budget for dose in self.doses[2:]), default=0.0)
        counted = [share for share in reached if share >= least] or [share for share in reached if share > 0]
        return min(counted, default=None)

    def _accuracy(self, index: int) -> Estimate | None:
        return self.how.share(self.sums["correct"][index] / self.num_samples)

    def _gain(self, index: int) -> Estimate | None:
        """Return the accuracy less that of the base."""
        correct = self.sums["correct"]
        return self.how.mean((correct[index] - correct[0]) / self.num_samples, bounds=(-1.0, 1.0))

    def _jackknife(self, statistic: Callable[[_Sums], float]) -> Estimate | None:
        """Return a statistic with its jackknife interval; None where it has no value."""
        without = np.array([statistic(sums) for sums in self.without])
        return jackknife_interval(statistic(self.whole), without, confidence=self.how.confidence)

    def _jackknifed_difference(self, statistic: Callable[[_Sums], float]) -> Estimate | None:
        """Return a difference of accuracies with the interval of a mean between -1 and 1, of its pseudo-values.

        Where few problems differ, and all the same way, the jackknife alone is too sure of itself.
        """
        value, without = statistic(self.whole), np.array([statistic(sums) for sums in self.without])
        num = len(without)
        pseudo = num * value - (num - 1) * without
        scale = max(1.0, float(np.abs(pseudo).max(initial=0.0)))
        scaled = mean_interval(pseudo / scale, bounds=(-1.0, 1.0), confidence=self.how.confidence)
        if scaled is None:
            return self._jackknife(statistic)
        low, high = (value + scale * (end - scaled.mean) for end in (scaled.low, scaled.high))
        return Estimate(mean=value, low=max(low, -1.0), high=min(high, 1.0))


def _dose(row: Mapping[str, Any]) -> _Dose:
    threshold = row["threshold"]
    return _Dose(
        selector=str(row["selector"]),
        budget=_short(row["share"]),
        threshold=None if threshold is None or not math.isfinite(threshold) else _short(threshold),
    )


def _short(value: float) -> float:
    """Return the number without what the table's single precision did to it."""
    return float(f"{value:.6g}")
