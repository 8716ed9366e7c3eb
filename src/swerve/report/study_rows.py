"""The tables of a study, from its record alone: what came out, every measure, kinds, trends, trials, curves, runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from swerve.artifacts.comparison import Measure
from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    PAIR_MEASURES,
    TREND_WORDS,
    Study,
    StudyDifference,
    StudyMean,
    StudyRun,
    StudyTrend,
    StudyVariant,
    StudyVerdict,
)
from swerve.estimates import Estimate
from swerve.report.rows import (
    COUNT,
    P_VALUE,
    SIGNED,
    TEXT,
    Cell,
    Curves,
    Dots,
    Rows,
    Unit,
    difference_unit,
    measure_unit,
)
from swerve.report.topics.topic import rows_of
from swerve.text import counted, sentence_case

_MAX_CURVES = 8
UNKNOWN = "not determined"
FEW = "too few points or seeds"
_SHOWN: Mapping[bool | None, str] = {True: "yes", False: "no", None: f"{UNKNOWN}: {FEW}"}
KNOWN: Mapping[str, Measure] = {**CURVES, **MEASURES, **PAIR_MEASURES}
"""Every measure and metric of a study, by name."""


def run_name(study: Study, run: StudyRun) -> str:
    """Return what a run is called: as its variant where there is one seed."""
    return run.variant if len(study.seeds) == 1 else f"{run.variant}, seed {run.seed}"


def measure_title(measure: str) -> str:
    """Return a measure as a heading has it."""
    return sentence_case(KNOWN[measure].title)


def joined(values: Iterable[object]) -> str:
    """Return values with commas between them."""
    return ", ".join(map(str, values))


def over_seeds_of(each: StudyMean | StudyDifference | None) -> Cell:
    """Return a mean with its interval over seeds, where it has one."""
    return (each.over_seeds or each.mean) if each else None


class Outcome(NamedTuple):
    """What came out of a variant in the measure that the study is about."""

    difference: StudyDifference
    value: Estimate | float
    """The difference, with the interval that the verdict rests on, where there is one."""
    p: float | None
    unit: Literal["seed", "problem"]
    """What it is over."""
    verdict: Literal["higher", "lower", "by rule", "nothing", "unknown"]
    words: str
    """The verdict as tables have it; of an unknown one the reason, as a clause."""

    @property
    def num(self) -> int:
        """How many seeds or problems it is over."""
        return self.difference.num_seeds if self.unit == "seed" else self.difference.num_problems or 0

    @property
    def has_interval(self) -> bool:
        """Whether sentences name the difference, which they do with its interval."""
        return isinstance(self.value, Estimate)

    @property
    def over(self) -> str:
        """What it is over, in words."""
        if self.unit == "seed":
            return counted(self.num, "seed")
        return f"{counted(self.num, 'problem')} of these runs alone"


def outcomes_of(study: Study) -> list[Outcome]:
    """Return what came out of each variant but the baseline.

    The study's rule says it; without one the difference over seeds, and where seeds say nothing that over problems.
    """
    verdicts = {verdict.variant: verdict for verdict in study.verdicts}
    return [
        _outcome(each, verdicts.get(each.variant), 1 - study.confidence)
        for each in study.differences
        if each.measure == (study.headline or "accuracy")
    ]


def _outcome(each: StudyDifference, rule: StudyVerdict | None, level: float) -> Outcome:
    if rule and rule.verdict == "inconclusive":
        because = rule.words.partition(": ")[2]
        return Outcome(each, rule.over_seeds or each.mean, rule.p, "seed", "unknown", because)
    if rule:
        verdict: Literal["nothing", "by rule"] = "nothing" if rule.verdict == "not shown" else "by rule"
        return Outcome(each, rule.over_seeds or each.mean, rule.p, "seed", verdict, rule.words)

    # Seeds that say nothing leave the problems.
    value, p = each.over_seeds, each.p_seeds_adjusted
    unit: Literal["seed", "problem"] = "seed"
    if value is None and each.over_problems and each.num_problems:
        value, p, unit = each.over_problems, each.p_problems_adjusted, "problem"
    if value is None or p is None:
        return Outcome(each, value or each.mean, p, unit, "unknown", untested(each))
    if p >= level:
        return Outcome(each, value, p, unit, "nothing", "not shown to differ")
    direction: Literal["higher", "lower"] = "higher" if value.mean > 0 else "lower"
    return Outcome(each, value, p, unit, direction, direction)


def outcome_rows(study: Study) -> Rows:
    """Return the outcomes as a table and a plot."""
    headline = study.headline or "accuracy"
    columns = {"Difference": difference_unit(KNOWN[headline]), "p, Holm": P_VALUE, "Over": TEXT, "Verdict": TEXT}
    return Rows(
        id="study_comparison",
        title=f"{measure_title(headline)} minus that of {study.baseline}",
        first="Variant",
        columns=columns,
        rows=tuple(
            (
                *(each.difference.variant, each.value, each.p, each.over),
                f"{UNKNOWN}, because {each.words}" if each.verdict == "unknown" else each.words,
            )
            for each in outcomes_of(study)
        ),
        plots=(Dots(column="Difference", at=0.0, margin=study.design.margin if study.design else 0.0),),
    )


def untested(each: StudyDifference) -> str:
    """Return why a difference without a p-value over seeds has none, as a clause."""
    return "there is one seed" if each.num_seeds < 2 else "all seeds differ alike, which leaves nothing to compare with"


def pairs_of(study: Study, measure: str, variant: str) -> dict[int, tuple[float, float]]:
    """Return a measure of the baseline's run and of a variant's, by the seed that both have."""
    by_seed = [
        {run.seed: run.values[measure] for run in study.runs if run.variant == name and measure in run.values}
        for name in (study.baseline, variant)
    ]
    return {seed: (by_seed[0][seed], by_seed[1][seed]) for seed in sorted(by_seed[0].keys() & by_seed[1].keys())}


class _Compared(NamedTuple):
    """A variant with a measure of it."""

    variant: StudyVariant
    mean: StudyMean | None
    less: StudyDifference | None


def difference_rows(study: Study, measure: str) -> Rows:
    """Return a measure of every variant, and its difference from the baseline."""
    change, title = difference_unit(KNOWN[measure]), measure_title(measure)
    # What was not measured, and what the baseline has not, is None.
    return rows_of(
        [
            _Compared(each, study.mean_of(measure, each.name), study.difference_of(measure, each.name))
            for each in study.variants
        ],
        {
            "Seeds": (COUNT, lambda each: each.mean.num_seeds if each.mean else 0),
            title: (measure_unit(KNOWN[measure]), lambda each: over_seeds_of(each.mean)),
            "Over seeds": (change, lambda each: over_seeds_of(each.less)),
            "p, seeds": (P_VALUE, "less.p_seeds_adjusted"),
            "d": (SIGNED, "less.effect_size"),
            "Over problems": (change, "less.over_problems"),
            "p, problems": (P_VALUE, "less.p_problems_adjusted"),
            "Collapsed": (COUNT, lambda each: each.variant.num_collapsed or None),
        },
        name="variant.name",
        id=f"study-{measure}-differences",
        title=f"{title}, and less that of {study.baseline}",
        first="Variant",
        plots=(Dots(column="Over seeds", at=0.0),),
    )


def _means_rows(id: str, title: str, means: Sequence[StudyMean]) -> Rows:
    """Return means over seeds, of measures or of greedy accuracy by kind of problem."""
    columns: dict[str, Unit] = {}
    cells: dict[str, dict[str, Cell]] = {}
    for mean in means:
        name = mean.kind or measure_title(mean.measure)
        columns[name] = measure_unit(KNOWN[mean.measure])
        cells.setdefault(mean.variant, {})[name] = over_seeds_of(mean)
    rows = tuple((variant, *map(own.get, columns)) for variant, own in cells.items())
    return Rows(id=id, title=title, first="Variant", columns=columns, rows=rows)


def measures_rows(study: Study) -> Rows:
    """Return the means of all measures."""
    return _means_rows("study_means", "Means over seeds", study.means)


def kinds_rows(study: Study) -> Rows:
    """Return the greedy accuracy by kind of problem, of the start first."""
    return _means_rows("study_kinds", "Greedy accuracy by kind of problem, means over seeds", study.kinds)


def expected(trend: StudyTrend) -> str:
    """Return what is expected of a measure, in words."""
    return f"{measure_title(trend.measure)} {TREND_WORDS[trend.expected]}"


def trends_rows(study: Study) -> Rows:
    """Return what the study expects, and whether its runs show it."""
    # Measures differ from row to row, so their numbers are texts.
    return rows_of(
        study.trends,
        {
            "Expected": (TEXT, expected),
            "Shown": (TEXT, lambda trend: _SHOWN[trend.is_shown]),
            "Runs": (COUNT, "num_runs"),
            "That show it": (COUNT, "num_shown"),
            "First, extreme and last level": (
                TEXT,
                lambda trend: ", ".join(map(measure_unit(KNOWN[trend.measure]).text, trend.levels or ())),
            ),
            "Step of the extreme": (COUNT, "turn"),
            "Change or difference": (TEXT, lambda trend: difference_unit(KNOWN[trend.measure]).text(trend.change)),
        },
        name="variant",
        id="study_trends",
        title="Expected trends",
        first="Variant",
        note=_EXPECTED,
    )


def trials_rows(study: Study) -> Rows:
    """Return the settings that were tried."""
    names = dict.fromkeys([judged_by(study), *_OF_TRIALS])
    columns = {measure_title(name): measure_unit(KNOWN[name]) for name in names}
    return Rows(
        id="study_trials",
        title="Settings that were tried, means over their seeds",
        first="Variant",
        columns={"Setting": TEXT, "Seeds": TEXT, **columns, "Choice": TEXT},
        rows=tuple(
            (
                *(trial.variant, _changes(trial.changes), joined(trial.seeds)),
                *map(trial.values.get, names),
                "chosen" if trial.is_chosen else "",
            )
            for trial in study.trials
        ),
        note="On seeds and problems of their own. These values chose the settings, so they flatter them: they are no "
        "result, and the differences between them have no interval.",
    )


_OF_TRIALS = ("accuracy", "sampled_accuracy", "entropy", "distinct_right", "similarity", "kl")


def judged_by(study: Study) -> str:
    """Return the measure that settings are chosen by."""
    return study.design.measure if study.design else "accuracy"


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in changes.items()) or "as the recipe"


def variants_rows(study: Study) -> Rows:
    """Return what each variant changes."""
    rows = tuple((variant.name, _changes(variant.changes)) for variant in study.variants)
    return Rows(id="study_variants", title="Variants", first="Variant", columns={"Changes": TEXT}, rows=rows)


def runs_rows(study: Study, links: Mapping[str, str] = {}) -> Rows:
    """Return what became of each run."""
    headline = study.headline or "accuracy"
    return rows_of(
        study.runs,
        {
            "State": (TEXT, lambda run: ": ".join(filter(None, (run.state, run.reason)))),
            "Evaluated": (TEXT, "checkpoint"),
            measure_title(headline): (measure_unit(KNOWN[headline]), lambda run: run.values.get(headline)),
            "Collapse": (TEXT, "collapse"),
            "Step of the collapse": (COUNT, "collapse_step"),
            "Directory": (TEXT, "path"),
        },
        name=partial(run_name, study),
        id="study_runs",
        title="Runs",
        first="Run",
        note="A name that is a link leads to the page of its run, which is served beside this one." if links else "",
        links=links,
    )


def study_tables(study: Study) -> Iterator[list[list[str]]]:
    """Yield the tables that the study has something for, the headline's first, each with its heading first."""
    compared = difference_rows(study, study.headline or "accuracy"), outcome_rows(study)
    for rows in (*compared, measures_rows(study), kinds_rows(study), trends_rows(study), trials_rows(study)):
        if rows.rows:
            yield rows.text_table


