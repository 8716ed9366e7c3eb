"""The page of files of samples: how often which model is right, in what else they differ, and what they write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from swerve.artifacts.comparison import MEASURES, Comparison, Difference, ModelScores, decoding_name
from swerve.artifacts.excerpts import AskedProblem, asked_problems, held_said, outcome_of
from swerve.artifacts.files import write_text
from swerve.artifacts.responses import Response
from swerve.artifacts.samples import Samples, StoredSamples
from swerve.behaviours.measures import ProblemValues
from swerve.config.recipe import ReportConfig
from swerve.formats.comparison_table import comparison_notes
from swerve.report.evidence import Evidence, Figure, Sentence
from swerve.report.page import Fold, Page, Texts, Verdict, measured_folds, render
from swerve.report.provenance import samples_provenance
from swerve.report.rows import (
    COUNT,
    P_VALUE,
    SHARE,
    TEXT,
    Cell,
    Curves,
    Dots,
    Rows,
    against,
    change_as,
    changed,
    difference_unit,
    measure_unit,
    value_as,
)
from swerve.report.terms import CARD_WORDS, SAMPLES_TERMS
from swerve.text import counted, listed, p_words, quoted, sentence_case

_MAX_QUESTION = 120  # characters


def write_samples_page(path: Path, comparison: Comparison, files: Sequence[Samples], *, options: ReportConfig) -> Path:
    """Write the page of files of samples to `path`; return it. See `samples_page`.

    Raises:
        DiskFullError: no room.
    """
    write_text(path, render(samples_page(comparison, files, options=options)))
    return path


def samples_page(comparison: Comparison, files: Sequence[Samples], *, options: ReportConfig) -> Page:
    """Return what the page of samples says. Neither torch nor a model is needed.

    Args:
        comparison: of the models that the samples are of.
        files: the samples, for examples.
        options: of the report.
    """
    headlines = tuple(comparison.headlines().values())
    values, facts = _problem_values(comparison, files), samples_provenance(comparison.confidence, files)
    held = _held(files, values)
    return Page(
        kind="samples",
        title=options.title or f"Samples of {', '.join(row.model for row in headlines)}",
        sentence=Sentence(_sentence(comparison, headlines), _accuracy_evidence(comparison, headlines, files, values)),
        lead=f"{_lead(files)} {_held_said(held, headlines)}".strip(),
        heading="What the samples show",
        verdicts=tuple(_verdicts(comparison, headlines, files, values)),
        caution=" ".join([*comparison_notes(comparison)[1:], _OF_THESE]),
        folds=measured_folds(*_folds(comparison, files)),
        terms=SAMPLES_TERMS,
        words=CARD_WORDS,
        held=held,
        date=facts.date,
        provenance=facts.line,
    )


def _sentence(comparison: Comparison, headlines: Sequence[ModelScores]) -> str:
    """Return how often each model is right, both ends of each difference named, and what would have been seen."""
    num = max(row.num_problems for row in headlines)
    on, few = f"On {counted(num, 'problem')}", " One problem decides nothing." if num == 1 else ""
    known = [row for row in headlines if row.accuracy]
    unknown = [f"`{row.model}`" for row in headlines if row.accuracy is None]
    missing = ""
    if unknown:
        are = "is" if len(unknown) == 1 else "are"
        missing = f"How often {listed(unknown)} {are} right is not determined, because no sample has a verdict."
    if not known:
        return f"{on}: {missing[:1].lower()}{missing[1:]}"

    # How the answers were chosen stands once where it is the same of all.
    ways = {_chosen(row) for row in known}
    way = f" of {ways.pop()}" if len(ways) == 1 else ""
    others = [row for row in known if "accuracy" in row.differences]
    if len(others) == 1 and len(known) == 2:
        return f"{on} {_compared(known, others[0], way)}{few} {missing}".strip()
    rates = [
        f"`{row.model}` is right in {SHARE.text(row.accuracy)}{'' if way else f' of {_chosen(row)}'}" for row in known
    ]
    start = f"{on} {_bold(f'{listed(rates)}{way}', num)}."
    kinds: dict[str, list[str]] = {}
    for row in others:
        difference = row.differences["accuracy"]
        said = f"`{row.model}` ({changed(MEASURES['accuracy'], difference.estimate)})"
        kinds.setdefault(_DIRECTIONS[_side(difference)], []).append(said)
    said = " ".join(f"{kind} `{comparison.baseline}`: {listed(names)}." for kind, names in kinds.items())
    return " ".join(filter(None, (start, said, few.strip(), missing)))


_DIRECTIONS = {
    1: "More often right than",
    -1: "Less often right than",
    0: "Without a difference to be seen from",
}


def _side(difference: Difference) -> int:
    """Return 1 or -1 where a difference is shown, by its sign; 0: none is to be seen."""
    return (1 if difference.estimate.mean > 0 else -1) if difference.estimate.excludes(0) else 0


def _compared(known: Sequence[ModelScores], row: ModelScores, way: str) -> str:
    """Return what one model's accuracy is against the baseline's: more, less, or no difference to be seen."""
    difference, measure = row.differences["accuracy"], MEASURES["accuracy"]
    base = next(each for each in known if each is not row)
    change = changed(measure, difference.estimate)
    ends = []
    for each in (row, base):
        assert each.accuracy is not None
        ends.append(
            value_as(measure, difference.estimate, each.accuracy.mean) + ("" if way else f" of {_chosen(each)}")
        )
    after, before = ends
    if side := _side(difference):
        said = f"`{row.model}` is right {'more' if side > 0 else 'less'} often than `{base.model}`"
        return f"{_bold(said, difference.num_problems)}: {after} against {before}{way}, {change}."
    could = _POWER * (difference.estimate.high - difference.estimate.low) / 2
    size = f"{100 * could:.0f} points"
    seen = f" A true difference of about {size} would be seen in 80 of 100 such comparisons." if could < 1 else ""
    rates = f"`{row.model}` is right in {after} and `{base.model}` in {before}{way}"
    return f"no difference in accuracy is to be seen: {rates}, {change}.{seen}"


_POWER = (1.96 + 0.84) / 1.96
"""Times half a 95% interval: the difference whose interval excludes 0 in 80 of 100 comparisons."""
_FEWEST = 20
"""Problems below which nothing is bold."""


def _bold(text: str, num: int) -> str:
    return f"**{text}**" if num >= _FEWEST else text


def _chosen(row: ModelScores) -> str:
    """Return which answers a row is of, by how they were chosen.

    >>> _chosen(ModelScores(model="m", temperature=0.0, num_samples=1, num_problems=1)), _chosen(
    ...     ModelScores(model="m", temperature=None, num_samples=1, num_problems=1, origin="file")
    ... )
    ('greedy answers', 'answers from a file')
    """
    place = " from a file" if row.origin == "file" else ""
    if row.temperature == 0:
        return f"greedy answers{place}"
    if row.temperature is None:
        return f"answers{place}" if place else "answers sampled at all temperatures"
    return f"answers{place} sampled at {decoding_name(row.temperature)}"


Values = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Model -> measure -> problem -> value."""


