"""The curves of training: which are drawn, and their numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.report.charts import all_charts
from swerve.report.charts_training import training_charts
from swerve.report.curves import Chart
from swerve.report.inputs import ReportInputs, read_inputs


@pytest.fixture(scope="module")
def inputs(answers_only: RunDirectory) -> ReportInputs:
    return read_inputs(answers_only)


def drawn(inputs: ReportInputs) -> dict[str, Chart]:
    return {chart.id: chart for chart in training_charts(inputs)}


def means(chart: Chart, name: str) -> list[float | None]:
    (curve,) = [curve for curve in chart.curves if curve.name == name]
    return [None if point is None else point.mean for point in curve.points]


def test_figures_that_say_something_have_a_curve(inputs: ReportInputs) -> None:
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
    keys = ("num_unparsed", "num_completions")
    for key in keys:
        metrics = tuple({k: v for k, v in record.items() if k != key} for record in inputs.metrics)
        assert "training-failures" not in drawn(replace(inputs, metrics=metrics))


def test_the_curriculum_is_drawn_over_all_stages_where_it_varies(inputs: ReportInputs) -> None:
    charts = drawn(inputs)
    assert charts["training-pool"].steps == tuple(range(1, 9))
    assert means(charts["training-pool"], "Share of the training problems")[2:5] == [1.0, 0.5, 0.625]
    assert charts["training-difficulty"].steps == (4, 5, 6, 7, 8)
    same = tuple({**record, "pool_share": 1.0, "mean_difficulty": 2.0} for record in inputs.metrics)
    assert not {"training-pool", "training-difficulty"} & set(drawn(replace(inputs, metrics=same)))


def test_a_step_without_a_figure_is_a_gap(inputs: ReportInputs) -> None:
    metrics = tuple({**record, "reward": None} if record["step"] == 6 else record for record in inputs.metrics)
    assert means(drawn(replace(inputs, metrics=metrics))["training-reward"], "Mean of the step's rollouts")[2] is None


def test_samples_have_a_chart_where_they_are_many(inputs: ReportInputs, run: RunDirectory) -> None:
    (chart,) = [chart for chart in all_charts(inputs) if chart.id == "sampling"]
    assert [curve.name for curve in chart.curves] == ["pass@1", "pass@4", "maj@4"]
    assert means(chart, "pass@4")[:2] == pytest.approx([0.6, 0.63])
    two = tuple({**entry, "by_num_samples": entry["by_num_samples"][:2]} for entry in inputs.evaluations)
    assert "sampling" not in [chart.id for chart in all_charts(replace(inputs, evaluations=two))]
    assert "sampling" not in [chart.id for chart in all_charts(read_inputs(run))]


def test_rewards_on_another_scale_have_a_chart_of_their_own(inputs: ReportInputs) -> None:
    reward = {"mean": -1.0, "low": -1.75, "high": -0.25}
    changed = replace(inputs, evaluations=tuple({**entry, "mean_reward": reward} for entry in inputs.evaluations))
    charts = {chart.id: chart for chart in all_charts(changed)}
    assert [curve.name for curve in charts["accuracy"].curves] == ["Greedy accuracy"]
    assert means(charts["reward"], "Sampled reward")[0] == -1.0
    assert "reward" not in {chart.id for chart in all_charts(inputs)}
