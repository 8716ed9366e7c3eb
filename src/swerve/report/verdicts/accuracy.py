"""Did it become better at the task?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swerve.report.evidence import Figure, with_interval
from swerve.report.format import FEW, SAME, compared, count_or_none, is_few, too_few, would_show
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import SHARE
from swerve.report.run_evidence import kind_column, kinds_evidence
from swerve.report.topics.outcome import Accuracies, OfKind, accuracies, accuracy_evidence, answers_by_kind
from swerve.report.topics.topic import by_checkpoint
from swerve.text import count, counted, points_interval, whole_percent


def accuracy(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say whether it became better at the task."""
    measured = accuracies(inputs)
    if measured is None:
        return
    title, said = _title(measured)
    labels = measured.labels[measured.first is None :]
    figures = [
        Figure(name=f"right at {label}", statistic="mean", columns=(label,), write=whole_percent) for label in labels
    ]
    turned = _turned(inputs)
    if turned:
        figures.append(Figure(name="became right", statistic="rises", columns=labels, write=count_or_none))
        figures.append(Figure(name="became wrong", statistic="falls", columns=labels, write=count_or_none))
    if measured.difference is not None and measured.first is not None:
        gain = Figure(name="gain", statistic="paired difference of means", columns=measured.labels)
        figures += with_interval(gain, points_interval, measured.difference, inputs.confidence or 0.95)
    first = None if measured.first is None else measured.first.mean
    kinds = _told_kinds(inputs, measured)
    evidence = accuracy_evidence(inputs, measured, *figures)
    if kinds:
        evidence = kinds_evidence(inputs, [each.kind for each in kinds], *figures, *_of_kinds(measured, kinds))
    yield Verdict(
        id="accuracy",
        title=title,
        text=f"{_text(measured, turned)}{_by_kind(inputs, kinds)}",
        said=said,
        num=measured.num,
        figures={"greedy accuracy before": (SHARE, first), "greedy accuracy after": (SHARE, measured.last.mean)},
        evidence=evidence,
        rows=by_checkpoint(
            inputs,
            inputs.of_last_stage,
            {"greedy": (SHARE, "greedy.accuracy"), "sampled": (SHARE, "sampled.accuracy")},
            id="verdict-accuracy",
            title="Accuracy",
        ).kept,
    )


def _title(measured: Accuracies) -> tuple[str, str]:
    """Return the verdict with both ends, and without its numbers."""
    after, difference = whole_percent(measured.last.mean), measured.difference
    if measured.first is None:
        return f"Not compared: {after} right, {measured.how}.", "Not compared"
    before = whole_percent(measured.first.mean)
    both = f"{before} right before, {after} after, {measured.how}"
    if is_few(measured.num, difference):
        return f"{too_few(measured.num, 'problem', 'say whether it is better')}: {both}.", "Too few problems"
    if difference is None:
        return f"Not determined whether it is better: {both}.", "Not compared"
    word = {"above": "Better at the task", "below": "Worse at the task", SAME: ""}[compared(difference, 0.0)]
    if not word:
        return f"No change of accuracy to be seen: {both}.", "No change of accuracy is shown"
    return f"{word}: {before} to {after} right, {measured.how}.", word


def _turned(inputs: ReportInputs) -> tuple[int, int] | None:
    """Return how many problems became right and wrong; None where that is not known."""
    test = None if inputs.summary is None else inputs.summary.mcnemar
    return None if test is None else (test.num_second_only, test.num_first_only)


def _text(measured: Accuracies, turned: tuple[int, int] | None) -> str:
    """Return how many problems, what became of them, and where nothing is to be seen what would have been."""
    if measured.first is None:
        return f"Of {measured.problems}. No other checkpoint was evaluated."
    if measured.difference is None:
        return f"Of {measured.problems}, because the two were not compared problem by problem."
    became = "" if turned is None else f", {count_or_none(turned[0])} became right and {count_or_none(turned[1])} wrong"
    seen = "" if measured.difference.excludes(0) else would_show(measured.difference)
    return f"Of {measured.problems}, the same for both{became}: {points_interval(measured.difference)} points{seen}."


_MOST_KINDS = 4
"""Kinds of problems that are all told; of more, those that changed most and least."""


def _told_kinds(inputs: ReportInputs, measured: Accuracies) -> tuple[OfKind, ...]:
    """Return the kinds of problems that are told of: all of a few, else the one that gained most and the least."""
    if measured.how != "greedily" or measured.difference is None:
        return ()
    kinds = answers_by_kind(inputs)
    if len(kinds) <= _MOST_KINDS:
        return kinds
    ranked = sorted((each for each in kinds if each.num >= FEW), key=lambda each: each.after - each.before)
    return (ranked[-1], ranked[0]) if len(ranked) > 1 else ()


def _of_kinds(measured: Accuracies, kinds: Sequence[OfKind]) -> list[Figure]:
    """Return the accuracies of kinds."""
    return [
        Figure(name=column, statistic="mean", columns=(column,), write=whole_percent)
        for each in kinds
        for column in (kind_column(label, each.kind) for label in measured.labels)
    ]


def _by_kind(inputs: ReportInputs, kinds: Sequence[OfKind]) -> str:
    """Return from which accuracy to which it went at each kind of problem."""
    if not kinds:
        return ""
    told = [f"“{each.kind}” {_ends(each)} ({counted(each.num, 'problem')})" for each in kinds]
    num = len(answers_by_kind(inputs))
    if num <= _MOST_KINDS:
        return f" By kind of problem: {'; '.join(told)}."
    return f" Of {count(num)} kinds of problems the one that gained most: {told[0]}; least: {told[1]}."


def _ends(kind: OfKind) -> str:
    before, after = whole_percent(kind.before), whole_percent(kind.after)
    return f"{before} before and after" if before == after else f"from {before} to {after} right"
