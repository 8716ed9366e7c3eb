"""Training curves: the metrics of every step, and what calls for caution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from swerve.artifacts.metrics import StepMetrics
from swerve.report.draw.svg import MAX_POINTS
from swerve.report.format import count, number, percent
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, NUMBER, PER_1000, REWARD, SHARE, TOKENS, Curves, Rows, Unit
from swerve.report.topics.topic import FigureSpec, Topic, step_name

_METRICS: Mapping[str, tuple[str, Unit]] = {
    "reward": ("Reward", REWARD),
    "accuracy": ("Accuracy", SHARE),
    "eval_accuracy": ("Held-out accuracy", SHARE),
    "completion_length": ("Length", TOKENS),
    "truncated_share": ("Truncated", SHARE),
    "neg_logprob": ("Surprise", replace(NATS, low=-float("inf"))),
    "kl": ("KL term", replace(NATS, low=-float("inf"))),
    "live_kl_forward": ("KL to the start", NATS),
    "val_loss": ("Validation loss", NATS),
    "num_unanswered": ("No answer", SHARE),
    "num_timeouts": ("Limit reached", SHARE),
    "num_errors": ("Grader failed", SHARE),
    "format_rate": ("In format", SHARE),
    "dummy_thinking_share": ("Dummy thinking", SHARE),
    "repeated_4gram_share": ("Repeated 4-grams", SHARE),
    "reflections_per_1000_words": ("Reflections", replace(PER_1000, axis="per 1,000 words")),
    "mean_difficulty": ("Difficulty", NUMBER),
    "pool_share": ("Problems open", SHARE),
    "logprob_gap": ("Sampler gap", NATS),
    "logprob_gap_q1": ("Gap, first quarter", NATS),
    "logprob_gap_q4": ("Gap, last quarter", NATS),
}
_ROUNDING = 1e-3
"""Nats per token; sampler and trainer that differ by less are not drawn."""


def training_rows(metrics: Sequence[StepMetrics]) -> Rows:
    """Return every metric of every step, a plot each; those of sampler against trainer where they are no rounding."""
    gap = max((step.logprob_gap for step in metrics if step.logprob_gap is not None), default=None)
    is_rounding = gap is not None and gap < _ROUNDING
    shown = {key: entry for key, entry in _METRICS.items() if not (is_rounding and key.startswith("logprob_gap"))}
    # Each stage has a loss of its own kind.
    for stage in dict.fromkeys(step.stage for step in metrics):
        shown[f"loss {stage}"] = f"{step_name(stage)} loss", NUMBER
    more = f"Sampler and trainer agree within {number(gap)} nats per token. " if is_rounding else ""
    if len(metrics) > MAX_POINTS:
        more += "Long curves are drawn through the lowest and the highest value of each stretch."
    return Rows(
        id="training_curves",
        title="Metrics of every step",
        first="Step",
        columns=dict(shown.values()),
        rows=tuple((f"{step.stage}-{step.stage_step}", *(_value(step, key) for key in shown)) for step in metrics),
        note=f"Means over a step's rollouts. Surprise: mean negative log-probability of sampled tokens, nats. {more}",
        plots=tuple(_curve(metrics, key, name) for key, (name, _) in shown.items()),
        has_table=False,
    )


def _curve(metrics: Sequence[StepMetrics], key: str, name: str) -> Curves:
    """Return how a metric is drawn: over the steps of its stage, or over all where several stages have it."""
    stages = {step.stage for step in metrics if _value(step, key) is not None}
    start = next((step.step - step.stage_step for step in metrics if len(stages) == 1 and step.stage in stages), 0)
    ends = {}
    for step in metrics:
        phase = step.stage if step.phase is None else f"{step.stage}, phase {step.phase}"
        ends[phase] = float(step.step - start)
    title = f"{step_name(stages.pop())} step" if len(stages) == 1 else "step"
    return Curves(x=tuple(float(step.step - start) for step in metrics), x_title=title, columns=(name,), ends=ends)


def _value(step: StepMetrics, key: str) -> float | None:
    """Return a metric, maybe of one stage alone; a number of completions as a fraction of the step's completions."""
    name, _, stage = key.partition(" ")
    value: float | None = getattr(step, name) if stage in ("", step.stage) else None
    return step.fraction(value) if key.startswith("num_") else value


def _caution(inputs: ReportInputs) -> Iterator[str]:
    if inputs.summary is not None and not inputs.summary.reliable:
        yield "The probe had too few rollouts for its metrics to be relied upon."
    yield from _collapses(inputs)
    yield _ungraded(inputs)
    for step in inputs.metrics:
        if step.stopped_error_share is not None:
            yield (
                f"Stage {step.stage} stopped at its step {count(step.stage_step)}, as "
                f"{percent(step.stopped_error_share)} of its last completions could not be graded."
            )
        if step.stopped_logprob_gap is not None:
            yield (
                f"Stage {step.stage} stopped at its step {count(step.stage_step)}, as the log-probabilities of sampler "
                f"and trainer differed by {number(step.stopped_logprob_gap)} nats per token."
            )


def _collapses(inputs: ReportInputs) -> Iterator[str]:
    """Say where training was found to have collapsed, and what followed."""
    for step in inputs.metrics:
        if step.collapse is not None:
            message = step.collapse_message or step.collapse
            yield f"Stage {step.stage} collapsed at its step {count(step.stage_step)}: {message}."


def _ungraded(inputs: ReportInputs) -> str:
    """Say for how many completions the grader could not judge the answer."""
    statuses: Counter[str] = Counter()
    for evaluation in inputs.evaluations:
        statuses.update(evaluation.statuses)
    if not statuses["timeout"] and not statuses["error"]:
        return ""
    return (
        f"In the evaluations, {count(statuses['timeout'])} of {count(statuses.total())} completions reached a "
        f"limit of the grader and {count(statuses['error'])} made it fail; they count as wrong."
    )


TOPIC = Topic(
    title="How did training go?",
    note="the metrics of every step",
    sentences={"Caution": _caution},
    rows=lambda inputs: [training_rows(inputs.metrics)],
    figures={"training_curves": FigureSpec(shows="The metrics of every step of training.", needs="swerve train")},
)
