"""Checkpoints: what every checkpoint's responses look like, and what could not be graded of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from swerve.artifacts.evaluation import Evaluation
from swerve.report.format import quoted
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, NATS, PER_1000, SHARE, TOKENS, Rows, Unit
from swerve.report.topics.topic import FigureSpec, Topic, by_checkpoint

_MAX_REASONS = 10
_FORM: Mapping[str, tuple[str, Unit, str]] = {
    "in_format": ("In format", SHARE, "in the format that their prompt asks for"),
    "empty_thinking": ("Empty thinking", SHARE, "of those that think first, with empty, filler or unrelated thinking"),
    "repeated_4grams": ("Repeated 4-grams", SHARE, "runs of four words that occurred before in the response"),
    "reflections": (
        "Reflections",
        replace(PER_1000, axis="per 1,000 words"),
        f"phrases such as {quoted('wait')}, per 1,000 words",
    ),
}
_OUTCOMES = {
    "graded": "Graded",
    "unanswered": "No answer found",
    "timeout": "Limit reached",
    "error": "Grader failed",
}


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    entries = inputs.evaluations
    yield by_checkpoint(
        inputs,
        entries,
        {"Length": (TOKENS, "greedy.num_tokens"), "Truncated": (SHARE, "greedy.truncated")},
        id="length",
        title="Length of the greedy answers",
    )
    yield by_checkpoint(
        inputs,
        entries,
        {"Entropy": (NATS, "greedy.entropy")},
        id="entropy",
        title="Entropy of a token of these answers",
    )
    yield by_checkpoint(
        inputs,
        entries,
        {name: (unit, f"greedy.{key}") for key, (name, unit, _) in _FORM.items()},
        id="responses-form",
        title="Form of these answers",
        note=" ".join(
            f"{name}: {meaning}."
            for key, (name, _, meaning) in _FORM.items()
            if any(getattr(evaluation.greedy, key) is not None for evaluation in entries)
        ),
    )
    yield _outcomes(inputs)
    kinds = dict.fromkeys(kind for evaluation in entries for kind in evaluation.first_mistakes)
    yield by_checkpoint(
        inputs,
        entries,
        {kind: (COUNT, partial(_num_mistakes, kind=kind)) for kind in kinds},
        id="mistakes",
        title="First mistakes in the greedy answers, by kind",
    )
    yield _reasons(inputs)


def _num_mistakes(evaluation: Evaluation, *, kind: str) -> int:
    return evaluation.first_mistakes.get(kind, 0)


def _fraction(evaluation: Evaluation, *, outcome: str) -> float | None:
    total, counts = evaluation.statuses.total(), {**evaluation.statuses, "unanswered": evaluation.num_unanswered}
    return counts.get(outcome, 0) / total if total else None


def _outcomes(inputs: ReportInputs) -> Rows:
    """Return what graders said of the completions; nothing where all were graded, or nothing tells."""
    failed = [
        outcome
        for outcome in _OUTCOMES
        if outcome != "graded" and any(_fraction(evaluation, outcome=outcome) for evaluation in inputs.evaluations)
    ]
    shown = ["graded", *failed] if failed else []
    return by_checkpoint(
        inputs,
        inputs.evaluations,
        {_OUTCOMES[outcome]: (SHARE, partial(_fraction, outcome=outcome)) for outcome in shown},
        id="outcomes",
        title="What graders said of all completions",
        note="Greedy and sampled; those that were not graded count as wrong.",
        drawn=[_OUTCOMES[outcome] for outcome in failed],
    )


def _reasons(inputs: ReportInputs) -> Rows:
    """Return why rollouts of training have no verdict, the most frequent reasons first."""
    reasons: Counter[str] = Counter()
    for metric in inputs.metrics:
        reasons.update(metric.error_details or {})
    return Rows(
        id="reasons",
        title="Why rollouts of training were not graded",
        first="Reason",
        columns={"Rollouts": COUNT},
        rows=tuple(reasons.most_common(_MAX_REASONS)),
        note="Of each step the most frequent reasons are recorded, so there are at least so many.",
    )


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
