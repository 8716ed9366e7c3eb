"""Checkpoints: every checkpoint's evaluation, outcomes, samples, responses, and kinds of problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swerve.artifacts.comparison import ModelScores, Scores
from swerve.artifacts.evaluation import Evaluation, rewards_are_fractions
from swerve.artifacts.metrics import StepMetrics
from swerve.estimates import Estimate
from swerve.formats.text_tables import by_number
from swerve.report.draw.curves import Chart, over_checkpoints
from swerve.report.draw.figures import Drawing, numbers, set_title, shades, side_by_side
from swerve.report.draw.panels import (
    FRACTION_ENDS,
    Absent,
    DotPlot,
    DotRow,
    Panel,
    Section,
    Table,
    Terms,
    dot_row,
    measured_columns,
    panel,
    section,
)
from swerve.report.format import NOT_MEASURED, count, number_interval, percent, percent_interval, quoted
from swerve.report.read import ReportInputs
from swerve.report.topics.divergence import divergence_table, pair_panel, stage_table
from swerve.report.topics.spikes import spike_table
from swerve.report.topics.topic import FigureSpec, Topic, of_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_DOTS = 24
"""A plot of more kinds than these says less than the table."""
_MAX_REASONS = 10


def _section(inputs: ReportInputs) -> Section | None:
    summary, evaluations = inputs.summary, _evaluation_table(inputs.evaluations)
    absent = None if inputs.is_imported else Absent(what="Accuracy", command="swerve eval RUN")
    panels = [
        panel("", evaluations if evaluations.measured else absent, _outcome_table(inputs.evaluations), wide=True),
        _reason_panel(inputs.metrics),
        _sampling_panel(inputs),
        _mistake_panel(inputs.evaluations),
        _response_panel(inputs.evaluations),
        _kind_panel(
            inputs, lambda greedy: greedy.by_part or {}, title="Which parts of the mixture were learned?", id="parts",
            column="Part",
        ),
        _kind_panel(
            inputs, lambda greedy: greedy.by_kind, title="Which kinds of problems were learned?", id="kinds",
            column="Kind",
        ),
    ]  # fmt: skip
    if summary is not None:
        panels += [
            panel("", divergence_table(summary), stage_table(summary), spike_table(summary), wide=True),
            pair_panel(summary),
        ]
    return section("tables", "Every checkpoint", panels, short="Checkpoints")


def _evaluation_table(evaluations: Sequence[Evaluation]) -> Table:
    reward = percent_interval if rewards_are_fractions(evaluations) else number_interval
    rows = tuple(
        (
            evaluation.checkpoint,
            count(evaluation.step),
            percent_interval(evaluation.greedy.accuracy),
            reward(evaluation.sampled.mean_reward),
            percent_interval(evaluation.greedy.trace_right),
            number_interval(evaluation.greedy.num_tokens),
            number_interval(evaluation.greedy.entropy),
            percent_interval(evaluation.greedy.truncated),
            count(evaluation.statuses.total() - evaluation.statuses["graded"]),
        )
        for evaluation in evaluations
    )
    header = (
        "Checkpoint", "Step", "Greedy accuracy", "Sampled reward", "Fully right traces", "Tokens", "Entropy (nats)",
        "Truncated", "Not gradable",
    )  # fmt: skip
    return measured_columns(Table(id="evaluation", caption="Evaluations", header=header, rows=rows))


_OUTCOMES = {
    "graded": "Graded",
    "unanswered": "No answer found",
    "timeout": "Limit reached",
    "error": "Grader failed",
}


def _outcome_table(evaluations: Sequence[Evaluation]) -> Table | None:
    """Return what graders said of the completions; None where all were graded, or nothing tells."""
    shown = [evaluation for evaluation in evaluations if evaluation.statuses]
    counts = {
        evaluation.checkpoint: {**evaluation.statuses, "unanswered": evaluation.num_unanswered} for evaluation in shown
    }
    names = [name for name in _OUTCOMES if name == "graded" or any(each.get(name) for each in counts.values())]
    if len(names) == 1:
        return None
    rows = []
    for evaluation in shown:
        total, own = evaluation.statuses.total(), counts[evaluation.checkpoint]
        rows.append((evaluation.checkpoint, count(total), *(_counted(own.get(name, 0), total) for name in names)))
    return Table(
        id="outcomes",
        caption="Outcomes of grading",
        note="All completions, greedy and sampled. Those that were not graded count as wrong. A reward that pays for "
        "the format may grade texts without an answer too.",
        header=("Checkpoint", "Completions", *(_OUTCOMES[name] for name in names)),
        rows=tuple(rows),
    )


def _counted(num: int, total: int) -> str:
    return f"{count(num)} ({percent(num / total)})" if total else count(num)


def _reason_panel(metrics: Iterable[StepMetrics]) -> Panel | None:
    """Return why rollouts of training have no verdict, the most frequent reasons first."""
    reasons: Counter[str] = Counter()
    for metric in metrics:
        reasons.update(metric.error_details or {})
    table = Table(
        id="reasons",
        caption="Limits that were reached and failures of the grader",
        note="Of each step the most frequent reasons are recorded, so the numbers are at least these.",
        header=("Reason", "Rollouts"),
        rows=tuple((reason, count(num)) for reason, num in reasons.most_common(_MAX_REASONS)),
    )
    return panel("Why were rollouts of training not graded?", table, wide=True)


_SAMPLING_TERMS = {
    "pass@k": "Chance that at least one of k samples is right, estimated without bias.",
    "maj@k": "Chance that the most frequent answer of k samples is right; ties are broken at random.",
    "pass^k": "Chance that all k samples are right.",
    "Different right answers": "Mean number, as written, that the samples of a problem hold; above one only "
    "where problems have several.",
}


def _sampling_panel(inputs: ReportInputs) -> Panel | None:
    """Return what several samples of a problem are worth; None where there was at most one sample."""
    ks = sorted({point.k for evaluation in inputs.evaluations for point in evaluation.sampled.curve})
    if not ks or ks[-1] < 2:
        return None
    most = ks[-1]
    rows = []
    for entry in inputs.evaluations:
        last = entry.sampled.of_samples(most)
        cells = [percent_interval(entry.sampled.of_samples(k).pass_at_k) for k in ks]
        # The majority of two is one of the two.
        cells += [percent_interval(last.majority_at_k)] if most > 2 else []
        cells.append(percent_interval(last.pass_hat_k))
        rows.append((entry.checkpoint, *cells, number_interval(entry.sampled.distinct_right)))
    majority = (f"maj@{most}",) if most > 2 else ()
    header = ("Checkpoint", *(f"pass@{k}" for k in ks), *majority, f"pass^{most}", "Different right answers")
    table = measured_columns(Table(id="sampling", caption="Samples by checkpoint", header=header, rows=tuple(rows)))
    names = " ".join(table.header)
    terms = tuple((name, meaning) for name, meaning in _SAMPLING_TERMS.items() if name.removesuffix("k") in names)
    return panel(
        "What are several samples of a problem worth?",
        table,
        Terms(rows=terms),
        note=f"{_num_samples(inputs.evaluations)}Means over problems. The page {quoted('Behaviours')} of the "
        "documentation has the equations.",
        wide=True,
    )


def _num_samples(evaluations: Sequence[Evaluation]) -> str:
    """Return a sentence on how the samples were drawn, as far as the settings tell."""
    settings = evaluations[0].eval_settings
    if not {"samples_per_problem", "temperature"} <= settings.keys():
        return ""
    return f"{settings['samples_per_problem']:,} samples per problem at temperature {settings['temperature']:g}. "


_RESPONSES = (
    ("in_format", "In format", "Fraction of responses in the format that their prompt asks for."),
    (
        "empty_thinking",
        "Empty thinking",
        "Of the responses that think first, the fraction whose thinking is empty, filler, a few words, or not about "
        "the question.",
    ),
    (
        "repeated_4grams",
        "Repeated 4-grams",
        "Fraction of runs of four words that occurred before in the same response; it grows with length.",
    ),
    (
        "reflections",
        "Reflections",
        f"Phrases such as {quoted('wait')} or {quoted('let me check')}, per 1,000 words.",
    ),
)


def _mistake_panel(evaluations: Sequence[Evaluation]) -> Panel | None:
    """Return the kinds of first mistakes, where a step checker tells kinds apart."""
    kinds = list(dict.fromkeys(kind for evaluation in evaluations for kind in evaluation.first_mistakes))
    table = Table(
        id="mistakes",
        caption="First mistakes in the greedy completions, by kind",
        header=("Checkpoint", *kinds),
        rows=tuple(
            (evaluation.checkpoint, *(count(evaluation.first_mistakes.get(kind, 0)) for kind in kinds))
            for evaluation in evaluations
        ),
    )
    return panel("What goes wrong first?", table) if kinds else None


def _response_panel(evaluations: Sequence[Evaluation]) -> Panel | None:
    """Return what greedy responses look like, without metrics that are 0 throughout; only the format may be."""
    # A measure that is 0 everywhere says nothing.
    kept = []
    for key, name, meaning in _RESPONSES:
        values: list[Estimate] = [value for each in evaluations if (value := getattr(each.greedy, key)) is not None]
        if any(value.mean for value in values) or (key == "in_format" and values):
            kept.append((key, name, meaning))
    rows = tuple(
        (
            each.checkpoint,
            *(
                (number_interval if key == "reflections" else percent_interval)(getattr(each.greedy, key))
                for key, _, _ in kept
            ),
        )
        for each in evaluations
    )
    return panel(
        "What do the responses look like?",
        Table(
            id="responses-form",
            caption="Responses by checkpoint",
            header=("Checkpoint", *(name for _, name, _ in kept)),
            rows=rows if kept else (),
        ),
        Terms(rows=tuple((name, meaning) for _, name, meaning in kept)),
        note="Greedy responses to the held-out problems. These are rules about the surface of a text; the page "
        f"{quoted('Behaviours')} of the documentation says what each misses.",
        wide=True,
    )


Grouped = Callable[[ModelScores], Mapping[str, Scores]]


def _kind_panel(inputs: ReportInputs, grouped: Grouped, *, title: str, id: str, column: str) -> Panel | None:
    """Return accuracy by part of a mixture or by kind of problem: reference against final, and every checkpoint."""
    shown = [(one.checkpoint, scores) for one in inputs.evaluations if (scores := grouped(one.greedy))]
    kinds = sorted({kind for _, scores in shown for kind in scores}, key=by_number)
    if len(kinds) < 2:
        return None

    # A row for each kind: how many problems, and the accuracy of every checkpoint.
    rows = []
    for kind in kinds:
        cells = [scores.get(kind) for _, scores in shown]
        size = next((count(cell.num_problems) for cell in cells if cell is not None), NOT_MEASURED)
        accuracies = (percent_interval(None if cell is None else cell.accuracy) for cell in cells)
        rows.append((kind, size, *accuracies))
    plot = DotPlot(rows=_kind_dots(inputs, grouped, kinds), ends=FRACTION_ENDS)
    return panel(
        title,
        plot,
        Table(
            id=id,
            caption=f"Greedy accuracy by {column.lower()}",
            header=(column, "Problems", *(label for label, _ in shown)),
            rows=tuple(rows),
            folded=plot.measured,
        ),
        note=_dots_note(inputs) if plot.measured else "",
        wide=True,
    )


def _kind_dots(inputs: ReportInputs, grouped: Grouped, kinds: Sequence[str]) -> tuple[DotRow, ...]:
    first, last = inputs.reference, inputs.final
    if last is None or len(kinds) > _MAX_DOTS:
        return ()
    before = {} if first is None or first is last else grouped(first.greedy)
    rows = []
    for kind, scores in grouped(last.greedy).items():
        old = before[kind].accuracy.mean if kind in before else None
        rows.append(dot_row(kind, percent_interval(scores.accuracy), scores.accuracy, old))
    return tuple(sorted(rows, key=lambda row: by_number(row.name)))


def _dots_note(inputs: ReportInputs) -> str:
    first, last = inputs.reference, inputs.final
    assert last is not None
    tick = "" if first is None or first is last else f" The tick is {first.checkpoint}."
    return f"Greedy accuracy of {last.checkpoint} with its interval.{tick}"


def _charts(inputs: ReportInputs) -> Iterator[Chart]:
    entries = inputs.evaluations
    if entries or not inputs.is_imported:
        entropy = {"Mean entropy of a token": lambda evaluation: evaluation.greedy.entropy}
        yield over_checkpoints(entries, entropy, id="entropy", title="Token entropy", unit="nats")
        length = {"Mean length": lambda evaluation: evaluation.greedy.num_tokens}
        yield over_checkpoints(entries, length, id="length", title="Response length", unit="tokens")


def _kind_drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    """Yield the accuracy by kind of problem, the kinds in the order of the numbers in their names."""
    shown = [evaluation for evaluation in inputs.evaluations if evaluation.greedy.by_kind]
    kinds = sorted({kind for evaluation in shown for kind in evaluation.greedy.by_kind}, key=by_number)

    # A bar for each kind that a checkpoint was asked about.
    measured = [
        (evaluation, kind, evaluation.greedy.by_kind[kind])
        for evaluation in shown
        for kind in kinds
        if kind in evaluation.greedy.by_kind
    ]
    if len(kinds) > 1:
        yield Drawing(
            name="accuracy_by_difficulty",
            draw=partial(_draw_kinds, evaluations=shown, kinds=kinds),
            rows=tuple(
                {
                    "checkpoint": evaluation.checkpoint,
                    "global_step": evaluation.step,
                    "kind": kind,
                    "num_problems": scores.num_problems,
                    **numbers(scores.accuracy),
                }
                for evaluation, kind, scores in measured
            ),
            size=(min(16.0, max(6.0, 2.5 + 0.12 * len(kinds) * (2 + len(shown)))), 3.4),
        )


def _draw_kinds(axes: Axes, *, evaluations: Sequence[Evaluation], kinds: Sequence[str]) -> None:
    series = {
        evaluation.checkpoint: [
            evaluation.greedy.by_kind[kind].accuracy if kind in evaluation.greedy.by_kind else None for kind in kinds
        ]
        for evaluation in evaluations
    }
    side_by_side(axes, kinds, series, colours=shades(len(series)))
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("greedy accuracy")
    set_title(axes, "Accuracy by kind of problem")


TOPIC = Topic(
    charts=_charts,
    section=_section,
    figures={
        "accuracy_by_difficulty": FigureSpec(
            shows="Greedy accuracy of every checkpoint by kind of problem.",
            draw=_kind_drawings,
            needs="swerve eval RUN, of a task with several kinds of problems",
        ),
        "entropy": FigureSpec(
            shows="Mean entropy of a token in every checkpoint's own completions.",
            draw=of_chart(_charts, "entropy"),
            needs="swerve eval RUN",
        ),
        "length": FigureSpec(
            shows="Mean length of every checkpoint's completions.",
            draw=of_chart(_charts, "length"),
            needs="swerve eval RUN",
        ),
    },
)
