"""The page, the tables and the figures of a study, from its record alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.artifacts.comparison import MeasureUnit
from swerve.artifacts.files import write_text
from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    PAIR_MEASURES,
    TREND_WORDS,
    Detectable,
    Study,
    StudyCurve,
    StudyDifference,
    StudyKind,
    StudyMean,
    StudyVerdict,
)
from swerve.config import ReportConfig
from swerve.estimates import Estimate
from swerve.formats.text_tables import table_of
from swerve.report.draw.curves import UNIT_TITLES, Chart, Curve, Unit
from swerve.report.draw.figures import (
    COLOURS,
    FORMATS,
    MARKERS,
    Drawing,
    chart_drawing,
    estimate_rows,
    numbers,
    set_title,
    write_figures,
)
from swerve.report.draw.panels import ChartPart, DotPlot, Panel, Table, dot_row, measured_columns, panel, section
from swerve.report.figures import check_names
from swerve.report.format import (
    NOT_MEASURED,
    count,
    number,
    number_interval,
    p_value,
    p_words,
    percent,
    percent_interval,
    points,
    points_interval,
    signed_interval,
)
from swerve.report.page import chart_data, fill_template
from swerve.report.topics.topic import Tile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_CURVES = 8
_MAX_TILES = 6
_CHART_UNITS: Mapping[MeasureUnit, Unit] = {"share": "share", "nats": "nats", "tokens": "tokens", "count": "reward"}


def write_study_page(study: Study, folder: Path, *, options: ReportConfig) -> Path:
    """Write `index.html` and the figures of a study to a folder; return the page's path.

    Raises:
        DiskFullError: no room.
    """
    write_figures(study_drawings(study), folder / "figures")
    write_text(folder / "index.html", render_study(study, options=options))
    return folder / "index.html"


def render_study(study: Study, *, options: ReportConfig) -> str:
    """Return the whole page of a study as text."""
    charts, paths = tuple(_charts(study)), tuple(_paths(study))
    title = options.title or study.name

    # A section without a panel is left out.
    sections = (
        section("comparison", "Comparison", tuple(_comparison(study)), short="Comparison"),
        section("expected", "What was expected", tuple(_expected(study, paths)), short="Expected"),
        section("training", "Over training", tuple(_training(charts, study)), short="Training"),
        section("runs", "Runs", tuple(_runs(study)), short="Runs"),
    )
    return fill_template(
        has_run=False,
        is_study=True,
        title=title,
        run_name=title,
        data={"charts": [chart_data(chart) for chart in (*charts, *paths)], "viewer": None},
        unit_titles=UNIT_TITLES,
        tiles=list(_tiles(study))[:_MAX_TILES],
        findings={name: tuple(said) for name, said in _findings(study).items() if said},
        sections=[section for section in sections if section is not None],
        provenance=_provenance(study),
        confidence=study.confidence,
        config_text=None,
        summary=None,
        has_viewer=False,
    )


def _tiles(study: Study) -> Iterator[Tile]:
    if (headline := study.headline) is None:
        return
    for variant in study.variants:
        mean = study.mean_of(headline, variant.name)
        detail = f"{MEASURES[headline].title}, {_seeds(mean.num_seeds)}" if mean else "no run is evaluated"
        yield Tile(caption=variant.name, value=_value(headline, mean.mean) if mean else NOT_MEASURED, detail=detail)


def sentence_case(text: str) -> str:
    """Return a text with its first letter in upper case.

    >>> sentence_case("KL term of training"), sentence_case("greedy accuracy")
    ('KL term of training', 'Greedy accuracy')
    """
    return text[:1].upper() + text[1:]


_KNOWN = {**CURVES, **MEASURES, **PAIR_MEASURES}


def _title(measure: str) -> str:
    return sentence_case(_KNOWN[measure].title)


def _seeds(num: int) -> str:
    return "one seed" if num == 1 else f"{count(num)} seeds"


def _is_share(measure: str) -> bool:
    return _KNOWN[measure].unit == "share"


def _value(measure: str, value: float) -> str:
    return percent(value) if _is_share(measure) else number(value)


def _mean_cell(measure: str, mean: StudyMean | StudyKind | None) -> str:
    """Return a mean with its interval over seeds; of one seed the value alone."""
    if mean is None:
        return NOT_MEASURED
    if mean.over_seeds is None:
        return _value(measure, mean.mean)
    return percent_interval(mean.over_seeds) if _is_share(measure) else number_interval(mean.over_seeds)


def _change(measure: str, value: Estimate | None) -> str:
    return points_interval(value) if _is_share(measure) else signed_interval(value)


def _seed_change(difference: StudyDifference) -> str:
    if difference.over_seeds is not None:
        return _change(difference.measure, difference.over_seeds)
    alone = Estimate(mean=difference.mean, low=difference.mean, high=difference.mean)
    why = _seeds(1) if difference.num_seeds == 1 else "all alike"
    return f"{_change(difference.measure, alone).partition(' (')[0]} ({why})"


def _findings(study: Study) -> dict[str, list[str]]:
    collapsed = [
        f"{variant.num_collapsed} of {variant.num_runs} runs of {variant.name} collapsed, the first at step "
        f"{count(variant.first_collapse)}."
        for variant in study.variants
        if variant.num_collapsed
    ]
    bad = [f"{run.variant}, seed {run.seed}: {run.reason}." for run in study.runs if run.reason is not None]
    verdicts = [f"{verdict.variant} is {verdict_words(verdict)}." for verdict in study.verdicts]
    if study.gain is not None:
        verdicts.append(f"{study.baseline} itself gains {points_interval(study.gain)} points over seeds.")
    said = [_sentence(difference) for difference in study.differences if difference.measure == study.headline]
    return {
        "Design": design_words(study),
        "Verdict": verdicts,
        "Outcome": said,
        "Collapse": collapsed,
        "Not counted": bad,
    }


def verdict_words(verdict: StudyVerdict) -> str:
    """Return a verdict with the interval that it rests on."""
    if verdict.over_seeds is None or verdict.p is None:
        return verdict.words
    return f"{verdict.words}: {points_interval(verdict.over_seeds)} points, {p_words(verdict.p)}"


def design_words(study: Study) -> list[str]:
    """Return what was decided before the runs, and which difference they can find."""
    # The rule, how settings are tuned, and what can be found.
    design, lines = study.design, []
    if design is not None:
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
    if len(study.variants) > 1 and study.detectable:
        lines.append(detectable_words(study.detectable))
    return lines


def _sentence(difference: StudyDifference) -> str:
    """Say what a variant changed, over seeds and over problems."""
    tested = _tested(difference.over_seeds, difference.p_seeds_adjusted)
    text = f"over seeds {_seed_change(difference)}{tested}"
    if difference.over_problems is not None:
        tested = _tested(difference.over_problems, difference.p_problems_adjusted)
        text += f"; over problems {_change(difference.measure, difference.over_problems)}{tested}"
    if _is_share(difference.measure):  # points are named before the interval
        text = text.replace(" (", " points (")
    return f"{_title(difference.measure)} of {difference.variant} less that of the baseline: {text}."


def _tested(interval: Estimate | None, p: float | None) -> str:
    if interval is None or p is None:
        return ""
    return f", {p_words(p)}" if p < 0.05 else f", {p_words(p)}: no difference is shown"


def detectable_words(effects: Sequence[Detectable]) -> str:
    """Return which difference a comparison of a study finds, with what that rests on."""
    parts = []
    for detectable in effects:
        among = f"{count(detectable.num)} {detectable.unit}"
        if detectable.difference is None:
            parts.append(f"none over {among.removesuffix('s') if detectable.num == 1 else among}")
            continue
        source = "assumed" if detectable.is_assumed else "measured"
        parts.append(f"{points(detectable.difference).lstrip('+')} points over {among} (pairs vary by "
                     f"{points(detectable.sd).lstrip('+')} points, {source})")  # fmt: skip
    num, title = effects[0].num_comparisons, MEASURES[effects[0].measure].title
    of = "one comparison" if num == 1 else f"the first of {count(num)} comparisons by Holm"
    return f"Detectable difference in {title} (80% power, 5% two-sided, {of}): {', '.join(parts)}."


_DIFFERENCE_HEADER = ("Over seeds", "p, Holm", "d", "Over problems", "p, Holm ")


def _difference_cells(difference: StudyDifference | None) -> dict[str, str]:
    if difference is None:
        return dict.fromkeys(_DIFFERENCE_HEADER, NOT_MEASURED)
    cells = (
        _seed_change(difference),
        p_value(difference.p_seeds_adjusted),
        number(difference.effect_size).replace("-", "\N{MINUS SIGN}"),
        _change(difference.measure, difference.over_problems),
        p_value(difference.p_problems_adjusted),
    )
    return dict(zip(_DIFFERENCE_HEADER, cells, strict=True))


def headline_table(study: Study) -> list[list[str]]:
    """Return the table of the headline measure, the heading first; what does not apply is empty."""
    verdicts = {verdict.variant: verdict_words(verdict) for verdict in study.verdicts}
    rows = []
    for variant in study.variants:
        row = {"Variant": variant.name, "Runs": count(variant.num_runs)}
        if headline := study.headline:
            row[_title(headline)] = _mean_cell(headline, study.mean_of(headline, variant.name))
            row |= _difference_cells(study.difference_of(headline, variant.name))
            row |= {"Collapsed": count(variant.num_collapsed), "Verdict": verdicts.get(variant.name, "")}
        rows.append(row)
    return _compact(rows)


def trials_table(study: Study) -> list[list[str]]:
    """Return the table of the settings that were tried, the heading first."""
    assert study.design is not None, "settings are tried by a design"
    rows = []
    for trial in study.trials:
        row = {"Variant": trial.variant, "Setting": _changes(trial.changes), "Seeds": ", ".join(map(str, trial.seeds))}
        for name in dict.fromkeys((study.design.measure, *_OF_TRIALS)):
            row[_title(name)] = _value(name, trial.values[name]) if name in trial.values else ""
        rows.append({**row, "Choice": "chosen" if trial.is_chosen else ""})
    return table_of(rows)


_OF_TRIALS = ("accuracy", "sampled_accuracy", "entropy", "distinct_right", "similarity", "kl")


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in changes.items()) or "-"


def measures_table(study: Study) -> list[list[str]]:
    """Return the table of all measures, a variant each row, the heading first."""
    rows = []
    for variant in study.variants:
        cells = {_title(name): _mean_cell(name, study.mean_of(name, variant.name)) for name in study.measures}
        rows.append({"Variant": variant.name, **cells})
    return _compact(rows)


def kinds_table(study: Study) -> list[list[str]]:
    """Return the table of the greedy accuracy by kind, a row for the start and each variant, the heading first."""
    kinds = list(dict.fromkeys(entry.kind for entry in study.kinds))
    by_variant: dict[str, dict[str, str]] = {}
    for entry in study.kinds:
        cells = by_variant.setdefault(entry.variant, dict.fromkeys(kinds, NOT_MEASURED))
        cells[entry.kind] = _mean_cell("accuracy", entry)
    return table_of([{"Variant": variant, **cells} for variant, cells in by_variant.items()])


def trends_table(study: Study) -> list[list[str]]:
    """Return the table of what the study expects, a row for each variant and expectation, the heading first."""
    rows = []
    for trend in study.trends:
        levels = [_value(trend.measure, level) for level in trend.levels or ()]
        if trend.turn is not None:
            levels[1] += f" (step {count(round(trend.turn))})"
        shown = "" if trend.num_shown is None else f"{count(trend.num_shown)} of "
        rows.append(
            {
                "Variant": trend.variant,
                "Expected": f"{_title(trend.measure)} {TREND_WORDS[trend.expected]}",
                "Shown": {True: "yes", False: "no", None: "cannot be told"}[trend.is_shown],
                "Runs": shown + count(trend.num_runs),
                "First, extreme and last level": ", ".join(levels),
                "Change or difference": _change(trend.measure, trend.change),
            }
        )
    return _compact(rows)


def study_tables(study: Study) -> Iterator[list[list[str]]]:
    """Yield the tables that the study has something for, the headline's first, each with its heading first."""
    yield headline_table(study)
    if len(study.measures) > 1:
        yield measures_table(study)
    if study.kinds:
        yield kinds_table(study)
    if study.trends:
        yield trends_table(study)
    if study.trials:
        yield trials_table(study)


