"""Training curves: the metrics of every step, and what calls for caution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from swerve.artifacts.metrics import StepMetrics
from swerve.report.evidence import Figure, Sentence
from swerve.report.format import too_few
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, NUMBER, PER_1000, REWARD, SHARE, TOKENS, Curves, Rows, Unit
from swerve.report.summary_evidence import response_evidence, status_evidence
from swerve.report.topics.topic import FigureSpec, Topic, step_name
from swerve.report.training_evidence import step_evidence
from swerve.text import count, number, percent

_UNBOUNDED = replace(NATS, low=-math.inf)
_METRICS: Mapping[str, tuple[str, Unit]] = {
    "reward": ("Reward", REWARD),
    "accuracy": ("Accuracy", SHARE),
    "eval_accuracy": ("Held-out accuracy", SHARE),
    "completion_length": ("Length", TOKENS),
    "truncated_share": ("Truncated", SHARE),
    "neg_logprob": ("Surprise", _UNBOUNDED),
    "kl": ("KL term", _UNBOUNDED),
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
}


def training_rows(metrics: Sequence[StepMetrics]) -> Rows:
    """Return every metric of every step, a plot each."""
    # Each stage has a loss of its own kind.
    losses = {f"loss {step.stage}": (f"{step_name(step.stage)} loss", NUMBER) for step in metrics}
    shown = {**_METRICS, **losses}
    return Rows(
        id="training_curves",
        title="Metrics of every step",
        first="Step",
        columns=dict(shown.values()),
        rows=tuple((f"{step.stage}-{step.stage_step}", *(_value(step, key) for key in shown)) for step in metrics),
        note="Means over a step's rollouts. Surprise: mean negative log-probability of sampled tokens, nats. Sampler "
        "gap: by how much sampler and trainer differ. Long curves are drawn through the lowest and the highest value "
        "of each stretch.",
        plots=tuple(_curve(metrics, key, name) for key, (name, _) in shown.items()),
        has_table=False,
    )


def _curve(metrics: Sequence[StepMetrics], key: str, name: str) -> Curves:
    """Return how a metric is drawn: over the steps of its stage, or over all where several stages have it."""
    starts = {step.stage: step.step - step.stage_step for step in metrics if _value(step, key) is not None}
    stage, start = next(iter(starts.items())) if len(starts) == 1 else ("", 0)
    x = tuple(float(step.step - start) for step in metrics)
    phases = (step.stage if step.phase is None else f"{step.stage}, phase {step.phase}" for step in metrics)
    ends = dict(zip(phases, x, strict=True))
    return Curves(x=x, x_title=f"{step_name(stage)} step".strip(), columns=(name,), ends=ends)


def _value(step: StepMetrics, key: str) -> float | None:
    """Return a metric, maybe of one stage alone; a number of completions as a fraction of the step's completions."""
    name, _, stage = key.partition(" ")
    value: float | None = getattr(step, name) if stage in ("", step.stage) else None
    return step.fraction(value) if key.startswith("num_") else value


def _caution(inputs: ReportInputs) -> Iterator[str]:
    if inputs.summary is not None and not inputs.summary.reliable:
        few = too_few(inputs.summary.num_rollouts, "rollout", "rely upon the probe's metrics")
        yield Sentence(f"{few}.", response_evidence(inputs))

    # Completions that the grader could not judge.
    statuses: Counter[str] = Counter()
    for evaluation in inputs.evaluations:
        statuses.update(evaluation.statuses)
    if statuses["timeout"] or statuses["error"]:
        columns = {"timeout": statuses["timeout"], "completions": statuses.total(), "error": statuses["error"]}
        numbers = (Figure(name=name, statistic="sum", columns=(name,)) for name in columns)
        yield Sentence(
            f"In the evaluations, {count(statuses['timeout'])} of {count(statuses.total())} completions reached a "
            f"limit of the grader and {count(statuses['error'])} made it fail; they count as wrong.",
            status_evidence(inputs, *numbers),
        )
    for stage in dict.fromkeys(step.stage for step in inputs.metrics):
        of_stage = [step for step in inputs.metrics if step.stage == stage]
        yield from (Sentence(said, step_evidence(inputs, stage)) for said in training_ends(of_stage))


def training_ends(metrics: Sequence[StepMetrics]) -> Iterator[str]:
    """Say where training collapsed or stopped, and why."""
    for step in metrics:
        stage, place = f"Stage {step.stage}", f"at its step {count(step.stage_step)}"
        if step.collapse is not None:
            yield f"{stage} collapsed {place}: {step.collapse_message or step.collapse}."
        if step.stopped_error_share is not None:
            share = percent(step.stopped_error_share)
            yield f"{stage} stopped {place}, as {share} of its last completions could not be graded."
        if step.stopped_logprob_gap is not None:
            gap = f"{number(step.stopped_logprob_gap)} nats per token"
            yield f"{stage} stopped {place}, as the log-probabilities of sampler and trainer differed by {gap}."


TOPIC = Topic(
    title="How did training go?",
    note="the metrics of every step",
    sentences={"Caution": _caution},
    rows=lambda inputs: [training_rows(inputs.metrics)],
    figures={"training_curves": FigureSpec(shows="The metrics of every step of training.", needs="swerve train")},
)
