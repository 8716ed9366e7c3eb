"""How many of a step's completions were graded, and the stop where too many could not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.config.stages import DistillStage, RlStage, StageConfig
from swerve.errors import CollapseError, SwerveError
from swerve.train.health.verdict import HealthVerdict
from swerve.types import Reward, RewardStatus
from swerve.world import World

ERROR_WINDOW = 64
"""Completions, at least, over which the share of those that could not be graded is taken before a stage's last step."""

_MAX_DETAILS = 5
_MAX_DETAIL_CHARS = 200


def outcome_figures(rewards: Sequence[Reward], world: World) -> dict[str, Any]:
    """Return the number of completions of each outcome over all processes.

    `error_details` is there where a limit was reached or a grader failed: the most frequent reasons with their counts.
    """
    # Counts of all processes.
    statuses = Counter(reward.status for reward in rewards)
    own = {status: float(statuses[status]) for status in get_args(RewardStatus)}
    totals = world.sums({**own, "unanswered": float(sum(not reward.answered for reward in rewards))})
    num_unanswered, num_completions = int(totals.pop("unanswered")), int(sum(totals.values()))
    figures: dict[str, Any] = {
        "num_completions": num_completions,
        "num_failures": num_completions - int(totals["graded"]),
        "num_unanswered": num_unanswered,
        "num_unparsed": int(totals["unparsed"]),
        "num_timeouts": int(totals["timeout"]),
        "num_errors": int(totals["error"]),
    }
    # Why some could not be graded.
    if figures["num_timeouts"] or figures["num_errors"]:
        failed = [reward for reward in rewards if reward.status in ("timeout", "error")]
        details = Counter((reward.detail or reward.status)[:_MAX_DETAIL_CHARS] for reward in failed)
        merged: Counter[str] = Counter()
        for part in world.gather(dict(details)):
            merged.update(part)
        figures["error_details"] = _most_frequent(merged)
    return figures


def _most_frequent(details: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(details.items(), key=lambda item: (-item[1], item[0]))[:_MAX_DETAILS])


def judge_grading(stage: StageConfig, records: Sequence[Mapping[str, Any]]) -> HealthVerdict:
    """Say whether training has to stop because too many completions could not be graded.

    Looked at are the last steps that together have `ERROR_WINDOW` completions or more, as few steps as that takes,
    after the last stop of this kind; fewer completions are judged at the stage's last step only. Depends on the records
    only.

    Args:
        stage: with its `max_error_share`.
        records: the stage's lines of metrics.jsonl so far, the last one of the step that was just made.
    """
    if not isinstance(stage, RlStage | DistillStage) or not records:
        return HealthVerdict()
    # Judged are enough completions, or at the stage's end all there are.
    is_last = records[-1]["stage_step"] == stage.steps
    window = _window(records)
    num = sum(record["num_completions"] for record in window)
    failed = sum(map(_num_failed, window))
    if (num < ERROR_WINDOW and not is_last) or failed <= stage.max_error_share * num:
        return HealthVerdict()
    # Too many failed: the run stops, and says why they did.
    step, share = records[-1]["stage_step"], failed / num
    then = "start another run with --out: no step is left" if is_last else "go on with --resume: the state is saved"
    error = SwerveError(
        f"stage '{stage.label}' stopped at its step {step}: {share:.0%} of the last {num} completions could not be "
        f"graded, more than max_error_share={stage.max_error_share:g}: {_reasons(window)}; repair the grader or its "
        f"limits (runtime.grader_*), then {then}"
    )
    return HealthVerdict(figures={"stopped_error_share": share}, error=error)


def check_end(
    stages: Sequence[StageConfig], newest: CheckpointRef | None, records: Sequence[Mapping[str, Any]]
) -> None:
    """Check that training does not make a success of a stage that failed at its last step.

    A stage without graded completions is not gone on from. A collapsed one is, if its user says so; but at the end of
    the last stage nothing is left to go on with.

    Args:
        stages: of the recipe.
        newest: the checkpoint that training continues from; None: the beginning.
        records: of all steps up to it.

    Raises:
        SwerveError: it ended by `judge_grading`.
        CollapseError: it is the run's last, and its collapse stopped it.
    """
    if newest is None or not newest.final or not records:
        return
    # The grader failed.
    if "stopped_error_share" in records[-1]:
        raise SwerveError(
            f"stage '{newest.stage}' ended because {records[-1]['stopped_error_share']:.0%} of its last completions "
            "could not be graded; repair the grader, then start another run with --out"
        )
    # The last stage collapsed, and its user did not let it continue.
    stage, record = stages[-1], records[-1]
    stops = isinstance(stage, RlStage) and stage.collapse.action != "warn"
    if record.get("collapse") and stops and newest.stage == stage.label:
        raise CollapseError(
            f"stage '{newest.stage}' ended in a collapse: {record['collapse_message']}; no step is left: start "
            "another run with --out and a lower learning rate"
        )


def note_of_failures(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what to say at the stage's first step whose completions could not be graded, all of them.

    Args:
        records: see `judge_grading`.
    """
    first = next((record for record in records if 0 < record.get("num_completions", 0) == _num_failed(record)), None)
    if first is None or first is not records[-1]:
        return None
    return (
        f"step {first['stage_step']}: none of {first['num_completions']} completions could be graded: "
        f"{_reasons([first])}"
    )


def _num_failed(record: Mapping[str, Any]) -> int:
    return int(record["num_timeouts"] + record["num_errors"])


def _reasons(records: Sequence[Mapping[str, Any]]) -> str:
    details: Counter[str] = Counter()
    for record in records:
        details.update(record.get("error_details", {}))
    return "; ".join(f"{detail} ({count})" for detail, count in list(_most_frequent(details).items())[:3])


def _window(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    window: list[Mapping[str, Any]] = []
    num = 0
    for record in reversed(records):
        if "stopped_error_share" in record or num >= ERROR_WINDOW:
            break
        window.append(record)
        num += record["num_completions"]
    return window
