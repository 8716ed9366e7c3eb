"""The page, the tables and the figures of a study, from its record alone."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
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
    StudyCurve,
    StudyKind,
    StudyMean,
    StudyRun,
)
from swerve.config import ReportConfig
from swerve.estimates import Estimate
from swerve.report.draw.figures import DEFAULT_LOOK, Drawing, Look, check_names, rows_drawing, write_figures
from swerve.report.format import count, listed, p_words, percent, points_interval, sentence_case
from swerve.report.page import Fold, Page, Texts, Verdict, measured_folds, render
from swerve.report.rows import (
    COUNT,
    P_VALUE,
    SHARE,
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

_MAX_CURVES = 8
_MAX_NAMED = 3
"""Variants and settings that a sentence names; of more it gives the number."""
_MAX_SHOWN = 6
"""Differences in other measures that a verdict lists."""
_MAX_CHANGES = 90
"""Characters of a variant's changes in one line."""
_KNOWN: Mapping[str, Measure] = {**CURVES, **MEASURES, **PAIR_MEASURES}


def write_study_page(study: Study, folder: Path, *, options: ReportConfig) -> Path:
    """Write `index.html` of a study to a folder; runs that have a page are linked. Return the page's path.

    Raises:
        DiskFullError: no room.
    """
    # A study names its runs from its own directory; runs that were no study are named as the user did.
    links = {}
    for run in study.runs:
        for page in (path / "report" / "index.html" for path in (folder.parent / run.path, Path(run.path))):
            if page.is_file():
                links[run_name(study, run)] = quote(Path(os.path.relpath(page, folder)).as_posix())
    write_text(folder / "index.html", render(study_page(study, options=options, links=links)))
    return folder / "index.html"


def study_page(study: Study, *, options: ReportConfig, links: Mapping[str, str] = {}) -> Page:
    """Return what the page of a study says; `links`: the addresses of the pages of its runs, by name."""
    seeds, outcomes = ", ".join(map(str, study.seeds)), outcome_rows(study)
    lost, collapsed = sum(not run.measured for run in study.runs), sum(run.collapse is not None for run in study.runs)
    num = _num(len(study.runs), "run")
    caution = f"Not counted: {lost} of {num}; collapsed: {collapsed}. The table of runs says which."
    return Page(
        title=options.title or study.name,
        sentence=_sentence(study, outcomes),
        lead=design_words(study)[0],
        links=links if len(study.seeds) == 1 else {},
        heading="What the comparison shows",
        verdicts=tuple(_verdicts(study, outcomes)) if outcomes.rows else (),
        caution=caution if lost or collapsed else "",
        folds=measured_folds(*_folds(study, links)),
        terms=_TERMS,
        provenance=f"Made by swerve {study.swerve_version} from recipe {study.recipe} with seeds {seeds}",
    )


def run_name(study: Study, run: StudyRun) -> str:
    """Return what a run is called: as its variant where there is one seed."""
    return run.variant if len(study.seeds) == 1 else f"{run.variant}, seed {run.seed}"


def _title(measure: str) -> str:
    return sentence_case(_KNOWN[measure].title)


def _num(num: int | None, noun: str) -> str:
    return f"one {noun}" if num == 1 else f"{count(num)} {noun}s"


def outcome_rows(study: Study) -> Rows:
    """Return what came out of each variant in the measure that the study is about.

    The study's rule says it; without one the difference over seeds, and without several seeds that over problems.
    """
    verdicts = {verdict.variant: verdict for verdict in study.verdicts}
    rows: list[tuple[Cell, ...]] = []
    for each in study.differences:
        value, p, over, note = each.over_seeds, each.p_seeds_adjusted, _num(each.num_seeds, "seed"), ""
        if value is None and each.over_problems is not None:
            value, p, over = each.over_problems, each.p_problems_adjusted, _num(each.num_problems, "problem")
            note = "this is about these runs alone: one seed, or seeds all alike, say nothing of another training run"
        words = "not shown to differ"
        if value is not None and p is not None and p < 1 - study.confidence:
            words = "higher" if value.mean > 0 else "lower"
        if (verdict := verdicts.get(each.variant)) is not None:
            value, p = verdict.over_seeds, verdict.p
            words, _, note = verdict.words.partition("; ")
        if each.measure == study.headline:
            others = None if value == each.over_problems else each.over_problems
            rows.append((each.variant, value or each.mean, p, over, others, words, note))
    unit = difference_unit(_KNOWN[study.headline or "accuracy"])
    return Rows(
        id="study_comparison",
        title=f"{_title(study.headline or 'accuracy')}, less that of {study.baseline}",
        first="Variant",
        columns={
            "Difference": unit,
            "p, Holm": P_VALUE,
            "Over": TEXT,
            "Over problems": unit,
            "Verdict": TEXT,
            "Note": TEXT,
        },
        rows=tuple(rows),
        plots=(Dots(column="Difference", at=0.0, margin=study.design.margin if study.design else 0.0),),
    )


