"""The summary of cross-sampling: accuracy against the share of tokens taken, computed from the table's rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from swerve.probe.intervals import Intervals
from swerve.statistics.intervals import mean_interval
from swerve.statistics.jackknife import jackknife_interval
from swerve.statistics.ratios import divided

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
        directions=tuple(_Curves.of(name, part, intervals).summary(name) for name, part in by_direction.items()),
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
class _Curves:
    """The D configurations of one direction: the base, the other model, then the doses.

    Arrays `[1 + P, D]` have in their first row what is measured over all P problems, in the others what it is without
    each of them; a single problem cannot be left out.
    """

    doses: tuple[_Dose, ...]
    correct: _Array
    """`[P, D]`: right samples of each problem."""
    num_samples: int
    """Of each problem."""
    accuracy: _Array
    """`[1 + P, D]`: share of right samples."""
    share: _Array
    """`[1 + P, D]`: share of swapped tokens."""
    share_changed: _Array
    """`[D]`: share of tokens at which the two models proposed different ones, of those swapped."""
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

        # Of each problem and configuration: right samples, tokens, swapped and changed ones.
        problems = {problem: index for index, problem in enumerate(dict.fromkeys(row["problem_id"] for row in rows))}
        counts = np.zeros((len(problems), len(groups), 4))
        for place, group in enumerate(groups.values()):
            for row in group:
                added = (row["correct"], len(row["completion_ids"]), len(row["swapped"]), row["num_changed"])
                counts[problems[row["problem_id"]], place] += added
        num_samples = len(expected) // len(problems)

        # Over all problems, and without each in turn.
        sums, sizes = counts.sum(axis=0)[None], np.array([len(problems)])
        if len(problems) > 1:
            sums = np.concatenate([sums, sums - counts])
            sizes = np.append(sizes, np.full(len(problems), len(problems) - 1))
        return cls(
            doses=tuple(
                _Dose(selector=str(group[0]["selector"]), budget=budget, threshold=_threshold(group[0]["threshold"]))
                for (budget, _), group in groups.items()
            ),
            correct=counts[..., 0],
            num_samples=num_samples,
            accuracy=sums[..., 0] / (sizes * num_samples)[:, None],
            share=sums[..., 2] / sums[..., 1],
            share_changed=sums[0, :, 3] / sums[0, :, 1],
            how=intervals,
        )

    def summary(self, name: str) -> CrossSamplingDirection:
        """Return accuracies at the ends and the curve of each selector."""
        selectors: dict[str, list[int]] = {}
        for index, dose in enumerate(self.doses[2:], start=2):
            selectors.setdefault(dose.selector, []).append(index)
        gap, limit = self._gain(1), self._common_share(selectors)
        # Where there may be no gap there is nothing to be a ratio of.
        with_ratios = gap is not None and gap.excludes(0)
        return CrossSamplingDirection(
            direction=name,
            base=self._accuracy(0),
            other=self._accuracy(1),
            gap=gap,
            largest_common_share=limit,
            selectors=tuple(
                CrossSamplingSelector(
                    selector=selector,
                    points=tuple(self._point(index, with_ratios) for index in doses),
                    **self._areas(
                        doses, () if selector == "random" else selectors.get("random", ()), limit, with_ratios
                    ),
                )
                for selector, doses in selectors.items()
            ),
        )

    def _areas(
        self, doses: Sequence[int], random: Sequence[int], limit: float | None, with_ratios: bool
    ) -> dict[str, Estimate | None]:
        """Return the mean height of a curve, as accuracy and as share of the gap, and how far it is above another."""
        names = ("mean_accuracy", "auc", "mean_accuracy_over_random", "auc_over_random")
        areas: dict[str, Estimate | None] = dict.fromkeys(names)
        # Without a swap there is no curve, and without a gap no ratio.
        if limit is None or self.share[0, doses].max() == 0:
            return areas
        height = self._heights(doses, limit)
        areas["mean_accuracy"] = self._jackknife(height)
        if with_ratios:
            areas["auc"] = self._jackknife(self._of_gap(height))
        if random:
            below = self._heights(random, limit)
            areas["mean_accuracy_over_random"] = self._jackknifed_difference(height - below)
            if with_ratios:
                areas["auc_over_random"] = self._jackknife(self._of_gap(height) - self._of_gap(below))
        return areas

    def _heights(self, doses: Sequence[int], limit: float) -> _Array:
        """Return `[1 + P]`: the mean height of the curve through some doses."""
        rows = zip(self.share[:, doses], self.accuracy[:, doses], self.accuracy[:, 0], strict=True)
        return np.array([mean_height(shares, heights, base=base, limit=limit) for shares, heights, base in rows])

    def _of_gap(self, accuracy: _Array) -> _Array:
        """Return (accuracy - base) / (other - base); NaN where the ends are equal."""
        base, other = self.accuracy[:, 0], self.accuracy[:, 1]
        return divided(accuracy - base, other - base)

    def _point(self, index: int, with_ratios: bool) -> CrossSamplingPoint:
        return CrossSamplingPoint(
            budget=self.doses[index].budget,
            threshold=self.doses[index].threshold,
            share_swapped=float(self.share[0, index]),
            share_changed=float(self.share_changed[index]),
            accuracy=self._accuracy(index),
            gain=self._gain(index),
            recovered=self._jackknife(self._of_gap(self.accuracy[:, index])) if with_ratios else None,
        )

    def _common_share(self, selectors: Mapping[str, Sequence[int]]) -> float | None:
        """Return the least of the selectors' largest shares, of those that reach the least budget if any does."""
        reached = [float(self.share[0, doses].max()) for doses in selectors.values()]
        least = min((dose.budget for dose in self.doses[2:]), default=0.0)
        counted = [share for share in reached if share >= least] or [share for share in reached if share > 0]
        return min(counted, default=None)

    def _accuracy(self, index: int) -> Estimate | None:
        return self.how.share(self.correct[:, index] / self.num_samples)

    def _gain(self, index: int) -> Estimate | None:
        """Return the accuracy less that of the base."""
        more = self.correct[:, index] - self.correct[:, 0]
        return self.how.mean(more / self.num_samples, bounds=(-1.0, 1.0))

    def _jackknife(self, values: _Array) -> Estimate | None:
        """Return a statistic with its jackknife interval; None where it has no value."""
        return jackknife_interval(float(values[0]), values[1:], confidence=self.how.confidence)

    def _jackknifed_difference(self, values: _Array) -> Estimate | None:
        """Return a difference of accuracies with the interval of a mean between -1 and 1, of its pseudo-values.

        Where few problems differ, and all the same way, the jackknife alone is too sure of itself.
        """
        value, without = float(values[0]), values[1:]
        num = len(without)
        pseudo = num * value - (num - 1) * without
        scale = max(1.0, float(np.abs(pseudo).max(initial=0.0)))
        scaled = mean_interval(pseudo / scale, bounds=(-1.0, 1.0), confidence=self.how.confidence)
        if scaled is None:
            return self._jackknife(values)
        low, high = (value + scale * (end - scaled.mean) for end in (scaled.low, scaled.high))
        return Estimate(mean=value, low=max(low, -1.0), high=min(high, 1.0))


def _threshold(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else _short(value)


def _short(value: float) -> float:
    """Return the number without what the table's single precision did to it."""
    return float(f"{value:.6g}")
