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
    names = list(dict.fromkeys(str(row["direction"]) for row in rows))
    directions = [_Direction.of(name, [row for row in rows if row["direction"] == name], intervals) for name in names]
    return CrossSampling(
        num_problems=len({row["problem_id"] for row in rows}),
        num_samples=1 + max(int(row["sample"]) for row in rows),
        directions=tuple(direction.summary() for direction in directions),
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
    """One configuration: what it was set to, and its sums over the samples of each problem."""

    selector: str
    budget: float
    threshold: float | None
    correct: _Array
    tokens: _Array
    swapped: _Array
    changed: _Array

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], problems: Mapping[str, int]) -> _Dose:
        """Add up one configuration's rows."""
        index = [problems[row["problem_id"]] for row in rows]

        def summed(values: Sequence[float]) -> _Array:
            return np.bincount(index, weights=values, minlength=len(problems)).astype(np.float64)

        threshold = rows[0]["threshold"]
        return cls(
            selector=str(rows[0]["selector"]),
            budget=_short(rows[0]["share"]),
            threshold=None if threshold is None or not math.isfinite(threshold) else _short(threshold),
            correct=summed([float(row["correct"]) for row in rows]),
            tokens=summed([len(row["completion_ids"]) for row in rows]),
            swapped=summed([len(row["swapped"]) for row in rows]),
            changed=summed([row["num_changed"] for row in rows]),
        )


