"""The page of files of samples: how often which model is right, in what else they differ, and what they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from swerve.artifacts.comparison import MEASURES, Comparison, ModelScores, decoding_name
from swerve.artifacts.files import write_text
from swerve.artifacts.samples import SampleFile
from swerve.config import ReportConfig
from swerve.formats.comparison_table import notes
from swerve.report.format import count, listed, p_words, percent_interval, quoted, sentence_case
from swerve.report.page import Fold, Page, Texts, Verdict, measured_folds, render
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

_MAX_QUESTION = 120
"""Characters of a question."""


def write_samples_page(
    path: Path, comparison: Comparison, files: Sequence[SampleFile], *, options: ReportConfig
) -> Path:
    """Write the page of files of samples to `path`; return it. See `samples_page`.

    Raises:
        DiskFullError: no room.
    """
    write_text(path, render(samples_page(comparison, files, options=options)))
    return path


def samples_page(comparison: Comparison, files: Sequence[SampleFile], *, options: ReportConfig) -> Page:
    """Return what the page of samples says. Neither torch nor a model is needed.

    Args:
        comparison: of the models that the samples are of.
        files: the samples, for examples.
        options: of the report.
    """
    headlines = tuple(comparison.headlines().values())
    return Page(
        title=options.title or f"Samples of {', '.join(row.model for row in headlines)}",
        sentence=_sentence(comparison, headlines),
        lead=_lead(files),
        heading="What the samples show",
        verdicts=tuple(_verdicts(comparison, headlines)),
        caution=" ".join(notes(comparison)[1:]),
        folds=measured_folds(*_folds(comparison, files)),
    )


def _sentence(comparison: Comparison, headlines: Sequence[ModelScores]) -> str:
    """Return how often each model is right, and what that differs by."""
    right = [f"**`{row.model}` is right in {percent_interval(row.accuracy)}**" for row in headlines]
    num = max(row.num_problems for row in headlines)
    text = f"On {count(num)} problems, {listed(right)} of its samples"
    for row in headlines:
        if (each := row.differences.get("accuracy")) is not None:
            text += f"; `{row.model}` less `{comparison.baseline}` is {changed(MEASURES['accuracy'], each.estimate)}"
            text += "" if each.estimate.excludes(0) else "; no difference is shown"
    return f"{text}."


def _lead(files: Sequence[SampleFile]) -> str:
    """Return what was asked of the models, with an example."""
    if not files:
        return ""
    info, problem = files[0].info, files[0].samples[0].problem
    task = str(info.task.get("kind")).replace("_", " ")
    question = quoted(" ".join((problem.question or "").split())[:_MAX_QUESTION])
    per = "one sample" if info.num_samples == 1 else f"{count(info.num_samples)} samples"
    decoding = listed([decoding_name(temperature) for temperature in info.temperatures])
    return f"Task {task} ({info.split}), {per} of each problem, {decoding}. One problem is {question}."


def _verdicts(comparison: Comparison, headlines: Sequence[ModelScores]) -> Iterator[Verdict]:
    """Yield the accuracies as a plot, then what each model does otherwise than the baseline."""
    text = f"Fraction of the samples that are right; {100 * comparison.confidence:g}% intervals over problems."
    yield Verdict(title="How often they are right", text=text, rows=_measure_rows(headlines, "accuracy"))
    for row in headlines:
        others = []
        for name, each in row.differences.items():
            change, p = changed(MEASURES[name], each.estimate), each.p_adjusted
            tested = f"over {count(each.num_problems)} problems, {p_words(p)}"
            if name == "accuracy":
                shown = "" if each.estimate.excludes(0) else " The interval holds 0, so no difference is shown."
                title = f"`{row.model}` less `{comparison.baseline}`: {change}"
                yield Verdict(title=title, text=f"Accuracy, paired {tested}.{shown}")
            elif each.estimate.excludes(0) and p is not None and p <= 1 - comparison.confidence:
                others.append(f"{MEASURES[name].title} {change} {tested}")
        if row.differences:
            title = f"`{row.model}` differs from `{comparison.baseline}` in {len(others)} other measures"
            yield Verdict(title=title, text=f"{sentence_case('; '.join(others)) or 'No difference is shown'}.")


def _measure_rows(scores: Sequence[ModelScores], name: str) -> Rows:
    """Return a measure of models, and its paired differences from the baseline."""
    measure, title, rows = MEASURES[name], sentence_case(MEASURES[name].title), []
    for row in scores:
        each, mean = row.differences.get(name), getattr(row, name)
        num = None if mean is None else row.num_measured.get(name, row.num_problems)
        cells: tuple[Cell, ...] = ("", "", "", "")
        if each is not None:
            other = "" if each.compared_with.endswith(f" {row.decoding}") else each.compared_with
            cells = (each.estimate, each.p_adjusted, each.num_problems, other)
        rows.append((_name(row), mean, num, *cells))
    plots = (Dots(column=title), Dots(column="Difference", at=0.0))
    columns = {title: measure_unit(measure), "Problems": COUNT, "Difference": difference_unit(measure)}
    return Rows(
        id=name,
        title=title,
        first="Model",
        columns={**columns, "p, adjusted": P_VALUE, "Problems of both": COUNT, "Compared with": TEXT},
        rows=tuple(rows),
        plots=plots if any(row.differences for row in scores) else plots[:1],
    )


def _name(row: ModelScores) -> str:
    return f"{row.model}, {row.decoding}"


def _folds(comparison: Comparison, files: Sequence[SampleFile]) -> Iterator[Fold]:
    """Yield everything that was measured, and examples."""
    rows = comparison.rows
    accuracy, *others = (_measure_rows(rows, name) for name in MEASURES)
    points = {(_name(row), point.k): point.pass_at_k for row in rows for point in row.curve}
    ks = sorted({k for _, k in points})
    names = [_name(row) for row in rows if row.curve]
    several = Rows(
        id="pass_at_k",
        title="Right in one of several samples",
        first="Samples",
        columns=dict.fromkeys(names, SHARE),
        rows=tuple((str(k), *(points.get((name, k)) for name in names)) for k in ks),
        plots=(Curves(x=tuple(ks), x_title="samples", is_log=True),),
    )
    yield Fold(
        id="accuracy",
        title="How often are they right?",
        note="each model at each temperature",
        sentences=tuple(notes(comparison)[:1]),
        parts=(accuracy, several),
    )

    # Kinds of problems, where there are several.
    kinds = rows[0].by_kind
    by_kind = Rows(
        id="kinds",
        title="Accuracy by kind of problem; the number of problems is in brackets",
        first="Model",
        columns=dict.fromkeys((*(f"{kind} [{own.num_problems}]" for kind, own in kinds.items()), "All kinds"), SHARE),
        rows=tuple(
            (
                _name(row),
                *(own.accuracy if (own := row.by_kind.get(kind)) else None for kind in kinds),
                row.kind_average,
            )
            for row in rows
        ),
    )
    parts = (by_kind,) if len(kinds) > 1 else ()
    yield Fold(id="by-kind", title="Which kinds of problems?", note="accuracy of each", parts=parts)
    note = "every measure, with paired differences"
    yield Fold(id="measures", title="In what else do they differ?", note=note, parts=tuple(others))
    texts = Texts(texts=tuple(_examples(files)))
    yield Fold(id="examples", title="What do they write?", note="an example of each outcome", parts=(texts,))
    sources = Texts(texts=tuple((file.info.model.label, file.info.model_dump_json(indent=2)) for file in files))
    yield Fold(id="sources", title="Provenance", note="models, problems, seeds", parts=(sources,))


def _examples(files: Sequence[SampleFile]) -> Iterator[tuple[str, str]]:
    """Yield of each model the first sample that is right, the first that is wrong, and so on."""
    seen = set()
    for sample in (sample for file in files for sample in file.samples):
        outcome = "not graded" if sample.reward is None else "right" if sample.correct else "wrong"
        outcome = outcome if sample.answered else "no answer found"
        outcome += ", cut off" if sample.finish_reason == "length" else ""
        if (sample.label, outcome) not in seen:
            seen.add((sample.label, outcome))
            question, gold = " ".join((sample.problem.question or "").split()), sample.problem.answer
            start = f"{sample.label}, {decoding_name(sample.temperature)}, {outcome}"
            yield f"{start}: {question[:_MAX_QUESTION]} (gold: {gold})", sample.text or ""
