"""What a study expects, and whether its runs show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from swerve.artifacts.study import TOKENS_AT_EQUAL_ACCURACY, StudyDifference, StudyTrend
from swerve.estimates import Estimate
from swerve.statistics import mean_interval
from swerve.statistics.shapes import curve_shape
from swerve.study.measure import MeasuredRun
from swerve.study.study_file import Expectation, StudyFile


def expected_trends(
    study: StudyFile, runs: Sequence[MeasuredRun], differences: Sequence[StudyDifference]
) -> Iterator[StudyTrend]:
    """Yield an answer for each variant of each expectation of the study.

    Args:
        study: with what is expected.
        runs: with their curves.
        differences: of the variants from the baseline.
    """
    for expectation in study.expected:
        for variant in expectation.variants:
            if expectation.is_of_curve:
                answer = _shape_answer(expectation, variant, runs, study.confidence)
            else:
                answer = _difference_answer(expectation, variant, study, runs, differences)
            yield StudyTrend(variant=variant, measure=expectation.measure, expected=expectation.shape, **answer)


def _shape_answer(
    expectation: Expectation, variant: str, runs: Sequence[MeasuredRun], confidence: float
) -> dict[str, Any]:
    # The shape over the last stage of each run's curve that has enough points, with the step of its turn.
    shapes = []
    for run in (run for run in runs if run.run.variant == variant):
        curve = {step: value for step, value in run.curves.get(expectation.measure, {}).items() if step > run.begins}
        if (shape := curve_shape(list(curve.values()))) is not None:
            shapes.append(replace(shape, extreme_at=list(curve)[shape.extreme_at]))

    # How many of the runs have it, and the means of their levels and turns.
    wanted = ("steady", "falls") if expectation.shape == "not_rising" else (expectation.shape,)
    num_shown = sum(shape.name in wanted for shape in shapes)
    places = [(shape.first, shape.extreme, shape.last, shape.extreme_at) for shape in shapes]
    means = np.mean(places, axis=0).tolist() if shapes else None
    return {
        "is_shown": 2 * num_shown > len(shapes) if shapes else None,
        "num_runs": len(shapes),
        "num_shown": num_shown if shapes else None,
        "levels": means and tuple(means[:3]),
        "turn": means and means[3],
        "change": seed_interval([shape.last - shape.first for shape in shapes], confidence),
    }


def _difference_answer(
    expectation: Expectation,
    variant: str,
    study: StudyFile,
    runs: Sequence[MeasuredRun],
    differences: Sequence[StudyDifference],
) -> dict[str, Any]:
    if expectation.measure == TOKENS_AT_EQUAL_ACCURACY:
        of_run = {(run.run.variant, run.run.seed): run for run in runs}
        known: list[float] = []
        for seed in study.seeds:
            base, run = of_run.get((study.compared_with, seed)), of_run.get((variant, seed))
            more = tokens_at_equal_accuracy(base, run) if base and run else None
            if more is not None:
                known.append(more)
        change, num = seed_interval(known, study.confidence), len(known)
    else:
        own = (expectation.measure, variant)
        difference = next((each for each in differences if (each.measure, each.variant) == own), None)
        change, num = (None, 0) if difference is None else (difference.over_seeds, difference.num_seeds)

    # The interval over seeds says on which side of the baseline the variant is.
    is_shown = None
    if change is not None:
        sides = {"higher": change.low > 0, "lower": change.high < 0}
        is_shown = sides.get(expectation.shape, change.low <= 0 <= change.high)
    return {"is_shown": is_shown, "num_runs": num, "num_shown": None, "change": change}


def seed_interval(values: Sequence[float], confidence: float) -> Estimate | None:
    """Return the mean over seeds with its t interval; None where there is no spread to make one of."""
    # Values that differ in their last binary digits are alike.
    are_alike = len(values) < 2 or np.allclose(values, values[0], rtol=1e-9, atol=0.0)
    return None if are_alike else mean_interval(values, confidence=confidence)


def tokens_at_equal_accuracy(baseline: MeasuredRun, run: MeasuredRun) -> float | None:
    """Return how many more tokens than the baseline's a run's answers need for the same accuracy.

    The fewest mean tokens of an evaluation with at least an accuracy, averaged over 20 accuracies, evenly from the
    higher of the two first ones to the lower of the two best. None: the two have no accuracy in common.
    """
    # Accuracy and length of each evaluation since the last stage began.
    points = []
    for measured in (baseline, run):
        accuracies, lengths = measured.curves.get("accuracy", {}), measured.curves.get("length", {})
        steps = [step for step in accuracies if step in lengths and step >= measured.begins]
        points.append([(accuracies[step], lengths[step]) for step in steps])
    if not all(points):
        return None

    # The accuracies that both have, and the fewest tokens of each with them.
    low, high = max(own[0][0] for own in points), min(max(own)[0] for own in points)
    if high <= low:
        return None
    levels = np.linspace(low, high, 20)
    first, second = (
        fmean(min(tokens for accuracy, tokens in own if accuracy >= level - 1e-12) for level in levels)
        for own in points
    )
    return second - first