def _shown(comparison: Comparison, row: ModelScores) -> dict[str, Difference]:
    """Return the differences in measures but accuracy that are shown, by adjusted p and interval."""
    return {
        name: each
        for name, each in row.differences.items()
        if name != "accuracy"
        and each.p_adjusted is not None
        and each.p_adjusted <= 1 - comparison.confidence
        and each.estimate.excludes(0)
    }


def _problem_values(comparison: Comparison, files: Sequence[Samples]) -> Values:
    """Return the value at each problem of what the page has a sentence about, read from the files again."""
    headlines = comparison.headlines()
    wanted = {"accuracy"}.union(*(_shown(comparison, row) for row in headlines.values()))
    values: dict[str, dict[str, dict[str, float]]] = {}
    for file in files:
        if file.info.model.label not in headlines or file.info.model.label in values:
            continue
        measured = ProblemValues(leave_out=[name for name in MEASURES if name not in wanted])
        for problem, group in groupby(file.samples, key=lambda response: response.problem.id):
            measured.add(problem, list(group))
        values[file.info.model.label] = measured.known
    return values


def _held(files: Sequence[Samples], values: Values) -> dict[str, AskedProblem]:
    """Return what was written to the problems on which the models differ most, as rows open it."""
    rates = {model: own["accuracy"] for model, own in values.items() if "accuracy" in own}
    wanted = {*_by_spread(rates)[:_MAX_HELD]}
    sides: dict[str, dict[str, list[Response]]] = {}
    for file in files:
        label = file.info.model.label
        if label not in rates or label in sides:
            continue
        sides[label] = {}
        for response in file.samples:
            if response.problem.id in wanted:
                sides[label].setdefault(response.problem.id, []).append(response)
    return {f"{_OPENS}{each.problem}": each for each in asked_problems(sides)}


