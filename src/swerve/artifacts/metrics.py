"""`metrics.jsonl`: a JSON object per step, append-only, always written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from swerve.artifacts.files import parse_json, regular_file
from swerve.artifacts.record import Record
from swerve.errors import ArtifactError, DiskFullError, WriteError


class StepMetrics(Record):
    """What a line says that readers of a run show; what was not measured is None."""

    step: int
    """Global step, over all stages."""
    stage: str
    """Label of the stage."""
    stage_step: int
    """Step of the stage, from 1."""
    phase: int | None = None
    """Of the stage, from 1, where it has phases."""
    reward: float | None = None
    """Mean of all that was sampled."""
    accuracy: float | None = None
    """Fraction of the step's rollouts that are right."""
    loss: float | None = None
    """Mean over the step's updates; of `distill` the divergence from the teacher, nats per token."""
    entropy: float | None = None
    """Of the sampling distribution, nats per token."""
    eval_accuracy: float | None = None
    """Greedy, on held-out problems, at the steps of `eval.every`."""
    eval_num_tokens: float | None = None
    """Mean length of those answers, tokens."""
    completion_length: float | None = None
    """Mean of the step's rollouts, tokens."""
    neg_logprob: float | None = None
    """Mean negative log-probability of the sampled tokens, nats: an estimate of the entropy."""
    kl: float | None = None
    """The estimate of the KL term, nats per token."""
    logprob_gap: float | None = None
    """Mean absolute difference of the log-probabilities of sampler and trainer, nats per token."""
    logprob_gap_q1: float | None = None
    """The same over the first quarter of each completion."""
    logprob_gap_q4: float | None = None
    """The same over the last quarter."""
    live_kl_forward: float | None = None
    """KL of the policy to the one that the stage began with, nats per token, at the steps of `probe.every`."""
    val_loss: float | None = None
    """Nats per token, of supervised stages at the steps with a validation."""
    num_completions: int | None = None
    """All that was sampled, also what was left out of the update."""
    num_unanswered: int | None = None
    """Texts without an answer, whether or not something is paid for them."""
    num_timeouts: int | None = None
    """Completions that ran into a limit of the grader."""
    num_errors: int | None = None
    """Completions whose grader failed."""
    error_details: Mapping[str, int] | None = None
    """The most frequent reasons of failures, with their number."""
    format_rate: float | None = None
    """Fraction of completions in the form that the task asks for."""
    dummy_thinking_share: float | None = None
    """Fraction of completions that think without content."""
    repeated_4gram_share: float | None = None
    """Fraction of 4-grams that occurred before in the completion."""
    truncated_share: float | None = None
    """Fraction of completions that were cut off."""
    reflections_per_1000_words: float | None = None
    """Words of reflection, such as "wait" and "check"."""
    mean_difficulty: float | None = None
    """Of the problems drawn."""
    pool_share: float | None = None
    """Fraction of the problems that the curriculum could draw."""
    collapse: str | None = None
    """The metric that collapsed."""
    collapse_message: str | None = None
    """The warning that was printed."""
    stopped_error_share: float | None = None
    """Fraction of the last completions that could not be graded, where the stage stopped for it."""
    stopped_logprob_gap: float | None = None
    """Mean of `logprob_gap` over the last steps, where the stage stopped for it."""

    def fraction(self, num: float | None) -> float | None:
        """Return a number of completions as a fraction of the step's completions."""
        return num / self.num_completions if num is not None and self.num_completions else None


