"""What is said of causes, and its rows."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.topics.causes import TOPIC, spike_effect_rows

SPIKE = {"selection": "spike", "effect": {"mean": 0.874, "low": 0.825, "high": 0.916}}
RANDOM = {"selection": "random", "effect": {"mean": 0.011, "low": -0.004, "high": 0.029}}


def test_the_sentences_on_prediction(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Cause"][4:] == (
        "At the 297 swapped positions where the two models' tokens differ, these of 2 scores go (p adjusted for their "
        "number): JS and entropy of reference with larger effects.",
        "At the 297 swapped positions where the two models' tokens differ, continued by the checkpoint, none of 2 "
        "scores is shown to go with the size of the effect.",
    )


def spikes(low: float, high: float) -> dict[str, Any]:
    """Effects at 40 spikes, at 38 of which the tokens differ; there the checkpoint's is ahead of another by this."""
    ahead = {"mean": (low + high) / 2, "low": low, "high": high}
    return {
        **SPIKE,
        "num_positions": 40,
        "num_different": 38,
        "different_tokens": {"checkpoint_minus_alternative": ahead},
    }


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.01, 0.05, "The token of rl-80 does more than another"),
        (-0.05, 0.05, "Whether the token of rl-80 does more than another is not to be seen"),
        (-0.05, -0.01, "The token of rl-80 does less than another"),
    ],
)
def test_the_headline_is_the_token_against_another_at_the_same_place(
    low: float, high: float, said: str, told: Any
) -> None:
    first = told({"causal": {"selections": [spikes(low, high), RANDOM]}})["Cause"][0]
    more = f"{100 * (low + high) / 2:+.1f} ".replace("+0.0", "0.0")
    assert first.startswith(f"{said}: at the 38 top spikes where it is not the rollout's own, dpo-8 ends right {more}")
    assert " points more often after it than after a third token, which neither model would choose" in first
    assert first.endswith("a true difference of 7.1 points would be seen eight times in ten.") == (low * high < 0)


def test_of_few_spikes_the_headline_says_nothing(told: Any) -> None:
    few = {**spikes(-0.05, 0.05), "num_different": 5}
    first = told({"causal": {"selections": [few, RANDOM]}})["Cause"][0]
    assert first.startswith(
        "Five spikes are too few to say whether the token of rl-80 does more than another: at the 5"
    )


def test_a_headline_that_was_not_measured_is_not_replaced_by_another_contrast(inputs_of: Any, told: Any) -> None:
    """As where no alternative was forced, or the checkpoint chooses the rollout's own token everywhere."""
    said = told({"causal": {"selections": [SPIKE, RANDOM]}})["Cause"]
    assert said[0] == "Whether the token of rl-80 at the spike does more than another token there was not measured."
    assert said[1].startswith("In place of the rollout's own token at the top spike, the token of rl-80 changes how")
    same = {"selection": "spike", "num_positions": 20, "effect": None}
    assert told({"causal": {"selections": [same]}})["Cause"] == said[:1]
    inputs = inputs_of(summary={"causal": {"selections": [SPIKE]}})
    assert [row[0] for row in spike_effect_rows(inputs.summary).rows] == ["token of rl-80"]
    assert not spike_effect_rows(inputs_of(summary={"causal": None}).summary).measured


def test_the_effect_against_the_rollouts_own_token_stands_beside_its_controls(told: Any) -> None:
    matched = {
        "selection": "matched",
        "num_positions": 40,
        "num_different": 30,
        "effect": {"mean": 0.0, "low": -0.03, "high": 0.03},
    }
    spike = {**SPIKE, "alternative_effect": {"mean": 0.6, "low": 0.5, "high": 0.7}}
    assert told({"causal": {"selections": [spike, matched, RANDOM]}})["Cause"][1:4] == (
        "In place of the rollout's own token at the top spike, the token of rl-80 changes how often dpo-8 ends right "
        "by +87.4 (+82.5 to +91.6) points, the third token by +60 (+50 to +70).",
        "At matched positions the same swap changes it by 0.0 (-3.0 to +3.0) (the same token at 10 of 40).",
        "At random positions the same swap changes it by +1.1 (-0.4 to +2.9).",
    )
    same = {"selection": "matched", "num_positions": 40, "effect": None}
    assert told({"causal": {"selections": [SPIKE, same]}})["Cause"][2:4] == (
        "At matched positions both models choose the same token, so nothing is swapped.",
        "At random positions no token was forced.",
    )


