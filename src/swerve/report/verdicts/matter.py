"""Does it matter? The answer that stands above everything else on the page of a run or of an import."""

from __future__ import annotations

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.evidence import Figure, Sentence, with_interval
from swerve.report.format import FEW, is_few, too_few, would_show
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import kind_column, kinds_evidence
from swerve.report.token_evidence import divergence_evidence
from swerve.report.topics.outcome import Accuracies, OfKind, accuracies, accuracy_evidence, answers_by_kind
from swerve.text import count, of_100, percent, points_interval

_ASKED = "**Does it matter?**"


_MOST = 0.9
"""Share of the answers that turned which are of one kind where that kind is named, if fewer problems are of it."""


def matter(inputs: ReportInputs) -> Sentence | None:
    """Say whether more answers became right; of an import whether another token would be written, and what it does."""
    measured, summary = accuracies(inputs), inputs.summary
    if measured is not None:
        return _by_accuracy(inputs, measured)
    if summary is None or not summary.num_rollouts:
        return None
    return _by_tokens(inputs, summary)


def _by_accuracy(inputs: ReportInputs, measured: Accuracies) -> Sentence:
    difference = measured.difference
    if measured.first is None:
        because = "because no other checkpoint was evaluated"
        return Sentence(f"{_ASKED} Not determined, {because}.", accuracy_evidence(inputs, measured))
    if difference is None:
        because = "because the two were not compared problem by problem"
        return Sentence(f"{_ASKED} Not determined, {because}.", accuracy_evidence(inputs, measured))
    if is_few(measured.num, difference):
        few = too_few(measured.num, "problem", "say")
        return Sentence(f"{_ASKED} {few}.", accuracy_evidence(inputs, measured))
    if not difference.excludes(0):
        gain = Figure(name="gain", statistic="paired difference of means", columns=measured.labels)
        ends = with_interval(gain, points_interval, difference, inputs.confidence or 0.95)
        apart = f"{points_interval(difference)} points{would_show(difference)}"
        return Sentence(f"{_ASKED} Nothing to be seen: {apart}.", accuracy_evidence(inputs, measured, *ends))
    if measured.how == "greedily" and (found := _one_kind(inputs, is_gain=difference.mean > 0)) is not None:
        return _of_one_kind(inputs, measured, *found, is_gain=difference.mean > 0)
    answer = "Yes: {} more" if difference.mean > 0 else "Yes, for the worse: {} fewer"
    moved = Figure(
        name="answers of 100",
        statistic="paired difference of means",
        columns=measured.labels,
        write=of_100,
    )
    low, high = sorted((abs(difference.low), abs(difference.high)))
    more = answer.format(of_100(difference.mean))
    said = f"{_ASKED} {more} of 100 answers are right ({of_100(low)} to {of_100(high)})."
    return Sentence(said, accuracy_evidence(inputs, measured, moved))


def _one_kind(inputs: ReportInputs, *, is_gain: bool) -> tuple[OfKind, int, int] | None:
    """Return the kind of which nearly all answers that turned are, how many of it did, and how many in all."""
    kinds = answers_by_kind(inputs)
    turned = [each.num_risen if is_gain else each.num_fallen for each in kinds]
    num = sum(turned)
    for each, own in zip(kinds, turned, strict=True):
        if num >= FEW and own >= _MOST * num and each.num < _MOST * sum(other.num for other in kinds):
            return each, own, num
    return None


def _of_one_kind(
    inputs: ReportInputs, measured: Accuracies, kind: OfKind, own: int, num: int, *, is_gain: bool
) -> Sentence:
    """Say that the change is one of one kind of problem."""
    columns = measured.labels[0], kind_column(measured.labels[0], kind.kind)
    others = measured.labels[1], kind_column(measured.labels[1], kind.kind)
    names, statistic = ("turned", f"turned of {kind.kind}"), "rises" if is_gain else "falls"
    figures = [
        Figure(name=name, statistic=statistic, columns=ends)
        for name, ends in zip(names, zip(columns, others, strict=True), strict=True)
    ]
    became, yes = ("right", "Yes") if is_gain else ("wrong", "Yes, for the worse")
    which = f"all {count(num)} answers" if own == num else f"{count(own)} of the {count(num)} answers"
    said = f"{_ASKED} {yes}: {which} that became {became} are to problems “{kind.kind}”."
    return Sentence(said, kinds_evidence(inputs, [kind.kind], *figures))


def _by_tokens(inputs: ReportInputs, summary: ProbeSummary) -> Sentence:
    """Say at how many places another token would be written, and whether forcing it changes answers."""
    entry = summary.at_final(None if summary.entropy is None else summary.entropy.means)
    own = next((each for each in summary.populations if each.population == summary.population), None)
    places, figures = "", []
    if entry is not None and own is not None and (share := entry.share_argmax_changed) is not None:
        num = round(share.mean * own.num_tokens)
        places = (
            f" At {count(num)} of {count(own.num_tokens)} places ({percent(share.mean)}) `{summary.final}` would write "
            f"another token than `{summary.reference}`."
        )
        column = "another first choice"
        figures = [
            Figure(name="places where the first choice differs", statistic="sum", columns=(column,)),
            Figure(name="of all", statistic="ratio of sums", columns=(column, "tokens"), write=percent),
        ]
    said = f"{_ASKED}{places} {_of_forced(summary)}"
    return Sentence(said, divergence_evidence(inputs, *figures))


def _of_forced(summary: ProbeSummary) -> str:
    """Say whether forcing the token at a spike changes how often answers are right."""
    spike = summary.spike_swaps
    if summary.causal is None or spike is None:
        return "Whether that changes an answer was not tested."
    effect: Estimate | None = spike.effect
    if effect is None:
        return "Whether that changes an answer is not determined, because both choose the same token at every spike."
    if is_few(spike.num_positions, effect):
        return f"{too_few(spike.num_positions, 'forced token', 'say whether that changes an answer')}."
    if not effect.excludes(0):
        return "Forcing the token that differs most changes no answer, as far as can be seen."
    return f"Forcing the token that differs most {'repairs' if effect.mean > 0 else 'spoils'} answers."
