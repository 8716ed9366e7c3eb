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
    # The shape over the last stage of each run's curve that has enough points, and the step of its turn.
    own = [run for run in runs if run.run.variant == variant]
    whole = [(run.curves.get(expectation.measure, {}), run.begins) for run in own]
    curves = [{step: value for step, value in curve.items() if step > begins} for curve, begins in whole]
    found = [(shape, list(curve)) for curve in curves if (shape := curve_shape(list(curve.values()))) is not None]
    shapes = [shape for shape, _ in found]
    num_shown = sum(shape.name in _SHAPES[expectation.shape] for shape in shapes)
    trend = StudyTrend(
        variant=variant,
        measure=expectation.measure,
        expected=expectation.shape,
        is_shown=2 * num_shown > len(shapes) if shapes else None,
        num_runs=len(shapes),
        num_shown=num_shown,
        change=_interval([shape.last - shape.first for shape in shapes], confidence),
    )
    if not shapes:
        return trend
    first, extreme, last = np.mean([(shape.first, shape.extreme, shape.last) for shape in shapes], axis=0).tolist()
    turn = fmean(steps[shape.extreme_at] for shape, steps in found)
    return trend.model_copy(update={"levels": (first, extreme, last), "turn": turn})


def _difference_trend(
    expectation: Expectation,
    variant: str,
    study: StudyFile,
    runs: Sequence[Measured],
    differences: Sequence[StudyDifference],
) -> StudyTrend:
    if expectation.measure == TOKENS_AT_EQUAL_ACCURACY:
        of_run = {(run.run.variant, run.run.seed): run for run in runs}
        pairs = [(of_run.get((study.compared_with, seed)), of_run.get((variant, seed))) for seed in study.seeds]
        changes = [tokens_at_equal_accuracy(base, run) for base, run in pairs if base and run]
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
        steps = [step for step in accuracies if step in lengths and step >= measured.begins]
        points.append([(accuracies[step], lengths[step]) for step in steps])
    if not all(points):
        return None
    low, high = max(own[0][0] for own in points), min(max(own)[0] for own in points)
    if high <= low:
        return None
    levels = np.linspace(low, high, 20)
    first, second = (
        fmean(min(tokens for accuracy, tokens in own if accuracy >= level - 1e-12) for level in levels)
        for own in points
    )
    return second - first
