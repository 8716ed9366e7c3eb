"""What is said of the accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.report.page import all_findings
from swerve.report.read import ReportInputs

BEFORE = {
    "checkpoint": "dpo-8",
    "step": 508,
    "greedy": {"num_problems": 400, "accuracy": {"mean": 0.465, "low": 0.417, "high": 0.514}},
}


def after(mean: float, low: float, high: float) -> dict[str, Any]:
    greedy = {"num_problems": 400, "accuracy": {"mean": mean, "low": low, "high": high}}
    return {"checkpoint": "rl-80", "step": 588, "greedy": greedy}


def first_sentence(inputs: ReportInputs, **changes: Any) -> str:
    return all_findings(replace(inputs, **changes))["Outcome"][0].replace("\N{MINUS SIGN}", "-")


def test_a_difference_that_may_be_none_is_no_change(inputs_of: Any) -> None:
    inputs = inputs_of((BEFORE, after(0.48, 0.43, 0.53)))
    both = (
        "On 400 held-out problems, greedy accuracy was 46.5% (41.7 to 51.4) at dpo-8 and 48.0% (43.0 to 53.0) at rl-80"
    )
    none = Estimate(mean=0.015, low=-0.01, high=0.04)
    assert first_sentence(inputs, greedy_change=none) == (
        f"{both}, a difference of +1.5 (-1.0 to +4.0) points, so no change is shown."
    )
    assert first_sentence(inputs) == f"{both}; their difference was not measured."


def test_a_paired_difference_shows_a_change_though_the_two_intervals_overlap(inputs_of: Any) -> None:
    shown = Estimate(mean=0.015, low=0.005, high=0.025)
    assert first_sentence(inputs_of((BEFORE, after(0.48, 0.43, 0.53))), greedy_change=shown) == (
        "On 400 held-out problems, greedy accuracy rose from 46.5% (41.7 to 51.4) at dpo-8 to 48.0% (43.0 to 53.0) at "
        "rl-80, by +1.5 (+0.5 to +2.5) points."
    )


def test_a_loss_of_accuracy_is_called_a_fall(inputs_of: Any) -> None:
    loss = Estimate(mean=-0.365, low=-0.4, high=-0.33)
    assert first_sentence(inputs_of((BEFORE, after(0.1, 0.07, 0.13))), greedy_change=loss) == (
        "On 400 held-out problems, greedy accuracy fell from 46.5% (41.7 to 51.4) at dpo-8 to 10.0% (7.0 to 13.0) at "
        "rl-80, by -36.5 (-40.0 to -33.0) points."
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
