"""What is said of causes."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.draw.panels import DotPlot, Table
from swerve.report.page import all_sections

SPIKE = {"selection": "spike", "effect": {"mean": 0.874, "low": 0.825, "high": 0.916}}
RANDOM = {"selection": "random", "effect": {"mean": 0.011, "low": -0.004, "high": 0.029}}


def test_the_sentences_on_causes(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Cause"][1:] == (
        "Over all positions tested, JS best ranks those with an effect of 10.0% or more: AUC 0.900 (0.850 to 0.950), "
        "not distinguishable from entropy of reference.",
        "Among those where the two models' tokens differ, no score ranks those with an effect of 10.0% or more above "
        "chance.",
        "Along 20 rollouts 9 single tokens change the success by 20.0% or more, 8 of them also on fresh continuations "
        "(at most 0.17 expected by chance); 88.9% (68.9 to 100.0) of them are spikes (by chance 1.9%).",
    )
    into, out = told(entries)["Dose"]
    assert into == (
        "dpo-8 with tokens of rl-80: with JS choosing 2.2% of the tokens, accuracy goes from 51.0% (42.0 to 60.0) to "
        "82.2% (75.2 to 89.2), which is 80.0% (70.0 to 90.0) of the gap to 90.0% (81.0 to 99.0); over all budgets it "
        "is "
        "above random choice, +0.800 (+0.710 to +0.890) of the gap."
    )
    assert out.startswith("rl-80 with tokens of dpo-8: with JS choosing 2.2% of the tokens, accuracy goes from 90.0%")


def test_an_effect_no_larger_than_the_control_is_not_claimed(said: Any) -> None:
    spike = {"selection": "spike", "effect": {"mean": 0.02, "low": -0.01, "high": 0.05}}
    summary = {"causal": {"selections": [spike, RANDOM]}}
    assert said(summary=summary)[-1].endswith("; the intervals overlap, so no effect of the spike is shown.")


@pytest.mark.parametrize(
    ("low", "high", "ending"),
    [
        (0.01, 0.05, "so the token of rl-80 does more than another."),
        (-0.05, 0.05, "so the two are not distinguishable."),
        (-0.05, -0.01, "so the token of rl-80 does less than another."),
    ],
)
def test_another_token_is_compared_with_that_of_the_checkpoint(low: float, high: float, ending: str, told: Any) -> None:
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    difference = {"mean": (low + high) / 2, "low": low, "high": high}
    spike = {**SPIKE, "alternative_effect": other, "checkpoint_minus_alternative": difference}
    matched = {"selection": "matched", "effect": {"mean": 0.0, "low": -0.03, "high": 0.03}}
    first, second = told({"causal": {"selections": [spike, matched, RANDOM]}})["Cause"]
    assert first.endswith("; at matched positions by 0.0 (-3.0 to +3.0), at random positions by +1.1 (-0.4 to +2.9).")
    assert second.startswith(
        "A control token at the same place, neither model's choice, changes it by +60.0 (+50.0 to +70.0)"
    )
    assert second.endswith(ending)


def test_an_effect_that_the_matched_control_has_too_is_not_claimed(told: Any) -> None:
    matched = {"selection": "matched", "effect": {"mean": 0.8, "low": 0.7, "high": 0.83}}
    assert told({"causal": {"selections": [SPIKE, matched, RANDOM]}})["Cause"][0].endswith(
        "; the intervals overlap, so no effect of the spike is shown."
    )


def test_what_was_not_measured_beside_an_effect_is_said(told: Any) -> None:
    assert told({"causal": {"selections": [SPIKE]}})["Cause"][0].endswith("; random positions were not measured.")


def test_every_policy_and_token_has_its_panel(inputs_of: Any, told: Any) -> None:
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    selections = [{**SPIKE, "alternative_effect": other}]
    policies = [
        {"policy": name, "selections": selections, "differences": [{"control": "random", "difference": other}]}
        for name in ("reference", "checkpoint")
    ]
    score = {"selector": "js", "auc": {"mean": 0.9, "low": 0.8, "high": 1.0}}
    prediction = [{"policy": "checkpoint", "positions": "all", "delta": 0.1, "selectors": [score]}]
    summary = {"causal": {"selections": selections, "policies": policies}, "prediction": prediction}
    assert told(summary)["Cause"][1].startswith("Where the checkpoint continues: over all positions tested, JS best")
    (causes,) = [one for one in all_sections(inputs_of(summary=summary)) if one.id == "causes"]
    assert [one.title for one in causes.panels[:2]] == [
        "Forced tokens, continued by dpo-8",
        "Forced tokens, continued by rl-80",
    ]
    plot, _, differences = causes.panels[1].parts
    assert isinstance(plot, DotPlot)
    assert [row.name for row in plot.rows] == ["Top spike, token of rl-80", "Top spike, another token"]
    assert isinstance(differences, Table)
    assert (differences.id, differences.rows[0][0]) == ("causal-checkpoint-differences", "spike minus random")
