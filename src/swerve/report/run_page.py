"""The page of a run or a probe, from its artifacts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import ReportConfig
from swerve.report.evidence import Sentence
from swerve.report.figures import needed
from swerve.report.page import Fold, Page, Texts, Verdict, render
from swerve.report.provenance import run_provenance
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.rollouts import rollout_payload
from swerve.report.rows import TEXT, Rows
from swerve.report.story import notes, sentence, story, verdicts
from swerve.report.summary_evidence import held_evidence
from swerve.report.terms import TERMS, WORDS
from swerve.report.topics import topics
from swerve.report.verdicts.matter import matter


def write_page(run: RunDirectory, *, options: ReportConfig) -> Path:
    """Write `report/index.html` from a run's artifacts; return its path. Neither torch nor a model is needed.

    Raises:
        ArtifactError: there is nothing to report, an artifact is damaged, or a copied run has a link.
        DiskFullError: no room.
    """
    run.check_links()
    path = run.report_path / "index.html"
    write_text(path, render(run_page(read_inputs(run), options=options)))
    return path


def run_page(inputs: ReportInputs, *, options: ReportConfig) -> Page:
    """Return what the page of a run says."""
    facts = run_provenance(inputs)
    table = Rows(id="provenance", title="What the run records", columns={"": TEXT}, rows=facts.rows)
    config = (Texts(texts=(("Configuration", inputs.config_text),)),) if inputs.config_text else ()
    recorded = Fold(id="provenance-of-the-run", title="Provenance", note="all that is recorded", parts=(table, *config))

    # What is said first, then the rollouts, then all that was measured.
    return Page(
        title=options.title or inputs.run_name,
        date=facts.date,
        sentence=sentence(inputs),
        lead=matter(inputs) or "",
        story=story(inputs),
        heading="What one training run shows" if inputs.metrics else "What the comparison shows",
        verdicts=_shown(tuple(verdicts(inputs))),
        caution=Sentence(
            " ".join(("Brackets are intervals; grey is what a figure is compared with.", *notes(inputs))),
            held_evidence(inputs),
        ),
        rollouts=rollout_payload(inputs),
        folds=(*_folds(inputs), recorded),
        terms=TERMS,
        words=WORDS,
        provenance=facts.line,
    )


_LIMITS = ("chance", "spikes-counted")
"""Verdicts on how figures of the page are to be taken, which stand in the fold of “How sure?”."""


def _shown(found: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts that are seen at first sight, with the others in the fold of the one that they limit."""
    limits = [each for each in found if each.id in _LIMITS]
    if not limits or not any(each.id == "sure" for each in found):
        return tuple(found)
    sentences = (Sentence(f"{each.title} {each.text}".replace("`", ""), each.evidence) for each in limits)
    fold = Fold(
        id="intervals-and-spikes", title="What intervals and counts of spikes are worth", sentences=(*sentences,)
    )
    kept = (each for each in found if each not in limits)
    return tuple(replace(each, fold=fold) if each.id == "sure" else each for each in kept)


def all_findings(inputs: ReportInputs) -> Mapping[str, tuple[str, ...]]:
    """Return what the run shows, a claim per sentence, by heading; headings without any are left out."""
    writers = {name: write for topic in topics() for name, write in topic.sentences.items()}
    findings = {name: tuple(filter(None, write(inputs))) for name, write in writers.items()}
    return {name: sentences for name, sentences in findings.items() if sentences}


def _folds(inputs: ReportInputs) -> Iterator[Fold]:
    """Yield a fold for each topic that something was measured of."""
    findings = all_findings(inputs)
    for topic in topics():
        parts = tuple(rows.kept for rows in (topic.rows(inputs) if topic.rows else ()) if rows.measured)
        ids = {rows.id for rows in parts}
        # What another task would have is no lack of this run.
        lacking = [
            Sentence(f"Not measured (it needs {needed(spec, inputs)}): {spec.shows}", held_evidence(inputs))
            for name, spec in topic.figures.items()
            if spec.draw is None and name not in ids and "of a task" not in spec.needs
        ]
        if parts:
            yield Fold(
                id=topic.title.lower().replace(" ", "-").strip("?"),
                title=topic.title,
                note=topic.note,
                sentences=(*(text for name in topic.sentences for text in findings.get(name, ())), *lacking),
                parts=(*parts, *(topic.texts(inputs) if topic.texts else ())),
            )
