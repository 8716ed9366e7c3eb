"""What is said of causes."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.draw.panels import DotPlot, Table
from swerve.report.page import all_sections, all_tiles

SPIKE = {"selection": "spike", "effect": {"mean": 0.874, "low": 0.825, "high": 0.916}}
RANDOM = {"selection": "random", "effect": {"mean": 0.011, "low": -0.004, "high": 0.029}}


def test_the_sentences_on_causes(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Cause"][2:] == (
        "At the 297 swapped positions where the two models' tokens differ, JS and entropy of reference go with the "
        "size of the effect (of 2 scores, p adjusted for their number; rank correlation 0.590 to 0.600).",
        "At the 297 swapped positions where the two models' tokens differ, continued by the checkpoint, none of 2 "
        "scores is shown to go with the size of the effect.",
        "Along 20 rollouts 9 single tokens change the success by 20.0% or more where they were found; for 8 of them "
        "fresh continuations exclude a smaller change (on average at most 0.45 of these change it by less); 88.9% "
        "(68.9 to 100.0) of them have a spike (by chance 1.9%). In 6 of the rollouts the success falls for good at a "
        "token; it has the highest divergence in 66.7% (36.7 to 96.7) of these (by chance 1.9%), the reference's "
        "highest entropy in 50.0% (20.0 to 80.0) (difference +16.7 (-3.3 to +36.7) points).",
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
    ("low", "high", "ending"),
    [
        (0.01, 0.05, "so the token of rl-80 does more than another."),
        (-0.05, 0.05, "so the two are not distinguishable."),
        (-0.05, -0.01, "so the token of rl-80 does less than another."),
    ],
)
def test_the_headline_is_the_token_against_another_at_the_same_place(
    low: float, high: float, ending: str, told: Any
) -> None:
    first = told({"causal": {"selections": [spikes(low, high), RANDOM]}})["Cause"][0]
    assert first.startswith(
        "At the 38 top spikes where rl-80 chooses another token than the rollout's, its token is ahead of a third one "
        f"at the same place, neither model's choice, by {100 * (low + high) / 2:+.1f} ".replace("+0.0", "0.0")
    )
    assert first.endswith(ending)


def test_a_headline_that_was_not_measured_is_not_replaced_by_another_contrast(inputs_of: Any, told: Any) -> None:
    """As where no alternative was forced, or the checkpoint chooses the rollout's own token everywhere."""
    said = told({"causal": {"selections": [SPIKE, RANDOM]}})["Cause"]
    assert said[0] == "Whether the token of rl-80 at the spike does more than another token there was not measured."
    assert said[1].startswith("Put in place of the rollout's own at the top spike, the token of rl-80 changes")
    same = {"selection": "spike", "num_positions": 20, "effect": None}
    assert told({"causal": {"selections": [same]}})["Cause"] == said[:1]
    for spike, value, ends, own in (
        (spikes(0.2, 0.4), "+30.0 points", "+20.0 to +40.0, 38 positions; ", "+87.4 (+82.5 to +91.6)"),
        (same, "not measured", "", "not measured"),
    ):
        (tile,) = [
            one
            for one in all_tiles(inputs_of(summary={"causal": {"selections": [spike]}}))
            if one.caption.startswith("Token")
        ]
        assert (tile.value, tile.detail) == (value, f"{ends}against the rollout's own {own}")


def test_the_effect_against_the_rollouts_own_token_stands_beside_its_controls(told: Any) -> None:
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    matched = {
        "selection": "matched",
        "num_positions": 40,
        "num_different": 30,
        "effect": {"mean": 0.0, "low": -0.03, "high": 0.03},
    }
    spike = {**SPIKE, "alternative_effect": other}
    second = told({"causal": {"selections": [spike, matched, RANDOM]}})["Cause"][1]
    assert second == (
        "Put in place of the rollout's own at the top spike, the token of rl-80 changes the success of dpo-8 by +87.4 "
        "(+82.5 to +91.6) points, the third token by +60.0 (+50.0 to +70.0); at matched positions by 0.0 (-3.0 to "
        "+3.0) (the same token at 10 of 40); at random positions by +1.1 (-0.4 to +2.9)."
    )