def _held_said(held: Collection[str], headlines: Sequence[ModelScores]) -> str:
    said = held_said(len(held), max(row.num_problems for row in headlines))
    return said and f"In the rows behind a sentence {said[0].lower()}{said[1:]}"


def _by_spread(of_models: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the problems of a measure, those first on which the models differ most."""

    def spread(problem: str) -> float:
        known = [own[problem] for own in of_models.values() if problem in own]
        return max(known) - min(known)

    names = dict.fromkeys(problem for own in of_models.values() for problem in own)
    return sorted(names, key=spread, reverse=True)


_OF_THESE = "The intervals say what other problems of this kind would give, not what another training run would."
_MAX_HELD = 200
"""Problems whose answers are read again, of which the page holds what it can."""
_OPENS = "problem "


def _evidence(
    name: str, models: Sequence[str], files: Sequence[Samples], values: Values, figures: Sequence[Figure]
) -> Evidence | None:
    """Return a measure of several models: a problem a row, a model a column."""
    of_models = {model: values[model][name] for model in models if name in values.get(model, {})}
    if not of_models:
        return None
    problems = _by_spread(of_models)
    paths = {file.info.model.label: str(file.path) for file in files if isinstance(file, StoredSamples)}
    read = ", ".join(
        f"{model!r}: pd.read_parquet({paths[model]!r}).groupby('problem_id').correct.mean()"
        for model in of_models
        if model in paths
    )
    return Evidence(
        id=f"{name}-{'-'.join(of_models)}",
        table=listed([Path(paths[model]).name if model in paths else f"samples of {model}" for model in of_models]),
        filter=f"{MEASURES[name].title} at each problem, the mean over its samples",
        columns={
            "problem": problems,
            **{model: [own.get(each) for each in problems] for model, own in of_models.items()},
        },
        figures=tuple(figure for figure in figures if {*figure.columns} <= of_models.keys()),
        command=f"import pandas as pd\nrows = pd.DataFrame({{{read}}})" if read and name == "accuracy" else "",
        place="where these files lie as they were given",
        note="Brackets are intervals over problems.",
        opens=_OPENS,
    )


def _accuracy_evidence(
    comparison: Comparison, headlines: Sequence[ModelScores], files: Sequence[Samples], values: Values
) -> Evidence | None:
    """Return how often each model is right at each problem, with the numbers of the page's first sentence."""
    measure, known = MEASURES["accuracy"], [row for row in headlines if row.accuracy]
    others = [row for row in known if "accuracy" in row.differences]
    is_pair = len(others) == 1 and len(known) == 2
    figures = []
    for row in known:
        of = others[0].differences["accuracy"].estimate if is_pair else row.accuracy
        figures.append(
            Figure(name=row.model, statistic="mean", columns=(row.model,), write=partial(value_as, measure, of))
        )
    for row in others:
        write = partial(change_as, measure, row.differences["accuracy"].estimate)
        columns = (comparison.baseline, row.model)
        name = f"{row.model} less {comparison.baseline}"
        figures.append(Figure(name=name, statistic="paired difference of means", columns=columns, write=write))
    return _evidence("accuracy", [row.model for row in known], files, values, figures)


def _lead(files: Sequence[Samples]) -> str:
    """Return what was asked of the models, with an example."""
    if not files:
        return ""
    info, question = files[0].info, _question(next(iter(files[0].samples)))
    task, per = str(info.task.get("kind")).replace("_", " "), counted(info.num_samples, "sample")
    decoding = listed(list(map(decoding_name, info.temperatures)))
    example = f" One problem is {quoted(question)}." if question else ""
    return f"Task {task} ({info.split}), {per} of each problem, {decoding}.{example}"


def _question(sample: Response) -> str:
    question = " ".join(sample.problem.question.split())
    return question if len(question) <= _MAX_QUESTION else f"{question[:_MAX_QUESTION]}…"


def _verdicts(
    comparison: Comparison, headlines: Sequence[ModelScores], files: Sequence[Samples], values: Values
) -> Iterator[Verdict]:
    """Yield the accuracies as a plot, then what each model does otherwise than the baseline."""
    text = f"Fraction of the samples that are right; {100 * comparison.confidence:g}% intervals over problems."
    yield Verdict(title="How often they are right", text=text, rows=_measure_rows(headlines, "accuracy").kept)
    for row in headlines:
        if row.model != comparison.baseline:
            yield _otherwise(comparison, row, files, values)


def _otherwise(comparison: Comparison, row: ModelScores, files: Sequence[Samples], values: Values) -> Verdict:
    """Return in which other measures a model is shown to differ from the baseline, or that it was not tested."""
    shown = _shown(comparison, row)
    tested = [name for name, each in row.differences.items() if name != "accuracy" and each.num_problems > 1]
    num = len(tested)
    base = comparison.headlines()[comparison.baseline]
    pair = f"`{row.model}` against `{base.model}`"
    if not num:
        return Verdict(title=f"{pair}: other measures were not tested", text=_too_few(row, base))
    title = f"{pair}: of {counted(num, 'other measure')} {len(shown) or 'none'} {'is' if len(shown) < 2 else 'are'} "
    title += "shown to differ"
    lines = []
    for name, each in shown.items():
        ends = [mean.mean for side in (row, base) if (mean := getattr(side, name)) is not None]
        said = f"{against(MEASURES[name], ends[0], ends[1], each.estimate)}, " if len(ends) == 2 else ""
        over = counted(each.num_problems, "problem")
        text = f"{sentence_case(MEASURES[name].title)} over {over}: {said}{changed(MEASURES[name], each.estimate)}."
        write = partial(value_as, MEASURES[name], each.estimate)
        figures = [
            Figure(name=model, statistic="mean", columns=(model,), write=write) for model in (row.model, base.model)
        ]
        by, columns = partial(change_as, MEASURES[name], each.estimate), (base.model, row.model)
        figures.append(Figure(name="difference", statistic="paired difference of means", columns=columns, write=by))
        evidence = _evidence(name, (base.model, row.model), files, values, figures)
        lines.append((Sentence(text, evidence), p_words(each.p_adjusted)))
    text = "" if shown else "Differences may still be there: each stands with its interval under Details."
    return Verdict(title=title, text=text, evidence=_tested_evidence(row, tested, shown), lines=tuple(lines))


def _tested_evidence(row: ModelScores, tested: Sequence[str], shown: Collection[str]) -> Evidence:
    """Return the differences of a model in other measures, and which of them are shown."""
    each = [row.differences[name] for name in tested]
    figures = [Figure(name="measures", statistic="rows")]
    if shown:
        figures.append(Figure(name="shown", statistic="sum", columns=("shown",)))
    return Evidence(
        id=f"measures-{row.model}",
        table="the comparison of these files",
        filter="differences in other measures than accuracy",
        unit="measure",
        columns={
            "measure": [MEASURES[name].title for name in tested],
            "difference": [one.estimate.mean for one in each],
            "low": [one.estimate.low for one in each],
            "high": [one.estimate.high for one in each],
            "p, adjusted": [one.p_adjusted for one in each],
            "problems": [one.num_problems for one in each],
            "shown": [int(name in shown) for name in tested],
        },
        figures=tuple(figures),
        note="Shown is what has an adjusted p of 5% or less and an interval without 0.",
    )


def _too_few(row: ModelScores, base: ModelScores) -> str:
    num = min(row.num_problems, base.num_problems)
    return "One problem decides nothing." if num == 1 else "No other measure is known of both."


def _measure_rows(scores: Sequence[ModelScores], name: str) -> Rows:
    """Return a measure of models, and its paired differences from the baseline."""
    measure, title, rows = MEASURES[name], sentence_case(MEASURES[name].title), list[tuple[Cell, ...]]()
    for row in scores:
        each, mean = row.differences.get(name), getattr(row, name)
        num = row.num_measured.get(name, row.num_problems) if mean else None
        less = (each.estimate, each.p_adjusted, each.num_problems, each.compared_with) if each else (None,) * 4
        rows.append((_name(row), mean, num, *less))
    columns = {title: measure_unit(measure), "Problems": COUNT, "Difference": difference_unit(measure)}
    return Rows(
        id=name,
        title=title,
        first="Model",
        columns={**columns, "p, adjusted": P_VALUE, "Problems of both": COUNT, "Compared with": TEXT},
        rows=tuple(rows),
        plots=(Dots(column=title), Dots(column="Difference", at=0.0)),
    )


def _name(row: ModelScores) -> str:
    return f"{row.model}, {row.decoding}"


def _folds(comparison: Comparison, files: Sequence[Samples]) -> Iterator[Fold]:
    """Yield everything that was measured, and examples."""
    rows = comparison.rows
    accuracy, *others = (_measure_rows(rows, name) for name in MEASURES)
    columns = dict.fromkeys(map(_name, rows), SHARE)
    ks = sorted({point.k for row in rows for point in row.curve})
    several = Rows(
        id="pass_at_k",
        title="Right in one of several samples",
        first="Samples",
        columns=columns,
        rows=tuple((str(k), *(row.of_samples(k).pass_at_k for row in rows)) for k in ks),
        plots=(Curves(x=tuple(ks), x_title="samples", is_log=True),),
    )

    # Kinds of problems, where there are several.
    kinds = [
        (f"{kind} [{own.num_problems}]", *(getattr(row.by_kind.get(kind), "accuracy", None) for row in rows))
        for kind, own in rows[0].by_kind.items()
    ]
    by_kind = Rows(
        id="kinds",
        title="Accuracy by kind of problem; the number of problems is in brackets",
        first="Kind",
        columns=columns,
        rows=(*kinds, ("All kinds", *(row.kind_average for row in rows))) if len(kinds) > 1 else (),
    )
    examples = Texts(texts=tuple(_examples(files)))
    sources = Texts(texts=tuple((file.info.model.label, file.info.model_dump_json(indent=2)) for file in files))
    folds: tuple[tuple[str, str, str, Sequence[Rows | Texts]], ...] = (
        ("accuracy", "How often are they right?", "each model at each temperature", (accuracy, several)),
        ("by-kind", "Which kinds of problems?", "accuracy of each", (by_kind,)),
        ("measures", "In what else do they differ?", "every measure, with paired differences", others),
        ("examples", "What do they write?", "an example of each outcome", (examples,)),
        ("sources", "Provenance", "models, problems, seeds", (sources,)),
    )
    for id, title, note, parts in folds:
        yield Fold(id=id, title=title, note=note, parts=tuple(parts))


def _examples(files: Sequence[Samples]) -> Iterator[tuple[str, str]]:
    """Yield of each model the first sample that is right, the first that is wrong, and so on."""
    seen = set()
    for sample in (sample for file in files for sample in file.samples):
        outcome = outcome_of(sample)
        if (sample.label, outcome) not in seen:
            seen.add((sample.label, outcome))
            start = f"{sample.label}, {decoding_name(sample.temperature)}, {outcome}"
            yield f"{start}: {_question(sample)} (gold: {sample.problem.answer})", sample.written
