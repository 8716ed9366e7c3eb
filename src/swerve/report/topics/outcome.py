"""Outcome: did training change how often the model is right?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from swerve.artifacts.evaluation import MANY_SAMPLES, Evaluation, largest_k, rewards_are_fractions
from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart, over_checkpoints
from swerve.report.format import NOT_MEASURED, change, count, percent, percent_interval, points_interval
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import FigureSpec, Tile, Topic, of_chart


def _sentences(inputs: ReportInputs) -> Iterator[str]:
    yield _accuracy(inputs)
    yield _samples(inputs)
    last = inputs.final
    right = None if last is None else last.greedy.trace_right
    if last is not None and right is not None:
        yield f"Of the traces of {last.checkpoint}, {percent_interval(right)} have no wrong step at all."
    if inputs.summary is None:
        yield "Where the checkpoints differ from the reference was not measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accuracies:
    """The accuracies of reference and final checkpoint on the same problems."""

    name: str
    problems: str
    labels: tuple[str, str]
    first: Estimate
    last: Estimate
    difference: Estimate | None = None
    """Of the same problems, paired, where that was measured."""


def _measured(inputs: ReportInputs) -> _Accuracies | None:
    """Return the greedy accuracies of the evaluations; without them those of the samples that rollouts are from."""
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if first is not None and last is not None:
        return _Accuracies(
            name="greedy accuracy",
            problems=f"{count(last.greedy.num_problems)} held-out problems",
            labels=(first.checkpoint, last.checkpoint),
            first=first.greedy.accuracy,
            last=last.greedy.accuracy,
            difference=inputs.greedy_change,
        )

    # Without evaluations, the samples that rollouts were selected from.
    selected = None if summary is None else summary.selected
    if summary is None or selected is None or selected.reference_accuracy is None or selected.final_accuracy is None:
        return None
    return _Accuracies(
        name="accuracy of the samples",
        problems=f"{count(summary.num_problems)} problems",
        labels=(summary.reference, summary.final),
        first=selected.reference_accuracy,
        last=selected.final_accuracy,
        difference=selected.accuracy_difference,
    )


def _accuracy(inputs: ReportInputs) -> str:
    measured = _measured(inputs)
    if measured is None:
        return "Accuracy was not measured."
    said = change(measured.first, measured.last, measured.difference, at=measured.labels)
    return f"On {measured.problems}, {measured.name} {said}"


def _samples(inputs: ReportInputs) -> str:
    """Say whether one of many samples is right more often than before: what is new, not only what is more likely."""
    k = largest_k(inputs.evaluations)
    first, last = inputs.reference, inputs.final
    if first is None or last is None or first is last or k < MANY_SAMPLES:
        return ""
    before, after = (evaluation.sampled.of_samples(k).pass_at_k for evaluation in (first, last))
    if before is None or after is None:
        return ""
    said = change(before, after, inputs.pass_change, at=(first.checkpoint, last.checkpoint))
    return f"The chance that one of {k} samples is right (pass@{k}) {said}"


def _tile(inputs: ReportInputs) -> Tile:
    measured = _measured(inputs)
    if measured is None:
        detail = "responses from elsewhere" if inputs.is_imported else "run swerve eval"
        return Tile(caption="Greedy accuracy", value=NOT_MEASURED, detail=detail)
    first, last = measured.labels
    by = "" if measured.difference is None else f"{points_interval(measured.difference)} points, "
    return Tile(
        caption=f"{measured.name[:1].upper()}{measured.name[1:]}",
        value=f"{percent(measured.first.mean)} → {percent(measured.last.mean)}",
        detail=f"{first} to {last}, {by}{measured.problems}",
    )


def _charts(inputs: ReportInputs) -> Iterator[Chart]:
    entries = inputs.evaluations
    # A probe of responses from elsewhere has no evaluations, so no charts of them either.
    if not entries and inputs.is_imported:
        return
    is_fraction = rewards_are_fractions(entries)
    reward = {"Sampled reward": attrgetter("sampled.mean_reward")}
    curves = {
        "Greedy accuracy": attrgetter("greedy.accuracy"),
        **(reward if is_fraction else {}),
        "Fully right traces": attrgetter("greedy.trace_right"),
    }
    yield over_checkpoints(entries, curves, id="accuracy", title="Accuracy on held-out problems", unit="share")
    if not is_fraction:
        # Rewards on another scale than fractions have a chart of their own.
        yield over_checkpoints(entries, reward, id="reward", title="Reward on held-out problems", unit="reward")
    yield from _sampling_chart(entries)


def _sampling_chart(entries: tuple[Evaluation, ...]) -> Iterator[Chart]:
    """Yield the chart of what several samples are worth, where there are enough of them to tell."""
    k = largest_k(entries)
    if k < MANY_SAMPLES:
        return

    curves: dict[str, Callable[[Evaluation], Estimate | None]] = {
        "pass@1": lambda evaluation: evaluation.sampled.of_samples(1).pass_at_k,
        f"pass@{k}": lambda evaluation: evaluation.sampled.of_samples(k).pass_at_k,
        f"maj@{k}": lambda evaluation: evaluation.sampled.of_samples(k).majority_at_k,
    }
    yield over_checkpoints(entries, curves, id="sampling", title=f"Accuracy of {k} samples per problem", unit="share")


TOPIC = Topic(
    sentences={"Outcome": _sentences},
    tile=_tile,
    charts=_charts,
    figures={
        "accuracy": FigureSpec(
            shows="Accuracy on held-out problems of every checkpoint.",
            draw=of_chart(_charts, "accuracy"),
            needs="swerve eval RUN",
        ),
        "reward": FigureSpec(
            shows="Mean reward on held-out problems, where rewards are no fractions.",
            draw=of_chart(_charts, "reward"),
            needs="swerve eval RUN, of a task whose rewards are not from 0 to 1",
        ),
        "sampling": FigureSpec(
            shows="pass@k and majority votes of every checkpoint.",
            draw=of_chart(_charts, "sampling"),
            needs=f"swerve eval RUN eval.samples_per_problem={MANY_SAMPLES}",
        ),
    },
)
