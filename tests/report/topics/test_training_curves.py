"""The curves of training: which are drawn, and their numbers; and what calls for caution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from swerve.report.draw.curves import Chart

from swerve.artifacts.evaluation import Evaluation
from swerve.report.page import all_charts
from swerve.report.read import ReportInputs
from swerve.report.topics.training_curves import TOPIC


@pytest.fixture(scope="module")
def inputs(answers_inputs: ReportInputs) -> ReportInputs:
    return answers_inputs


def drawn(inputs: ReportInputs) -> dict[str, Chart]:
    assert TOPIC.charts is not None
    return {chart.id: chart for chart in TOPIC.charts(inputs)}


def means(chart: Chart, name: str) -> list[float | None]:
    (curve,) = [curve for curve in chart.curves if curve.name == name]
    return [None if point is None else point.mean for point in curve.points]


def test_metrics_that_say_something_have_a_curve(inputs: ReportInputs) -> None:
    charts = drawn(inputs)
    assert list(charts) == [
        "training-reward", "training-entropy", "training-failures", "training-responses", "training-difficulty",
        "training-pool",
    ]  # fmt: skip
    assert [curve.name for curve in charts["training-failures"].curves] == ["No answer found"]
    assert [curve.name for curve in charts["training-responses"].curves] == ["In the format asked for", "Truncated"]


def test_failures_are_shares_of_the_completions(inputs: ReportInputs) -> None:
    chart = drawn(inputs)["training-failures"]
    assert means(chart, "No answer found") == [0.0, 0.25, 0.0, 0.0, 0.0]
    assert chart.steps == (4, 5, 6, 7, 8)
    assert (chart.unit, chart.labels[1], chart.has_intervals) == ("rate", "rl-2", False)


def test_failures_of_an_older_run_are_not_measured(inputs: ReportInputs) -> None:
    keys = ("num_unanswered", "num_completions")
    for key in keys:
        metrics = tuple(step.model_copy(update={key: None}) for step in inputs.metrics)
        assert "training-failures" not in drawn(replace(inputs, metrics=metrics))


def test_the_curriculum_is_drawn_over_all_stages_where_it_varies(inputs: ReportInputs) -> None:
    charts = drawn(inputs)
    assert charts["training-pool"].steps == tuple(range(1, 9))
    assert means(charts["training-pool"], "Fraction of the training problems")[2:5] == [1.0, 0.5, 0.625]
    assert charts["training-difficulty"].steps == (4, 5, 6, 7, 8)
    constant = {"pool_share": 1.0, "mean_difficulty": 2.0}
    same = tuple(step.model_copy(update=constant) for step in inputs.metrics)
    assert not {"training-pool", "training-difficulty"} & set(drawn(replace(inputs, metrics=same)))


def test_sampler_against_trainer_is_drawn_where_it_is_more_than_rounding(inputs: ReportInputs) -> None:
    def charts(gap: float) -> dict[str, Any]:
        gaps = {"logprob_gap": gap, "logprob_gap_q1": gap / 2, "logprob_gap_q4": None}
        metrics = tuple(step.model_copy(update=gaps) if step.stage == "rl" else step for step in inputs.metrics)
        return drawn(replace(inputs, metrics=metrics))

    assert "training-mismatch" not in charts(5e-4)
    assert [curve.name for curve in charts(0.0015)["training-mismatch"].curves] == ["Mean"]
    assert means(charts(0.5)["training-mismatch"], "First quarter")[-1] == 0.25


def test_a_stop_for_the_mismatch_is_said(said: Any) -> None:
    record = {"step": 20, "stage": "rl", "stage_step": 12, "stopped_logprob_gap": 0.25}
    assert said(summary=None, metrics=(record,))[-1] == (
        "Stage rl stopped at its step 12, as the log-probabilities of sampler and trainer differed by 0.250 nats per "
        "token."
    )


def test_the_phases_of_a_stage_are_marked(inputs: ReportInputs) -> None:
    """Steps 4 to 8 are those of the stage rl."""
    metrics = tuple(
        step.model_copy(update={"phase": 1 if step.step < 6 else 2}) if step.stage == "rl" else step
        for step in inputs.metrics
    )
    found = drawn(replace(inputs, metrics=metrics))["training-reward"].stages
    assert [(one.name, one.start, one.end) for one in found if one.start > 2] == [
        ("rl, phase 1", 3, 5), ("rl, phase 2", 5, 8),
    ]  # fmt: skip


def test_a_step_without_a_figure_is_a_gap(inputs: ReportInputs) -> None:
    metrics = tuple(step.model_copy(update={"reward": None}) if step.step == 6 else step for step in inputs.metrics)
    assert means(drawn(replace(inputs, metrics=metrics))["training-reward"], "Mean of the step's rollouts")[2] is None


def test_the_validation_loss_is_drawn_at_the_steps_that_have_one(inputs: ReportInputs) -> None:
    losses = {1: 0.5, 3: 0.25}
    metrics = tuple(step.model_copy(update={"val_loss": losses.get(step.step)}) for step in inputs.metrics)
    chart = drawn(replace(inputs, metrics=metrics))["training-validation"]
    assert (chart.steps, means(chart, "Mean per token")) == ((1, 3), [0.5, 0.25])


def test_samples_have_a_chart_where_they_are_many(inputs: ReportInputs, inputs_of: Any) -> None:
    (chart,) = [chart for chart in all_charts(inputs) if chart.id == "sampling"]
    assert [curve.name for curve in chart.curves] == ["pass@1", "pass@4", "maj@4"]
    assert means(chart, "pass@4")[:2] == pytest.approx([0.6, 0.63])
    two = tuple(
        one.model_copy(update={"sampled": one.sampled.model_copy(update={"curve": one.sampled.curve[:2]})})
        for one in inputs.evaluations
    )
    assert "sampling" not in [chart.id for chart in all_charts(replace(inputs, evaluations=two))]
    assert "sampling" not in [chart.id for chart in all_charts(inputs_of())]


def test_rewards_on_another_scale_have_a_chart_of_their_own(inputs: ReportInputs) -> None:
    reward = {"mean": -1.0, "low": -1.75, "high": -0.25}
    changed = replace(
        inputs,
        evaluations=tuple(
            Evaluation.model_validate(
                one.model_dump() | {"sampled": one.sampled.model_dump() | {"mean_reward": reward}}
            )
            for one in inputs.evaluations
        ),
    )
    charts = {chart.id: chart for chart in all_charts(changed)}
    assert [curve.name for curve in charts["accuracy"].curves] == ["Greedy accuracy"]
    assert means(charts["reward"], "Sampled reward")[0] == -1.0
    assert "reward" not in {chart.id for chart in all_charts(inputs)}


def test_too_few_rollouts_are_said_to_be_too_few(said: Any) -> None:
    assert said(summary={"reliable": False})[-1] == (
        "The probe had too few rollouts for its metrics to be relied upon."
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
