"""The verdict on a variant: one measure and one rule named before the runs, and the interval over seeds alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import scipy
from pydantic import Field

from swerve.artifacts.study import StudyDesign, StudyDifference, StudyVerdict, Verdict
from swerve.estimates import Estimate
from swerve.settings import InnerShare, Model, Share
from swerve.text import percent, points, points_interval


class VerdictRule(Model):
    """What a verdict is about, and by which rule it is given."""

    measure: Literal["accuracy", "sampled_accuracy"]
    """The one measure that settings are chosen by and variants judged by."""
    margin: InnerShare = 0.05
    """The smallest difference that matters: within it is equivalent; a gain or loss of it or more may be refuted."""
    min_gain: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """What the baseline has to gain from its first evaluation to its last, beside more than 0 over seeds."""
    ceiling: Share = 0.97
    """Nothing is said where the baseline or the variant is above, and there is no room for a difference."""


def widened(interval: Estimate | None, times: float) -> Estimate | None:
    """Return the interval of a difference of fractions, so many times as wide around its mean."""
    if interval is None:
        return None
    low, high = (interval.mean + times * (end - interval.mean) for end in (interval.low, interval.high))
    return Estimate(mean=interval.mean, low=max(-1.0, low), high=min(1.0, high))


def widened_p(difference: StudyDifference, times: float) -> float | None:
    """Return the p-value of the paired t-test over seeds whose standard error is so many times as large."""
    if difference.effect_size is None:
        return difference.p_seeds
    num = difference.num_seeds
    return float(2 * scipy.stats.t.sf(abs(difference.effect_size) * math.sqrt(num) / times, num - 1))


def objection(
    rule: StudyDesign, difference: StudyDifference, *, num_seeds: int, gain: Estimate | None, means: Mapping[str, float]
) -> str | None:
    """Return why a comparison does not hold; None: it does.

    Args:
        rule: the rule.
        difference: of the variant from the baseline.
        num_seeds: of the study.
        gain: of the baseline, over seeds.
        means: the measure of the baseline and of the variant, by name.
    """
    # Too little is measured to tell.
    if difference.num_seeds < num_seeds:
        return f"{difference.num_seeds} of {num_seeds} pairs of seeds are measured"
    if difference.over_seeds is None:
        return (
            "one seed says nothing of another" if num_seeds == 1 else "all seeds differ alike, which leaves no interval"
        )

    # The baseline has to learn, and to leave room for a difference.
    if gain is None:
        return "the baseline was not evaluated at its start with two seeds, so nobody knows whether it learns"
    if gain.low <= 0:
        return f"the baseline does not learn: from its start it changes by {points_interval(gain)} points"
    if gain.mean < rule.min_gain:
        return f"the baseline gains {points(gain.mean)} points, and {points(rule.min_gain)} were asked for"
    above = [f"{name} is at {percent(mean)}" for name, mean in means.items() if mean > rule.ceiling]
    return f"{above[0]}, above the ceiling of {percent(rule.ceiling)}" if above else None


def judge_variant(
    variant: str, interval: Estimate | None, p: float | None, *, rule: StudyDesign, reason: str | None, level: float
) -> StudyVerdict:
    """Return what the interval over seeds says of a variant.

    `better` and `worse` are said where Holm's p-value over all variants is below the level, so that of a study whose
    variants all do as the baseline does, 5% say one at all; the interval then excludes 0. `equivalent` and `refuted`
    are of one interval each: at most 2.5% of them are false where the difference is at the margin.

    Args:
        variant: its name.
        interval: of its difference from the baseline.
        p: by Holm.
        rule: the rule.
        reason: why the comparison does not hold; None: it does.
        level: 1 - the confidence of the interval.
    """
    # First what has no interval, then what is not 0, then what the interval excludes.
    verdict: Verdict
    margin, within = rule.margin, f"{100 * rule.margin:g} points"
    if interval is None or p is None or reason is not None:
        verdict, words = "inconclusive", f"inconclusive: {reason}"
    elif p < level:
        verdict = "better" if interval.mean > 0 else "worse"
        is_small = interval.low > -margin and interval.high < margin
        words = f"{verdict}, by less than {within}" if is_small else verdict
    elif interval.low > -margin and interval.high < margin:
        verdict, words = "equivalent", f"equivalent within {within}"
    elif interval.high < margin or interval.low > -margin:
        verdict, words = "refuted", f"not {'better' if interval.high < margin else 'worse'} by {within} or more"
    else:
        verdict, words = "not shown", "not shown to differ"
    return StudyVerdict(variant=variant, verdict=verdict, words=words, over_seeds=interval, p=p)
