"""The rows that sentences about a study were made of: its runs, a seed a row, from its record alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from swerve.artifacts.comparison import Measure
from swerve.artifacts.study import Detectable, Study, StudyDifference, StudyTrend
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.rows import change_as, measure_unit, value_as
from swerve.report.study_rows import KNOWN, Outcome, expected, pairs_of
from swerve.text import count

_PLACE = "in the folder of study.json"
_COMMAND = """import json
import pandas as pd
runs = json.load(open("study.json"))["runs"]
rows = pd.DataFrame({{**run, "value": run["values"].get("{measure}")}} for run in runs)
rows = rows.pivot(index="seed", columns="variant", values="value")"""
"""Lines of Python that read the values of a measure."""


_NUM = "problems, number of"
"""Of both runs, where a difference is over these."""


def pairs_evidence(
    study: Study,
    difference: StudyDifference,
    value: Estimate | float | None = None,
    *,
    has_ends: bool = True,
    has_difference: bool = False,
) -> Evidence | None:
    """Return the runs that a difference is of, a seed a row.

    Args:
        study: what was compared.
        difference: of a variant from the baseline.
        value: the difference as the sentence writes it; None: over seeds.
        has_ends: whether the sentence has both values.
        has_difference: whether it has the difference itself.
    """
    measure, variant = KNOWN[difference.measure], difference.variant
    pairs = pairs_of(study, difference.measure, variant)
    if not pairs:
        return None
    of = difference.over_seeds if value is None else value
    before, after = zip(*pairs.values(), strict=True)
    figures = [_end(measure, of, name) for name in (variant, study.baseline) if has_ends]
    figures += [_difference(measure, of, study.baseline, variant)] if has_difference else []
    num = difference.num_problems
    columns: dict[str, Sequence[Value]] = {"seed": [*pairs], study.baseline: before, variant: after}
    if num and value == difference.over_problems:
        columns[_NUM] = [num] * len(pairs)
        figures.append(Figure(name=_NUM, statistic="most", columns=(_NUM,)))
    return Evidence(
        id=f"pairs-{difference.measure}-{variant}",
        table="study.json",
        filter=f"{measure.title} of the runs of `{variant}` and of `{study.baseline}` with one seed",
        unit="seed",
        opens=f"{difference.measure} ",
        columns=columns,
        figures=tuple(figures),
        place=_PLACE,
        command=_COMMAND.format(measure=difference.measure),
        note="Brackets are intervals over seeds." if difference.num_seeds > 1 or not num else
        f"Brackets are intervals over {count(num)} problems; their answers are in the runs, under eval/.",
    )  # fmt: skip


def _end(measure: Measure, of: Estimate | float | None, variant: str) -> Figure:
    """Return the mean of a variant as a sentence writes it beside a difference."""
    return Figure(name=variant, statistic="mean", columns=(variant,), write=partial(value_as, measure, of))


def _difference(measure: Measure, of: Estimate | float | None, baseline: str, variant: str) -> Figure:
    """Return the difference of a variant from the baseline, over the seeds that both have."""
    write = partial(change_as, measure, of)
    name = f"{variant} less {baseline}"
    return Figure(name=name, statistic="paired difference of means", columns=(baseline, variant), write=write)


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
        for own in outcomes:
            variant = own.difference.variant
            # A variant's end is over the seeds that the baseline has too.
            if values[variant].keys() <= values[study.baseline].keys():
                figures.append(_end(measure, own.value, variant))
            if values[variant].keys() == values[study.baseline].keys():
                figures.append(_end(measure, own.value, study.baseline))
            if own.verdict != "unknown" and own.has_interval:
                figures.append(_difference(measure, own.value, study.baseline, variant))
    seeds = sorted(set().union(*values.values()))
    return Evidence(
        id="values",
        table="study.json",
        filter=f"{measure.title} of each run",
        unit="seed",
        opens=f"{study.headline} ",
        columns={"seed": seeds, **{name: [own.get(seed) for seed in seeds] for name, own in values.items()}},
        figures=tuple(figures),
        place=_PLACE,
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
        place=_PLACE,
        command=_COMMAND.format(measure=study.headline),
    )


def detectable_evidence(effects: Sequence[Detectable]) -> Evidence:
    """Return what a study can find, a unit a row."""
    known = [each for each in effects if each.difference is not None]

    def column(name: str, value: Callable[[Detectable], float | None]) -> dict[str, list[float | None]]:
        """Return a column for each unit, as each has figures of its own."""
        return {f"{name}, {own.unit}": [value(each) if each is own else None for each in effects] for own in known}

    columns = column("number", lambda each: each.num)
    columns |= column("found", lambda each: each.difference) | column("standard deviation", lambda each: each.sd)
    return Evidence(
        id="suffice",
        table="study.json",
        filter="differences that are found in 80 of 100 studies, by a paired t-test at 5%",
        unit="unit",
        columns={"over": [each.unit for each in effects], **columns},
        figures=tuple(
            Figure(
                name=name, statistic="sum", columns=(name,), write=count if name.startswith("number") else points_needed
            )
            for name in columns
        ),
    )


def points_needed(difference: float) -> str:
    """Return a size in points, whole where it is 2 or more.

    >>> points_needed(0.098), points_needed(0.0123)
    ('10 points', '1.2 points')
    """
    return f"{100 * difference:.{int(difference < 0.0195)}f} points"
