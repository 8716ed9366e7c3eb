"""Where in the answers did training change the predictions?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from swerve.artifacts.probe_claims import NULL_NAMES, SIDES, DivergenceClaim, NullFigure
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.evidence import Evidence, Figure, with_interval
from swerve.report.format import FEW, answers_word, count_or_none, too_few, would_show
from swerve.report.names import divergence_name
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import SHARE
from swerve.report.token_evidence import share_evidence, top_evidence
from swerve.report.topics.where import claim_rows
from swerve.text import count, counted, listed, percent_interval, points_interval, sentence_case, whole_percent

_WANTED = (("top", "first_wrong"), ("top", "first_wrong_sentence"), ("share", "uncertain"))


def place(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say where the divergence falls, against all nulls."""
    claim = next((claim for claim in (summary.claim(*key) for key in _WANTED) if claim is not None), None)
    if claim is None:
        return
    write = _Top if claim.figure == "top" else _Unsure
    words = write(claim, summary)
    nulls = {f"the same of {NULL_NAMES[null.null]}": (SHARE, null.value) for null in claim.nulls}
    yield Verdict(
        id="place",
        title=words.title,
        text=words.text,
        said=words.said,
        num=words.num,
        figures={claim.name: (SHARE, claim.estimate.mean), **nulls},
        rows=claim_rows(claim, summary).kept,
        evidence=words.evidence(inputs),
    )


class _Words(ABC):
    """What all sentences about a place have."""

    def __init__(self, claim: DivergenceClaim, summary: ProbeSummary) -> None:
        """Take a figure about where the divergence falls."""
        self.claim, self.summary = claim, summary
        self.final, self.reference, self.name = f"`{summary.final}`", f"`{summary.reference}`", divergence_name(summary)
        # Nulls that have as much, or more, explain the figure; above all of them, or below, it says something.
        self.is_more = claim.stands and claim.nulls[0].side == 1
        self.is_less = claim.stands and claim.nulls[0].side == -1
        self.others = [null for null in claim.nulls if null.side in (0, -1)]

    @property
    def hedge(self) -> str:
        """Whether it differs from all nulls, as runs that say it are counted."""
        if self.claim.stands:
            return f"{'more' if self.is_more else 'less'} than every null"
        less = (
            f"not shown to be more than {listed([NULL_NAMES[null.null] for null in self.others])}"
            if self.others
            else ""
        )
        unknown = f"{SIDES[None]} {listed(self.claim.unknown)}" if self.claim.unknown else ""
        return "; ".join(filter(None, (less, unknown)))

    @property
    @abstractmethod
    def measured(self) -> str:
        """What the share is of."""

    @abstractmethod
    def null(self, null: NullFigure) -> str:
        """Say what would be there without training."""

    @property
    def text(self) -> str:
        """The interval, and all that it is read against."""
        nulls = sentence_case("; ".join(self.null(null) for null in self.claim.nulls))
        because = ""
        if self.claim.unknown:
            because = f" Not determined against {listed(self.claim.unknown)}, because the difference has no interval."
        return f"{percent_interval(self.claim.estimate)} {self.measured}. {nulls}.{because}{self.seen()}"

    def seen(self) -> str:
        """Return what would have been seen, beside the closest of what it is not told from."""
        near = [null for null in self.claim.nulls if null.side == 0 and null.difference is not None]
        if self.claim.stands or not near or any(null.side == -1 for null in self.claim.nulls):
            return ""
        widest = max(near, key=lambda null: null.difference.high - null.difference.low if null.difference else 0.0)
        assert widest.difference is not None
        apart = f"{points_interval(widest.difference)} points{would_show(widest.difference)}"
        return f" It differs from {NULL_NAMES[widest.null]} by {apart}."


