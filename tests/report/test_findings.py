"""Sentences and headline figures from literal summaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.report.findings import finding_groups, findings, tiles
from swerve.report.inputs import ReportInputs, read_inputs

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
        distinct_right={},
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


def told(summary: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the sentences of a probe, by topic, with an ordinary minus sign."""
    groups = finding_groups(inputs((BEFORE, AFTER), {**SUMMARY, **summary}))
    return {
        group.name: tuple(sentence.replace("\N{MINUS SIGN}", "-") for sentence in group.sentences) for group in groups
    }


def test_the_sentences_on_what_was_read(entries: dict[str, Any]) -> None:
    assert told(entries)["Read"][1:] == (
        "On the same 400 problems rl-80 alone is right on 211 and dpo-8 alone on 3, a difference of +52.0 (+47.0 to "
        "+57.0) points (p < 0.001).",
        "Another draw of completions would select 70.0% (66.0 to 74.0) of these problems again.",
        "Mean JS of rl-80 is 0.00810 (0.00729 to 0.00891) nats on these rollouts; it is lower on "
        "\N{LEFT DOUBLE QUOTATION MARK}dpo-8 right\N{RIGHT DOUBLE QUOTATION MARK}, at 2.00e-4 (1.80e-4 to 2.20e-4) and "
        "not told apart on \N{LEFT DOUBLE QUOTATION MARK}rl-80 right\N{RIGHT DOUBLE QUOTATION MARK}, at 0.00830 "
        "(0.00747 to 0.00913).",
    )


def test_the_sentences_on_divergence(entries: dict[str, Any]) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Divergence"] == (
        "Before the stage, dpo-8 differed from sft-500 by a mean JS of 5.00e-4 (4.50e-4 to 5.50e-4) nats, less than "
        "the "
        "stage changed: rl-80 differs from dpo-8 by 0.00800 (0.00700 to 0.00900).",
        "Between neighbouring checkpoints most changed from rl-70 to rl-80, by 0.00700 (0.00630 to 0.00770), though "
        "its "
        "interval overlaps that of rl-60 to rl-70.",
        "Mean entropy on the rollouts read is 0.0110 (0.0100 to 0.0120) nats at rl-80, -0.0110 (-0.0130 to -0.00900) "
        "against dpo-8.",
    )


def test_the_sentences_on_wrong_steps_and_noise(entries: dict[str, Any]) -> None:
    assert told(entries)["Wrong steps"][1:] == (
        "Of 4 scores, 3 rank the known wrong steps above chance; the highest AUC is that of Reverse KL, 0.980 (0.960 "
        "to "
        "1.00), not told apart from JS.",
        "Of the 270 z-score spikes 95.0% (92.0 to 98.0) are on a wrong step (by chance 2.4%), and 99.0% (97.0 to "
        "100.0) "
        "of the wrong steps have one (by chance 2.8%).",
        "Between two runs of one model, where every spike is false, the rules find per 1,000 tokens: z-score 23.1 "
        "(22.2 "
        "to 24.0), adaptive 18.8 (18.2 to 19.4), percentile none (at most 0.161), absolute none (at most 0.161) and "
        "calibrated none (at most 0.161); at rl-80 z-score finds 22.5.",
    )


def test_the_sentences_on_places(entries: dict[str, Any]) -> None:
    assert told(entries)["Where"] == (
        "The middle third of the rollouts, 34.0% of the tokens, carries 47.0% (42.0 to 52.0) of the divergence.",
        "Tokens of style carry 2.1% (1.7 to 2.5) of it, less than their share of the tokens (8.5%).",
        "The forking tokens, the 20.0% at which the reference is least certain, carry 98.4% (97.9 to 98.9) of the "
        "divergence, more than their share.",
        "In its own text, rl-80 writes the first choice of dpo-8 at 93.0% (92.0 to 94.0) of the tokens, its second or "
        "third at 5.0% (4.0 to 6.0) and a lower one at 2.0% (1.0 to 3.0).",
    )


