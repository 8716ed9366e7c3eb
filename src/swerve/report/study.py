"""The page, the tables and the figures of a study, from its record alone."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from swerve.artifacts.comparison import Measure
from swerve.artifacts.files import write_text
from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    PAIR_MEASURES,
    TREND_WORDS,
    Detectable,
    Study,
    StudyDifference,
    StudyMean,
    StudyRun,
    StudyTrend,
    StudyVariant,
)
from swerve.config.recipe import ReportConfig
from swerve.estimates import Estimate
from swerve.report.draw.figures import DEFAULT_LOOK, Drawing, Look, check_names, rows_drawing, write_figures
from swerve.report.page import Fold, Page, Verdict, measured_folds, render
from swerve.report.provenance import study_provenance
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
    changed,
    difference_unit,
    measure_unit,
)
from swerve.report.study_tokens import tokens_rows
from swerve.report.topics.topic import rows_of
from swerve.text import count, counted, listed, p_words, percent, points_interval, sentence_case

_MAX_CURVES = 8
_MAX_ALIKE = 3
"""Curves on the first screens of runs that differ by seed alone."""
_MAX_NAMED = 3
"""Variants and settings that a sentence names; of more it gives the number."""
_MAX_SHOWN = 6
"""Differences in other measures that a verdict lists."""
_UNKNOWN = "not determined"
_FEW = "too few points or seeds"
_SHOWN: Mapping[bool | None, str] = {True: "yes", False: "no", None: f"{_UNKNOWN}: {_FEW}"}
_KNOWN: Mapping[str, Measure] = {**CURVES, **MEASURES, **PAIR_MEASURES}


def write_study_page(study: Study, folder: Path, *, options: ReportConfig) -> Path:
    """Write `index.html` of a study to a folder; runs that have a page are linked. Return the page's path.

    Raises:
        DiskFullError: no room.
    """
    # A study names its runs from its own directory; runs that were no study are named as the user did.
    links = {
        run_name(study, run): quote(os.path.relpath(page, folder))
        for run in study.runs
        for page in (path / run.path / "report" / "index.html" for path in (folder.parent, Path()))
        if page.is_file()
    }
    write_text(folder / "index.html", render(study_page(study, options=options, links=links, folder=folder.parent)))
    return folder / "index.html"


def study_page(
    study: Study, *, options: ReportConfig, links: Mapping[str, str] = {}, folder: Path | None = None
) -> Page:
    """Return what the page of a study says.

    Args:
        study: what was compared.
        options: of the report.
        links: the addresses of the pages of its runs, by name.
        folder: where the study lies.
    """
    # What no figure counts, or only up to its collapse, stands above all of them.
    outcomes, num = outcome_rows(study), sum(not run.measured or run.collapse is not None for run in study.runs)
    facts = study_provenance(study, folder)
    lost = f"{num} of {counted(len(study.runs), 'run')} collapsed or not counted: the table of runs says why."
    return Page(
        title=options.title or study.name,
        sentence=_sentence(study, outcomes),
        lead=design_words(study)[0] if len(study.variants) > 1 else "They differ by seed alone.",
        links=links if len(study.seeds) == 1 else {},
        heading="What the comparison shows" if outcomes.rows else "What the runs show",
        verdicts=tuple(_verdicts(study, outcomes) if outcomes.rows else _alike(study)),
        caution=lost if num else "",
        folds=measured_folds(*_folds(study, links)),
        terms=_TERMS,
        date=facts.date,
        provenance=facts.line,
    )


def run_name(study: Study, run: StudyRun) -> str:
    """Return what a run is called: as its variant where there is one seed."""
    return run.variant if len(study.seeds) == 1 else f"{run.variant}, seed {run.seed}"


def _title(measure: str) -> str:
    return sentence_case(_KNOWN[measure].title)


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _over_seeds(each: StudyMean | StudyDifference | None) -> Cell:
    """Return a mean with its interval over seeds, where it has one."""
    return (each.over_seeds or each.mean) if each else None


def outcome_rows(study: Study) -> Rows:
    """Return what came out of each variant in the measure that the study is about.

    The study's rule says it; without one the difference over seeds, and where seeds say nothing that over problems.
    """
    headline, rows = study.headline or "accuracy", list[tuple[Cell, ...]]()
    verdicts = {verdict.variant: verdict for verdict in study.verdicts}
    for each in (each for each in study.differences if each.measure == headline):
        # Seeds that say nothing leave the problems; a rule that was named before has the last word.
        value, p, over, words = each.over_seeds, each.p_seeds_adjusted, counted(each.num_seeds, "seed"), ""
        if value is None and each.over_problems and each.num_problems:
            value, p = each.over_problems, each.p_problems_adjusted
            over = f"{counted(each.num_problems, 'problem')} of these runs alone"
        if verdict := verdicts.get(each.variant):
            value, p, words = verdict.over_seeds, verdict.p, verdict.words
        elif p is None:
            words = f"{_UNKNOWN}, because {_untested(each)}"
        elif value and p < 1 - study.confidence:
            words = "higher" if value.mean > 0 else "lower"
        rows.append((each.variant, value or each.mean, p, over, words or "not shown to differ"))
    return Rows(
        id="study_comparison",
        title=f"{_title(headline)} minus that of {study.baseline}",
        first="Variant",
        columns={"Difference": difference_unit(_KNOWN[headline]), "p, Holm": P_VALUE, "Over": TEXT, "Verdict": TEXT},
        rows=tuple(rows),
        plots=(Dots(column="Difference", at=0.0, margin=study.design.margin if study.design else 0.0),),
    )


def _untested(each: StudyDifference) -> str:
    """Return why a difference without a p-value over seeds has none, as a clause."""
    return "there is one seed" if each.num_seeds < 2 else "all seeds differ alike, which leaves nothing to compare with"


def _sentence(study: Study, outcomes: Rows) -> str:
    """Return what was varied on what, and what came out."""
    keys = (f"`{key.rpartition('.')[2]}`" for variant in study.variants for key in variant.changes)
    tasks, models = (_listed((getattr(run, name) for run in study.runs), name) for name in ("task", "model"))
    place = f"on {tasks}" if tasks else f"in recipe `{study.recipe}`"
    place += f" with a {models}" if models else ""
    alone = study.mean_of(study.headline, study.variants[0].name) if study.headline else None
    if len(study.variants) == 1 and alone is not None:
        measure = _KNOWN[alone.measure]
        value = measure_unit(measure).text(_over_seeds(alone))
        return f"Runs of one recipe {place}: **{measure.title} {value}** over {counted(alone.num_seeds, 'seed')}."
    start = f"**{_listed(keys, 'setting') or 'No setting'} varied** {place}"
    if study.headline is None or not outcomes.rows:
        return f"{start}; no two variants are evaluated yet."
    measure, over = _KNOWN[study.headline], outcomes.rows[0][3]
    # A verdict that cannot be given says why.
    said = (
        f"**{f'whether `{name}` differs' if str(words).startswith(_UNKNOWN) else f'`{name}`'} is "
        f"{str(words).split(';')[0]}**, {changed(measure, value)}"
        for name, value, *_, words in outcomes.rows
    )
    return f"{start}. In {measure.title} over {over}, against `{study.baseline}`: {_listed(said, 'variant')}."


def _listed(texts: Iterable[str], noun: str) -> str:
    """Return different texts as a sentence lists them, of many the first; empty without any.

    >>> _listed(["a", "b", "c", "d", "e", "a"], "thing"), _listed(["", ""], "thing")
    ('a, b, c and 2 more things', '')
    """
    names = [*dict.fromkeys(filter(None, texts))]
    if len(names) > _MAX_NAMED + 1:
        names[_MAX_NAMED:] = [f"{len(names) - _MAX_NAMED} more {noun}s"]
    return listed(names) if names else ""


def _verdicts(study: Study, outcomes: Rows) -> Iterator[Verdict]:
    """Yield the comparison as a plot, each variant in words, what else differs, and what could have been found."""
    measure, level = _KNOWN[study.headline or "accuracy"], 1 - study.confidence
    text = f"The line is no difference, a band what is too small to matter. {100 * study.confidence:g}% intervals."
    yield Verdict(title=outcomes.title, text=text, rows=outcomes)
    for name, value, p, over, words in outcomes.rows:
        text = f"Over {over}, {p_words(p)}." if isinstance(p, float) else f"Over {over}, without a test."
        yield Verdict(title=f"`{name}`, {changed(measure, value)}: {words}", text=text)

    # Every other measure, what was expected, and what the seeds suffice for.
    others = [each for each in study.differences if each.measure != study.headline]
    shown = [
        f"{_KNOWN[each.measure].title} of `{each.variant}` {changed(_KNOWN[each.measure], each.over_seeds)}"
        for each in others
        if each.p_seeds_adjusted is not None and each.p_seeds_adjusted < level
    ]
    if others:
        untested = [_untested(each) for each in others if each.p_seeds_adjusted is None]
        said = "in other measures are significant"
        title, more = _of_those_told(len(shown), len(others) - len(untested), "difference", said, untested)
        text = (
            f"{sentence_case('; '.join(shown[:_MAX_SHOWN])) or 'None'}. Over seeds, by Holm over the variants of each "
            f"measure; by chance about {100 * level:.0f}% would be."
        )
        yield Verdict(title=title, text=f"{text}{more}" if len(untested) < len(others) else "")
    if study.trends:
        told = [trend for trend in study.trends if trend.is_shown is not None]
        untold = [f"there are {_FEW}"] * (len(study.trends) - len(told))
        shown = [f"{trend.variant}: {_expected(trend)}" for trend in told if trend.is_shown]
        title, more = _of_those_told(len(shown), len(told), "finding", "from elsewhere are found here too", untold)
        found = f"{'; '.join(shown) or 'None'}.{more} " if told else ""
        yield Verdict(title=title, text=f"{found}All stand below, with their numbers.")
    if study.detectable:
        yield Verdict(title="What these seeds suffice for", text=detectable_words(study.detectable))


def _of_those_told(num: int, num_told: int, noun: str, said: str, reasons: Sequence[str]) -> tuple[str, str]:
    """Return how many of those that could be asked are so, and a sentence on the others.

    Args:
        num: that are so.
        num_told: that could be asked.
        noun: what they are.
        said: what is said of them, as the end of a sentence.
        reasons: of each that could not be asked, why.

    >>> _of_those_told(1, 2, "run", "are long", ["it failed"])
    ('1 of 2 runs are long', ' Of 1 more it is not determined, because it failed.')
    >>> _of_those_told(0, 0, "run", "are long", ["it failed", "it failed"])[0]
    'Not determined, because it failed: which of 2 runs are long'
    """
    because = listed([*dict.fromkeys(reasons)]) if reasons else ""
    if not num_told:
        return f"Not determined, because {because}: which of {counted(len(reasons), noun)} {said}", ""
    more = f" Of {count(len(reasons))} more it is {_UNKNOWN}, because {because}." if reasons else ""
    return f"{num} of {counted(num_told, noun)} {said}", more


def _alike(study: Study) -> Iterator[Verdict]:
    """Yield what runs that differ by seed alone came to, each by itself and over training."""
    if study.headline is None:
        return
    unit, title = measure_unit(_KNOWN[study.headline]), _title(study.headline)
    values = [(run_name(study, run), run.values[study.headline]) for run in study.runs if study.headline in run.values]
    if values:
        low, high = (unit.text(end(value for _, value in values)) for end in (min, max))
        rows = Rows(
            id="study_runs", title=title, columns={title: unit}, rows=tuple(values), plots=(Dots(column=title),)
        )
        yield Verdict(title=f"{title} of the runs: {low} to {high}.", text="A dot is a run.", rows=rows)
    for rows in islice(curves_rows(study), _MAX_ALIKE):
        text = "The line is the mean over seeds, the band from the lowest to the highest."
        yield Verdict(title=f"{rows.title} over training.", text=text, rows=rows.kept)


def design_words(study: Study) -> list[str]:
    """Return what was decided before the runs, and which difference they can find."""
    lines = ["No rule was named before these runs, so differences are described and nothing is decided."]
    if (design := study.design) is not None:
        gain = f" {100 * design.min_gain:g} points and more" if design.min_gain else ""
        lines = [
            f"Judged by {MEASURES[design.measure].title} over seeds {_joined(study.seeds)}; the smallest difference "
            f"that matters is {100 * design.margin:g} points. Nothing is said where {study.baseline} does not "
            f"gain{gain} over seeds, or where it or the variant is above {percent(design.ceiling)}."
        ]
        # How settings were tuned, and what that costs.
        pairs = zip(design.num_by_seed, design.tuning_seeds, strict=True)
        if rounds := ", then ".join(f"{num} with seed {seed}" for num, seed in pairs):
            lines.append(
                f"Settings of each variant are chosen before, on {count(design.num_problems)} other held-out "
                f"problems: {rounds}, always the better ones; the highest mean over these seeds is taken. Intervals of "
                f"verdicts are {design.widening:.2g} times as wide as over seeds alone, for what another tuning would "
                "choose."
            )
    if study.gain is not None:
        lines.append(f"{study.baseline} itself gains {points_interval(study.gain)} points over seeds.")
    if len(study.variants) > 1 and study.detectable:
        lines.append(detectable_words(study.detectable))
    return lines


def detectable_words(effects: Sequence[Detectable]) -> str:
    """Return which difference a comparison of a study finds, with what that rests on."""
    parts = []
    for each in effects:
        found = "none" if each.difference is None else f"{100 * each.difference:.1f} points"
        source = "assumed" if each.is_assumed else "measured"
        over = counted(each.num, each.unit.removesuffix("s"))
        parts.append(f"{found} over {over} (pairs vary by {100 * each.sd:.1f} points, {source})")
    num, title = effects[0].num_comparisons, MEASURES[effects[0].measure].title
    of = "one comparison" if num == 1 else f"the first of {num} comparisons by Holm"
    return f"Detectable difference in {title} (80% power, 5% two-sided, {of}): {', '.join(parts)}."


class _Compared(NamedTuple):
    """A variant with a measure of it."""

    variant: StudyVariant
    mean: StudyMean | None
    less: StudyDifference | None


def difference_rows(study: Study, measure: str) -> Rows:
    """Return a measure of every variant, and its difference from the baseline."""
    change, title = difference_unit(_KNOWN[measure]), _title(measure)
    # What was not measured, and what the baseline has not, is None.
    return rows_of(
        [
            _Compared(each, study.mean_of(measure, each.name), study.difference_of(measure, each.name))
            for each in study.variants
        ],
        {
            "Seeds": (COUNT, lambda each: each.mean.num_seeds if each.mean else 0),
            title: (measure_unit(_KNOWN[measure]), lambda each: _over_seeds(each.mean)),
            "Over seeds": (change, lambda each: _over_seeds(each.less)),
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
        name = mean.kind or _title(mean.measure)
        columns[name] = measure_unit(_KNOWN[mean.measure])
        cells.setdefault(mean.variant, {})[name] = _over_seeds(mean)
    rows = tuple((variant, *map(own.get, columns)) for variant, own in cells.items())
    return Rows(id=id, title=title, first="Variant", columns=columns, rows=rows)


def measures_rows(study: Study) -> Rows:
    """Return the means of all measures."""
    return _means_rows("study_means", "Means over seeds", study.means)


def kinds_rows(study: Study) -> Rows:
    """Return the greedy accuracy by kind of problem, of the start first."""
    return _means_rows("study_kinds", "Greedy accuracy by kind of problem, means over seeds", study.kinds)


def _expected(trend: StudyTrend) -> str:
    return f"{_title(trend.measure)} {TREND_WORDS[trend.expected]}"


def trends_rows(study: Study) -> Rows:
    """Return what the study expects, and whether its runs show it."""
    # Measures differ from row to row, so their numbers are texts.
    return rows_of(
        study.trends,
        {
            "Expected": (TEXT, _expected),
            "Shown": (TEXT, lambda trend: _SHOWN[trend.is_shown]),
            "Runs": (COUNT, "num_runs"),
            "That show it": (COUNT, "num_shown"),
            "First, extreme and last level": (
                TEXT,
                lambda trend: ", ".join(map(measure_unit(_KNOWN[trend.measure]).text, trend.levels or ())),
            ),
            "Step of the extreme": (COUNT, "turn"),
            "Change or difference": (TEXT, lambda trend: difference_unit(_KNOWN[trend.measure]).text(trend.change)),
        },
        name="variant",
        id="study_trends",
        title="Expected trends",
        first="Variant",
        note=_EXPECTED,
    )


def trials_rows(study: Study) -> Rows:
    """Return the settings that were tried."""
    names = dict.fromkeys([_judged(study), *_OF_TRIALS])
    columns = {_title(name): measure_unit(_KNOWN[name]) for name in names}
    return Rows(
        id="study_trials",
        title="Settings that were tried, means over their seeds",
        first="Variant",
        columns={"Setting": TEXT, "Seeds": TEXT, **columns, "Choice": TEXT},
        rows=tuple(
            (
                *(trial.variant, _changes(trial.changes), _joined(trial.seeds)),
                *map(trial.values.get, names),
                "chosen" if trial.is_chosen else "",
            )
            for trial in study.trials
        ),
        note="On seeds and problems of their own. These values chose the settings, so they flatter them: they are no "
        "result, and the differences between them have no interval.",
    )


_OF_TRIALS = ("accuracy", "sampled_accuracy", "entropy", "distinct_right", "similarity", "kl")


def _judged(study: Study) -> str:
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
            _title(headline): (measure_unit(_KNOWN[headline]), lambda run: run.values.get(headline)),
            "Collapse": (TEXT, "collapse"),
            "Step of the collapse": (COUNT, "collapse_step"),
            "Directory": (TEXT, "path"),
        },
        name=partial(run_name, study),
        id="study_runs",
        title="Runs",
        first="Run",
        note="A name that is a link leads to the page of its run, which swerve report RUN writes." if links else "",
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
        if trial.values.keys() >= {"entropy", _judged(study)}:
            points = drawn["settings"].setdefault(trial.variant, {})
            points[trial.values["entropy"]] = trial.values[_judged(study)]

    # A curve has two places or more.
    for name, by_variant in drawn.items():
        metric, x_title = (name, "global step") if name in CURVES else (_judged(study), "entropy of the settings tried")
        places = sorted(set().union(*by_variant.values()))
        variants = [variant.name for variant in study.variants if variant.name in by_variant][:_MAX_CURVES]
        if len(places) > 1:
            yield Rows(
                id=f"study_{name}",
                title=_title(metric),
                first=x_title,
                columns=dict.fromkeys(variants, measure_unit(_KNOWN[metric])),
                rows=tuple((f"{at:,.6g}", *(by_variant[variant].get(at) for variant in variants)) for at in places),
                plots=(Curves(x=tuple(places), x_title=x_title, greys=(study.baseline,) if len(variants) > 1 else ()),),
                has_table=False,
            )


def _folds(study: Study, links: Mapping[str, str]) -> Iterator[Fold]:
    """Yield everything that was measured, by topic."""
    several = len(study.variants) > 1
    compared, *others = (difference_rows(study, measure) for measure in study.measures or ("accuracy",))
    for id, title, note, parts in (
        ("comparison", f"What is different from {study.baseline}?", "with all tests", [compared] if several else []),
        ("design", "How was it decided?", "rule, variants, settings", [variants_rows(study), trials_rows(study)]),
        ("measures", "What else is different?", "every measure", [measures_rows(study), *others]),
        ("kinds", "On which problems?", "accuracy by kind", [kinds_rows(study)]),
        ("expected", "Is it as was found elsewhere?", "expected trends", [trends_rows(study)]),
        ("training", "Over training", "each metric by step", [*curves_rows(study), *tokens_rows(study)]),
        ("runs", "What became of the runs?", "state, collapse, directory", [runs_rows(study, links)]),
    ):
        sentences = design_words(study) if id == "design" else ()
        yield Fold(id=id, title=title, note=note, sentences=tuple(sentences), parts=tuple(parts))


_EXPECTED = (
    "A curve has eight points or more, in at most 20 blocks; a level is the mean of three blocks. It rises where its "
    "highest level lies above the first, and falls where that lies above the last, by more than in 99.75% of random "
    "orders of the blocks, in root mean squares of the steps between blocks. Yes: more than half of the runs show it. "
    "A difference from the baseline is shown by its interval over seeds."
)
_TERMS = (
    ("Start", "The model that the runs began with, where they were evaluated before the first update."),
    ("Lines and bands", "Over training: means over seeds, and from the lowest to the highest seed."),
    ("Over seeds", "Paired runs of one seed, Student's t: what would another training run do?"),
    ("Over problems", "These same runs on other problems: nothing is said of another training run."),
    ("d", "The mean difference in standard deviations of the seeds' differences."),
    (
        "p, seeds; p, problems",
        "Paired t-test over seeds; McNemar's test or sign flips over problems. By Holm over the variants.",
    ),
    ("Better, worse", "The difference is not 0 by Holm's p over seeds."),
    ("Equivalent", "The whole interval lies within the smallest difference that matters."),
    (
        "Not better (or worse) by M points",
        "The interval excludes a gain (or a loss) of the smallest difference that matters or more.",
    ),
    ("Not shown to differ", "The interval allows both: more seeds would be needed."),
    ("Inconclusive", "The comparison itself does not hold, and the reason is given."),
    ("Not determined", "It could not be asked of these runs, and the reason is given: neither yes nor no."),
)


def write_study_figures(
    study: Study, folder: Path, names: Collection[str] = (), look: Look = DEFAULT_LOOK
) -> tuple[Path, ...]:
    """Write figures of a study, all or those that are named, each with its numbers as CSV; return the paths.

    Raises:
        ConfigError: there is no such figure.
        DiskFullError: no room.
    """
    drawings = study_drawings(study)
    check_names("--figures", names, drawings)
    return write_figures((drawings[name] for name in names or drawings), folder, look)


def study_drawings(study: Study) -> dict[str, Drawing]:
    """Return the figures of a study by name: `study_comparison`, `study_settings`, and a curve of each metric."""
    drawings = map(rows_drawing, (outcome_rows(study), *curves_rows(study), *tokens_rows(study)))
    return {drawing.name: drawing for drawing in drawings if drawing.panels}
