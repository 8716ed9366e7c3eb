"""Did it become better at the task?"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.report.evidence import Figure
from swerve.report.format import SAME, compared, is_few, would_show
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import SHARE
from swerve.report.run_evidence import paired_evidence
from swerve.report.topics.outcome import Accuracies, accuracies
from swerve.report.topics.topic import by_checkpoint
from swerve.text import count, points_interval, whole_percent


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
        figures.append(Figure(name="became right", statistic="rises", columns=labels))
        figures.append(Figure(name="became wrong", statistic="falls", columns=labels))
    first = None if measured.first is None else measured.first.mean
    yield Verdict(
        id="accuracy",
        title=title,
        text=_text(measured, turned),
        said=said,
        num=measured.num,
        figures={"greedy accuracy before": (SHARE, first), "greedy accuracy after": (SHARE, measured.last.mean)},
        evidence=paired_evidence(inputs, "right", *figures) if measured.how == "greedily" else None,
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
        return f"Too few problems to say whether it is better: {both}.", "Too few problems"
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
    became = "" if turned is None else f", {count(turned[0])} became right and {count(turned[1])} wrong"
    text = f"Of {measured.problems}, the same for both{became}: {points_interval(measured.difference)} points."
    if not measured.difference.excludes(0):
        text += f" {would_show(measured.difference, lambda size: f'{100 * size:.2g} points')}"
    return text