def test_the_sentences_on_causes(entries: dict[str, Any]) -> None:
    assert told(entries)["Cause"][1:] == (
        "Over all positions tested, JS best ranks those with an effect of 10.0% or more: AUC 0.900 (0.850 to 0.950), "
        "not told apart from entropy of reference.",
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


def test_the_sentences_on_training(entries: dict[str, Any]) -> None:
    assert told(entries)["Training"] == (
        "At rl-80, 97.0% (96.0 to 98.0) of the divergence is on tokens that moved the good way, more than their share "
        "of "
        "the tokens (52.0%).",
        "A rollout's JS goes with wrong answers: rank correlation -0.610 (-0.660 to -0.560), adjusted p = 0.0040.",
        "96.9% (96.7 to 97.1) of the wrong steps left the reference for good, against 0.3% (0.1 to 0.5) of the tokens "
        "beside them; of these wrong steps the largest share did so at rl-20 (78.0%), of the others at rl-70 (33.3%).",
        "Of the tokens of training that moved, 71.0% (68.0 to 74.0) moved the way their advantage pushed, above chance "
        "(50.0%).",
        "At 40 spikes the last 5 tokens have 28.5% (26.5 to 30.5) of the attribution of rl-80, more than if all "
        "counted "
        "alike (9.6%).",
        "At 40 spikes the last 5 tokens have 35.1% (33.1 to 37.1) of the attribution of dpo-8, more than if all "
        "counted "
        "alike (9.6%).",
    )


WIDE = {"mean": 0.5, "low": -1.0, "high": 1.0}


@pytest.mark.parametrize(
    ("topic", "number", "ending"),
    [
        ("Read", 1, ": the interval holds 0, so no difference is shown."),
        ("Divergence", 0, "the intervals overlap, so the stage is not shown to have changed more: rl-80 differs from"),
        ("Divergence", 2, "not told apart from that of dpo-8."),
        ("Wrong steps", 1, "No score ranks the known wrong steps above chance."),
        ("Where", 0, "(not told apart from the middle and last)."),
        ("Where", 1, "about as much as their share of the tokens (50.0%)."),
        ("Where", 2, "not told apart from their share."),
        ("Cause", 1, "no score ranks those with an effect of 10.0% or more above chance."),
        ("Dose", 0, "so nothing can be recovered."),
        ("Training", 0, "not told apart from their share of the tokens (50.0%)."),
        ("Training", 1, "is not shown to go with the answer: rank correlation"),
        ("Training", 2, "not told apart from 50.0%"),
        ("Training", 3, "not told apart from chance (50.0%)."),
        ("Training", 4, "not told apart from if all counted alike (9.6%)."),
    ],
)
def test_wide_intervals_claim_nothing(entries: dict[str, Any], topic: str, number: int, ending: str) -> None:
    def widened(value: Any) -> Any:
        if isinstance(value, dict):
            return WIDE if {"mean", "low", "high"} <= value.keys() else {k: widened(v) for k, v in value.items()}
        return [widened(one) for one in value] if isinstance(value, list) else value

    last = {"checkpoint": "rl-80", "js": WIDE}
    assert ending in told({**widened(entries), "divergences": [last]})[topic][number]


@pytest.mark.parametrize(
    ("low", "high", "ending"),
    [
        (0.01, 0.05, "so the token of rl-80 does more than another."),
        (-0.05, 0.05, "so the two are not told apart."),
        (-0.05, -0.01, "so the token of rl-80 does less than another."),
    ],
)
def test_another_token_is_compared_with_that_of_the_checkpoint(low: float, high: float, ending: str) -> None:
    spike, random = SUMMARY["causal"]["selections"]
    other = {"mean": 0.6, "low": 0.5, "high": 0.7}
    difference = {"mean": (low + high) / 2, "low": low, "high": high}
    spike = {**spike, "alternative_effect": other, "checkpoint_minus_alternative": difference}
    matched = {"selection": "matched", "effect": {"mean": 0.0, "low": -0.03, "high": 0.03}}
    first, second = told({"causal": {"selections": [spike, matched, random]}})["Cause"]
    assert first.endswith("; at matched positions by 0.0 (-3.0 to +3.0), at random positions by +1.1 (-0.4 to +2.9).")
    assert second.startswith("Another token at the same place, of neither model, changes it by +60.0 (+50.0 to +70.0)")
    assert second.endswith(ending)


def test_an_effect_that_the_matched_control_has_too_is_not_claimed() -> None:
    spike, random = SUMMARY["causal"]["selections"]
    matched = {"selection": "matched", "effect": {"mean": 0.8, "low": 0.7, "high": 0.83}}
    assert told({"causal": {"selections": [spike, matched, random]}})["Cause"][0].endswith(
        "; the intervals overlap, so no effect of the spike is shown."
    )


def passing(mean: float) -> dict[str, Any]:
    estimate = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}
    return {"by_num_samples": [{"k": 1, "pass_at_k": estimate}, {"k": 4, "pass_at_k": estimate}]}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (0.7, "rose from 60.0% (58.0 to 62.0) to 70.0% (68.0 to 72.0)."),
        (0.5, "fell from 60.0% (58.0 to 62.0) to 50.0% (48.0 to 52.0)."),
        (0.63, "was 60.0% (58.0 to 62.0) and 63.0% (61.0 to 65.0): the intervals overlap, so no change is shown."),
    ],
)
def test_whether_one_of_many_samples_is_right_more_often(after: float, said: str) -> None:
    first = {"checkpoint": "dpo-8", "step": 8, **passing(0.6)}
    last = {"checkpoint": "rl-80", "step": 88, **passing(after)}
    (sentence,) = [one for one in findings(inputs((first, last), None)) if "pass@4" in one]
    assert sentence.startswith("The chance that one of 4 samples is right (pass@4) ")
    assert said in sentence.replace(" at dpo-8", "").replace(" at rl-80", "")
    few = [{**entry, "by_num_samples": entry["by_num_samples"][:1]} for entry in (first, last)]
    assert not any("pass@" in one for one in findings(inputs(tuple(few), None)))


def test_what_graders_could_not_judge_is_a_caution() -> None:
    entry = {"checkpoint": "rl-80", "step": 88, "statuses": {"graded": 1990, "unparsed": 5, "timeout": 4, "error": 1}}
    record = {"stage": "rl", "stage_step": 12, "stopped_error_share": 0.625}
    said = findings(replace(inputs((entry, entry), None), metrics=(record,)))
    assert said[-2:] == (
        "In the evaluations, 8 of 4,000 completions reached a limit of the grader and 2 made it fail; they count as "
        "wrong.",
        "Stage rl stopped at its step 12, as 62.5% of its last completions could not be graded.",
    )
    answered = {**entry, "statuses": {"graded": 10, "unparsed": 5, "timeout": 0, "error": 0}}
    assert not any("grader" in one for one in findings(inputs((answered,), None)))


def test_without_known_wrong_steps_the_tile_is_the_divergence(answers_only: RunDirectory) -> None:
    read = read_inputs(answers_only)
    tile = tiles(read)[2]
    assert tile.caption == "JS from dpo-8"
    assert float(tile.value) == pytest.approx(read.summary["divergences"][-1]["js"]["mean"], rel=0.01)  # type: ignore[index]
    assert "No step of the rollouts is known to be wrong" in " ".join(findings(read))
