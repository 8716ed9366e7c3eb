"""Checkpoints: what every checkpoint's responses look like, and what could not be graded of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from swerve.artifacts.evaluation import Evaluation
from swerve.report.format import quoted
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, NATS, PER_1000, SHARE, TOKENS, Cell, Rows, Unit
from swerve.report.topics.topic import FigureSpec, Topic, of_evaluations

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
    length = {
        "Length": (TOKENS, attrgetter("greedy.num_tokens")),
        "Truncated": (SHARE, attrgetter("greedy.truncated")),
    }
    yield of_evaluations(inputs, length, id="length", title="Length of the greedy answers")
    entropy = {"Entropy": (NATS, attrgetter("greedy.entropy"))}
    yield of_evaluations(inputs, entropy, id="entropy", title="Entropy of a token of these answers")
    yield _form(inputs)
    yield _outcomes(inputs)
    yield _mistakes(inputs)
    yield _reasons(inputs)


def _form(inputs: ReportInputs) -> Rows:
    """Return rules about the surface of the greedy answers."""
    columns = {name: (unit, attrgetter(f"greedy.{key}")) for key, (name, unit, _) in _FORM.items()}
    meanings = [
        f"{name}: {meaning}"
        for key, (name, _, meaning) in _FORM.items()
        if any(getattr(evaluation.greedy, key) is not None for evaluation in inputs.evaluations)
    ]
    return of_evaluations(
        inputs, columns, id="responses-form", title="Form of these answers", note=f"{'; '.join(meanings)}."
    )


def _outcomes(inputs: ReportInputs) -> Rows:
    """Return what graders said of the completions; nothing measured where all were graded, or nothing tells."""

    def counts(evaluation: Evaluation) -> Mapping[str, int]:
        return {**evaluation.statuses, "unanswered": evaluation.num_unanswered}

    def share(name: str) -> Callable[[Evaluation], Cell]:
        def read(evaluation: Evaluation) -> Cell:
            total = evaluation.statuses.total()
            return counts(evaluation).get(name, 0) / total if total else None

        return read

    # Completions and those graded say nothing where all were.
    failed = [name for name in _OUTCOMES if name != "graded" and any(map(share(name), inputs.evaluations))]
    columns = {_OUTCOMES[name]: (SHARE, share(name)) for name in (["graded", *failed] if failed else [])}
    return of_evaluations(
        inputs,
        columns,
        id="outcomes",
        title="What graders said of all completions",
        note="Greedy and sampled; those that were not graded count as wrong.",
        drawn=[_OUTCOMES[name] for name in failed],
    )


def _mistakes(inputs: ReportInputs) -> Rows:
    """Return the kinds of first mistakes, where a step checker tells kinds apart."""
    kinds = dict.fromkeys(kind for evaluation in inputs.evaluations for kind in evaluation.first_mistakes)

    def number(kind: str) -> Callable[[Evaluation], Cell]:
        return lambda evaluation: evaluation.first_mistakes.get(kind, 0)

    columns = {kind: (COUNT, number(kind)) for kind in kinds}
    return of_evaluations(inputs, columns, id="mistakes", title="First mistakes in the greedy answers, by kind")


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
            shows="Mean length of every checkpoint's completions.",
            needs="swerve eval RUN",
        ),
    },
)
