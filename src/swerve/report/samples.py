"""The report of files of samples: how often which model is right at which temperature, and what it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from swerve.artifacts.comparison import Comparison, decoding_name
from swerve.artifacts.files import write_text
from swerve.artifacts.samples import SampleFile
from swerve.config import ReportConfig
from swerve.formats.comparison_table import comparison_table, difference_text, measures_table, notes
from swerve.report.draw.panels import (
    FRACTION_ENDS,
    DotPlot,
    Panel,
    Table,
    Texts,
    dot_row,
    panel,
    section,
)
from swerve.report.format import count, p_words, percent, percent_interval, points_interval
from swerve.report.page import fill_template
from swerve.report.topics.topic import Tile

_MAX_TILES = 6


def write_samples_page(
    path: Path, comparison: Comparison, files: Sequence[SampleFile], *, options: ReportConfig
) -> Path:
    """Write the page of files of samples to `path`; return it. See `render_samples`.

    Raises:
        DiskFullError: no room.
    """
    write_text(path, render_samples(comparison, files, options=options))
    return path


def render_samples(comparison: Comparison, files: Sequence[SampleFile], *, options: ReportConfig) -> str:
    """Return the page of files of samples as text. Neither torch nor a model is needed.

    Args:
        comparison: of the models that the samples are of.
        files: the samples, for examples.
        options: of the report.
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
    return fill_template(
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


def _sentences(comparison: Comparison) -> Iterator[str]:
    for row in comparison.headlines().values():
        said = f"Of the samples of {row.model} ({row.decoding}) {percent_interval(row.accuracy)} are right"
        if (change := row.differences.get("accuracy")) is not None:
            shown = "" if change.estimate.excludes(0) else ": the interval holds 0, so no difference is shown"
            p = "" if change.p_adjusted is None else f" ({p_words(change.p_adjusted)}, adjusted)"
            said += f", {points_interval(change.estimate)} points against {comparison.baseline}{p}{shown}"
        yield f"{said}."
        # What else differs, by the p-values that are adjusted for all differences.
        others = [
            difference_text(name, difference)
            for name, difference in row.differences.items()
            if name != "accuracy" and (difference.p_adjusted or 0.0) <= 1 - comparison.confidence
        ]
        if others:
            yield f"{row.model} ({row.decoding}) also differs from {comparison.baseline} in {'; '.join(others)}."


def _accuracy_panels(comparison: Comparison) -> Iterator[Panel | None]:
    dots = [
        dot_row(f"{row.model}, {row.decoding}", percent_interval(row.accuracy), row.accuracy, None)
        for row in comparison.rows
    ]
    merged = [[f"{row[0]}, {row[1]}", *row[2:]] for row in comparison_table(comparison, with_kinds=False)]
    table = _table("samples", "Samples", merged)
    yield panel("How often are they right?", DotPlot(rows=tuple(dots), ends=FRACTION_ENDS), table, wide=True,
                note=" ".join(notes(comparison)))  # fmt: skip
    nums = {kind: scores.num_problems for kind, scores in comparison.rows[0].by_kind.items()}
    if len(nums) > 1:
        heading = ("Model", *(f"{kind} [{count(num)}]" for kind, num in nums.items()), "Average of kinds")
        kinds = [
            (
                f"{row.model}, {row.decoding}",
                *(percent_interval(row.by_kind[kind].accuracy if kind in row.by_kind else None) for kind in nums),
                percent_interval(row.kind_average),
            )
            for row in comparison.rows
        ]
        by_kind = Table(id="kinds", caption="Accuracy by kind of problem", header=heading, rows=tuple(kinds))
        note = "The number of problems is in brackets."
        yield panel("Which kinds of problems?", by_kind, wide=True, note=note)
    headlines = comparison.model_copy(update={"rows": tuple(comparison.headlines().values())})
    measures = _table("measures", "Every measure", measures_table(headlines))
    yield panel("What else do their texts differ in?", measures, wide=True)


def _table(id: str, caption: str, rows: Sequence[Sequence[str]]) -> Table:
    """Return rows, the heading first, as a table with intervals as the page has them."""
    header, *others = (tuple(re.sub(r"\[(\S+), (\S+)\]", r"(\1 to \2)", cell.strip()) for cell in row) for row in rows)
    return Table(id=id, caption=caption, header=header, rows=tuple(others))


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
