"""The report of files of samples: how often which model is right at which temperature, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.comparison import Comparison, decoding_name
from swerve.artifacts.files import write_text
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
    headlines = comparison.headlines()
    title = options.title or f"Samples of {', '.join(headlines)}"
    tiles = []
    for row in headlines.values():
        samples = "1 sample" if row.num_samples == 1 else f"{count(row.num_samples)} samples"
        detail = f"{samples} of {count(row.num_problems)} problems each, {row.decoding}"
        tiles.append(Tile(caption=row.model, value=percent(row.accuracy.mean), detail=detail))
    panels = (*_accuracy_panels(comparison), panel("What do they write?", _examples(files), wide=True))
    page = fill_template(
        has_run=False,
        title=title,
        run_name=title,
        data={"charts": [], "viewer": None},
        tiles=tiles[:_MAX_TILES],
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


def _sentences(comparison: Comparison) -> Iterator[str]:
    for row in comparison.headlines().values():
        said = f"Of the samples of {row.model} ({row.decoding}) {percent_interval(row.accuracy)} are right"
        if (change := row.difference) is not None:
            shown = "" if change.estimate.excludes(0) else ": the interval holds 0, so no difference is shown"
            p = "" if change.p_adjusted is None else f" ({p_words(change.p_adjusted)}, adjusted)"
            said += f", {points_interval(change.estimate)} points against {comparison.rows[0].model}{p}{shown}"
        yield f"{said}."


def _accuracy_panels(comparison: Comparison) -> Iterator[Panel | None]:
    k = max((point.k for row in comparison.rows if row.num_samples > 1 for point in row.curve), default=0)
    nums = {kind: scores.num_problems for kind, scores in comparison.rows[0].by_kind.items()}
    dots, cells, kinds = [], [], []
    for row in comparison.rows:
        name, accuracy = f"{row.model}, {row.decoding}", percent_interval(row.accuracy)
        dots.append(dot_row(name, accuracy, row.accuracy, None))
        said = [name, accuracy, percent_interval(row.of_samples(k).pass_at_k)]
        said.append(points_interval(row.difference.estimate if row.difference else None))
        said.append(p_value(row.difference.p_adjusted if row.difference else None))
        said += [percent(share) for share in (row.unanswered, row.ungraded, row.truncated)]
        said.append(count(row.num_tokens.mean if row.num_tokens else None))
        cells.append(tuple(said))
        kinds.append((name, *(percent_interval(row.by_kind[kind].accuracy) for kind in nums)))

    spread = ("No answer", "Not graded", "Cut off", "Tokens")
    header = ("Model", "Accuracy", f"pass@{k}", "Difference (points)", "p, adjusted", *spread)
    table = measured_columns(Table(id="samples", caption="Samples", header=header, rows=tuple(cells)))
    # Of the first model there is no difference, and of few samples no pass@k.
    table = replace(table, rows=tuple(tuple(cell.replace(NOT_MEASURED, "") for cell in row) for row in table.rows))
    yield panel("How often are they right?", DotPlot(rows=tuple(dots), ends=FRACTION_ENDS), table, wide=True,
                note="Accuracy is the mean over problems of the fraction of samples that are right.")  # fmt: skip
    if len(nums) > 1:
        heading = ("Model", *(f"{kind} [{count(num)}]" for kind, num in nums.items()))
        by_kind = Table(id="kinds", caption="Accuracy by kind of problem", header=heading, rows=tuple(kinds))
        note = "The number of problems is in brackets."
        yield panel("Which kinds of problems?", by_kind, wide=True, note=note)


def _examples(files: Sequence[SampleFile]) -> Texts:
    """Return of each model the first sample that is right, the first that is wrong, and so on."""
    first: dict[tuple[str | None, str], tuple[str, str]] = {}
    for sample in (sample for file in files for sample in file.samples):
        outcome = "not graded" if sample.reward is None else "right" if sample.correct else "wrong"
        outcome = outcome if sample.answered else "no answer found"
        outcome += ", cut off" if sample.finish_reason == "length" else ""
        question, gold = " ".join(sample.problem.question.split()), sample.problem.answer
        decoding = decoding_name(sample.temperature)
        caption = f"{sample.label}, {decoding}, {outcome}: {question[:120]} (gold: {gold})"
        first.setdefault((sample.label, outcome), (caption, sample.text or ""))
    return Texts(rows=tuple(first.values()))


def _provenance(file: SampleFile) -> Iterator[tuple[str, str]]:
    info = file.info
    yield info.model.label, f"{info.model.source}, {info.model.fingerprint[:16]}, {info.model.dtype}"
    yield "problems", f"{count(info.num_problems)} of {info.task.get('kind')}, {info.split}, seed {info.problem_seed}"
    yield "samples", f"{count(info.num_samples)} per problem, seed {info.seed}, swerve {info.swerve_version}"
