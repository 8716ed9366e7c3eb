"""Compare the variants of a study with its baseline: over seeds, and over problems."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from pydantic import JsonValue

from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    Detectable,
    Study,
    StudyCurve,
    StudyDifference,
    StudyMean,
    StudyTrial,
    StudyVariant,
    StudyVerdict,
)
from swerve.estimates import Estimate
from swerve.statistics import (
    cohens_d_paired,
    detectable_difference,
    holm,
    paired_difference,
    paired_t_test,
)
from swerve.study.measure import MeasuredRun
from swerve.study.study_file import StudyFile
from swerve.study.trends import expected_trends, seed_interval
from swerve.study.verdict import judge_variant, objection, widened, widened_p
from swerve.version import __version__

ASSUMED_SEED_SD = 0.03
"""Of the difference in accuracy between two runs of one seed, where no such difference was measured yet."""
ASSUMED_DISAGREEMENT = 0.2
"""Fraction of the problems that one of two runs gets right and the other wrong, likewise."""
_DIGITS = 6


def compare_runs(
    study: StudyFile, runs: Sequence[MeasuredRun], *, trials: Sequence[StudyTrial] = (), num_problems: int = 0
) -> Study:
    """Return what tells the variants apart.

    Args:
        study: the variants and what is compared.
        runs: of each variant and seed one at most; those without an evaluation count nowhere.
        trials: of settings, where they are tuned.
        num_problems: of an evaluation, where none is done.
    """
    # Only what was measured somewhere is compared, what is judged first.
    measured = [run for run in runs if run.run.measured]
    headline = () if study.verdict is None else (study.verdict.measure,)
    wanted = dict.fromkeys((*headline, *(study.measures or MEASURES)))
    measures = [name for name in wanted if any(name in entry.run.values for entry in measured)]
    differences = tuple(difference for name in measures for difference in _differences(study, name, measured))
    gain = _baseline_gain(study, measured)
    return Study(
        swerve_version=__version__,
        name=study.name,
        recipe=Path(study.recipe).name,
        baseline=study.compared_with,
        seeds=study.seeds,
        confidence=study.confidence,
        variants=tuple(_variant(name, changes, runs) for name, changes in study.changes.items()),
        runs=tuple(run.run for run in runs),
        means=tuple(mean for name in measures for mean in _means(study, name, measured)),
        differences=differences,
        curves=tuple(_curves(study, runs)),
        detectable=tuple(detectable(study, runs, num_problems=num_problems)),
        kinds=tuple(_kinds(study, measured)),
        trends=tuple(expected_trends(study, runs, differences)),
        design=study.design,
        trials=tuple(trials),
        gain=gain,
        verdicts=tuple(_verdicts(study, differences, measured, gain, trials)),
    )


def _variant(name: str, changes: Mapping[str, JsonValue], runs: Sequence[MeasuredRun]) -> StudyVariant:
    own = [entry.run for entry in runs if entry.run.variant == name]
    steps = [run.collapse_step for run in own if run.collapse_step is not None]
    return StudyVariant(
        name=name,
        changes=changes,
        num_runs=sum(run.measured for run in own),
        num_collapsed=len(steps),
        first_collapse=min(steps, default=None),
    )


def _values(measure: str, variant: str, runs: Sequence[MeasuredRun]) -> dict[int, float]:
    """Return a measure of a variant by seed."""
    return {
        run.run.seed: run.run.values[measure]
        for run in runs
        if run.run.variant == variant and measure in run.run.values
    }


def _over_seeds(measure: str, values: Sequence[float], confidence: float, *, least: float) -> Estimate | None:
    """Return the mean with its t interval; a fraction, or a difference of fractions, stays within `least` and 1."""
    interval = seed_interval(values, confidence)
    if interval is None or MEASURES[measure].unit != "share":
        return interval
    return Estimate(mean=interval.mean, low=max(least, interval.low), high=min(1.0, interval.high))


def _changes(before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
    """Return what a measure changes by, for each seed that both have."""
    return [after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())]


def _means(study: StudyFile, measure: str, runs: Sequence[MeasuredRun]) -> Iterator[StudyMean]:
    for variant in study.changes:
        if values := list(_values(measure, variant, runs).values()):
            yield StudyMean(measure=measure, variant=variant, **_mean(study, measure, values))


def _mean(study: StudyFile, measure: str, values: Sequence[float]) -> dict[str, Any]:
    over_seeds = _over_seeds(measure, values, study.confidence, least=0.0)
    return {"num_seeds": len(values), "mean": fmean(values), "over_seeds": over_seeds}


def _kinds(study: StudyFile, runs: Sequence[MeasuredRun]) -> Iterator[StudyMean]:
    """Yield the accuracy by kind of the models at the start, one for each seed, and of every variant."""
    by_variant = {"start": {run.run.seed: run.run.start_by_kind for run in runs}}
    for name in study.changes:
        by_variant[name] = {run.run.seed: run.run.by_kind for run in runs if run.run.variant == name}
    for kind in dict.fromkeys(kind for run in runs for kind in run.run.by_kind):
        for variant, by_seed in by_variant.items():
            if values := [by_kind[kind] for by_kind in by_seed.values() if kind in by_kind]:
                yield StudyMean(measure="accuracy", kind=kind, variant=variant, **_mean(study, "accuracy", values))


def _differences(study: StudyFile, measure: str, runs: Sequence[MeasuredRun]) -> list[StudyDifference]:
    """Return the differences of all variants from the baseline; their p-values are a family."""
    differences = []
    before = _values(measure, study.compared_with, runs)
    for variant in list(study.changes)[1:]:
        after = _values(measure, variant, runs)

        # Pairs of one seed each.
        seeds = sorted(before.keys() & after.keys())
        if seeds:
            pairs = [before[seed] for seed in seeds], [after[seed] for seed in seeds]
            differences.append(
                {
                    "measure": measure,
                    "variant": variant,
                    "num_seeds": len(seeds),
                    "mean": fmean(pairs[1]) - fmean(pairs[0]),
                    "over_seeds": _over_seeds(measure, _changes(before, after), study.confidence, least=-1.0),
                    "p_seeds": paired_t_test(*pairs),
                    "effect_size": cohens_d_paired(*pairs),
                    **_over_problems(study, measure, variant, runs),
                }
            )

    # All variants of a measure are one family of tests.
    for name in ("p_seeds", "p_problems"):
        for entry, adjusted in zip(differences, holm([entry[name] for entry in differences]), strict=True):
            entry[f"{name}_adjusted"] = adjusted
    return [StudyDifference(**entry) for entry in differences]


def _baseline_gain(study: StudyFile, runs: Sequence[MeasuredRun]) -> Estimate | None:
    """Return what the baseline gains of the measure that is judged from its first evaluation to its last."""
    if study.verdict is None:
        return None
    last = _values(study.verdict.measure, study.compared_with, runs)
    first = _values(f"first_{study.verdict.measure}", study.compared_with, runs)
    return _over_seeds(study.verdict.measure, _changes(first, last), study.confidence, least=-1.0)


def _verdicts(
    study: StudyFile,
    differences: Sequence[StudyDifference],
    runs: Sequence[MeasuredRun],
    gain: Estimate | None,
    trials: Sequence[StudyTrial],
) -> Iterator[StudyVerdict]:
    design = study.design
    if design is None:
        return
    judged = [difference for difference in differences if difference.measure == design.measure]
    p_values = holm([widened_p(difference, design.widening) for difference in judged])
    for difference, p_value in zip(judged, p_values, strict=True):
        pair = (study.compared_with, difference.variant)
        means = {name: fmean(_values(design.measure, name, runs).values()) for name in pair}
        reason = objection(design, difference, num_seeds=len(study.seeds), gain=gain, means=means)
        interval = widened(difference.over_seeds, design.widening)
        verdict = judge_variant(
            difference.variant, interval, p_value, rule=design, reason=reason, level=1 - study.confidence
        )
        ends = [
            f"{key}={trial.changes[key]:g} of {trial.variant} is at the end of what was tried"
            for trial in trials
            if trial.variant in pair
            for key in trial.at_end
        ]
        yield verdict.model_copy(update={"words": "; ".join((verdict.words, *ends))})


_Pairs = list[tuple[str, float, float]]
"""Problem, and its value with the baseline and with the variant by the runs of one seed."""


def _paired_problems(measure: str, baseline: str, variant: str, runs: Sequence[MeasuredRun]) -> _Pairs:
    values = {(run.run.variant, run.run.seed): run.by_problem.get(measure, {}) for run in runs}
    pairs: _Pairs = []
    for (name, seed), after in values.items():
        before = values.get((baseline, seed), {}) if name == variant else {}
        for problem, value in after.items():  # in a fixed order, for sums to the last bit
            if problem in before:
                pairs.append((problem, before[problem], value))
    return pairs


def _over_problems(study: StudyFile, measure: str, variant: str, runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    pairs = _paired_problems(measure, study.compared_with, variant, runs)
    if not pairs:
        return dict.fromkeys(("num_problems", "over_problems", "p_problems"))
    problems, before, after = zip(*pairs, strict=True)
    estimate, p_value = paired_difference(
        before, after, clusters=problems, confidence=study.confidence, bounds=MEASURES[measure].difference_bounds
    )
    return {"num_problems": len(set(problems)), "over_problems": estimate, "p_problems": p_value}


def _curves(study: StudyFile, runs: Sequence[MeasuredRun]) -> Iterator[StudyCurve]:
    for metric in CURVES:
        for variant in study.changes:
            own = [run.curves.get(metric, {}) for run in runs if run.run.variant == variant]
            by_step = {step: [curve[step] for curve in own if step in curve] for step in sorted(set().union(*own))}
            if by_step:
                yield StudyCurve(
                    metric=metric,
                    variant=variant,
                    steps=tuple(by_step),
                    mean=tuple(_rounded(fmean(values)) for values in by_step.values()),
                    low=tuple(_rounded(min(values)) for values in by_step.values()),
                    high=tuple(_rounded(max(values)) for values in by_step.values()),
                )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def detectable(study: StudyFile, runs: Sequence[MeasuredRun], *, num_problems: int) -> Iterator[Detectable]:
    """Yield the difference in accuracy that a comparison finds, over seeds and, without a verdict, over problems.

    Args:
        study: with the seeds.
        runs: those that are done, whose differences say how far pairs lie apart; without any it is assumed.
        num_problems: of an evaluation, where none is done.
    """
    # What is judged, and in how many comparisons; without a verdict a single one of greedy accuracies.
    measure, num_comparisons, widening = "accuracy", 1, 1.0
    if (design := study.design) is not None:
        measure, num_comparisons, widening = design.measure, max(1, len(study.variants) - 1), design.widening
    by_seed, disagreements, known = [], [], 0
    for variant in list(study.changes)[1:]:
        # How far the differences of the seeds lie apart.
        changes = _changes(_values(measure, study.compared_with, runs), _values(measure, variant, runs))
        if len(changes) > 1:
            by_seed.append(float(np.var(changes, ddof=1)))

        # How far those of the problems do, each the mean over its seeds.
        changes_of = defaultdict(list)
        for problem, early, late in _paired_problems(measure, study.compared_with, variant, runs):
            changes_of[problem].append(late - early)
        known = max(known, len(changes_of))
        if changes_of:
            disagreements.append(float(np.var([fmean(each) for each in changes_of.values()])))
    units: tuple[tuple[Literal["seeds", "problems"], int, Sequence[float], float], ...] = (
        ("seeds", len(study.seeds), by_seed, ASSUMED_SEED_SD),
        ("problems", known or num_problems, disagreements, math.sqrt(ASSUMED_DISAGREEMENT)),
    )
    for unit, num, variances, assumed in units if design is None else units[:1]:
        # Pairs that are all alike do not say how far others would be apart.
        apart = [variance for variance in variances if variance > 0]
        sd = math.sqrt(fmean(apart)) if apart else assumed
        yield Detectable(
            measure=measure,
            unit=unit,
            num=num,
            sd=sd,
            is_assumed=not apart,
            num_comparisons=num_comparisons,
            difference=detectable_difference(num, widening * sd, level=0.05 / num_comparisons),
        )
