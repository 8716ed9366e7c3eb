"""Checkpoints: what every checkpoint's responses look like, and what could not be graded of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from swerve.artifacts.evaluation import Evaluation
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, NATS, PER_1000, SHARE, TOKENS, Rows
from swerve.report.topics.topic import Column, FigureSpec, Topic, by_checkpoint
from swerve.text import quoted

_MAX_REASONS = 10
_FORM: Mapping[str, Column] = {
    "In format": (SHARE, "greedy.in_format"),
    "Empty thinking": (SHARE, "greedy.empty_thinking"),
    "Repeated 4-grams": (SHARE, "greedy.repeated_4grams"),
    "Reflections": (replace(PER_1000, axis="per 1,000 words"), "greedy.reflections"),
}
_FAILURES = {"unanswered": "No answer found", "timeout": "Limit reached", "error": "Grader failed"}


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    table = partial(by_checkpoint, inputs, inputs.evaluations)
    lengths: Mapping[str, Column] = {"Length": (TOKENS, "greedy.num_tokens"), "Truncated": (SHARE, "greedy.truncated")}
    yield table(lengths, id="length", title="Length of the greedy answers")
    yield table({"Entropy": (NATS, "greedy.entropy")}, id="entropy", title="Entropy of a token of these answers")
    yield table(
        _FORM,
        id="responses-form",
        title="Form of these answers",
        note="Empty thinking: with empty, filler or unrelated thinking, of those that think first. Repeated 4-grams: "
        f"runs of four words that occurred before in the response. Reflections: phrases such as {quoted('wait')}.",
    )

    # What the graders could not judge; nothing where they judged all.
    yield table(
        {
            name: (SHARE, partial(_fraction, outcome))
            for outcome, name in _FAILURES.items()
            if any(_fraction(outcome, evaluation) for evaluation in inputs.evaluations)
        },
        id="outcomes",
        title="Which completions were not graded?",
        note="Fractions of all completions, greedy and sampled. They count as wrong.",
    )
    yield table(
        {
            kind: (COUNT, partial(_num_mistakes, kind))
            for evaluation in inputs.evaluations
            for kind in evaluation.first_mistakes
        },
        id="mistakes",
        title="First mistakes in the greedy answers, by kind",
    )

    # Of training, not of the checkpoints: the most frequent reasons first.
    reasons: Counter[str] = Counter()
    for metric in inputs.metrics:
        reasons.update(metric.error_details or {})
    yield Rows(
        id="reasons",
        title="Why rollouts of training were not graded",
        first="Reason",
        columns={"Rollouts": COUNT},
        rows=tuple(reasons.most_common(_MAX_REASONS)),
        note="Of each step the most frequent reasons are recorded, so there are at least so many.",
    )


def _num_mistakes(kind: str, evaluation: Evaluation) -> int:
    return evaluation.first_mistakes.get(kind, 0)


def _fraction(outcome: str, evaluation: Evaluation) -> float | None:
    total, counts = evaluation.statuses.total(), {**evaluation.statuses, "unanswered": evaluation.num_unanswered}
    num = counts.get(outcome, 0)
    return num / total if total and num is not None else None


TOPIC = Topic(
    title="What do the responses look like?",
    note="length, entropy, form, and what could not be graded",
    rows=_rows,
    figures={
        "entropy": FigureSpec(
            shows="Mean entropy of a token in every checkpoint's own completions.",
            needs="swerve eval RUN",
        ),
        "length": FigureSpec(
            shows="Mean length of every checkpoint's completions, where it changes.",
            needs="swerve eval RUN, of checkpoints whose lengths differ",
        ),
    },
)
