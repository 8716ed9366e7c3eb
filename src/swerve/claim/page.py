"""The page of a claim card: each question with its verdicts and its tables, which are written from their fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.artifacts.record import Record
from swerve.claim.part import Part
from swerve.claim.rates import alike_said, claim_rates
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.report.draw.figures import Look, rows_drawing, write_figures
from swerve.report.page import Fold, Page, Verdict, render
from swerve.report.provenance import card_line
from swerve.report.rows import COUNT, NUMBER, POINTS, SHARE, TEXT, Curves, Dots, Rows, Unit, mean_of
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
    shown, accuracy = Counter(verdict.shown for verdict in card.verdicts), card.accuracy
    unknown = f" Not determined: {shown[None]} more." if shown[None] else ""
    headline = f"**Accuracy: {SHARE.text(accuracy.base)} before and {SHARE.text(accuracy.trained)} after**, "
    headline += f"{POINTS.text(accuracy.difference)} points, one training run"
    if card.runs.is_measured:
        over = card.runs
        headline = f"**Accuracy over {len(over.runs)} training runs: {SHARE.text(over.base)} before and "
        headline += f"{SHARE.text(over.trained)} after**, {POINTS.text(over.difference)} points"
    return Page(
        title=f"What RL changed: {card.base} to {card.trained}",
        sentence=headline if accuracy.is_measured else "Accuracy was not asked for",
        lead=f"Task {card.task}, problems {_problems(card)}, samples of each {card.num_samples} by `{card.base}` and "
        f"as many by `{card.trained}`. Claims shown: {shown[True]} of {shown[True] + shown[False]}, in **bold**."
        f"{unknown} What is not shown, or not determined, may still be so.",
        heading="What changed",
        verdicts=(*questions, Verdict(title="What was not measured", lines=tuple(lines))),
        provenance=card_line(card.made, dict(zip((card.base, card.trained), card.contents or (), strict=False))),
    )


def write_claim_figures(card: ClaimCard, folder: Path) -> tuple[Path, ...]:
    """Write the plots of a card as figures for papers, and every table as CSV; return their paths.

    Raises:
        DiskFullError: no room.
    """
    drawings = [rows_drawing(rows) for name, part in card.parts for rows in part_rows(name, part)]
    return write_figures(drawings, folder, Look(formats=("pdf", "svg")))


def part_rows(name: str, part: Part) -> list[Rows]:
    """Return the tables of a part, and how they are drawn."""
    return [_rows(f"{name}_{table}", records) for table, records in part.tables]


def _problems(card: ClaimCard) -> str:
    """Return how many problems there are, in how many groups, or that groups are missing."""
    if card.num_groups is not None:
        return f"{card.num_problems} in {counted(card.num_groups, 'group')}"
    alike = f" ({alike_said(card.num_alike, card.num_problems)})" if card.num_alike else ""
    return f"{card.num_problems}{alike}"


def _question(name: str, part: Part, card: ClaimCard) -> Verdict:
    """Return a question with what is said to it, its first plot, and its tables on demand."""
    tables = [rows.kept for rows in part_rows(name, part)]
    figures = [
        f"{_heading(field)}: {_unit(part, field).text(value)}"
        for field, value in part
        if field not in Part.model_fields and value not in (None, "") and not isinstance(value, tuple)
    ]
    return Verdict(
        title=part.question(),
        lines=tuple(map(_line, part.verdicts)) or (("; ".join(figures), ""),),
        rows=next((rows for rows in tables if rows.plots), None),
        fold=Fold(
            id=name, title="Details", sentences=(*part.notes, *figures, *_rates(part, card)), parts=tuple(tables)
        ),
    )


def _rates(part: Part, card: ClaimCard) -> list[str]:
    """Return what the rates beside the lines of a part are of, and those of claims that have them at one size alone."""
    rates = [claim_rates()[claim] for claim in dict.fromkeys(verdict.claim for verdict in part.verdicts)]
    size = counted(card.num_groups or card.num_problems, "problem" if card.num_groups is None else "group")
    lines = [f"Rates and sizes beside the lines are of simulated cards: {size}, {card.num_samples:,} samples of each."]
    return lines * any(each.designs for each in rates) + [
        f"Planted: {each.size}; shown in {100 * each.right:.3g} of 100, where it is 1.3 times as much in "
        f"{100 * each.right_more:.3g}, where nothing is there in {100 * each.false:.2g} ({each.draws:,} draws)."
        for each in rates
        if not each.designs
    ]


def _line(verdict: ClaimVerdict) -> tuple[str, str]:
    """Return what a verdict says, in bold where it is shown, and what it rests on."""
    if verdict.shown is None:
        return verdict.sentence, ""
    basis = (f"n = {verdict.num}" if verdict.num else "") + f", against {verdict.null}" * bool(verdict.null)
    basis += f"; {_chance(verdict) if verdict.shown else _could_show(verdict)}"
    mark = "**" if verdict.shown else ""
    return f"{mark}{verdict.sentence}{mark}", basis.strip(",; ")


def _chance(verdict: ClaimVerdict) -> str:
    """Return how often two equal models show a line, in whole hundredths rounded up."""
    rates = claim_rates()[verdict.claim]
    if rates.designs and verdict.false_rate is None:
        return "how often a card of two equal models shows this line is not known"
    rate = rates.false if verdict.false_rate is None else verdict.false_rate
    where = "" if rates.designs else " at the size under Details"
    return f"a card of two equal models shows this line in at most {max(1, ceil(100 * rate - 1e-9))} of 100{where}"


def _could_show(verdict: ClaimVerdict) -> str:
    """Return what would have been shown, in whole points where it is 2 or more; empty where it is not known."""
    size = verdict.detectable
    if size is None:
        return "what size such cards show is not known" if claim_rates()[verdict.claim].designs else ""
    if verdict.claim == "base_reaches_gained":
        return f"80% of such cards would show it where the base needs {size:,.0f} samples for a right one"
    sign = "\N{MINUS SIGN}" if verdict.claim in _LOSSES else "+"
    at = f" at {_AT[verdict.claim]}" if verdict.claim in _AT else ""
    return f"80% of such cards would show {sign}{100 * size:.{int(size < 0.0195)}f} points{at}"


_LOSSES = ("accuracy_fell", "accuracy_fell_over_runs", "curves_cross", "forgot")
_AT = {"better_at_every_k": "the largest k", "curves_cross": "the largest k"}


def _rows(id: str, records: Sequence[Record]) -> Rows:
    """Return a table by its fields: their names are headings, their types units, their docstrings notes.

    Shares along a first column of numbers are drawn as curves, differences of what has names as dots.
    """
    fields = type(records[0]).model_fields
    (first, unit), *columns = ((name, _unit(records[0], name)) for name in fields)
    places, *cells = zip(*(record.__dict__.values() for record in records), strict=True)
    plot: Curves | Dots = Dots(column="Difference", at=0.0)
    if unit is not TEXT:
        shares = tuple(sorted((_heading(name) for name, each in columns if each is SHARE), key="Trained".__ne__))
        x = tuple(unit.scale * mean_of(place) for place in places)
        greys = ("Base", "Base other", "Trained other")
        plot = Curves(x=x, x_title=first, is_log=unit is COUNT, columns=shares, greys=greys)
    return Rows(
        id=id,
        title=_heading(id.partition("_")[2]),
        first=_heading(first),
        columns={_heading(name): each for name, each in columns},
        rows=tuple(zip(map(unit.text, places), *cells, strict=True)),
        note=" ".join(f"{_heading(name)}: {field.description}" for name, field in fields.items() if field.description),
        plots=(plot,),
    )


def _unit(record: Record, field: str) -> Unit:
    return _UNITS.get(next(iter(type(record).model_fields[field].metadata), ""), TEXT)


def _heading(field: str) -> str:
    return sentence_case(field.replace("kl_", "KL ").replace("_", " "))