@pytest.mark.parametrize(
    ("low", "ending"),
    [
        (0.01, ", +5.0 (+1.0 to +9.0) less than at the spike."),
        (-0.01, "; no difference from the spike is to be seen, +4.0 (-1.0 to +9.0)."),
    ],
)
def test_a_control_is_set_against_the_spike_by_their_paired_difference(low: float, ending: str, told: Any) -> None:
    selections = [SPIKE, {"selection": "matched", "effect": {"mean": 0.8, "low": 0.7, "high": 0.83}}]
    difference = {"mean": (low + 0.09) / 2, "low": low, "high": 0.09}
    differences = [{"control": "matched", "difference": difference}]
    policy = {"policy": "reference", "selections": selections, "differences": differences}
    said = told({"causal": {"selections": selections, "policies": [policy]}})["Cause"][2]
    assert said == f"At matched positions the same swap changes it by +80.0 (+70.0 to +83.0){ending}"


def test_every_policy_and_token_has_its_rows(inputs_of: Any, rows_of: Any) -> None:
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    ranks = {"num_pairs": 40, "median_difference": 0.0, "statistic": 300.0, "p_value": 0.002, "effect_size": 0.4}
    test = {**ranks, "p_adjusted": 0.004, "sign_flip_p": 0.25}
    selections = [{**spikes(0.2, 0.4), "alternative_effect": other, "test": test}]
    difference = {"control": "random", "num_pairs": 40, "difference": other, "test": {**test, "p_adjusted": None}}
    policies = [
        {"policy": name, "selections": selections, "differences": [difference]} for name in ("reference", "checkpoint")
    ]
    rho = {"mean": 0.9, "low": 0.8, "high": 1.0, "p_value": 0.001, "num_clusters": 50}
    scores = [{"selector": "js", "spearman": rho, "p_adjusted": 0.002}]
    prediction = [{"policy": "checkpoint", "num_positions": 15, "selectors": scores}]
    rows = rows_of(TOPIC, inputs_of(summary={"causal": {"policies": policies}, "prediction": prediction}))
    assert list(rows) == ["causal", "causal_checkpoint", "prediction_checkpoint"]
    causal = rows["causal_checkpoint"]
    assert causal.title == "Effect of a forced token on the success of rl-80"
    # The test of the mean beside that of the ranks, which says something else here.
    none = "\N{EN DASH}"
    assert [(row[0], row[1], *row[-2:]) for row in causal.texts] == [
        ("Top spike, token of rl-80", "+87.4 (+82.5 to +91.6)", "0.25", "0.0040"),
        ("Top spike, token of neither", "+60 (+50 to +70)", none, none),
        ("Top spike, difference at 38 of 40", "+30 (+20 to +40)", none, none),
        ("Top spike minus random position", "+60 (+50 to +70)", "0.25", none),
    ]
    assert causal.records[0]["effect_points"] == pytest.approx(87.4)
    assert causal.plots[0].greys == ("Top spike, token of neither",)
    assert rows["prediction_checkpoint"].texts == (("JS", "+0.90 (+0.80 to +1.00)", "0.0010", "0.0020"),)


def test_a_correlation_that_does_not_outlast_the_number_of_scores_is_not_claimed(told: Any) -> None:
    def said(mean: float, p_adjusted: float, num: int = 40) -> str:
        rho = {"mean": mean, "low": mean - 0.2, "high": mean + 0.2, "p_value": 0.02, "num_clusters": 50}
        scores = [{"selector": "js", "spearman": rho, "p_adjusted": p_adjusted}]
        entry = {"policy": "reference", "num_positions": num, "selectors": scores}
        return next(iter(told({"prediction": [entry]})["Cause"][4:]), "")

    where = "At the 40 swapped positions where the two models' tokens differ, "
    assert said(0.3, 0.16) == f"{where}none of 1 scores is shown to go with the size of the effect."
    assert said(0.3, 0.04).endswith(": JS with larger effects.")
    assert said(0.3, 0.04, num=14) == ""
    assert said(-0.3, 0.04).endswith(": JS with smaller effects.")
