"""The page of a claim card: each question with its verdicts and its tables, which are written from their fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from swerve.artifacts.files import write_text
from swerve.artifacts.record import Record
from swerve.claim.evidence import fact_evidence, line_evidence
from swerve.claim.part import Part
from swerve.claim.rates import alike_said, claim_rates
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate
from swerve.report import page as pages
from swerve.report.draw.figures import Look, rows_drawing, write_figures
from swerve.report.evidence import Evidence, Sentence
from swerve.report.page import Fold, Page, render
from swerve.report.provenance import card_line
from swerve.report.rows import COUNT, NUMBER, POINTS, SHARE, TEXT, Curves, Dots, Rows, Unit, mean_of
from swerve.text import counted, percent_as, points_interval, sentence_case

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
    shown = Counter(verdict.shown for verdict in card.verdicts)
    unknown = f" Not determined: {shown[None]} more." if shown[None] else ""
    task = "" if card.task == "table" else f"Task {card.task}: "
    models = dict(zip((card.base, card.trained), card.contents or (), strict=False))
    return Page(
        title=f"What RL changed: {card.base} to {card.trained}",
        sentence=_headline(card),
        lead=f"{task}{_problems(card)}, {counted(card.num_samples, 'sample')} of each by `{card.base}` and as many by "
        f"`{card.trained}`. Claims shown: {shown[True]} of {shown[True] + shown[False]}, in **bold** where they are "
        f"over {FEWEST} cases or more.{unknown} What is not shown, or not determined, may still be so.",
        heading="What changed",
        date=next(iter(card.made), ""),
        verdicts=(*questions, pages.Verdict(id="not-measured", title="What was not measured", lines=tuple(lines))),
        provenance=card_line(card.made, models),
    )


def _headline(card: ClaimCard) -> str:
    """Return what became of accuracy: risen, fallen, or no change to be seen and what would have been."""
    part: Any = card.runs if card.runs.is_measured else card.accuracy
    line = next(iter(part.verdicts), None)
    if line is None:
        return "Accuracy was not asked for."
    if not isinstance(line.estimate, Estimate):  # there is no interval
        return str(line.sentence)
    before, after = (percent_as(mean_of(rate), line.estimate) for rate in (part.base, part.trained))
    ends = f"{before} before and {after} after, {points_interval(line.estimate, ' points')}"
    num = card.num_groups or card.num_problems
    over = counted(num, "problem" if card.num_groups is None else "group")
    runs = "one training run" if part is card.accuracy else counted(len(part.runs), "training run")
    name = _ACCURACIES.get(card.accuracy.of, "accuracy")
    if line.shown:
        said = f"{sentence_case(name)} {'fell' if line.estimate.high < 0 else 'rose'}"
        said = f"**{said}**" if num >= FEWEST and (line.num or num) >= FEWEST else said
    else:
        said = f"No change in {name} is to be seen"
    could = "" if line.shown or line.detectable is None else f"; {_could_show(line)}"
    could = could if "80%" in could else ""
    text = f"{said}: {ends}, over {over}, {runs}{could}."
    evidence = line_evidence(card, "accuracy", line) if part is card.accuracy else None
    return Sentence(text, evidence)


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
        return f"{counted(card.num_problems, 'problem')} in {counted(card.num_groups, 'group')}"
    alike = f" ({alike_said(card.num_alike, card.num_problems)})" if card.num_alike else ""
    return f"{counted(card.num_problems, 'problem')}{alike}"


def _question(name: str, part: Part, card: ClaimCard) -> pages.Verdict:
    """Return a question with what is said to it, its first plot, and its tables on demand."""
    tables = [rows.kept for rows in part_rows(name, part)]
    figures = [
        f"{_heading(field)}: {_unit(part, field).text(value)}"
        for field, value in part
        if field not in Part.model_fields and value not in (None, "") and not isinstance(value, tuple)
    ]
    lines: list[tuple[str, str]] = [(Sentence(fact, rows), "") for fact, rows in fact_evidence(card, name, part)]
    reason = ""
    for verdict in part.verdicts:
        line, basis = _line(verdict, line_evidence(card, name, verdict))
        said, _, why = line.partition(_BECAUSE)
        # A reason that was just given is not given again.
        lines.append(
            (f"{said} is not determined, for the same reason.", "") if why and why == reason else (line, basis)
        )
        reason = why
    return pages.Verdict(
        id=f"part-{name}",
        title=part.question(),
        lines=tuple(lines) or (("; ".join(figures), ""),),
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


_BECAUSE = " is not determined, because "
_ACCURACIES = {"samples": "sampled accuracy", "greedy answers": "greedy accuracy"}
FEWEST = 20
"""Cases below which nothing is bold."""


def _line(verdict: ClaimVerdict, evidence: Evidence | None) -> tuple[str, str]:
    """Return what a verdict says with its rows, in bold where it is shown of many, and how often it is by chance."""
    mark = "**" if verdict.shown and (verdict.num is None or verdict.num >= FEWEST) else ""
    basis = "" if verdict.shown is None else _chance(verdict) if verdict.shown else _could_show(verdict)
    return Sentence(f"{mark}{verdict.sentence}{mark}", evidence), sentence_case(basis)


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
    size, estimate = verdict.detectable, verdict.estimate
    if size is not None and isinstance(estimate, Estimate) and estimate.high - estimate.low > 2 * size:
        size = None  # this card knows far less than those that were simulated
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
    return _HEADINGS.get(field) or sentence_case(field.replace("kl_", "KL ").replace("_", " "))


_HEADINGS = {"crossing_after": "Better up to k", "crossing_before": "Worse from k"}
