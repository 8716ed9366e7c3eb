"""What a study expects, and whether its runs show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np

from swerve.artifacts.study import (
    TOKENS_AT_EQUAL_ACCURACY,
    StudyDifference,
    StudyTrend,
    Trend,
)
from swerve.estimates import Estimate
from swerve.statistics import mean_interval
from swerve.statistics.shapes import ShapeName, curve_shape
from swerve.study.measure import Measured
from swerve.study.plan import Expectation, StudyFile

_SHAPES: Mapping[Trend, tuple[ShapeName, ...]] = {
    "rises": ("rises",),
    "falls": ("falls",),
    "up_then_down": ("up_then_down",),
    "down_then_up": ("down_then_up",),
    "steady": ("steady",),
    "not_rising": ("steady", "falls"),
}


def expected_trends(
    study: StudyFile, runs: Sequence[Measured], differences: Sequence[StudyDifference]
) -> Iterator[StudyTrend]:
    """Yield an answer for each variant of each expectation of the study.

    Args:
        study: with what is expected.
        runs: with their curves.
        differences: of the variants from the baseline.
    """
    for expectation in study.expected:
        for variant in expectation.variants:
            if expectation.shape in _SHAPES:
                yield _shape_trend(expectation, variant, runs, study.confidence)
            else:
                yield _difference_trend(expectation, variant, study, runs, differences)


def _shape_trend(expectation: Expectation, variant: str, runs: Sequence[Measured], confidence: float) -> StudyTrend:
    # The shape of each run's curve that has enough points.
    shapes, extreme_steps = [], []
    for run in runs:
        curve = run.curves.get(expectation.measure, {}) if run.run.variant == variant else {}
        shape = curve_shape(list(curve.values()))
        if shape is not None:
            shapes.append(shape)
            extreme_steps.append(list(curve)[shape.extreme_at])
    shown = sum(shape.name in _SHAPES[expectation.shape] for shape in shapes)
    changes = [shape.last - shape.first for shape in shapes]
    return StudyTrend(
        variant=variant,
        measure=expectation.measure,
        expected=expectation.shape,
        is_shown=2 * shown > len(shapes) if shapes else None,
        num_runs=len(shapes),
        num_shown=shown,
        first=fmean(shape.first for shape in shapes) if shapes else None,
        extreme=fmean(shape.extreme for shape in shapes) if shapes else None,
        extreme_step=fmean(extreme_steps) if shapes else None,
        last=fmean(shape.last for shape in shapes) if shapes else None,
        change=_interval(changes, confidence),
    )


def _difference_trend(
    expectation: Expectation,
    variant: str,
    study: StudyFile,
    runs: Sequence[Measured],
    differences: Sequence[StudyDifference],
) -> StudyTrend:
    if expectation.measure == TOKENS_AT_EQUAL_ACCURACY:
        of_run = {(run.run.variant, run.run.seed): run for run in runs}
        changes = []
        for seed in study.seeds:
            pair = of_run.get((study.compared_with, seed)), of_run.get((variant, seed))
            if pair[0] is not None and pair[1] is not None:
                changes.append(tokens_at_equal_accuracy(pair[0], pair[1]))
        known = [change for change in changes if change is not None]
        change, num = _interval(known, study.confidence), len(known)
    else:
        own = (expectation.measure, variant)
        difference = next((each for each in differences if (each.measure, each.variant) == own), None)
        change, num = (None, 0) if difference is None else (difference.over_seeds, difference.num_seeds)

    # The interval over seeds says on which side of the baseline the variant is.
    is_shown = None
    if change is not None:
        sides = {"higher": change.low > 0, "lower": change.high < 0}
        is_shown = sides.get(expectation.shape, change.low <= 0 <= change.high)
    return StudyTrend(
        variant=variant,
        measure=expectation.measure,
        expected=expectation.shape,
        is_shown=is_shown,
        num_runs=num,
        num_shown=None,
        change=change,
    )


def _interval(values: Sequence[float], confidence: float) -> Estimate | None:
    return mean_interval(values, confidence=confidence) if len(values) > 1 and np.ptp(values) > 0 else None


def tokens_at_equal_accuracy(baseline: Measured, run: Measured) -> float | None:
    """Return how many more tokens than the baseline's a run's answers need for the same accuracy.

    The fewest mean tokens of an evaluation with at least an accuracy, averaged over 20 accuracies, evenly from the
    higher of the two first ones to the lower of the two best. None: the two have no accuracy in common.
    """
    points = []
    for measured in (baseline, run):
        accuracies, lengths = measured.curves.get("accuracy", {}), measured.curves.get("length", {})
        points.append([(accuracies[step], lengths[step]) for step in accuracies if step in lengths])
    if not all(points):
        return None
    low, high = max(own[0][0] for own in points), min(max(own)[0] for own in points)
    if high <= low:
        return None
    first, second = (
        fmean(min(tokens for accuracy, tokens in own if accuracy >= level - 1e-12) for level in _levels(low, high))
        for own in points
    )
    return second - first


def _levels(low: float, high: float) -> list[float]:
    return [low + (high - low) * place / 19 for place in range(20)]
