"""The page of a claim card: each question with its verdicts and its tables, which are written from their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.artifacts.record import Record
from swerve.claim.basis import chance, could_show
from swerve.claim.evidence import fact_evidence, line_evidence, side_name
from swerve.claim.opening import FEWEST, headline, lead
from swerve.claim.part import Part
from swerve.claim.problem_rows import OPENS
from swerve.claim.rates import claim_rates
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.report import page as pages
from swerve.report.draw.figures import Look, rows_drawing, write_figures
from swerve.report.evidence import Evidence, Sentence
from swerve.report.page import Fold, Page, render
from swerve.report.provenance import card_line
from swerve.report.rows import COUNT, NUMBER, POINTS, SHARE, TEXT, Curves, Dots, Rows, Unit, mean_of
from swerve.report.terms import CARD_TERMS, CARD_WORDS
from swerve.text import counted, sentence_case

_UNITS = {"share": SHARE, "points": POINTS, "number": NUMBER, "count": COUNT}


def write_claim_page(path: Path, card: ClaimCard) -> Path:
    """Write the page of a card to `path`; return it.

    Raises:
        DiskFullError: no room.
    """
    write_text(path, claim_html(card))
    return path


def claim_html(card: ClaimCard) -> str:
    """Return the text of the page of a card."""
    return render(claim_page(card))


def claim_page(card: ClaimCard) -> Page:
    """Return what the page of a card says."""
    questions = [_question(name, part, card) for name, part in card.parts if part.is_measured]
    reasons: dict[str, list[str]] = {}
    for _, part in card.parts:
        if not part.is_measured:
            reason = sentence_case(part.missing or "not asked for").removesuffix(".")
            reasons.setdefault(reason, []).append(part.question())
    lines = [(f"{' '.join(questions)} {reason}.", "") for reason, questions in reasons.items()]
    models = dict(zip((card.base, card.trained), card.contents or (), strict=False))
    return Page(
        kind="claim card",
        title=f"What RL changed: {card.base} to {card.trained}",
        sentence=headline(card),
        lead=lead(card),
        heading="What changed",
        date=next(iter(card.made), ""),
        verdicts=(*questions, pages.Verdict(id="not-measured", title="What was not measured", lines=tuple(lines))),
        terms=CARD_TERMS,
        words=CARD_WORDS,
        held={f"{OPENS}{each.problem}": each for each in card.written},
        provenance=card_line(card.made, models),
    )


def write_claim_figures(card: ClaimCard, folder: Path) -> tuple[Path, ...]:
    """Write the plots of a card as figures for papers, and every table as CSV; return their paths.

    Raises:
        DiskFullError: no room.
    """
    drawings = [rows_drawing(rows) for name, part in card.parts for rows in part_rows(name, part, card)]
    return write_figures(drawings, folder, Look(formats=("pdf", "svg")))


def part_rows(name: str, part: Part, card: ClaimCard) -> list[Rows]:
    """Return the tables of a part of a card, and how they are drawn."""
    return [_rows(f"{name}_{table}", records, card) for table, records in part.tables]


def _question(name: str, part: Part, card: ClaimCard) -> pages.Verdict:
    """Return a question with what is said to it, its first plot, and its tables on demand."""
    tables = [rows for each in part_rows(name, part, card) if (rows := each.kept).measured]
    figures = _figures(name, part, card)
    lines: list[tuple[str, str]] = []
    reason = ""
    for verdict in part.verdicts:
        line, basis = _line(verdict, line_evidence(card, name, verdict))
        said, _, why = line.partition(_BECAUSE)
        # A reason that was just given is not given again.
        lines.append(
            (f"{said} is not determined, for the same reason.", "") if why and why == reason else (line, basis)
        )
        reason = why
    lines += [(Sentence(fact, rows), "") for fact, rows in fact_evidence(card, name, part)]
    return pages.Verdict(
        id=f"part-{name}",
        title=part.question(),
        lines=tuple(lines) or (("No line is made of it; its figures are under Details.", ""),),
        rows=next((rows for rows in tables if rows.plots), None),
        fold=Fold(
            id=name,
            title="Details",
            sentences=(*part.notes, *_rates(part, card)),
            parts=(*tables, figures) if figures.measured else tuple(tables),
        ),
    )


def _figures(name: str, part: Part, card: ClaimCard) -> Rows:
    """Return the figures of a part that stand alone, as a table with what each is."""
    fields = type(part).model_fields
    rows = [
        (_heading(field, card), _unit(part, field).text(value), _described(fields[field].description, card))
        for field, value in part
        if field not in {*Part.model_fields, *_SAID} and value not in (None, "") and not isinstance(value, tuple)
    ]
    columns = {"Value": TEXT, "What it is": TEXT}
    return Rows(id=f"{name}_figures", title="Single figures", first="Figure", columns=columns, rows=tuple(rows))


def _rates(part: Part, card: ClaimCard) -> list[str]:
    """Return what the rates beside the lines of a part are of, and those of claims that have them at one size alone."""
    rates = [claim_rates()[claim] for claim in dict.fromkeys(verdict.claim for verdict in part.verdicts)]
    size = counted(card.num_groups or card.num_problems, "problem" if card.num_groups is None else "group")
    answers = counted(card.num_samples, "answer")
    lines = [f"“Such cards” beside the lines are simulated ones of this size: {size}, {answers} of each model to each."]
    return lines * any(each.designs for each in rates) + [
        f"Planted: {each.size}; shown in {100 * each.right:.3g} of 100, where it is 1.3 times as much in "
        f"{100 * each.right_more:.3g}, where nothing is there in {100 * each.false:.2g} ({each.draws:,} draws)."
        for each in rates
        if not each.designs
    ]


_BECAUSE = " is not determined, because "
_SAID = ("of", "study")
"""Fields that sentences have already."""


def _line(verdict: ClaimVerdict, evidence: Evidence | None) -> tuple[str, str]:
    """Return what a verdict says with its rows, in bold where it is shown of many, and how often it is by chance."""
    mark = "**" if verdict.shown and (verdict.num is None or verdict.num >= FEWEST) else ""
    basis = "" if verdict.shown is None else chance(verdict) if verdict.shown else could_show(verdict)
    return Sentence(f"{mark}{verdict.sentence}{mark}", evidence), sentence_case(basis)


def _rows(id: str, records: Sequence[Record], card: ClaimCard) -> Rows:
    """Return a table by its fields: their names are headings, their types units, their docstrings notes.

    Shares along a first column of numbers are drawn as curves, differences of what has names as dots.
    """
    fields = type(records[0]).model_fields
    (first, unit), *columns = ((name, _unit(records[0], name)) for name in fields)
    places, *cells = zip(*(record.__dict__.values() for record in records), strict=True)
    plot: Curves | Dots = Dots(column="Difference", at=0.0)
    if unit is not TEXT:
        own = _heading("trained", card)
        shares = tuple(sorted((_heading(name, card) for name, each in columns if each is SHARE), key=own.__ne__))
        x = tuple(unit.scale * mean_of(place) for place in places)
        greys = tuple(_heading(name, card) for name in ("base", "base_other", "trained_other"))
        plot = Curves(x=x, x_title=_AXES.get(first, first), is_log=unit is COUNT, columns=shares, greys=greys)
    table = id.partition("_")[2]
    return Rows(
        id=id,
        title=_TITLES.get(table) or _heading(table, card),
        first=_heading(first, card),
        columns={_heading(name, card): each for name, each in columns},
        rows=tuple(zip(map(unit.text, places), *cells, strict=True)),
        note=" ".join(
            f"{_heading(name, card)}: {_described(field.description, card)}"
            for name, field in fields.items()
            if field.description and any(getattr(record, name) is not None for record in records)
        ),
        plots=(plot,),
    )


def _unit(record: Record, field: str) -> Unit:
    return _UNITS.get(next(iter(type(record).model_fields[field].metadata), ""), TEXT)


def _described(text: str | None, card: ClaimCard) -> str:
    """Return what a field's docstring says, either model by its label."""
    for words, label in (("base", card.base), ("trained model", card.trained)):
        text = re.sub(rf"\b[Tt]he {words}\b", f"“{label}”", text or "")
    return text or ""


def _heading(field: str, card: ClaimCard) -> str:
    """Return what a table calls a field; either model's by its label as it stands."""
    name = side_name(card, field)
    if field.startswith(("base", "trained")):
        return name
    return _HEADINGS.get(field) or sentence_case(name.replace("_", " "))


_HEADINGS = {
    "k": "Tries k",
    "probability": "Chance of a right try, at least",
    "band": "Difference, for all k at once",
    "tokens": "Length",
    "crossing_after": "Ahead up to k",
    "crossing_before": "Behind from k",
}
_AXES = {
    "k": "tries k",
    "probability": "chance of a right try, at least, %",
    "kept": "of the reasoning kept, %",
    "taken": "of the tokens taken, %",
}
_TITLES = {
    "pass_at_k": "Right in at least one of k tries (pass@k)",
    "cover": "How surely are problems solved?",
    "failures": "Why answers are wrong",
    "gains": "Parts of the gain in accuracy",
    "outcomes": "How the answers came out",
    "by_length": "Accuracy by length of the answer",
    "gained": "Problems new after training",
}
"""What tables are called that do not speak for themselves by their fields."""
