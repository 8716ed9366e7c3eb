"""The page and the figures of a study, from its record and, where they are there, the evaluations of its runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.artifacts.study import Study
from swerve.config.recipe import ReportConfig
from swerve.report.draw.figures import DEFAULT_LOOK, Drawing, Look, check_names, rows_drawing, write_figures
from swerve.report.page import Fold, Page, measured_folds, render
from swerve.report.provenance import study_provenance
from swerve.report.study_problems import held_problems, runs_inside
from swerve.report.study_rows import (
    curves_rows,
    difference_rows,
    kinds_rows,
    measures_rows,
    outcome_rows,
    runs_rows,
    trends_rows,
    trials_rows,
    variants_rows,
)
from swerve.report.study_sentences import alike, design_words, headline, verdicts
from swerve.report.study_tokens import tokens_rows
from swerve.report.terms import CARD_WORDS
from swerve.text import counted, listed, sentence_case


def write_study_page(
    study: Study, folder: Path, *, options: ReportConfig, runs: Mapping[str, Path] | None = None
) -> Path:
    """Write `index.html` of a study to a folder; return its path.

    The page links to no other: who gets it may have nothing else.

    Args:
        study: what was compared.
        folder: that of the page, in the study's folder.
        options: of the report.
        runs: directories of the runs by their paths in the record; by default those inside the study's folder.

    Raises:
        DiskFullError: no room.
    """
    write_text(folder / "index.html", render(study_page(study, options=options, folder=folder.parent, runs=runs)))
    return folder / "index.html"


def study_page(
    study: Study,
    *,
    options: ReportConfig,
    links: Mapping[str, str] = {},
    folder: Path | None = None,
    runs: Mapping[str, Path] | None = None,
) -> Page:
    """Return what the page of a study says.

    Args:
        study: what was compared.
        options: of the report.
        links: the addresses of the pages of its runs, by name, where these are served beside it.
        folder: where the study lies.
        runs: directories of its runs by their paths in the record, whose answers the page holds; by default those
            inside `folder`.
    """
    # What no figure counts, or only up to its collapse, stands above all of them.
    outcomes, num = outcome_rows(study), sum(not run.measured or run.collapse is not None for run in study.runs)
    facts = study_provenance(study, folder)
    places = runs if runs is not None else runs_inside(study, folder) if folder else {}
    held = held_problems(study, places)
    lost = f"{num} of {counted(len(study.runs), 'run')} collapsed or not counted: the table of runs says why."
    return Page(
        kind="study" if study.recipe else "comparison",
        title=options.title or study.name,
        sentence=headline(study),
        lead=f"{_lead(study)}{' ' if held else ''}{_OPENS if held else ''}".strip(),
        links=links if len(study.seeds) == 1 else {},
        heading="What the comparison shows" if outcomes.rows else "What the runs show",
        verdicts=tuple(verdicts(study) if outcomes.rows else alike(study)),
        caution=lost if num else "",
        folds=measured_folds(*_folds(study, links)),
        terms=_TERMS,
        words=CARD_WORDS,
        held=held,
        date=facts.date,
        provenance=facts.line,
    )


def _lead(study: Study) -> str:
    """Return what was trained on what, and by which rule it is judged."""
    tasks, models = ([*dict.fromkeys(filter(None, (getattr(run, name) for run in study.runs)))] for name in _SUBJECTS)
    known = [*([f"task {listed(tasks)}"] if tasks else []), *([listed(models)] if models else [])]
    said = [sentence_case(", ".join(known))] if known else []
    if len(study.variants) == 1:
        said += ["The runs differ by seed alone"] if len(study.seeds) > 1 else []
    else:
        said.append(design_words(study)[0].removesuffix("."))
    return "".join(f"{one}. " for one in said).strip()


_OPENS = "In the rows behind a sentence a seed opens its problems, and a problem what the runs wrote."
_SUBJECTS = ("task", "model")
"""What is known of runs, by the name of its field."""


def _folds(study: Study, links: Mapping[str, str]) -> Iterator[Fold]:
    """Yield everything that was measured, by topic."""
    several = len(study.variants) > 1
    compared, *others = (difference_rows(study, measure) for measure in study.measures or ("accuracy",))
    for id, title, note, parts in (
        ("comparison", f"What is different from “{study.baseline}”?", "with all tests", [compared] if several else []),
        ("design", "How was it decided?", "rule, variants, settings", [variants_rows(study), trials_rows(study)]),
        ("measures", "What else is different?", "every measure", [measures_rows(study), *others]),
        ("kinds", "On which problems?", "accuracy by kind", [kinds_rows(study)]),
        ("expected", "Is it as was found elsewhere?", "expected trends", [trends_rows(study)]),
        ("training", "Over training", "each metric by step", [*curves_rows(study), *tokens_rows(study)]),
        ("runs", "What became of the runs?", "state, collapse, directory", [runs_rows(study, links)]),
    ):
        sentences = design_words(study) if id == "design" else ()
        yield Fold(id=id, title=title, note=note, sentences=tuple(sentences), parts=tuple(parts))


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