class _Top(_Words):
    """The highest divergence of an answer is at its first wrong token, or in its first wrong sentence."""

    def __init__(self, claim: DivergenceClaim, summary: ProbeSummary) -> None:
        """Count the answers."""
        super().__init__(claim, summary)
        hits, is_coarse = summary.spike_hits(summary.final, summary.divergence), claim.of == "first_wrong_sentence"
        self.num = 0 if hits is None else hits.num_sentence_rollouts if is_coarse else hits.num_rollouts
        self.there = "a token of the first wrong sentence" if is_coarse else "the first wrong token"

    def of(self, share: float) -> str:
        """Return how many of the answers a share is."""
        return count_or_none(share * self.num)

    @property
    def title(self) -> str:
        """What is found there, and what that says."""
        num = f"{self.of(self.claim.estimate.mean)} of {count(self.num)} {answers_word(self.summary.population)}"
        found = f"in {num} {self.final} changed {self.there} most"
        if self.num < FEW:
            return f"{too_few(self.num, 'answer', 'say where the change points')}: {found}."
        if self.is_more:
            return f"The change points at the mistakes: {found}."
        if self.is_less:
            return f"The change is not at the mistakes: {found}, fewer than by chance."
        if self.claim.unknown and not self.others:
            return f"{sentence_case(found)}. Whether that is more than without training is not determined."
        reasons = "; ".join(self.null(null) for null in self.others)
        return f"{sentence_case(found)}. {sentence_case(reasons)}, so this is no sign that it found the mistakes."

    def null(self, null: NullFigure) -> str:
        """Say in how many answers it would be there without training."""
        num = self.of(null.value)
        return {
            "chance": f"by chance that would be so in {num}",
            "entropy": f"{self.reference} was least sure at this place in {num}",
            "noise": f"random changes of its weights, as large as training's, move it most there in {num}",
            "length": f"it is the longest sentence in {num}",
        }[null.null]

    @property
    def measured(self) -> str:
        """What the share is of."""
        return f"of {counted(self.num, 'answer')}, by {self.name}"

    @property
    def said(self) -> str:
        """The title without its numbers."""
        return f"`{self.summary.final}` changed {self.there} most: {self.hedge}"

    def evidence(self, inputs: ReportInputs) -> Evidence | None:
        """Return the answers, with where the highest values of each are."""
        columns = {"here": "divergence on it"}
        columns.update((str(null.null), f"{null.null} on it") for null in self.claim.nulls)
        figures = (
            Figure(name=name, statistic="sum", columns=(column,), write=count_or_none)
            for name, column in columns.items()
            if name in ("here", "chance", "entropy")
        )
        return top_evidence(inputs, self.claim, *figures)


class _Unsure(_Words):
    """A share of the divergence lies where the reference is not sure."""

    @property
    def num(self) -> int:
        """Rollouts."""
        return self.summary.num_rollouts

    @property
    def title(self) -> str:
        """What is found there, and what that says."""
        share = whole_percent(self.claim.estimate.mean)
        where = f"the fifth of the tokens where {self.reference} is least sure"
        if self.num < FEW:
            return f"{too_few(self.num, 'answer', 'say where the change lies')}: {share} of it on {where}."
        if self.is_more:
            return f"The change lies where {self.reference} is unsure: {share} of it on a fifth of the tokens."
        if self.is_less:
            return f"The change avoids what {self.reference} is unsure of: {share} of it on {where}."
        if self.claim.unknown and not self.others:
            return (
                f"{share} of the change lies on {where}. Whether that is more than without training is not determined."
            )
        reasons = "; ".join(self.null(null) for null in self.others)
        said = f"{share} of the change lies on {where}. {sentence_case(reasons)}"
        return f"{said}, so this is no sign of what training sought."

    def null(self, null: NullFigure) -> str:
        """Say which share would lie there without training."""
        share = whole_percent(null.value)
        return {
            "chance": f"by chance it would be {share}",
            "entropy": f"of the entropy of {self.reference} {share} lies there",
            "noise": f"random changes of its weights, as large as training's, would put {share} there",
            "length": f"of the longest sentences {share}",
        }[null.null]

    @property
    def measured(self) -> str:
        """What the share is of."""
        return f"of the summed {self.name} of {counted(self.num, 'answer')}"

    @property
    def said(self) -> str:
        """The title without its numbers."""
        where = f"the fifth of the tokens where `{self.summary.reference}` is unsure"
        return f"The change ({self.name}) lies on {where}: {self.hedge}"

    def evidence(self, inputs: ReportInputs) -> Evidence | None:
        """Return the summed divergence of each answer, and what of it lies there."""
        name = self.summary.divergence
        sums = {
            "here": (f"sum of {name} there", f"sum of {name}"),
            "entropy": ("sum of entropy there", "sum of entropy"),
        }
        known = {"here", *(null.null for null in self.claim.nulls)}
        figures = [
            Figure(name=key, statistic="ratio of sums", columns=columns, write=whole_percent)
            for key, columns in sums.items()
            if key in known
        ]
        share = Figure(name="share", statistic="ratio of sums", columns=sums["here"])
        figures += with_interval(share, percent_interval, self.claim.estimate, self.summary.confidence)
        return share_evidence(inputs, self.claim, *figures)