def curves_rows(study: Study) -> Iterator[Rows]:
    """Yield means over seeds of each metric over training, from the lowest to the highest seed.

    The last are settings that were tried, the measure that chose them against entropy: compare at equal entropy.
    """
    # What is drawn: variant -> place -> value.
    drawn: dict[str, dict[str, dict[float, Cell]]] = {name: {} for name in (*CURVES, "settings")}
    for curve in study.curves:
        points = drawn[curve.metric].setdefault(curve.variant, {})
        for step, mean, low, high in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True):
            points[step] = Estimate(mean=mean, low=low, high=high)
    for trial in study.trials:
        if trial.values.keys() >= {"entropy", judged_by(study)}:
            points = drawn["settings"].setdefault(trial.variant, {})
            points[trial.values["entropy"]] = trial.values[judged_by(study)]

    # A curve has two places or more.
    for name, by_variant in drawn.items():
        metric, x_title = (
            (name, "global step") if name in CURVES else (judged_by(study), "entropy of the settings tried")
        )
        places = sorted(set().union(*by_variant.values()))
        variants = [variant.name for variant in study.variants if variant.name in by_variant][:_MAX_CURVES]
        if len(places) > 1:
            yield Rows(
                id=f"study_{name}",
                title=measure_title(metric),
                first=x_title,
                columns=dict.fromkeys(variants, measure_unit(KNOWN[metric])),
                rows=tuple((f"{at:,.6g}", *(by_variant[variant].get(at) for variant in variants)) for at in places),
                plots=(Curves(x=tuple(places), x_title=x_title, greys=(study.baseline,) if len(variants) > 1 else ()),),
                has_table=False,
            )


_EXPECTED = (
    "A curve has eight points or more, in at most 20 blocks; a level is the mean of three blocks. It rises where its "
    "highest level lies above the first, and falls where that lies above the last, by more than in 99.75% of random "
    "orders of the blocks, in root mean squares of the steps between blocks. Yes: more than half of the runs show it. "
    "A difference from the baseline is shown by its interval over seeds."
)
