"""The curves of training: which are drawn, and their numbers; and what calls for caution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.report.read import ReportInputs
from swerve.report.rows import Curves, Rows
from swerve.report.topics.training_curves import TOPIC


@pytest.fixture
def drawn(answers_inputs: ReportInputs, rows_of: Any) -> Any:
    """Return the rows of a run of three steps of SFT and five of RL, its steps changed: those of RL, or all."""

    def draw(*, of_all: Any = None, **changes: Any) -> Rows:
        metrics = tuple(
            step.model_copy(update=changes if step.stage == "rl" else {}).model_copy(update=of_all or {})
            for step in answers_inputs.metrics
        )
        rows: Rows = rows_of(TOPIC, replace(answers_inputs, metrics=metrics))["training_curves"]
        return rows

    return draw


def curve(rows: Rows, name: str) -> Curves:
    (plot,) = [plot for plot in rows.plots if isinstance(plot, Curves) and plot.columns == (name,)]
    return rows.along(plot)[1]


def test_metrics_that_say_something_have_a_curve_and_others_a_line(drawn: Any) -> None:
    rows = drawn()
    assert list(rows.columns) == ["Reward", "No answer", "Difficulty", "Problems open"]
    assert rows.note.endswith(
        "Throughout: truncated 25.0%; surprise 0.200; limit reached 0.0%; grader failed 0.0%; in format 0.0%; "
        "repeated 4-grams 0.0%; reflections 0."
    )
    assert not rows.has_table


def test_failures_are_fractions_of_the_completions(drawn: Any) -> None:
    assert drawn().column("No answer")[3:] == (0.0, 0.25, 0.0, 0.0, 0.0)
    for key in ("num_unanswered", "num_completions"):
        assert "No answer" not in drawn(**{key: None}).columns


def test_a_metric_lies_over_the_steps_of_its_stage_or_over_all(drawn: Any) -> None:
    reward, opened = curve(drawn(), "Reward"), curve(drawn(), "Problems open")
    assert (reward.x, reward.x_title) == ((1, 2, 3, 4, 5), "RL step")
    assert (opened.x, opened.x_title, opened.ends) == (tuple(range(1, 9)), "step", {"sft": 3, "rl": 8})


def test_each_stage_has_a_loss_of_its_own(drawn: Any) -> None:
    assert drawn(of_all={"loss": 0.5}).note.endswith("SFT loss 0.500; RL loss 0.500.")


def test_the_phases_of_a_stage_are_marked(drawn: Any) -> None:
    assert curve(drawn(phase=2), "Reward").ends == {"sft": 0, "rl, phase 2": 5}


def test_a_stop_for_the_mismatch_is_said(said: Any) -> None:
    record = {"step": 20, "stage": "rl", "stage_step": 12, "stopped_logprob_gap": 0.25}
    assert said(summary=None, metrics=(record,))[-1] == (
        "Stage rl stopped at its step 12, as the log-probabilities of sampler and trainer differed by 0.250 nats per "
        "token."
    )


def test_too_few_rollouts_are_said_to_be_too_few(said: Any) -> None:
    assert said(summary={"reliable": False, "num_rollouts": 12})[-1] == (
        "Twelve rollouts are too few to rely upon the probe's metrics."
    )


def test_each_collapse_is_said(said: Any) -> None:
    records = (
        {"step": 20, "stage": "rl", "stage_step": 12, "reward": 0.4},
        {
            "step": 21,
            "stage": "rl",
            "stage_step": 13,
            "collapse": "reward",
            "collapse_message": "the reward fell from 0.5 to 0.1",
        },
        {"step": 40, "stage": "rl", "stage_step": 32, "collapse": "grad_norm", "collapse_message": "it grew"},
    )
    assert said(summary=None, metrics=records)[-2:] == (
        "Stage rl collapsed at its step 13: the reward fell from 0.5 to 0.1.",
        "Stage rl collapsed at its step 32: it grew.",
    )


def test_what_graders_could_not_judge_is_a_caution(said: Any) -> None:
    statuses = {"graded": 1990, "unparsed": 5, "timeout": 4, "error": 1}
    entry = {"checkpoint": "rl-80", "step": 88, "sampled": {"statuses": statuses}}
    record = {"step": 20, "stage": "rl", "stage_step": 12, "stopped_error_share": 0.625}
    assert said((entry, entry), None, (record,))[-2:] == (
        "In the evaluations, 8 of 4,000 completions reached a limit of the grader and 2 made it fail; they count as "
        "wrong.",
        "Stage rl stopped at its step 12, as 62.5% of its last completions could not be graded.",
    )
    answered = {**entry, "sampled": {"statuses": {"graded": 10, "unparsed": 5, "timeout": 0, "error": 0}}}
    assert not any("grader" in one for one in said((answered,), None))
