"""The rows that sentences about a study were made of: its runs, a seed a row, from its record alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from swerve.artifacts.study import Detectable, Study, StudyDifference, StudyTrend
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure
from swerve.report.rows import change_as, measure_unit, value_as
from swerve.report.study_rows import KNOWN, Outcome, expected, pairs_of
from swerve.text import count

_COMMAND = """import json
import pandas as pd
runs = json.load(open("study.json"))["runs"]
rows = pd.DataFrame({{**run, "value": run["values"].get("{measure}")}} for run in runs)
rows = rows.pivot(index="seed", columns="variant", values="value")"""
"""Lines of Python that read the values of a measure."""


def pairs_evidence(
    study: Study, difference: StudyDifference, value: Estimate | float | None = None, *, has_ends: bool = True
) -> Evidence | None:
    """Return the runs that a difference is of, a seed a row, with both ends as figures, or the difference itself."""
    measure, variant = KNOWN[difference.measure], difference.variant
    pairs = pairs_of(study, difference.measure, variant)
    if not pairs:
        return None
    of = difference.over_seeds if value is None else value
    before, after = zip(*pairs.values(), strict=True)
    figures: tuple[Figure, ...] = (
        Figure(name="difference", statistic="paired difference of means", columns=(study.baseline, variant),
               write=partial(change_as, measure, of)),
    )  # fmt: skip
    if has_ends:
        write = partial(value_as, measure, of)
        figures = tuple(
            Figure(name=name, statistic="mean", columns=(name,), write=write) for name in (variant, study.baseline)
        )
    num = difference.num_problems
    return Evidence(
        id=f"pairs-{difference.measure}-{variant}",
        table="study.json",
        filter=f"{measure.title} of the runs of `{variant}` and of `{study.baseline}` with one seed",
        unit="seed",
        columns={"seed": [*pairs], study.baseline: before, variant: after},
        figures=figures,
        command=_COMMAND.format(measure=difference.measure),
        note="Brackets are intervals over seeds." if difference.num_seeds > 1 or not num else
        f"Brackets are intervals over {count(num)} problems; their answers are in the runs, under eval/.",
    )  # fmt: skip


def values_evidence(study: Study, outcomes: Sequence[Outcome]) -> Evidence | None:
    """Return the headline's value of each run: a row a seed, a column a variant."""
    if study.headline is None:
        return None
    values: dict[str, dict[int, float]] = {variant.name: {} for variant in study.variants}
    for run in study.runs:
        if study.headline in run.values:
            values[run.variant][run.seed] = run.values[study.headline]
    measure, alone = KNOWN[study.headline], study.mean_of(study.headline, study.variants[0].name)
    figures = []
    if len(study.variants) == 1 and alone is not None:
        write = partial(value_as, measure, alone.over_seeds)
        figures = [Figure(name=measure.title, statistic="mean", columns=(study.variants[0].name,), write=write)]
    else:
        # A variant's end is over the seeds that the baseline has too.
        figures = [
            Figure(name=own.difference.variant, statistic="mean", columns=(own.difference.variant,),
                   write=partial(value_as, measure, own.value))
            for own in outcomes
            if values[own.difference.variant].keys() <= values[study.baseline].keys()
        ]  # fmt: skip
    seeds = sorted(set().union(*values.values()))
    return Evidence(
        id="values",
        table="study.json",
        filter=f"{measure.title} of each run",
        unit="seed",
        columns={"seed": seeds, **{name: [own.get(seed) for seed in seeds] for name, own in values.items()}},
        figures=tuple(figures),
        command=_COMMAND.format(measure=study.headline),
    )


def others_evidence(tested: Sequence[StudyDifference], shown: Sequence[StudyDifference]) -> Evidence:
    """Return the differences that were tested, and which of them are shown."""
    return Evidence(
        id="others",
        table="study.json",
        filter="differences in other measures with a test over seeds",
        unit="difference",
        columns={
            "measure": [KNOWN[each.measure].title for each in tested],
            "variant": [each.variant for each in tested],
            "difference": [each.mean for each in tested],
            "p, Holm": [each.p_seeds_adjusted for each in tested],
            "shown": [int(each in shown) for each in tested],
        },
        figures=(
            Figure(name="tested", statistic="rows"),
            Figure(name="shown", statistic="sum", columns=("shown",)),
        ),
    )


def trends_evidence(told: Sequence[StudyTrend]) -> Evidence | None:
    """Return the findings from elsewhere that could be asked, and which of them are found."""
    if not told:
        return None
    return Evidence(
        id="trends",
        table="study.json",
        filter="findings from elsewhere that could be asked of these runs",
        unit="finding",
        columns={
            "variant": [trend.variant for trend in told],
            "expected": [expected(trend) for trend in told],
            "runs": [trend.num_runs for trend in told],
            "found": [int(bool(trend.is_shown)) for trend in told],
        },
        figures=(
            Figure(name="asked", statistic="rows"),
            *([Figure(name="found", statistic="sum", columns=("found",))] if any(one.is_shown for one in told) else []),
        ),
    )


def runs_evidence(study: Study, values: Sequence[tuple[str, float]]) -> Evidence:
    """Return what runs that differ by seed alone came to."""
    assert study.headline is not None
    unit = measure_unit(KNOWN[study.headline])
    low, high = (unit.text(end(value for _, value in values)) for end in (min, max))
    ends = {"least": "lowest", "most": "highest"} if low != high else {"mean": "each"}
    figures = [
        Figure(name=name, statistic=statistic, columns=("value",), write=unit.value) for statistic, name in ends.items()
    ]
    return Evidence(
        id="runs-of-one",
        table="study.json",
        filter=f"{KNOWN[study.headline].title} of each run",
        unit="run",
        columns={"run": [name for name, _ in values], "value": [value for _, value in values]},
        figures=tuple(figures),
        command=_COMMAND.format(measure=study.headline),
    )


def detectable_evidence(effects: Sequence[Detectable]) -> Evidence:
    """Return what a study can find, a unit a row."""
    written = {f"{each.unit}": each for each in effects if each.difference is not None}
    return Evidence(
        id="suffice",
        table="study.json",
        filter="differences that are found in 80 of 100 studies, by a paired t-test at 5%",
        unit="unit",
        columns={
            "over": [each.unit for each in effects],
            "number": [each.num for each in effects],
            "standard deviation of pairs": [each.sd for each in effects],
            **{
                f"found, over {unit}": [each.difference if each.unit == unit else None for each in effects]
                for unit in written
            },
        },
        figures=tuple(
            Figure(name=f"found over {unit}", statistic="mean", columns=(f"found, over {unit}",), write=points_needed)
            for unit in written
        ),
    )


def points_needed(difference: float) -> str:
    """Return a size in points, whole where it is 2 or more.

    >>> points_needed(0.098), points_needed(0.0123)
    ('10 points', '1.2 points')
    """
    return f"{100 * difference:.{int(difference < 0.0195)}f} points"
