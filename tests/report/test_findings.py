"""Sentences and headline figures from literal summaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swerve.report.findings import findings, tiles
from swerve.report.inputs import ReportInputs

SUMMARY: dict[str, Any] = {
    "reference": "dpo-8",
    "final": "rl-80",
    "divergence": "js",
    "num_reference_wrong": 215,
    "num_reference_wrong_final_right": 208,
    "num_rollouts": 200,
    "reliable": True,
    "spikes": [
        {
            "checkpoint": "rl-80",
            "divergence": "js",
            "top_on_wrong": {"share": 0.92, "low": 0.87, "high": 0.95},
            "top_on_first_wrong": {"share": 0.9, "low": 0.85, "high": 0.94},
            "chance_wrong": 0.03,
            "chance_first_wrong": 0.026,
        }
    ],
    "causal": {
        "selections": [
            {"selection": "spike", "effect": {"mean": 0.874, "low": 0.825, "high": 0.916}},
            {"selection": "random", "effect": {"mean": 0.011, "low": -0.004, "high": 0.029}},
        ]
    },
}


def evaluation(checkpoint: str, step: int, mean: float, low: float, high: float) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "step": step,
        "num_problems": 400,
        "accuracy": {"mean": mean, "low": low, "high": high},
        "trace_right": {"mean": 0.96, "low": 0.93, "high": 0.975},
    }


BEFORE = evaluation("dpo-8", 508, 0.465, 0.417, 0.514)
AFTER = evaluation("rl-80", 588, 0.9925, 0.978, 0.997)


def inputs(evaluations: tuple[Any, ...], summary: dict[str, Any] | None) -> ReportInputs:
    return ReportInputs(
        run_name="run",
        provenance={},
        config_text=None,
        confidence=None,
        metrics=(),
        evaluations=evaluations,
        summary=summary,
        tables=None,
        final_completions={},
    )


def test_every_sentence_of_a_complete_run() -> None:
    assert findings(inputs((BEFORE, AFTER), SUMMARY)) == (
        "On 400 held-out problems, greedy accuracy rose from 46.5% (41.7 to 51.4) at dpo-8 to 99.2% (97.8 to 99.7) at "
        "rl-80.",
        "Of the traces of rl-80, 96.0% (93.0 to 97.5) have no wrong step at all.",
        "Of the 215 problems that dpo-8 gets wrong, rl-80 gets 208 right; 200 of these wrong rollouts of dpo-8 were "
        "read token by token.",
        "The token where rl-80 differs most from dpo-8 (JS) is the first wrong step in 90.0% (85.0 to 94.0) of the "
        "rollouts and some wrong step in 92.0% (87.0 to 95.0); a token drawn at random would be so in 2.6% and 3.0%.",
        "Putting the token of rl-80 in place of that of dpo-8 at the top spike, and letting dpo-8 continue, changes "
        "its success by +87.4 (+82.5 to +91.6) percentage points; at random positions by +1.1 "
        "(\N{MINUS SIGN}0.4 to +2.9).",
    )


def test_overlapping_accuracies_are_no_change() -> None:
    later = evaluation("rl-80", 588, 0.48, 0.43, 0.53)
    assert findings(inputs((BEFORE, later), SUMMARY))[0] == (
        "On 400 held-out problems, greedy accuracy was 46.5% (41.7 to 51.4) at dpo-8 and 48.0% (43.0 to 53.0) at "
        "rl-80: the intervals overlap, so no change is shown."
    )


def test_a_loss_of_accuracy_is_called_a_fall() -> None:
    later = evaluation("rl-80", 588, 0.1, 0.07, 0.13)
    assert findings(inputs((BEFORE, later), SUMMARY))[0] == (
        "On 400 held-out problems, greedy accuracy fell from 46.5% (41.7 to 51.4) at dpo-8 to 10.0% (7.0 to 13.0) at "
        "rl-80."
    )


def test_an_effect_no_larger_than_the_control_is_not_claimed() -> None:
    spike = {"selection": "spike", "effect": {"mean": 0.02, "low": -0.01, "high": 0.05}}
    summary = {**SUMMARY, "causal": {"selections": [spike, SUMMARY["causal"]["selections"][1]]}}
    assert findings(inputs((BEFORE, AFTER), summary))[-1].endswith(
        "; the intervals overlap, so no effect of the spike is shown."
    )


def test_what_is_missing_is_said_to_be_not_measured() -> None:
    assert findings(inputs((), None)) == (
        "Accuracy was not measured.",
        "Where the checkpoints differ from the reference was not measured.",
    )
    summary = {**SUMMARY, "spikes": [], "causal": None}
    assert findings(inputs((BEFORE, AFTER), summary))[-2:] == (
        "Where the highest divergence of a rollout falls was not measured.",
        "Whether the token at the spike causes the correction was not measured.",
    )


def test_too_few_rollouts_are_said_to_be_too_few() -> None:
    assert findings(inputs((BEFORE, AFTER), {**SUMMARY, "reliable": False}))[-1] == (
        "The probe had too few rollouts for its figures to be relied upon."
    )


def test_headline_figures() -> None:
    assert [(tile.value, tile.detail) for tile in tiles(inputs((BEFORE, AFTER), SUMMARY))] == [
        ("46.5% \N{RIGHTWARDS ARROW} 99.2%", "dpo-8 to rl-80, 400 held-out problems"),
        ("208", "of 215 problems dpo-8 gets wrong"),
        ("90.0%", "85.0 to 94.0; by chance 2.6%"),
        ("+87.4 points", "at random positions +1.1 points"),
    ]
    assert [tile.value for tile in tiles(inputs((), None))] == ["not measured"] * 4


def test_a_collapse_is_said_with_what_followed() -> None:
    told = inputs((BEFORE, AFTER), None)
    records = (
        {"step": 20, "stage": "rl", "stage_step": 12, "reward": 0.4},
        {
            "step": 21,
            "stage": "rl",
            "stage_step": 13,
            "collapse": "reward",
            "collapse_message": "the reward fell from 0.5 to 0.1",
            "rolled_back_to": 10,
        },
        {"step": 40, "stage": "rl", "stage_step": 32, "collapse": "grad_norm", "collapse_message": "it grew"},
    )
    assert findings(replace(told, metrics=records))[-2:] == (
        "Stage rl collapsed at its step 13: the reward fell from 0.5 to 0.1. Training went back to the weights of "
        "step 10 of the stage.",
        "Stage rl collapsed at its step 32: it grew.",
    )
