"""The section on every checkpoint, of a mixture whose answers alone are checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from swerve.report.draw.panels import DotPlot, Panel, Table, Terms

from swerve.artifacts.evaluation import Evaluation
from swerve.report.page import all_sections
from swerve.report.read import ReportInputs


@pytest.fixture(scope="module")
def inputs(answers_inputs: ReportInputs) -> ReportInputs:
    return answers_inputs


def parts(inputs: ReportInputs) -> dict[str, Table]:
    found = [part for section in all_sections(inputs) if section.id == "tables" for part in section.parts]
    return {part.id: part for part in found if isinstance(part, Table)}


def panel(inputs: ReportInputs, title: str) -> Panel:
    (found,) = [one for section in all_sections(inputs) for one in section.panels if one.title == title]
    return found


def with_entries(inputs: ReportInputs, *, greedy: Any = None, sampled: Any = None, **changes: Any) -> ReportInputs:
    changed = []
    for one in inputs.evaluations:
        record = one.model_dump() | changes
        halves = {"greedy": record["greedy"] | (greedy or {}), "sampled": record["sampled"] | (sampled or {})}
        changed.append(Evaluation.model_validate(record | halves))
    return replace(inputs, evaluations=tuple(changed))


def test_a_column_that_was_measured_nowhere_is_left_out(inputs: ReportInputs, inputs_of: Any) -> None:
    assert "Fully right traces" not in parts(inputs)["evaluation"].header
    assert "Fully right traces" in parts(inputs_of())["evaluation"].header


def test_outcomes_have_the_statuses_that_occur_with_their_shares(inputs: ReportInputs) -> None:
    table = parts(inputs)["outcomes"]
    assert table.header == ("Checkpoint", "Completions", "Graded", "No answer found", "Limit reached")
    assert table.rows[1] == ("dpo-8", "2,000", "1,969 (98.5%)", "20 (1.0%)", "11 (0.5%)")


@pytest.mark.parametrize("statuses", [{"graded": 5, "unparsed": 0, "timeout": 0, "error": 0}, {}])
def test_no_outcomes_where_all_were_graded_or_nothing_tells(inputs: ReportInputs, statuses: Any) -> None:
    changes = {"statuses": statuses, "num_unanswered": 0}
    assert "outcomes" not in parts(with_entries(inputs, greedy=changes, sampled=changes))


def test_reasons_are_added_up_over_the_steps(inputs: ReportInputs) -> None:
    rows = parts(inputs)["reasons"].rows
    assert rows[0] == ("time limit of 5 s <i>", "10")
    assert len(rows) == 6


def test_samples_have_what_was_measured_and_what_it_means(inputs: ReportInputs) -> None:
    found = panel(inputs, "What are several samples of a problem worth?")
    table, terms = found.parts
    assert isinstance(table, Table)
    assert isinstance(terms, Terms)
    assert table.header == ("Checkpoint", "pass@1", "pass@2", "pass@4", "maj@4", "pass^4", "Different right answers")
    assert table.rows[1] == ("dpo-8", *["50.0% (40.0 to 60.0)"] * 2, "63.0% (61.0 to 65.0)",
                             *["50.0% (40.0 to 60.0)"] * 2, "2.00 (1.50 to 2.50)")  # fmt: skip
    assert table.rows[0][-1].startswith("1.00 (")
    assert [name for name, _ in terms.rows] == ["pass@k", "maj@k", "pass^k", "Different right answers"]
    assert found.note.startswith("4 samples per problem at temperature 1. ")


def test_different_right_answers_stand_there_also_where_none_is_found_twice(inputs: ReportInputs) -> None:
    nothing = {"mean": 0.0, "low": 0.0, "high": 0.1}
    table = parts(with_entries(inputs, sampled={"distinct_right": nothing}))["sampling"]
    assert [row[-1] for row in table.rows] == ["0 (0 to 0.100)"] * len(table.rows)
    assert parts(with_entries(inputs, sampled={"distinct_right": None}))["sampling"].header[-1] == "pass^4"


def test_one_sample_a_problem_is_no_table(inputs: ReportInputs) -> None:
    share = {"mean": 0.5, "low": 0.4, "high": 0.6}
    one = [{"k": 1, "num_problems": 400, "pass_at_k": share, "pass_hat_k": share, "majority_at_k": None}]
    assert "sampling" not in parts(with_entries(inputs, sampled={"curve": one}))
    assert "sampling" not in parts(with_entries(inputs, sampled={"curve": ()}))


def test_responses_leave_out_what_never_occurs_but_not_the_format(inputs: ReportInputs) -> None:
    table = parts(inputs)["responses-form"]
    assert table.header == ("Checkpoint", "In format", "Reflections")
    assert table.rows[2] == ("rl-5", "0.0% (0.0 to 1.0)", "3.00 (2.00 to 4.00)")


def test_responses_that_were_not_measured_have_no_table(inputs: ReportInputs) -> None:
    nothing = dict.fromkeys(("in_format", "reflections", "repeated_4grams"))
    assert "responses-form" not in parts(with_entries(inputs, greedy=nothing))


def test_kinds_are_in_the_order_of_their_numbers_and_have_a_plot(inputs: ReportInputs) -> None:
    kinds = [row[0] for row in parts(inputs)["kinds"].rows]
    assert len(kinds) == 12
    assert kinds.index("2 people") < kinds.index("10 people")
    plot = panel(inputs, "Which kinds of problems were learned?").parts[0]
    assert isinstance(plot, DotPlot)
    assert [row.name for row in plot.rows] == kinds
    assert (plot.rows[0].dot, plot.rows[0].chance) == (50.0, 50.0)
    assert [row[0] for row in parts(inputs)["parts"].rows] == ["gsm8k", "k_and_k 2"]


def scores(num_problems: int, accuracy: Any) -> dict[str, Any]:
    missing = dict.fromkeys(("trace_right", "mean_reward", "num_tokens", "entropy"))
    return {"num_problems": num_problems, "accuracy": accuracy, **missing}


def test_many_kinds_are_a_table_alone(inputs: ReportInputs) -> None:
    kinds = {f"kind {i}": scores(2, {"mean": 0.5, "low": 0.1, "high": 0.9}) for i in range(25)}
    found = panel(with_entries(inputs, greedy={"by_kind": kinds}), "Which kinds of problems were learned?")
    (table,) = found.parts
    assert isinstance(table, Table)
    assert not table.folded
    assert [row[0] for row in table.rows][9:11] == ["kind 9", "kind 10"]


def test_one_kind_is_the_accuracy_once_more(inputs: ReportInputs) -> None:
    share = {"mean": 0.5, "low": 0.4, "high": 0.6}
    assert "kinds" not in parts(with_entries(inputs, greedy={"by_kind": {"all": scores(400, share)}}))


def test_rewards_that_leave_the_unit_interval_are_numbers(inputs: ReportInputs) -> None:
    assert parts(inputs)["evaluation"].rows[0][3].startswith("42.0% (")
    changed = with_entries(inputs, sampled={"mean_reward": {"mean": -1.0, "low": -1.75, "high": -0.25}})
    assert parts(changed)["evaluation"].rows[0][3].replace("\N{MINUS SIGN}", "-") == "-1.00 (-1.75 to -0.250)"


def test_without_known_wrong_steps_only_noise_is_told(inputs: ReportInputs) -> None:
    (steps,) = [section for section in all_sections(inputs) if section.id == "steps"]
    assert steps.title == "What do the methods for spikes find in noise?"
    assert steps.lead.startswith("No step of these rollouts is known to be wrong")
    (table,) = steps.parts
    assert isinstance(table, Table)
    assert table.rows == (("z-score", "not measured", "not measured", "54.4 (42.7 to 66.1)"),)
    assert parts(inputs)["spike-numbers"].rows[0] == ("rl-5", "310", "310", "310")