def _sentence(study: Study, outcomes: Rows) -> str:
    """Return what was varied on what, and what came out."""
    keys = dict.fromkeys(f"`{key.rpartition('.')[2]}`" for variant in study.variants for key in variant.changes)
    start = f"**{_listed(list(keys), 'settings')} varied**"
    for word, name in (("on", "task"), ("with a", "model")):
        known = dict.fromkeys(text for run in study.runs if (text := getattr(run, name)))
        start += f" {word} {_listed(list(known), f'{name}s')}" if known else ""
    start += "" if any(run.task for run in study.runs) else f" in recipe `{study.recipe}`"
    if study.headline is None or not outcomes.rows:
        return f"{start}; no two variants are evaluated yet."
    said = [f"**`{row[0]}` is {row[5]}**, {changed(_KNOWN[study.headline], row[1])}" for row in outcomes.rows]
    measure = f"{_KNOWN[study.headline].title} over {outcomes.rows[0][3]}"
    return f"{start}. In {measure}, against `{study.baseline}`: {_listed(said, 'variants')}."


def _listed(texts: Sequence[str], noun: str) -> str:
    """Return texts as a sentence lists them; of many the first.

    >>> _listed(["a", "b", "c", "d", "e"], "things"), _listed([], "things")
    ('a, b, c and 2 more things', 'No things')
    """
    if len(texts) > _MAX_NAMED + 1:
        return listed([*texts[:_MAX_NAMED], f"{len(texts) - _MAX_NAMED} more {noun}"])
    return listed(texts or [f"No {noun}"])


def _verdicts(study: Study, outcomes: Rows) -> Iterator[Verdict]:
    """Yield the comparison as a plot, each variant in words, what else differs, and what could have been found."""
    measure, level = _KNOWN[study.headline or "accuracy"], 1 - study.confidence
    band = f", the band less than the {100 * study.design.margin:g} points that matter" if study.design else ""
    text = f"The line is no difference{band}. {100 * study.confidence:g}% intervals."
    yield Verdict(title=outcomes.title, text=text, rows=outcomes)
    for name, value, p, over, same, words, note in outcomes.rows:
        said = [f"Over {over}, {p_words(p if isinstance(p, float) else None)}."]
        said += [f"Over problems of the same runs {changed(measure, same)}."] if same else []
        said += [f"Note: {note}."] if note else []
        yield Verdict(title=f"`{name}` is {words}, {changed(measure, value)}", text=" ".join(said))

    # Every other measure, what was expected, and what the seeds suffice for.
    others = [
        (p, f"{_KNOWN[each.measure].title} of `{each.variant}` {changed(_KNOWN[each.measure], each.over_seeds)}")
        for each in study.differences
        if each.measure != study.headline and (p := each.p_seeds_adjusted) is not None
    ]
    if others:
        said = [text for p, text in sorted(others) if p < level]
        yield Verdict(
            title=f"{len(said)} of {_num(len(others), 'difference')} in other measures are shown",
            text=f"{sentence_case('; '.join(said[:_MAX_SHOWN])) or 'None'}. Over seeds, by Holm over the variants of "
            f"each measure; where nothing differs, about {100 * level:.0f}% of measures show something.",
        )
    if study.trends:
        said = [f"{row[0]}: {row[1]}" for row in trends_rows(study).rows if row[2] == "yes"]
        title = f"{len(said)} of {_num(len(study.trends), 'finding')} from elsewhere are shown"
        yield Verdict(title=title, text=f"{'; '.join(said) or 'All stand below, with their numbers'}.")
    if study.detectable:
        yield Verdict(title="What these seeds suffice for", text=detectable_words(study.detectable))


