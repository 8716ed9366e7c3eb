"""What is said of the accuracy, and its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.evaluation import Evaluation
from swerve.estimates import Estimate
from swerve.report.read import ReportInputs
from swerve.report.rows import NUMBER
from swerve.report.run_page import all_findings
from swerve.report.story import sentence, verdicts
from swerve.report.topics.outcome import TOPIC


def test_a_paired_difference_shows_a_change_of_accuracy(inputs_of: Any) -> None:
    shown = replace(inputs_of(), greedy_change=Estimate(mean=0.5275, low=0.48, high=0.57))
    assert all_findings(shown)["Outcome"][0] == (
        "On 400 held-out problems, greedy accuracy rose from 46.5% (41.7 to 51.4) at dpo-8 to 99.2% (97.8 to 99.7) at "
        "rl-80, by +52.8 (+48.0 to +57.0) points."
    )


def passing(mean: float) -> dict[str, Any]:
    estimate = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}
    return {"sampled": {"curve": [{"k": 1, "pass_at_k": estimate}, {"k": 4, "pass_at_k": estimate}]}}


@pytest.mark.parametrize(
    ("later", "ending"),
    [
        (0.7, "rose from 60.0% (58.0 to 62.0) to 70.0% (68.0 to 72.0), by +10.0 (+5.0 to +15.0) points."),
        (0.5, "fell from 60.0% (58.0 to 62.0) to 50.0% (48.0 to 52.0), by -10.0 (-15.0 to -5.0) points."),
        (0.63, "was 60.0% (58.0 to 62.0) and 63.0% (61.0 to 65.0), a difference of +3.0 (-2.0 to +8.0) points, so no"),
    ],
)
def test_whether_one_of_many_samples_is_right_more_often(later: float, ending: str, said: Any, inputs_of: Any) -> None:
    first = {"checkpoint": "dpo-8", "step": 8, **passing(0.6)}
    last = {"checkpoint": "rl-80", "step": 88, **passing(later)}
    change = Estimate(mean=later - 0.6, low=later - 0.65, high=later - 0.55)
    findings = all_findings(replace(inputs_of((first, last), None), pass_change=change))
    (sentence,) = [one.replace("\N{MINUS SIGN}", "-") for one in findings["Outcome"] if "pass@4" in one]
    assert sentence.startswith("The chance that one of 4 samples is right (pass@4) ")
    assert ending in sentence.replace(" at dpo-8", "").replace(" at rl-80", "")
    few = [{**entry, "sampled": {"curve": entry["sampled"]["curve"][:1]}} for entry in (first, last)]
    assert not any("pass@" in one for one in said(tuple(few), None))


def with_halves(inputs: ReportInputs, *, greedy: Any = None, sampled: Any = None) -> ReportInputs:
    """Return the run with other scores in each evaluation."""
    records = [each.model_dump() for each in inputs.evaluations]
    changed = [
        {
            **record,
            "greedy": {**record["greedy"], **(greedy or {})},
            "sampled": {**record["sampled"], **(sampled or {})},
        }
        for record in records
    ]
    return replace(inputs, evaluations=tuple(map(Evaluation.model_validate, changed)))


def test_accuracy_has_a_curve_for_each_measure(answers_inputs: ReportInputs, inputs_of: Any, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)
    assert list(rows) == ["accuracy", "sampling", "parts", "accuracy_by_difficulty"]
    assert list(rows["accuracy"].columns) == ["Greedy accuracy", "Sampled reward"]
    assert [each[0] for each in rows["accuracy"].rows[:2]] == ["sft-500", "dpo-8"]
    (plot,) = rows["accuracy"].plots
    assert (plot.columns, plot.x_title) == (("Greedy accuracy", "Sampled reward"), "RL step")
    assert plot.x[:3] == (-8, 0, 5)
    assert rows_of(TOPIC, inputs_of())["accuracy"].note.endswith("Throughout: fully right traces 96.0% (93.0 to 97.5).")


def test_rewards_on_another_scale_are_not_in_percent(answers_inputs: ReportInputs, rows_of: Any) -> None:
    reward = {"mean": -1.0, "low": -1.75, "high": -0.25}
    rows = rows_of(TOPIC, with_halves(answers_inputs, sampled={"mean_reward": reward}))
    assert (
        rows["accuracy"].note
        == "Throughout: sampled reward \N{MINUS SIGN}1.00 (\N{MINUS SIGN}1.75 to \N{MINUS SIGN}0.25)."
    )


def test_samples_have_what_was_measured_and_what_it_means(answers_inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)["sampling"]
    share = Estimate(mean=0.5, low=0.4, high=0.6)
    assert rows.column("pass@4")[1] == Estimate(mean=0.63, low=0.61, high=0.65)
    assert rows.columns["Different right answers"] == NUMBER
    assert rows.column("Different right answers")[1] == Estimate(mean=2.0, low=1.5, high=2.5)
    assert rows.column("pass@2")[1] == share
    assert "Temperature: 1.0." in rows.note
    share_alone = {"k": 1, "num_problems": 400, "pass_at_k": share, "pass_hat_k": share, "majority_at_k": None}
    assert "sampling" not in rows_of(TOPIC, with_halves(answers_inputs, sampled={"curve": [share_alone]}))


def scores(num_problems: int, mean: float) -> dict[str, Any]:
    return {"num_problems": num_problems, "accuracy": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}}


def test_kinds_are_in_the_order_of_their_numbers(answers_inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)
    kinds = [row[0] for row in rows["accuracy_by_difficulty"].rows]
    assert len(kinds) == 12
    assert kinds.index("2 people") < kinds.index("10 people")
    assert rows["accuracy_by_difficulty"].rows[0][1:3] == (33, Estimate(mean=0.5, low=0.4, high=0.6))
    (plot,) = rows["accuracy_by_difficulty"].plots
    assert (plot.column, plot.null) == ("rl-80", "dpo-8")
    assert [row[:2] for row in rows["parts"].rows] == [("gsm8k", 200), ("k_and_k 2", 200)]


@pytest.mark.parametrize(("num", "num_rows", "num_plots"), [(1, 0, 0), (24, 24, 1), (25, 25, 0)])
def test_one_kind_is_the_accuracy_once_more_and_many_are_a_table_alone(
    num: int, num_rows: int, num_plots: int, answers_inputs: ReportInputs, rows_of: Any
) -> None:
    kinds = {f"kind {index}": scores(2, 0.5) for index in range(num)}
    found = rows_of(TOPIC, with_halves(answers_inputs, greedy={"by_kind": kinds}))
    shown = [(len(rows.rows), len(rows.plots)) for id, rows in found.items() if id == "accuracy_by_difficulty"]
    assert shown == ([(num_rows, num_plots)] if num_rows else [])


def test_recorded_verdicts_of_responses_from_elsewhere_are_said(told: Any) -> None:
    """Accuracy is not said to be missing beside them."""
    populations = [
        {"population": f"imported_{name}", "source": "imported", "num_rollouts": num, "num_correct": right}
        for name, num, right in (("wrong", 54, 0), ("right", 63, 63))
    ]
    said = told({"selection": "imported", "populations": populations, "reference": "a", "final": "b"})["Outcome"]
    assert said == ("Of 117 graded responses 63 are right (53.8%).",)
    ungraded = [{**populations[0], "population": "imported", "num_correct": None}]
    beside = {"selection": "imported", "populations": [*populations, *ungraded], "reference": "a", "final": "b"}
    assert told(beside)["Outcome"] == said
    nothing = {"selection": "imported", "populations": ungraded, "reference": "a", "final": "b"}
    assert told(nothing)["Outcome"] == ("The responses were not graded.",)


def test_samples_of_two_models_from_files_have_their_accuracies(inputs_of: Any, rows_of: Any) -> None:
    before, after = ({"mean": mean, "low": mean - 0.1, "high": mean + 0.1} for mean in (0.25, 0.75))
    side = {"path": "a.jsonl"}
    selected = {
        "name": "all", "where": [], "reference": side, "final": side, "both_right": 7, "only_reference_right": 1,
        "only_final_right": 20, "both_wrong": 3, "num_unshared": 0, "reference_accuracy": before,
        "final_accuracy": after, "accuracy_difference": {"mean": 0.5, "low": 0.4, "high": 0.6},
    }  # fmt: skip
    inputs = inputs_of((), {"selection": "split", "selected": selected, "num_problems": 31})
    rows = rows_of(TOPIC, inputs)
    assert list(rows) == ["accuracy"]
    assert rows["accuracy"].texts == (("dpo-8", "25% (15 to 35)"), ("rl-80", "75% (65 to 85)"))
    assert all_findings(inputs)["Outcome"] == (
        "On 31 problems, accuracy of the samples rose from 25% (15 to 35) at dpo-8 to 75% (65 to 85) at "
        "rl-80, by +50 (+40 to +60) points.",
    )
    # The samples are in the user's files; their accuracies are what the rows have.
    first, known = sentence(inputs), [one for one in verdicts(inputs) if one.id in ("accuracy", "sure")]
    for text, evidence in [(first, first.evidence), *((f"{one.title} {one.text}", one.evidence) for one in known)]:
        assert evidence is not None
        assert [figure.name for figure in evidence.figures]
        assert evidence.missing_in(text) == []
