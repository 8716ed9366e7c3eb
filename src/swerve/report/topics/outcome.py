"""Outcome: did training change how often the model is right?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from swerve.artifacts.evaluation import MANY_SAMPLES, largest_k, rewards_are_fractions
from swerve.estimates import Estimate
from swerve.formats.text_tables import by_number
from swerve.report.evidence import Evidence, Figure, Sentence, digits_of
from swerve.report.format import change
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, NUMBER, REWARD, SHARE, Cell, Dots, Rows
from swerve.report.run_evidence import paired_evidence
from swerve.report.summary_evidence import held_evidence, response_evidence, selected_evidence
from swerve.report.topics.topic import Column, FigureSpec, Topic, by_checkpoint, crossed
from swerve.text import count, percent, percent_interval

_MAX_DOTS = 24


def _sentences(inputs: ReportInputs) -> Iterator[str]:
    yield _accuracy(inputs)

    # Whether one of many samples is right more often: what is new, not only what is more likely.
    k, first, last = largest_k(inputs.evaluations), inputs.reference, inputs.final
    if first is not None and last is not None and first is not last and k >= MANY_SAMPLES:
        before, after = (evaluation.sampled.of_samples(k).pass_at_k for evaluation in (first, last))
        if before is not None and after is not None:
            ends = {first.checkpoint: before, last.checkpoint: after}
            said = change(before, after, inputs.pass_change, at=(first.checkpoint, last.checkpoint))
            said = f"The chance that one of {k} samples is right (pass@{k}) {said}"
            yield Sentence(said, paired_evidence(inputs, "pass", *_means(ends)))
    if last is not None and (right := last.greedy.trace_right) is not None:
        evidence = paired_evidence(inputs, "trace", *_means({last.checkpoint: right}))
        said = f"Of the greedy traces of {last.checkpoint}, {percent_interval(right)} have no wrong step at all."
        yield Sentence(said, evidence)
    if inputs.summary is None:
        yield Sentence("Where the checkpoints differ from the reference was not measured.", held_evidence(inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracies:
    """The accuracies of reference and final checkpoint on the same problems."""

    name: str
    how: str
    """How the answers were drawn, which stands beside every accuracy."""
    num: int
    """Problems."""
    problems: str
    labels: tuple[str, str]
    first: Estimate | None
    """None where the final checkpoint alone is evaluated."""
    last: Estimate
    difference: Estimate | None = None
    """Of the same problems, paired, where that was measured."""


def accuracies(inputs: ReportInputs) -> Accuracies | None:
    """Return the greedy accuracies of the evaluations; without them those of the samples that rollouts are from."""
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if first is not None and last is not None and last.greedy.accuracy is not None:
        return Accuracies(
            name="greedy accuracy",
            how="greedily",
            num=last.greedy.num_problems,
            problems=f"{count(last.greedy.num_problems)} held-out problems",
            labels=(first.checkpoint, last.checkpoint),
            first=None if first is last else first.greedy.accuracy,
            last=last.greedy.accuracy,
            difference=inputs.greedy_change,
        )

    # Without evaluations, the samples that rollouts were selected from.
    selected = None if summary is None else summary.selected
    if summary is None or selected is None or selected.reference_accuracy is None or selected.final_accuracy is None:
        return None
    return Accuracies(
        name="accuracy of the samples",
        how="by their samples",
        num=summary.num_problems,
        problems=f"{count(summary.num_problems)} problems",
        labels=(summary.reference, summary.final),
        first=selected.reference_accuracy,
        last=selected.final_accuracy,
        difference=selected.accuracy_difference,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfKind:
    """The greedy answers to the problems of one kind, before and after."""

    kind: str
    num: int
    """Problems."""
    before: float
    after: float
    num_risen: int
    """Problems whose answer became right."""
    num_fallen: int
    """Problems whose answer became wrong."""


def answers_by_kind(inputs: ReportInputs) -> tuple[OfKind, ...]:
    """Return what became of the answers to problems of each kind; nothing where there are not several kinds."""
    right = inputs.paired.get("right")
    if right is None or not right.before:
        return ()
    groups: dict[str, list[tuple[float, float]]] = {}
    for problem, *ends in zip(right.problems, right.before, right.after, strict=True):
        groups.setdefault(inputs.kinds.get(problem, ""), []).append((ends[0], ends[1]))
    if len(groups) < 2:
        return ()
    return tuple(
        OfKind(
            kind=kind,
            num=len(pairs),
            before=sum(before for before, _ in pairs) / len(pairs),
            after=sum(after for _, after in pairs) / len(pairs),
            num_risen=sum(before < after for before, after in pairs),
            num_fallen=sum(before > after for before, after in pairs),
        )
        for kind, pairs in sorted(groups.items(), key=lambda group: by_number(group[0]))
    )


def _means(ends: Mapping[str, Estimate]) -> list[Figure]:
    """Return the fractions at some checkpoints, as sentences write them."""
    return [
        Figure(name=f"at {label}", statistic="mean", columns=(label,), write=digits_of(percent_interval, known))
        for label, known in ends.items()
    ]


def accuracy_evidence(inputs: ReportInputs, measured: Accuracies, *figures: Figure) -> Evidence | None:
    """Return the problems that accuracies are of; of samples in files the accuracies alone, which a probe keeps."""
    if measured.how == "greedily":
        return paired_evidence(inputs, "right", *figures)
    assert inputs.summary is not None
    kept = [figure for figure in figures if figure.statistic in _OF_MEANS and not figure.end]
    return selected_evidence(inputs.summary, *kept)


_OF_MEANS = ("mean", "paired difference of means")
"""Statistics that accuracies give, without their problems."""


def _accuracy(inputs: ReportInputs) -> Sentence:
    """Say what accuracy did; of responses from elsewhere how many are right, as far as they were graded."""
    measured = accuracies(inputs)
    if measured is not None:
        said = f"is {percent_interval(measured.last)} at {measured.labels[1]}."
        if measured.first is not None:
            said = change(measured.first, measured.last, measured.difference, at=measured.labels)
        both = zip(measured.labels, (measured.first, measured.last), strict=True)
        ends = _means({label: each for label, each in both if each is not None})
        said = f"On {measured.problems}, {measured.name} {said}"
        return Sentence(said, accuracy_evidence(inputs, measured, *ends))
    if inputs.summary is None or not inputs.is_imported:
        return Sentence("Accuracy was not measured.", held_evidence(inputs))
    known = [
        (each.num_rollouts, each.num_correct) for each in inputs.summary.populations if each.num_correct is not None
    ]
    num, right = sum(own for own, _ in known), sum(own for _, own in known)
    if not num:
        return Sentence("The responses were not graded.", response_evidence(inputs))
    figures = (
        Figure(name="graded", statistic="number", columns=("right",)),
        Figure(name="right", statistic="sum", columns=("right",)),
        Figure(name="share", statistic="mean", columns=("right",), write=percent),
    )
    said = f"Of {count(num)} graded responses {count(right)} are right ({percent(right / num)})."
    return Sentence(said, response_evidence(inputs, *figures))


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    evaluations = inputs.evaluations
    if not evaluations and (measured := accuracies(inputs)) is not None:
        yield Rows(
            id="accuracy",
            title=f"Accuracy of the samples of {measured.problems}",
            first="Model",
            columns={"Accuracy": SHARE},
            rows=tuple(zip(measured.labels, (measured.first, measured.last), strict=True)),
            plots=(Dots(column="Accuracy", greys=measured.labels[:1]),),
        )
        return

    # Rewards on another scale than fractions have a plot of their own.
    columns: Mapping[str, Column] = {
        "Greedy accuracy": (SHARE, "greedy.accuracy"),
        "Sampled reward": (SHARE if rewards_are_fractions(evaluations) else REWARD, "sampled.mean_reward"),
        "Fully right traces": (SHARE, "greedy.trace_right"),
    }
    yield by_checkpoint(inputs, evaluations, columns, id="accuracy", title="Accuracy on held-out problems")
    yield from _sample_rows(inputs)
    yield _kinds(inputs, "by_part", id="parts", first="Part")
    yield _kinds(inputs, "by_kind", id="accuracy_by_difficulty", first="Kind")


def _sample_rows(inputs: ReportInputs) -> Iterator[Rows]:
    """Yield what several samples of a problem are worth, where there are several."""
    ks = sorted({point.k for evaluation in inputs.evaluations for point in evaluation.sampled.curve})
    most = max(ks, default=0)
    if most < 2:
        return
    temperature = inputs.evaluations[0].eval_settings.get("temperature", "not recorded")

    def of(k: int, name: str) -> Column:
        return SHARE, lambda evaluation: getattr(evaluation.sampled.of_samples(k), name)

    # A curve each where there are enough samples to tell them apart.
    yield by_checkpoint(
        inputs,
        inputs.evaluations,
        {
            **{f"pass@{k}": of(k, "pass_at_k") for k in ks},
            f"maj@{most}": of(most, "majority_at_k"),
            f"pass^{most}": of(most, "pass_hat_k"),
            "Different right answers": (NUMBER, "sampled.distinct_right"),
        },
        id="sampling",
        title=f"What are {most} samples of a problem worth?",
        note="pass@k: chance that at least one of k is right; pass^k: that all are; maj@k: that the most frequent "
        f"answer is, ties broken at random. Temperature: {temperature}.",
        drawn=["pass@1", f"pass@{most}", f"maj@{most}"] if most >= MANY_SAMPLES else [],
    )


def _kinds(inputs: ReportInputs, field: Literal["by_part", "by_kind"], *, id: str, first: str) -> Rows:
    """Return accuracy by part of a mixture or by kind of problem: every checkpoint, the final one on the reference."""
    cells: list[tuple[str, str, Cell]] = []
    for each in inputs.evaluations:
        for kind, score in (getattr(each.greedy, field) or {}).items():
            cells += [(kind, "Problems", score.num_problems), (kind, each.checkpoint, score.accuracy)]
    columns = {"Problems": COUNT, **{each.checkpoint: SHARE for each in inputs.evaluations}}
    rows = crossed(sorted(cells, key=lambda cell: by_number(cell[0])), columns)

    # The final checkpoint is drawn beside the reference; of many kinds the table says more.
    null, final = (each.checkpoint if each else "" for each in (inputs.reference, inputs.final))
    plots = (Dots(column=final, null=null if null != final else ""),) if len(rows) <= _MAX_DOTS else ()
    return Rows(
        id=id,
        title=f"Greedy accuracy by {first.lower()} of problem",
        first=first,
        columns=columns,
        rows=rows if len(rows) > 1 else (),  # one kind is the accuracy once more
        note=f"The plot has {final}; grey is {null}." if plots else "",
        plots=plots,
    )


TOPIC = Topic(
    title="How often is it right?",
    note="accuracy and samples by checkpoint and kind of problem",
    sentences={"Outcome": _sentences},
    rows=_rows,
    figures={
        "accuracy": FigureSpec(
            shows="Accuracy and reward on held-out problems of every checkpoint.",
            needs="swerve eval RUN",
        ),
        "sampling": FigureSpec(
            shows="pass@k and majority votes of every checkpoint.",
            needs=f"swerve eval RUN eval.samples_per_problem={MANY_SAMPLES}",
        ),
        "accuracy_by_difficulty": FigureSpec(
            shows="Greedy accuracy of every checkpoint by kind of problem.",
            needs="swerve eval RUN, of a task with several kinds of problems",
        ),
    },
)