OTHER_METRICS: Mapping[str, str] = {
    "seconds": "Of the step; the one figure that differs between equal runs.",
    "lr": "Learning rate of the step.",
    "grad_norm": "Norm of the gradient before clipping; a mean over the step's updates.",
    "num_tokens": "Tokens learned from, each counted once.",
    "best_step": "Of the stage, by validation loss so far, with early stopping.",
    "epoch": "Passes over the examples, of `reject` and of `sft` with `data`.",
    "margin": "Of DPO pairs: log-ratio to the reference of the right completion less that of the wrong one, nats.",
    "preference_accuracy": "Fraction of DPO pairs with a positive margin.",
    "num_pairs": "DPO pairs learned from.",
    "num_failures": "Completions without a reward: unparsed, timeouts and errors.",
    "num_unparsed": "Completions whose answer could not be read.",
    "num_groups": "Prompts sampled.",
    "num_zero_variance_groups": "Groups whose rewards are all equal.",
    "num_refills": "Rounds of sampling after the first.",
    "num_used_rollouts": "Completions that the update learned from.",
    "staleness": "Updates that the sampling weights are behind the learning ones, mean over rollouts.",
    "sync_seconds": "To load new weights into the engine, wake and check it.",
    "sync_logprob_difference": "Mean difference that the check of new weights found, nats; null without a check.",
    "sync_logprob_difference_max": "The largest difference that the check found, nats.",
    "logprob_gap_max": "The largest `logprob_gap` of a token.",
    "logprob_gap_q2": "`logprob_gap` over the second quarter of each completion.",
    "logprob_gap_q3": "`logprob_gap` over the third quarter.",
    "clipped_share": "Fraction of tokens whose gradient the clip removed.",
    "corrected_share": "Fraction of tokens whose importance weight met its bound.",
    "value_loss": "Mean over tokens, before `value_coef`.",
    "kl_coef": "Coefficient of the KL term at this step.",
    "entropy_coef": "Coefficient of the entropy term at this step.",
    "eval_reward": "Mean reward of the sampled held-out completions.",
    "eval_entropy": "Nats per token of the held-out completions.",
    "eval_truncated": "Fraction of the held-out completions that were cut off.",
    "live_kl_reverse": "As `live_kl_forward`, in the other direction.",
    "live_js": "As `live_kl_forward`, Jensen-Shannon.",
    "live_entropy": "Of the policy on the same tokens, nats per token.",
}
"""What a line may have beside the fields of `StepMetrics`."""


def append_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON object as a line. Values that were not measured are None, never NaN."""
    line = json.dumps(record, allow_nan=False) + "\n"
    try:
        with regular_file(path).open("a", encoding="utf-8") as stream:
            stream.write(line)
    except OSError as error:
        if DiskFullError.matches(error):
            raise DiskFullError(path, error) from error
        raise WriteError(f"cannot write {path}: {error.strerror or error}; training continues with --resume") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return every record, in order; a last line cut short by a kill is dropped.

    Raises:
        ArtifactError: a line other than the last is not a JSON object.
    """
    if not path.exists():
        return []
    lines = regular_file(path).read_bytes().splitlines(keepends=True)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line.decode("utf-8"))
        except (ValueError, RecursionError):
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise ArtifactError(f"{path}:{number} is not a JSON object: the file is damaged") from None
        _check_place(path, number, record)
        records.append(record)
    return records


_PLACE = {"step": int, "stage": str, "stage_step": int}
"""What lines are found by; a step is in every line."""


def _check_place(path: Path, number: int, record: Any) -> None:
    if not isinstance(record, dict):
        raise ArtifactError(f"{path}:{number} is not a JSON object: the file is damaged")
    for name, kind in _PLACE.items():
        if not isinstance(record.get(name, None if name == "step" else kind()), kind):
            raise ArtifactError(
                f"{path}:{number}: {name} must be {'text' if kind is str else 'a whole number'}, got "
                f"{record.get(name)!r:.40}; the file is damaged"
            )


def read_step_metrics(path: Path) -> Iterator[StepMetrics]:
    """Yield every line as a typed record.

    Raises:
        ArtifactError: a line is not a JSON object, or has a value of another kind.
    """
    for number, record in enumerate(read_metrics(path), start=1):
        try:
            yield StepMetrics.model_validate(record)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise ArtifactError(f"{path}:{number}: {key}: {first['msg'].lower()}; the file is damaged") from None
