"""What a card says first: what became of accuracy, whether it matters, what was compared, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from swerve.claim.basis import could_show
from swerve.claim.evidence import line_evidence
from swerve.claim.rates import alike_said
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure, Sentence
from swerve.report.rows import mean_of
from swerve.text import counted, of_100, percent_as, points_interval, quoted, sentence_case, whole_percent

FEWEST = 20
"""Problems, groups or directions below which nothing is bold."""
_OF = {"samples": "sampled answers", "": "answers"}
"""What an earlier card calls its answers."""
_SHOWN = 110
"""Characters of a problem that are shown."""


def headline(card: ClaimCard) -> str:
    """Return what became of accuracy: more, less, or no change to be seen and what would have been."""
    part, line = _first(card)
    if line is None:
        return "Accuracy was not asked for."
    if not isinstance(line.estimate, Estimate):  # there is no interval
        return str(line.sentence)
    before, after = (percent_as(mean_of(rate), line.estimate) for rate in (part.base, part.trained))
    of, by = _OF.get(card.accuracy.of, card.accuracy.of), points_interval(line.estimate, " points")
    num = card.num_groups or card.num_problems
    over = f"Over {_num(card)} "
    over = over if part is card.accuracy else f"Over {counted(len(part.runs), 'training run')} and {over[5:]}"
    if line.shown:
        said = f"`{card.trained}` is right {'less' if line.estimate.high < 0 else 'more'} often than `{card.base}`"
        said = f"**{said}**" if num >= FEWEST and (line.num or num) >= FEWEST else said
        text = f"{over}{said}: {after} against {before} of {of}, {by}."
    else:
        rates = f"`{card.trained}` is right in {after} and `{card.base}` in {before} of {of}"
        text = f"{over}no change in accuracy is to be seen: {rates}, {by}."
        could = could_show(line)
        text += f" {sentence_case(could)}." if "80 of 100" in could else ""
    if part is card.accuracy:
        return Sentence(f"{text} One training run.", line_evidence(card, "accuracy", line))
    return Sentence(text, line_evidence(card, "runs", line))


def _first(card: ClaimCard) -> tuple[Any, ClaimVerdict | None]:
    part: Any = card.runs if card.runs.is_measured else card.accuracy
    return part, next(iter(part.verdicts), None)


def lead(card: ClaimCard) -> str:
    """Return whether the change matters, what was compared, and how sure the page is: a paragraph each."""
    matters = _matters(card)
    text = "\n".join(filter(None, (matters, _compared(card), _sure(card))))
    evidence = getattr(matters, "evidence", None)
    return text if evidence is None else Sentence(text, evidence)


def _compared(card: ClaimCard) -> str:
    """Return which models answered what."""
    num_more = max(0, len(card.runs.runs) - 1)
    more = f" (with {counted(num_more, 'more run')} of the same training)" if num_more else ""
    return (
        f"**What was compared?** `{card.base}`, the model before training, and `{card.trained}`, the model after it"
        f"{more}: {counted(card.num_samples, 'answer')} by each to the same {_problems(card)}{_task(card)}."
    )


def _sure(card: ClaimCard) -> str:
    """Return what the intervals are over, and how many statements are shown."""
    tested = [verdict.shown for verdict in card.verdicts if verdict.shown is not None]
    num, left = sum(tested), len(card.verdicts) - len(tested)
    bold = f", in **bold** from {FEWEST} problems on" if num else ""
    unknown = f" {left} more {'is' if left == 1 else 'are'} not determined: neither yes nor no." if left else ""
    return (
        f"**How sure?** Brackets are 95% intervals over {_over(card)}. Of {counted(len(tested), 'statement')} that "
        f"could be tested {num or 'none'} {'are' if num > 1 else 'is'} shown{bold}. One that is not shown may still be "
        f"true.{unknown}"
    )


def _over(card: ClaimCard) -> str:
    """Return what the intervals of accuracy are over, and what they leave out."""
    if card.runs.is_measured:
        return "runs and problems"
    return f"{'problems' if card.num_groups is None else 'groups of problems'}: another training run may differ by more"


def _problems(card: ClaimCard) -> str:
    """Return how many problems there are, in how many groups, or that groups are missing."""
    if card.num_groups is not None:
        return f"{counted(card.num_problems, 'problem')} in {counted(card.num_groups, 'group')}"
    alike = f" ({alike_said(card.num_alike, card.num_problems)})" if card.num_alike else ""
    return f"{counted(card.num_problems, 'problem')}{alike}"


def _task(card: ClaimCard) -> str:
    """Return what the problems are, in words, and the beginning of one, or its name where that is not known."""
    from swerve.problems.registry import TASKS

    name = "" if card.task == "table" else f"`{card.task}`"
    if name and card.task in TASKS:
        said = (TASKS[card.task].config.__doc__ or "").partition("\n")[0].rstrip(".")
        name = f"{said} ({name})"
    question = " ".join(card.written[0].question.split()).replace("`", "'").replace("**", "") if card.written else ""
    if not question and not name and card.by_problem:
        return f", such as `{card.by_problem[0].problem}`"
    if len(question) > _SHOWN:
        question = f"{question[:_SHOWN].rsplit(' ', 1)[0]} …"
    return (f": {name}" if name else "") + (f", such as {quoted(question)}" if question else "")


def _num(card: ClaimCard) -> str:
    """Return of how many problems, or groups of them, a card is."""
    return counted(card.num_groups or card.num_problems, "problem" if card.num_groups is None else "group")


def _matters(card: ClaimCard) -> str:
    """Return how large the change is in 100 answers, and of what was wrong, or right, before; empty: not known."""
    part, line = _first(card)
    if line is None or not isinstance(size := line.estimate, Estimate):
        return ""
    low, mean, high = (of_100(value) for value in (size.low, size.mean, size.high))
    asked, way = "**Does it matter?**", ""
    said = f"{asked} Nothing to be seen: between {low} fewer and {high} more of 100 answers are right."
    if line.shown:
        rose, before = size.mean > 0, mean_of(part.base)
        way, more, of = ("wrong", "more", 1 - before) if rose else ("right", "fewer", before)
        answer = "Yes" if rose else "Yes, for the worse"
        answer = answer if (card.num_groups or card.num_problems) >= FEWEST else f"Over {_num(card)} alone"
        ends = f"({low} to {high})" if rose else f"({high} to {low})"
        share = f"{whole_percent(abs(size.mean) / of)} of the {of_100(of)} that `{card.base}` gets {way}"
        said = f"{asked} {answer}: {mean} {more} of 100 answers are right {ends}, {share}."
    return Sentence(said, _matter_rows(card, line, way))


def _matter_rows(card: ClaimCard, line: ClaimVerdict, way: str) -> Evidence | None:
    """Return the rows that say how much it matters; `way` is what changed answers were before, empty: not shown."""
    found = line_evidence(card, "runs" if card.runs.is_measured else "accuracy", line)
    difference = next((each for each in found.figures if each.name == "difference"), None) if found else None
    if found is None or difference is None:
        return None
    more = replace(difference, name="of 100 answers", write=of_100)
    ends = [replace(more, name=f"of 100 answers, {end}", end=end) for end in _ENDS]
    if not way:
        return replace(found, figures=tuple(ends))
    columns, of = difference.columns, _wrong_of_100 if way == "wrong" else of_100
    before = Figure(name=f"{way} before, of 100 answers", statistic="mean", columns=columns[:1], write=of)
    share = Figure(name="of these", statistic=f"change as a share of the {way}", columns=columns, write=whole_percent)
    return replace(found, figures=(more, *ends, before, share))


_ENDS: tuple[Literal["low"], Literal["high"]] = ("low", "high")


def _wrong_of_100(share: float) -> str:
    return of_100(1 - share)