@pytest.mark.parametrize(
    ("low", "ending"),
    [
        (0.01, ", which is +5.0 (+1.0 to +9.0) below the spike"),
        (-0.01, ", which is +4.0 (-1.0 to +9.0) below the spike, so the spike is not distinguishable from them"),
    ],
)
@pytest.mark.parametrize("control", ["matched", "random"])
def test_a_control_is_set_against_the_spike_by_their_paired_difference(
    control: str, low: float, ending: str, told: Any
) -> None:
    selections = [SPIKE, {"selection": control, "effect": {"mean": 0.8, "low": 0.7, "high": 0.83}}]
    difference = {"mean": (low + 0.09) / 2, "low": low, "high": 0.09}
    policy = {
        "policy": "reference",
        "selections": selections,
        "differences": [{"control": control, "difference": difference}],
    }
    said = told({"causal": {"selections": selections, "policies": [policy]}})["Cause"][1]
    assert f"at {control} positions by +80.0 (+70.0 to +83.0){ending}" in said


def test_what_was_not_measured_beside_an_effect_is_said(told: Any) -> None:
    same = {"selection": "matched", "num_positions": 40, "effect": None}
    assert told({"causal": {"selections": [SPIKE, same]}})["Cause"][1].endswith(
        "; at matched positions it was not measured, as both models choose the same token; random positions were not "
        "measured."
    )


def test_every_policy_and_token_has_its_panel(inputs_of: Any, told: Any) -> None:
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    ranks = {"num_pairs": 40, "median_difference": 0.0, "statistic": 300.0, "p_value": 0.002, "effect_size": 0.4}
    test = {**ranks, "p_adjusted": 0.004, "sign_flip_p": 0.25}
    selections = [{**spikes(0.2, 0.4), "alternative_effect": other, "test": test}]
    policies = [
        {
            "policy": name,
            "selections": selections,
            "differences": [{"control": "random", "difference": other, "test": {**test, "p_adjusted": None}}],
        }
        for name in ("reference", "checkpoint")
    ]
    rho = {"mean": 0.9, "low": 0.8, "high": 1.0, "p_value": 0.001, "num_clusters": 50}
    score = {"selector": "js", "spearman": rho, "p_adjusted": 0.001}
    prediction = [{"policy": "checkpoint", "num_positions": 15, "selectors": [score]}]
    summary = {"causal": {"selections": selections, "policies": policies}, "prediction": prediction}
    assert told(summary)["Cause"][2].startswith(
        "At the 15 swapped positions where the two models' tokens differ, continued by the checkpoint, JS goes with"
    )
    (causes,) = [one for one in all_sections(inputs_of(summary=summary)) if one.id == "causes"]
    assert [one.title for one in causes.panels[:2]] == [
        "Forced tokens, continued by dpo-8",
        "Forced tokens, continued by rl-80",
    ]
    plot, effects, differences = causes.panels[1].parts
    assert isinstance(plot, DotPlot)
    assert [row.name for row in plot.rows] == [
        "Top spike, token of rl-80 against another",
        "Top spike, token of rl-80",
        "Top spike, another token",
    ]
    assert isinstance(effects, Table)
    assert isinstance(differences, Table)
    # The test of the mean beside that of the ranks, which says something else here.
    heads = ("p of the mean (sign flips)", "Adjusted p of the ranks (Wilcoxon)")
    assert effects.header[-2:] == differences.header[-2:] == heads
    assert (effects.rows[0][-2:], differences.rows[0][-2:]) == (("0.25", "0.0040"), ("0.25", "not measured"))
    assert all("Sign flips test whether the mean is 0" in one.note for one in (effects, differences))
    assert (differences.id, differences.rows[0][0]) == ("causal-checkpoint-differences", "spike minus random")


def test_a_correlation_that_does_not_outlast_the_number_of_scores_is_not_claimed(told: Any) -> None:
    def said(mean: float, p_adjusted: float, num: int = 40) -> str:
        rho = {"mean": mean, "low": mean - 0.2, "high": mean + 0.2, "p_value": 0.02, "num_clusters": 50}
        scores = [{"selector": "js", "spearman": rho, "p_adjusted": p_adjusted}]
        entry = {"policy": "reference", "num_positions": num, "selectors": scores}
        return next(iter(told({"prediction": [entry]})["Cause"][2:]), "")

    where = "At the 40 swapped positions where the two models' tokens differ, "
    assert said(0.3, 0.16) == f"{where}none of 1 scores is shown to go with the size of the effect."
    assert said(0.3, 0.04).startswith(f"{where}JS goes with the size of the effect (of 1 scores, p adjusted")
    assert said(0.3, 0.04, num=14) == ""
    assert said(-0.3, 0.04).endswith("; JS goes with smaller effects.")