def _short(value: float) -> float:
    """Return the number without what the table's single precision did to it."""
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    """All configurations of one direction, by problem."""

    name: str
    base: _Dose
    other: _Dose
    doses: tuple[_Dose, ...]
    num_samples: int
    """Of each problem."""
    how: Intervals

    @classmethod
    def of(cls, name: str, rows: Sequence[Mapping[str, Any]], intervals: Intervals) -> _Direction:
        """Sort the rows of one direction into configurations."""
        groups: dict[tuple[float, str], list[Mapping[str, Any]]] = {}
        for row in rows:
            budget = _short(row["share"])
            groups.setdefault((budget, "" if budget in (0.0, 1.0) else str(row["selector"])), []).append(row)
        expected = {(row["problem_id"], row["sample"]) for row in rows}
        for key, group in groups.items():
            if len(group) != len(expected) or {(row["problem_id"], row["sample"]) for row in group} != expected:
                raise ValueError(
                    f"{name}: the samples of {key} are not those of the other configurations; run it again"
                )
        if (0.0, "") not in groups or (1.0, "") not in groups:
            raise ValueError(f"{name}: the rows of an end, share 0 or 1, are missing; run it again")
        problems = {problem: index for index, problem in enumerate(dict.fromkeys(row["problem_id"] for row in rows))}
        doses = {key: _Dose.of(group, problems) for key, group in groups.items()}
        return cls(
            name=name,
            base=doses.pop((0.0, "")),
            other=doses.pop((1.0, "")),
            doses=tuple(doses.values()),
            num_samples=len(expected) // len(problems),
            how=intervals,
        )

    def summary(self) -> CrossSamplingDirection:
        """Return accuracies at the ends and the curve of each selector."""
        gap = self._difference(self.other, self.base)
        limit = self._common_share()
        jackknife = self._jackknife()
        selectors = list(dict.fromkeys(dose.selector for dose in self.doses))
        return CrossSamplingDirection(
            direction=self.name,
            base=self._accuracy(self.base),
            other=self._accuracy(self.other),
            gap=gap,
            largest_common_share=limit,
            selectors=tuple(
                self._selector(name, limit, gap is not None and gap.excludes(0), jackknife) for name in selectors
            ),
        )

    def _selector(
        self, name: str, limit: float | None, with_ratios: bool, jackknife: _Jackknife
    ) -> CrossSamplingSelector:
        own = [dose for dose in self.doses if dose.selector == name]
        reached = limit is not None and max(_ratio(dose.swapped, dose.tokens) for dose in own) > 0

        def curve(ratio: bool, *selectors: str) -> Estimate | None:
            """Of the first selector's curve, less the second's where one is given."""
            if limit is None or not reached or (ratio and not with_ratios):
                return None

            def height(view: _View) -> float:
                heights = [view.height(selector, limit, ratio=ratio) for selector in selectors]
                return heights[0] - sum(heights[1:])

            return jackknife.difference(height) if len(selectors) > 1 and not ratio else jackknife.estimate(height)

        compared = name != "random" and any(dose.selector == "random" for dose in self.doses)
        return CrossSamplingSelector(
            selector=name,
            points=tuple(self._point(dose, with_ratios, jackknife) for dose in own),
            mean_accuracy=curve(False, name),
            auc=curve(True, name),
            mean_accuracy_over_random=curve(False, name, "random") if compared else None,
            auc_over_random=curve(True, name, "random") if compared else None,
        )

    def _point(self, dose: _Dose, with_ratios: bool, jackknife: _Jackknife) -> CrossSamplingPoint:
        return CrossSamplingPoint(
            budget=dose.budget,
            threshold=dose.threshold,
            share_swapped=_ratio(dose.swapped, dose.tokens),
            share_changed=_ratio(dose.changed, dose.tokens),
            accuracy=self._accuracy(dose),
            gain=self._difference(dose, self.base),
            recovered=jackknife.estimate(lambda view: view.recovered(dose)) if with_ratios else None,
        )

    def _common_share(self) -> float | None:
        """Return the least of the selectors' largest shares, of those that reach the least budget if any does."""
        reached: dict[str, float] = {}
        for dose in self.doses:
            reached[dose.selector] = max(reached.get(dose.selector, 0.0), _ratio(dose.swapped, dose.tokens))
        least = min((dose.budget for dose in self.doses), default=0.0)
        counted = [value for value in reached.values() if value >= least] or [v for v in reached.values() if v > 0]
        return min(counted, default=None)

    def _accuracy(self, dose: _Dose) -> Estimate | None:
        return self.how.share(dose.correct / self.num_samples)

    def _difference(self, dose: _Dose, base: _Dose) -> Estimate | None:
        return self.how.mean((dose.correct - base.correct) / self.num_samples, bounds=(-1.0, 1.0))

    def _jackknife(self) -> _Jackknife:
        everything = (self.base, self.other, *self.doses)
        sums = np.stack([column for dose in everything for column in (dose.correct, dose.tokens, dose.swapped)], axis=1)
        totals = sums.sum(axis=0)

        def view(part: _Array, num: int) -> _View:
            return _View(doses=everything, totals=part.reshape(-1, 3), num_samples=num * self.num_samples)

        return _Jackknife(
            whole=view(totals, len(sums)),
            without=tuple(view(totals - one, len(sums) - 1) for one in sums) if len(sums) > 1 else (),
            confidence=self.how.confidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What one draw of problems says: base, other and all doses, each with its correct samples, tokens and swaps."""

    doses: tuple[_Dose, ...]
    totals: _Array
    num_samples: int

    def recovered(self, dose: _Dose) -> float:
        """Return (accuracy - base) / (other - base); NaN where the ends are equal."""
        return self._normalised(self._accuracy([each is dose for each in self.doses].index(True)))

    def height(self, selector: str, limit: float, *, ratio: bool) -> float:
        """Return the mean height of a selector's curve up to `limit`, as an accuracy or as a share of the gap."""
        own = [index for index, dose in enumerate(self.doses) if index > 1 and dose.selector == selector]
        mean = mean_height(
            [self.totals[index, 2] / self.totals[index, 1] for index in own],
            [self._accuracy(index) for index in own],
            base=self._accuracy(0),
            limit=limit,
        )
        return self._normalised(mean) if ratio else mean

    def _accuracy(self, index: int) -> float:
        return float(self.totals[index, 0] / self.num_samples)

    def _normalised(self, accuracy: float) -> float:
        base, other = self._accuracy(0), self._accuracy(1)
        return (accuracy - base) / (other - base) if other != base else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jackknife:
    """All problems, and all but each one."""

    whole: _View
    without: tuple[_View, ...]
    confidence: float

    def estimate(self, statistic: Callable[[_View], float]) -> Estimate | None:
        """Return a statistic with its jackknife interval; None where it has no value."""
        without = np.array([statistic(view) for view in self.without])
        return jackknife_interval(statistic(self.whole), without, confidence=self.confidence)

    def difference(self, statistic: Callable[[_View], float]) -> Estimate | None:
        """Return a difference of accuracies with the interval of a mean between -1 and 1, of its pseudo-values.

        Where few problems differ, and all the same way, the jackknife alone is too sure of itself.
        """
        value, num = statistic(self.whole), len(self.without)
        pseudo = num * value - (num - 1) * np.array([statistic(view) for view in self.without])
        scale = max(1.0, float(np.abs(pseudo).max(initial=0.0)))
        found = mean_interval(pseudo / scale, bounds=(-1.0, 1.0), confidence=self.confidence)
        if found is None:
            return self.estimate(statistic)
        low, high = (value + scale * (end - found.mean) for end in (found.low, found.high))
        return Estimate(mean=value, low=max(low, -1.0), high=min(high, 1.0))


def _ratio(part: _Array, whole: _Array) -> float:
    return float(part.sum() / whole.sum())
