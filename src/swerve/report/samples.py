"""The page of files of samples: how often which model is right, in what else they differ, and what they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from swerve.artifacts.comparison import MEASURES, Comparison, ModelScores, decoding_name
from swerve.artifacts.files import write_text
from swerve.artifacts.responses import Response
from swerve.artifacts.samples import Samples
from swerve.config.recipe import ReportConfig
from swerve.formats.comparison_table import comparison_notes
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
    changed,
    difference_unit,
    measure_unit,
)
from swerve.text import counted, listed, p_words, percent_interval, quoted, sentence_case

_MAX_QUESTION = 120
"""Characters of a question."""


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
    facts = samples_provenance(comparison.confidence, files)
    return Page(
        title=options.title or f"Samples of {', '.join(row.model for row in headlines)}",
        sentence=_sentence(comparison, headlines),
        lead=_lead(files),
        heading="What the samples show",
        verdicts=tuple(_verdicts(comparison, headlines)),
        caution=" ".join(comparison_notes(comparison)[1:]),
        folds=measured_folds(*_folds(comparison, files)),
        date=facts.date,
        provenance=facts.line,
    )


def _sentence(comparison: Comparison, headlines: Sequence[ModelScores]) -> str:
    """Return how often each model is right, and what that differs by."""
    known = [f"**`{row.model}` is right in {percent_interval(row.accuracy)}**" for row in headlines if row.accuracy]
    unknown = [f"`{row.model}`" for row in headlines if row.accuracy is None]
    problems = counted(max(row.num_problems for row in headlines), "problem")
    why = "not determined, because no sample has a verdict: how often each is right, of "
    if not known:
        return f"{sentence_case(why)}{listed(unknown)}, on {problems}."
    text = f"On {problems}, {listed(known)} of its samples" + (f"; {why}{listed(unknown)}" if unknown else "")
    for row in headlines:
        if each := row.differences.get("accuracy"):
            text += f"; `{row.model}` less `{comparison.baseline}` is {changed(MEASURES['accuracy'], each.estimate)}"
            text += "" if each.estimate.excludes(0) else "; no difference is shown"
    return f"{text}."


def _lead(files: Sequence[Samples]) -> str:
    """Return what was asked of the models, with an example."""
    if not files:
        return ""
    info, question = files[0].info, quoted(_question(next(iter(files[0].samples))))
    task, per = str(info.task.get("kind")).replace("_", " "), counted(info.num_samples, "sample")
    decoding = listed(list(map(decoding_name, info.temperatures)))
    return f"Task {task} ({info.split}), {per} of each problem, {decoding}. One problem is {question}."


def _question(sample: Response) -> str:
    return " ".join(sample.problem.question.split())[:_MAX_QUESTION]


def _verdicts(comparison: Comparison, headlines: Sequence[ModelScores]) -> Iterator[Verdict]:
    """Yield the accuracies as a plot, then what each model does otherwise than the baseline."""
    text = f"Fraction of the samples that are right; {100 * comparison.confidence:g}% intervals over problems."
    yield Verdict(title="How often they are right", text=text, rows=_measure_rows(headlines, "accuracy").kept)
    for row in (row for row in headlines if row.differences):
        shown = [
            f"{MEASURES[name].title} {changed(MEASURES[name], each.estimate)} over "
            f"{counted(each.num_problems, 'problem')}, {p_words(p)}"
            for name, each in row.differences.items()
            if (p := each.p_adjusted) is not None and p <= 1 - comparison.confidence and each.estimate.excludes(0)
        ]
        num = counted(len(row.differences), "measure")
        title = f"`{row.model}` is shown to differ from `{comparison.baseline}` in {len(shown)} of {num}"
        yield Verdict(title=title, text=f"{sentence_case('; '.join(shown)) or 'No difference is shown'}.")


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
        is_known = sample.verdict is not None and sample.status not in ("timeout", "error")
        outcome = ("right" if sample.verdict else "wrong") if is_known else "not graded"
        outcome = "no answer found" if sample.answered is False else outcome
        outcome += ", cut off" if sample.finish_reason == "length" else ""
        if (sample.label, outcome) not in seen:
            seen.add((sample.label, outcome))
            start = f"{sample.label}, {decoding_name(sample.temperature)}, {outcome}"
            yield f"{start}: {_question(sample)} (gold: {sample.problem.answer})", sample.written
