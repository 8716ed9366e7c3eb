"""The report of files of samples: how often which model is right at which temperature, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.comparison import Comparison, ModelScores, decoding_name
from swerve.artifacts.files import write_text
from swerve.artifacts.responses import Response
from swerve.artifacts.samples import SampleFile
from swerve.config import ReportConfig
from swerve.report.draw.panels import (
    FRACTION_ENDS,
    DotPlot,
    Panel,
    Table,
    Texts,
    dot_row,
    measured_columns,
    panel,
    section,
)
from swerve.report.format import NOT_MEASURED, count, p_value, p_words, percent, percent_interval, points_interval
from swerve.report.page import fill_template
from swerve.report.topics.topic import Tile

_MAX_TILES = 6


def write_samples_page(
    path: Path, comparison: Comparison, files: Sequence[SampleFile], *, options: ReportConfig
) -> Path:
    """Write the page of files of samples to `path`; return it. Neither torch nor a model is needed.

    Args:
        path: the page.
        comparison: of the models that the samples are of.
        files: the samples, for examples.
        options: of the report.

    Raises:
        DiskFullError: no room.
    """
    # The title names the models where the recipe gives none.
    title = options.title or f"Samples of {', '.join(comparison.headlines())}"
    panels = (*_accuracy_panels(comparison), panel("What do they write?", _examples(files), wide=True))
    page = fill_template(
        has_run=False,
        title=title,
        run_name=title,
        data={"charts": [], "viewer": None},
        tiles=[_tile(headline) for headline in comparison.headlines().values()][:_MAX_TILES],
        findings={"Outcome": tuple(_sentences(comparison))},
        sections=list(filter(None, [section("samples", "Samples", panels, short="Samples")])),
        provenance=[pair for file in files for pair in _provenance(file)],
        confidence=comparison.confidence,
        config_text=None,
        summary=None,
        has_viewer=False,
    )
    write_text(path, page)
    return path


def _tile(row: ModelScores) -> Tile:
    detail = f"{_samples(row.num_samples)} of {count(row.num_problems)} problems each, {row.decoding}"
    return Tile(caption=row.model, value=percent(row.accuracy.mean), detail=detail)


def _samples(num: int) -> str:
    return "1 sample" if num == 1 else f"{count(num)} samples"


def _sentences(comparison: Comparison) -> Iterator[str]:
    for row in comparison.headlines().values():
        said = f"Of the samples of {row.model} ({row.decoding}) {percent_interval(row.accuracy)} are right"
        if (change := row.difference) is not None:
            shown = "" if change.estimate.excludes(0) else ": the interval holds 0, so no difference is shown"
            p = "" if change.p_adjusted is None else f" ({p_words(change.p_adjusted)}, adjusted)"
            said += f", {points_interval(change.estimate)} points against {comparison.rows[0].model}{p}{shown}"
        yield f"{said}."


def _accuracy_panels(comparison: Comparison) -> Iterator[Panel | None]:
    rows = comparison.rows
    names = [f"{row.model}, {row.decoding}" for row in rows]
    values = [percent_interval(row.accuracy) for row in rows]
    dots = [dot_row(name, value, row.accuracy, None) for name, value, row in zip(names, values, rows, strict=True)]
    k = max((point.k for row in rows if row.num_samples > 1 for point in row.curve), default=0)
    spread = ("No answer", "Not graded", "Cut off", "Tokens")
    header = ("Model", "Accuracy", f"pass@{k}", "Difference (points)", "p, adjusted", *spread)
    cells = [
        (
            name,
            value,
            percent_interval(row.pass_at(k)),
            points_interval(row.difference.estimate if row.difference else None),
            p_value(row.difference.p_adjusted if row.difference else None),
            percent(row.unanswered),
            percent(row.ungraded),
            percent(row.truncated),
            count(row.num_tokens.mean if row.num_tokens else None),
        )
        for name, value, row in zip(names, values, rows, strict=True)
    ]
    table = measured_columns(Table(id="samples", caption="Samples", header=header, rows=tuple(cells)))
    # Of the first model there is no difference, and of few samples no pass@k.
    table = replace(table, rows=tuple(tuple(cell.replace(NOT_MEASURED, "") for cell in row) for row in table.rows))
    yield panel("How often are they right?", DotPlot(rows=tuple(dots), ends=FRACTION_ENDS), table, wide=True,
                note="Accuracy is the mean over problems of the fraction of samples that are right.")  # fmt: skip
    if len(comparison.kinds) < 2:
        return
    by_kind = Table(
        id="kinds",
        caption="Accuracy by kind of problem",
        header=("Model", *(f"{kind} [{count(num)}]" for kind, num in comparison.kinds.items())),
        rows=tuple(
            (name, *(percent_interval(row.by_kind[kind].accuracy) for kind in comparison.kinds))
            for name, row in zip(names, rows, strict=True)
        ),
    )
    yield panel("Which kinds of problems?", by_kind, wide=True, note="The number of problems is in brackets.")


def _examples(files: Sequence[SampleFile]) -> Texts:
    """Return of each model the first sample that is right, the first that is wrong, and so on."""
    first: dict[tuple[str | None, str], Response] = {}
    for file in files:
        for sample in file.samples:
            first.setdefault((sample.label, _outcome(sample)), sample)
    return Texts(rows=tuple((_caption(outcome, sample), sample.text or "") for (_, outcome), sample in first.items()))


def _outcome(sample: Response) -> str:
    judged = "not graded" if sample.reward is None else "right" if sample.correct else "wrong"
    said = judged if sample.answered else "no answer found"
    return f"{said}, cut off" if sample.finish_reason == "length" else said


def _caption(outcome: str, sample: Response) -> str:
    question = " ".join(sample.problem.question.split())
    decoding, gold = decoding_name(sample.temperature), sample.problem.answer
    return f"{sample.label}, {decoding}, {outcome}: {question[:120]} (gold: {gold})"


def _provenance(file: SampleFile) -> Iterator[tuple[str, str]]:
    info = file.info
    yield info.model.label, f"{info.model.source}, {info.model.fingerprint[:16]}, {info.model.dtype}"
    yield "problems", f"{count(info.num_problems)} of {info.task.get('kind')}, {info.split}, seed {info.problem_seed}"
    yield "samples", f"{count(info.num_samples)} per problem, seed {info.seed}, swerve {info.swerve_version}"