def _compact(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return a table in which what was not measured is empty, without columns that no row has a value in."""
    return table_of([{name: cell.replace(NOT_MEASURED, "") for name, cell in row.items()} for row in rows])


def _table(
    id: str, caption: str, rows: Sequence[Sequence[str]], question: str, *, note: str = "", folded: bool = False
) -> Panel | None:
    """Return a panel of one table, whose heading comes first."""
    heading, *rest = map(tuple, rows)
    return panel(
        question,
        measured_columns(Table(id=id, caption=caption, header=heading, rows=tuple(rest), folded=folded)),
        note=note,
        wide=True,
    )


_HOW = (
    "Over seeds: paired runs of one seed, Student's t; the question is what another training run would do. Over "
    "problems: these same runs on other problems. d is the mean difference in standard deviations of the seeds' "
    "differences."
)


_TRIALS = (
    "On seeds and problems of their own. These values chose the settings, so they flatter them: they are no result, "
    "and the differences between them have no interval."
)
_KINDS = "The start is the model that the runs began with, where they were evaluated before the first update."


def _comparison(study: Study) -> Iterator[Panel | None]:
    if (headline := study.headline) is None:
        return
    title, baseline = _title(headline), study.baseline
    question = f"{title}, and what is different from {baseline}?"
    yield _table("headline", title, headline_table(study), question, note=_HOW)

    # A plot over seeds: what verdicts rest on.
    known = [
        (difference.variant, difference.over_seeds)
        for difference in study.differences
        if difference.measure == headline and difference.over_seeds is not None
    ]
    yield panel(f"Difference from {baseline} over seeds", _dots(headline, known))

    # How settings were chosen, and everything else that was measured.
    if study.trials:
        caption = "Settings that were tried, means over their seeds"
        yield _table("trials", caption, trials_table(study), "Which settings were chosen?", note=_TRIALS)
    yield _table("measures", "Means over seeds", measures_table(study), "All measures")
    if study.kinds:
        caption = "Greedy accuracy by kind of problem, means over seeds"
        yield _table("kinds", caption, kinds_table(study), "On which problems?", note=_KINDS)

    # Each difference with its tests, folded.
    heading = ["Measure and variant", *_DIFFERENCE_HEADER]
    rows = [
        [f"{_title(difference.measure)}: {difference.variant}", *_difference_cells(difference).values()]
        for difference in study.differences
    ]
    yield _table("differences", f"Differences from {baseline} in all measures", [heading, *rows], "", folded=True)


def _dots(measure: str, known: Sequence[tuple[str, Estimate]]) -> DotPlot:
    reach = max((abs(end) for _, value in known for end in (value.low, value.high)), default=0.0) or 1.0
    rows = [dot_row(name, _change(measure, value), value, 0.0, low=-reach, high=reach) for name, value in known]
    far = points(reach) if _is_share(measure) else f"+{number(reach)}"
    return DotPlot(rows=tuple(rows), ends=(far.replace("+", "\N{MINUS SIGN}"), "0", far), around_zero=True)


_EXPECTED = (
    "A curve has eight points or more, in at most 20 blocks; a level is the mean of three blocks. It rises where its "
    "highest level lies above the first, and falls where that lies above the last, by more than in 99.75% of random "
    "orders of the blocks, in root mean squares of the steps between blocks. Yes: more than half of the runs show it. "
    "A difference from the baseline is shown by its interval over seeds."
)


def _expected(study: Study, paths: Sequence[Chart]) -> Iterator[Panel | None]:
    if not study.trends:
        return
    yield _table("trends", "Expected trends", trends_table(study), "Is it as was found elsewhere?", note=_EXPECTED)
    yield panel("How long are answers of equal accuracy?", *(ChartPart(chart=path) for path in paths), wide=True)


def _paths(study: Study) -> Iterator[Chart]:
    """Yield the chart of greedy accuracy against the mean length of the answers, a point for each evaluation."""
    points_of = {}
    lengths = {curve.variant: dict(zip(curve.steps, curve.mean, strict=True)) for curve in study.curves_of("length")}
    for curve in study.curves_of("accuracy"):
        own = lengths.get(curve.variant, {})
        accuracies = _estimates(curve)
        points_of[curve.variant] = {round(own[step]): accuracies[step] for step in accuracies if step in own}
    title, x_title = "Greedy accuracy against the mean length of the answers", "mean tokens of an answer"
    yield from _chart(study, "study-accuracy-against-length", title, "share", points_of, "{} tokens", x_title)


def _charts(study: Study) -> Iterator[Chart]:
    """Yield a chart for each metric, with a curve for each variant from its lowest to its highest seed."""
    for metric, measure in CURVES.items():
        points_of = {curve.variant: _estimates(curve) for curve in study.curves_of(metric)}
        unit: Unit = "loss" if metric == "loss" else _CHART_UNITS[measure.unit]
        name = f"study-{metric.replace('_', '-')}"
        yield from _chart(study, name, sentence_case(measure.title), unit, points_of, "step {}", "global step")


def _chart(
    study: Study,
    name: str,
    title: str,
    unit: Unit,
    points_of: Mapping[str, Mapping[int, Estimate]],
    label: str,
    x_title: str,
) -> Iterator[Chart]:
    """Yield the chart of points by variant and place, if there are two places or more."""
    places = sorted(set().union(*points_of.values()))
    if len(places) < 2:
        return
    # Variants without a point too: each has one colour on the whole page.
    own = {variant.name: points_of.get(variant.name, {}) for variant in study.variants[:_MAX_CURVES]}
    yield Chart(
        id=name,
        title=title,
        unit=unit,
        labels=tuple(map(label.format, places)),
        steps=tuple(places),
        x_title=x_title,
        curves=tuple(Curve(name=variant, points=tuple(map(at.get, places))) for variant, at in own.items()),
        stages=(),
        has_intervals=max(variant.num_runs for variant in study.variants) > 1,
    )


def _estimates(curve: StudyCurve) -> dict[int, Estimate]:
    """Return the points of a curve by step, from the lowest to the highest seed."""
    values = zip(curve.steps, curve.mean, curve.low, curve.high, strict=True)
    return {step: Estimate(mean=mean, low=low, high=high) for step, mean, low, high in values}


def _training(charts: Sequence[Chart], study: Study) -> Iterator[Panel | None]:
    note = "Lines are means over seeds; bands run from the lowest to the highest seed and are no confidence intervals."
    if len(study.variants) > _MAX_CURVES:
        note += f" The first {_MAX_CURVES} variants are drawn."
    yield panel("", *(ChartPart(chart=chart) for chart in charts), note=note, wide=True)


def _runs(study: Study) -> Iterator[Panel | None]:
    changes = [[variant.name, _changes(variant.changes)] for variant in study.variants]
    yield _table("variants", "Variants", [["Variant", "Changes"], *changes], "What do the variants change?")

    # How each run ended.
    headline = study.headline or ""
    rows = [
        (
            f"{run.variant}, seed {run.seed}",
            run.state,
            run.checkpoint or "",
            _value(headline, run.values[headline]) if headline in run.values else "",
            f"step {count(run.collapse_step)}: {run.collapse}" if run.collapse else "",
            run.path,
        )
        for run in study.runs
    ]
    heading = ("Run", "State", "Evaluated", _title(headline) if headline else "", "Collapse", "Directory")
    yield _table("runs", "Runs", [heading, *rows], "What became of the runs?")


def write_study_figures(
    study: Study, folder: Path, names: Collection[str] = (), *, formats: Collection[str] = tuple(FORMATS)
) -> tuple[Path, ...]:
    """Write figures of a study, all or those that are named, each with its numbers as CSV; return the paths.

    Raises:
        ConfigError: there is no such figure or format.
        DiskFullError: no room.
    """
    drawings = {drawing.name: drawing for drawing in study_drawings(study)}
    check_names("--figures", names, drawings)
    check_names("--format", formats, FORMATS)
    return write_figures((drawing for name, drawing in drawings.items() if not names or name in names), folder, formats)


def study_drawings(study: Study) -> tuple[Drawing, ...]:
    """Return the figures of a study: `study_comparison`, `study_settings`, and a curve of each metric over seeds."""
    curves = map(chart_drawing, (*_charts(study), *_paths(study)))
    return (*_comparison_drawing(study), *_settings_drawing(study), *curves)


def _comparison_drawing(study: Study) -> Iterator[Drawing]:
    headline = study.headline
    known = [
        (difference.variant, unit, value)
        for difference in study.differences
        for unit, value in (("seeds", difference.over_seeds), ("problems", difference.over_problems))
        if difference.measure == headline and value is not None
    ]
    if headline and known:
        rows = [
            {"measure": headline, "variant": variant, "minus": study.baseline, "over": unit, **numbers(value)}
            for variant, unit, value in known
        ]
        estimates = [(f"{variant}, over {unit}", value) for variant, unit, value in known]
        draw = partial(_draw_differences, rows=estimates, measure=headline, baseline=study.baseline)
        yield Drawing(name="study_comparison", draw=draw, rows=tuple(rows), size=(6.0, 1.2 + 0.35 * len(known)))


def _settings_drawing(study: Study) -> Iterator[Drawing]:
    """Yield the measure that settings were chosen by against entropy, for a comparison at equal entropy."""
    measure = study.design.measure if study.design else ""
    rows: list[dict[str, Any]] = [
        {
            "variant": trial.variant,
            "setting": _changes(trial.changes),
            "seeds": len(trial.seeds),
            "entropy": trial.values["entropy"],
            measure: trial.values[measure],
            "chosen": trial.is_chosen,
        }
        for trial in study.trials
        if trial.values.keys() >= {"entropy", measure}
    ]
    if rows:
        yield Drawing(name="study_settings", draw=partial(_draw_settings, rows=rows, measure=measure), rows=tuple(rows))


def _draw_settings(axes: Axes, *, rows: Sequence[Mapping[str, Any]], measure: str) -> None:
    for place, variant in enumerate(dict.fromkeys(row["variant"] for row in rows)):
        own = [row for row in rows if row["variant"] == variant]
        axes.scatter(
            [row["entropy"] for row in own],
            [100 * row[measure] for row in own],
            s=[70 if row["chosen"] else 24 for row in own],
            c=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            label=variant,
        )
    axes.set_xlabel("token entropy (nats)")
    axes.set_ylabel(f"{MEASURES[measure].title} (%)")
    axes.legend()
    set_title(axes, "Settings that were tried; the chosen ones are larger")


def _draw_differences(axes: Axes, *, rows: Sequence[tuple[str, Estimate]], measure: str, baseline: str) -> None:
    is_share = _is_share(measure)
    estimate_rows(axes, [(name, estimate.scaled(100) if is_share else estimate) for name, estimate in rows])
    axes.axvline(0.0, color="#6b7280", linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
    axes.set_xlabel(f"{MEASURES[measure].title}{' (points)' if is_share else ''}")
    set_title(axes, f"Difference from {baseline}")


def _provenance(study: Study) -> tuple[tuple[str, str], ...]:
    return (
        ("swerve", study.swerve_version),
        ("recipe", study.recipe),
        ("seeds", ", ".join(map(str, study.seeds))),
        ("baseline", study.baseline),
        *((f"{run.variant}, seed {run.seed}", f"config {run.config_hash}, weights {(run.weights_sha256 or '')[:16]}")
          for run in study.runs if run.measured),
    )  # fmt: skip