def design_words(study: Study) -> list[str]:
    """Return what was decided before the runs, and which difference they can find."""
    # The rule, how settings are tuned, and what can be found.
    design, lines = study.design, []
    if design is None:
        lines.append("No rule was named before these runs, so differences are described and nothing is decided.")
    else:
        seeds = ", ".join(map(str, study.seeds))
        gain = f" {100 * design.min_gain:g} points and more" if design.min_gain else ""
        lines.append(
            f"Judged by {MEASURES[design.measure].title} over seeds {seeds}; the smallest difference that matters is "
            f"{100 * design.margin:g} points. Nothing is said where {study.baseline} does not gain{gain} over seeds, "
            f"or where it or the variant is above {percent(design.ceiling)}."
        )
    if design is not None and design.tuning_seeds:
        pairs = zip(design.num_by_seed, design.tuning_seeds, strict=True)
        rounds = ", then ".join(f"{num} with seed {seed}" for num, seed in pairs)
        lines.append(
            f"Settings of each variant are chosen before, on {count(design.num_problems)} other held-out problems: "
            f"{rounds}, always the better ones; the highest mean over these seeds is taken. Intervals of verdicts are "
            f"{design.widening:.2g} times as wide as over seeds alone, for what another tuning would choose."
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
        text = f"none over {count(each.num)} {each.unit}".removesuffix("s" if each.num == 1 else "")
        if each.difference is not None:
            source = "assumed" if each.is_assumed else "measured"
            text = f"{100 * each.difference:.1f} points over {count(each.num)} {each.unit} (pairs vary by "
            text += f"{100 * each.sd:.1f} points, {source})"
        parts.append(text)
    num, title = effects[0].num_comparisons, MEASURES[effects[0].measure].title
    of = "one comparison" if num == 1 else f"the first of {count(num)} comparisons by Holm"
    return f"Detectable difference in {title} (80% power, 5% two-sided, {of}): {', '.join(parts)}."


def difference_rows(study: Study, measure: str) -> Rows:
    """Return a measure of every variant, and its difference from the baseline."""
    rows: list[tuple[Cell, ...]] = []
    for variant in study.variants:
        # What does not apply to the baseline is empty, what was not measured of another is None.
        mean, each = study.mean_of(measure, variant.name), study.difference_of(measure, variant.name)
        own: tuple[Cell, ...] = (mean.num_seeds, mean.over_seeds or mean.mean) if mean else (0, None)
        cells: tuple[Cell, ...] = ("" if variant.name == study.baseline else None,) * 5
        if each is not None:
            cells = (each.over_seeds or each.mean, each.p_seeds_adjusted, each.effect_size)
            cells += (each.over_problems, each.p_problems_adjusted)
        rows.append((variant.name, *own, *cells, variant.num_collapsed or ""))
    change = difference_unit(_KNOWN[measure])
    columns = {
        "Seeds": COUNT,
        _title(measure): measure_unit(_KNOWN[measure]),
        "Over seeds": change,
        "p, seeds": P_VALUE,
    }
    columns |= {"d": SIGNED, "Over problems": change, "p, problems": P_VALUE, "Collapsed": COUNT}
    return Rows(
        id=f"study-{measure}-differences",
        title=f"{_title(measure)}, and less that of {study.baseline}",
        first="Variant",
        columns=columns,
        rows=tuple(rows),
        plots=(Dots(column="Over seeds", at=0.0),),
    )


def means_rows(id: str, title: str, means: Sequence[StudyMean | StudyKind]) -> Rows:
    """Return means over seeds, of measures or of greedy accuracy by kind of problem."""
    columns: dict[str, Unit] = {}
    cells: dict[str, dict[str, Cell]] = {}
    for mean in means:
        name = mean.kind if isinstance(mean, StudyKind) else _title(mean.measure)
        columns[name] = SHARE if isinstance(mean, StudyKind) else measure_unit(_KNOWN[mean.measure])
        cells.setdefault(mean.variant, {})[name] = mean.over_seeds or mean.mean
    rows = tuple((variant, *map(own.get, columns)) for variant, own in cells.items())
    return Rows(id=id, title=title, first="Variant", columns=columns, rows=rows)


def measures_rows(study: Study) -> Rows:
    """Return the means of all measures."""
    return means_rows("study_means", "Means over seeds", study.means)


def kinds_rows(study: Study) -> Rows:
    """Return the greedy accuracy by kind of problem, of the start first."""
    return means_rows("study_kinds", "Greedy accuracy by kind of problem, means over seeds", study.kinds)


def trends_rows(study: Study) -> Rows:
    """Return what the study expects, and whether its runs show it."""
    rows = []
    for trend in study.trends:
        unit = measure_unit(_KNOWN[trend.measure])
        levels = [unit.text(level) for level in trend.levels or ()]
        if trend.turn is not None:
            levels[1] += f" (step {count(round(trend.turn))})"
        shown = "" if trend.num_shown is None else f"{count(trend.num_shown)} of "
        rows.append(
            (
                trend.variant,
                f"{_title(trend.measure)} {TREND_WORDS[trend.expected]}",
                {True: "yes", False: "no", None: "cannot be told"}[trend.is_shown],
                shown + count(trend.num_runs),
                ", ".join(levels),
                difference_unit(_KNOWN[trend.measure]).text(trend.change),
            )
        )
    columns = ("Expected", "Shown", "Runs", "First, extreme and last level", "Change or difference")
    return Rows(
        id="study_trends",
        title="Expected trends",
        first="Variant",
        columns=dict.fromkeys(columns, TEXT),
        rows=tuple(rows),
        note=_EXPECTED,
    )


def trials_rows(study: Study) -> Rows:
    """Return the settings that were tried."""
    judged = () if study.design is None else (study.design.measure,)
    names = tuple(dict.fromkeys((*judged, *_OF_TRIALS)))
    return Rows(
        id="study_trials",
        title="Settings that were tried, means over their seeds",
        first="Variant",
        columns={
            "Setting": TEXT,
            "Seeds": TEXT,
            **{_title(name): measure_unit(_KNOWN[name]) for name in names},
            "Choice": TEXT,
        },
        rows=tuple(
            (
                trial.variant,
                ", ".join(_changes(trial.changes)) or "-",
                ", ".join(map(str, trial.seeds)),
                *map(trial.values.get, names),
                "chosen" if trial.is_chosen else "",
            )
            for trial in study.trials
        ),
        note="On seeds and problems of their own. These values chose the settings, so they flatter them: they are no "
        "result, and the differences between them have no interval.",
    )


_OF_TRIALS = ("accuracy", "sampled_accuracy", "entropy", "distinct_right", "similarity", "kl")


def _changes(changes: Mapping[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def runs_rows(study: Study, links: Mapping[str, str] = {}) -> Rows:
    """Return what became of each run."""
    headline = study.headline or "accuracy"
    columns = {"State": TEXT, "Evaluated": TEXT, _title(headline): measure_unit(_KNOWN[headline]), "Collapse": TEXT}
    return Rows(
        id="study_runs",
        title="Runs",
        first="Run",
        columns={**columns, "Directory": TEXT, "Configuration": TEXT, "Weights": TEXT},
        rows=tuple(
            (
                run_name(study, run),
                run.state if run.reason is None else f"{run.state}: {run.reason}",
                run.checkpoint or "",
                run.values.get(headline, ""),
                f"step {count(run.collapse_step)}: {run.collapse}" if run.collapse else "",
                run.path,
                run.config_hash or "",
                (run.weights_sha256 or "")[:16],
            )
            for run in study.runs
        ),
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
    """Yield means over seeds: each metric over training, and greedy accuracy against the length of answers.

    The last are settings that were tried, the measure that chose them against entropy: compare at equal entropy.
    """
    # What is drawn: variant -> place -> value.
    cells = {metric: {curve.variant: _cells(curve) for curve in study.curves_of(metric)} for metric in CURVES}
    by_length: dict[str, dict[float, Cell]] = {}
    for curve in study.curves_of("length"):
        lengths, own = zip(curve.steps, curve.mean, strict=True), cells["accuracy"].get(curve.variant, {})
        by_length[curve.variant] = {round(length): own[step] for step, length in lengths if step in own}
    judged = study.design.measure if study.design else "accuracy"
    tried: dict[str, dict[float, Cell]] = {}
    for trial in study.trials:
        if trial.values.keys() >= {"entropy", judged}:
            tried.setdefault(trial.variant, {})[trial.values["entropy"]] = trial.values[judged]

    # A curve has two places or more.
    plots = [(f"study-{metric.replace('_', '-')}", metric, "", "global step", cells[metric]) for metric in CURVES]
    plots.append(
        ("study-accuracy-against-length", "accuracy", " against the mean length of answers", "tokens", by_length)
    )
    plots.append(("study_settings", judged, " of the settings tried, against token entropy", "nats", tried))
    for id, metric, more, x_title, drawn in plots:
        places = sorted(set().union(*drawn.values()))
        variants = [variant.name for variant in study.variants if variant.name in drawn][:_MAX_CURVES]
        if len(places) > 1:
            yield Rows(
                id=id,
                title=_title(metric) + more,
                first=x_title,
                columns=dict.fromkeys(variants, measure_unit(_KNOWN[metric])),
                rows=tuple((f"{place:,.6g}", *(drawn[variant].get(place) for variant in variants)) for place in places),
                plots=(Curves(x=tuple(places), x_title=x_title, greys=(study.baseline,)),),
                has_table=False,
            )


def _cells(curve: StudyCurve) -> dict[float, Cell]:
    """Return the points of a curve by step, from the lowest to the highest seed where there are several."""
    if curve.low == curve.high:
        return dict(zip(curve.steps, curve.mean, strict=True))
    points = zip(curve.steps, curve.mean, curve.low, curve.high, strict=True)
    return {step: Estimate(mean=mean, low=low, high=high) for step, mean, low, high in points}


def _folds(study: Study, links: Mapping[str, str]) -> Iterator[Fold]:
    """Yield everything that was measured, by topic."""
    compared, *others = (difference_rows(study, measure) for measure in study.measures or ("accuracy",))
    texts = [(each.name, _changes(each.changes) or ["as the recipe"]) for each in study.variants]
    changes = Texts(texts=tuple((f"{name}: {', '.join(own)[:_MAX_CHANGES]}", "\n".join(own)) for name, own in texts))
    words = design_words(study)
    start = "The start is the model that the runs began with, where they were evaluated before the first update."
    bands = "Lines are means over seeds; bands run from the lowest to the highest seed and are no confidence intervals."
    folds: Sequence[tuple[str, str, str, Sequence[str], Sequence[Rows | Texts]]] = (
        ("comparison", f"What is different from {study.baseline}?", "with all tests", (), (compared,)),
        ("design", "How was it decided?", "rule, variants, settings", words, (changes, trials_rows(study))),
        ("measures", "What else is different?", "every measure", (), (measures_rows(study), *others)),
        ("kinds", "On which problems?", "accuracy by kind", (start,), (kinds_rows(study),)),
        ("expected", "Is it as was found elsewhere?", "expected trends", (), (trends_rows(study),)),
        ("training", "Over training", "each metric by step", (bands,), tuple(curves_rows(study))),
        ("runs", "What became of the runs?", "state, collapse, weights", (), (runs_rows(study, links),)),
    )
    for id, title, note, sentences, parts in folds:
        yield Fold(id=id, title=title, note=note, sentences=tuple(sentences), parts=tuple(parts))


_EXPECTED = (
    "A curve has eight points or more, in at most 20 blocks; a level is the mean of three blocks. It rises where its "
    "highest level lies above the first, and falls where that lies above the last, by more than in 99.75% of random "
    "orders of the blocks, in root mean squares of the steps between blocks. Yes: more than half of the runs show it. "
    "A difference from the baseline is shown by its interval over seeds."
)
_TERMS = (
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
        "Refuted to gain (or lose)",
        "The interval excludes a gain (or a loss) of the smallest difference that matters or more.",
    ),
    ("Not shown to differ", "The interval allows both: more seeds would be needed."),
    ("Inconclusive", "The comparison itself does not hold, and the reason is given."),
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
    return write_figures((drawing for name, drawing in drawings.items() if not names or name in names), folder, look)


def study_drawings(study: Study) -> dict[str, Drawing]:
    """Return the figures of a study by name: `study_comparison`, `study_settings`, and a curve of each metric."""
    drawings = map(rows_drawing, (outcome_rows(study), *curves_rows(study)))
    return {drawing.name: drawing for drawing in drawings if drawing.panels}
