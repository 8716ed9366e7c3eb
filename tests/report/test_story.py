"""The sentence and the verdicts of a run: their words follow from the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.recipes.files import recipe_text
from swerve.report.read import planted_words
from swerve.report.story import lead, notes, sentence, verdicts

GAIN = Estimate(mean=0.5275, low=0.48, high=0.57)
NONE = Estimate(mean=0.01, low=-0.02, high=0.04)
LOSS = Estimate(mean=-0.3, low=-0.4, high=-0.2)
LAST = [
    {
        "checkpoint": "rl-80",
        "step": 588,
        "greedy": {"num_problems": 400, "accuracy": {"mean": 0.992, "low": 0.978, "high": 0.997}},
    }
]
MEAN = {"mean": 0.02, "low": 0.019, "high": 0.021}


def effects(effect: Estimate, headline: Estimate | None) -> dict[str, Any]:
    """Return the swaps of a probe, with an effect and its difference from that of a token of neither model."""
    value = None if headline is None else {"mean": headline.mean, "low": headline.low, "high": headline.high}
    spike = {
        "selection": "spike",
        "num_rollouts": 100,
        "num_different": 100,
        "effect": {"mean": effect.mean, "low": effect.low, "high": effect.high},
        "alternative_effect": {"mean": 0.2, "low": 0.1, "high": 0.3},
        "reference": {"success": 0.1},
        "checkpoint": {"success": 0.6},
        "different_tokens": {"checkpoint_minus_alternative": value},
    }
    return {"causal": {"num_continuations": 16, "selections": [spike], "policies": []}}


def titles(inputs: Any) -> list[str]:
    return [verdict.title.replace("\N{MINUS SIGN}", "-") for verdict in verdicts(inputs)]


@pytest.mark.parametrize(
    ("change", "word", "end"),
    [
        (GAIN, "Better at the task", ""),
        (NONE, "No change of accuracy is shown", "; no change is shown"),
        (LOSS, "Worse at the task", ""),
    ],
)
def test_accuracy_is_said_by_the_paired_difference(inputs_of: Any, change: Estimate, word: str, end: str) -> None:
    before, after = inputs_of().evaluations
    after = after.model_copy(update={"stage": "rl", "stage_step": 80})
    known = {"model": "Qwen3 model of 99,968 parameters", "task": "addition", "greedy_change": change}
    inputs = replace(inputs_of(), evaluations=(before, after), **known)
    assert titles(inputs)[0] == f"{word}: 46.5% to 99.2% right."
    assert sentence(inputs) == (
        "In one training run, 80 steps of reinforcement learning took a Qwen3 model of 99,968 parameters **from 46.5% "
        f"to 99.2% (97.8 to 99.7) right**, answering greedily, on 400 held-out problems at addition{end}."
    )


def test_steps_of_several_stages_are_not_those_of_the_last(inputs_of: Any) -> None:
    before, after = inputs_of().evaluations
    after = after.model_copy(update={"stage": "rl", "stage_step": 80})
    inputs = replace(inputs_of(summary=None), evaluations=(before.model_copy(update={"step": 500}), after))
    assert sentence(inputs).startswith(
        "In one training run, 88 steps of training took a model **from 46.5% to 99.2% (97.8 to 99.7) right**"
    )


def test_one_checkpoint_is_not_compared_with_itself(inputs_of: Any) -> None:
    inputs = inputs_of(LAST, None)
    assert sentence(inputs) == "`rl-80` is right in **99.2% (97.8 to 99.7)** of 400 held-out problems."
    assert titles(inputs)[0] == "Not compared: 99.2% right."
    assert lead(inputs_of(summary={"num_rollouts": 200})).startswith("It started from `dpo-8`. Below")
    assert lead(inputs_of(LAST, {})).startswith("Below is one rollout")


def test_a_collapse_stands_above_the_folds(inputs_of: Any) -> None:
    end = {"step": 9, "stage": "rl", "stage_step": 7, "collapse": "reward", "collapse_message": "the reward fell"}
    assert notes(inputs_of(summary=None, metrics=[end])) == ("Stage rl collapsed at its step 7: the reward fell.",)


def test_why_no_token_was_forced_is_said(inputs_of: Any) -> None:
    def reason(**summary: Any) -> str:
        return next(each.text for each in verdicts(inputs_of(summary=summary)) if "Not tested" in each.title)

    assert reason(causal=None).endswith("run swerve probe with probe.causal.max_rollouts above 0.")
    assert reason(causal=None, population="imported").endswith("it needs gold answers, or a grader by --task KIND.")
    assert reason(causal=None, num_rollouts=0).endswith("there is no rollout to compare.")
    same = {"num_continuations": 16, "selections": [{"selection": "spike", "effect": None}], "policies": []}
    assert reason(causal=same).endswith("both models choose the same token there.")


def test_few_tokens_that_recover_nothing_are_said_so(inputs_of: Any) -> None:
    def title(low: float) -> str:
        point = {
            "budget": 0.01,
            "share_swapped": 0.01,
            "accuracy": MEAN,
            "recovered": {"mean": 0.2, "low": low, "high": 0.5},
        }
        entry = {
            "direction": "checkpoint_into_reference",
            "gap": {"mean": 0.5, "low": 0.4, "high": 0.6},
            "selectors": [{"selector": "js", "points": [point]}],
        }
        inputs = inputs_of(summary={"cross_sampling": {"directions": [entry]}})
        return next(each for each in titles(inputs) if "tokens" in each and "recover" in each)

    assert title(0.1) == "1.0% of the tokens recover 20% (10 to 50) of the difference."
    assert title(-0.1) == "1.0% of the tokens are not shown to recover any of the difference."


def test_a_place_that_entropy_finds_too_is_said_so(inputs_of: Any) -> None:
    ((title, text),) = ((one.title, one.text) for one in verdicts(inputs_of()) if "first wrong token" in one.title)
    assert "Noise" not in text  # it was not measured
    assert title == (
        "In 90.0% of 200 rollouts `rl-80` changed the first wrong token most: not shown to be more than the "
        "reference's entropy."
    )
    # A difference without an interval is not one that is not there.
    known = [each.model_dump() for each in inputs_of().summary.claims]
    claims = [{**each, "nulls": [{**null, "difference": None} for null in each["nulls"]]} for each in known]
    title = next(
        one.title for one in verdicts(inputs_of(summary={"claims": claims})) if "first wrong token" in one.title
    )
    assert title == (
        "In 90.0% of 200 rollouts `rl-80` changed the first wrong token most: not determined, because the difference "
        "has no interval, against chance and the reference's entropy."
    )


def test_a_cause_is_said_beside_a_token_of_neither_model(inputs_of: Any) -> None:
    (title, text) = next(
        (verdict.title, verdict.text)
        for verdict in verdicts(inputs_of(summary=effects(GAIN, NONE)))
        if "Forcing" in verdict.title
    )
    assert title == (
        "Forcing the token of `rl-80` at the spike changes the success of `dpo-8` by +52.8 points; so does a token of "
        "neither model (+20.0)."
    )
    assert "dpo-8 ends right +1.0 (" in text
    assert "the two are not distinguishable. Null: no difference." in text
    assert "100 rollouts of 16 continuations" in text
    assert any("does more than another" in verdict.text for verdict in verdicts(inputs_of(summary=effects(GAIN, GAIN))))
    assert any("is not shown to change" in title for title in titles(inputs_of(summary=effects(NONE, None))))

    # A control that does nothing is no number alone.
    control = effects(GAIN, GAIN)
    control["causal"]["selections"][0]["alternative_effect"] = {"mean": 0.0, "low": -0.03, "high": 0.03}
    assert (
        "Forcing the token of `rl-80` at the spike changes the success of `dpo-8` by +52.8 points; a token of neither "
        "model is not shown to (0.0)."
    ) in titles(inputs_of(summary=control))


def test_the_planted_mistake_is_told_with_what_became_of_it(inputs_of: Any) -> None:
    before, after = inputs_of().evaluations
    share = {"low": 0.0, "high": 1.0}
    before, after = (
        each.model_copy(
            update={"greedy": each.greedy.model_copy(update={"trace_right": Estimate(mean=mean, **share)})},
        )
        for each, mean in ((before, 0.615), (after, 0.998))
    )
    planted = planted_words(recipe_text("demo_multiplication"))
    assert planted == "in 75.0% of the places where it can be made, `7 x 8 = 54` and `6 x 9 = 56`"
    inputs = replace(inputs_of(summary={"num_rollouts": 200}), evaluations=(before, after), planted=planted)
    assert lead(inputs).startswith(
        f"It was taught a mistake: {planted}. Answers with a wrong step: 38.5% at `dpo-8`, 0.2% at `rl-80`. "
    )
    assert lead(replace(inputs, planted="")).startswith("It started from")


@pytest.mark.parametrize(
    "recipe",
    [
        "",
        "[]",
        "task: addition",
        "task: {kind: sorting, mistake_rate: 0.5}\nstages: [{kind: sft}]",
        "task: {kind: table, mistake_rate: 0.5}\nstages: [{kind: sft}]",
        "task: {kind: addition, mistake_rate: 0.0}\nstages: [{kind: sft}]",
        "task: {kind: addition, mistake_rate: .nan}\nstages: [{kind: sft}]",
        "task: {kind: addition, mistake_rate: 0.5}\nstages: [{kind: rl}]",
        "task: {kind: addition, mistake_rate: 0.5}\nstages: [{kind: sft, data: [answers.jsonl]}]",
    ],
)
def test_no_mistake_is_told_that_was_not_taught(recipe: str) -> None:
    assert planted_words(recipe) == ""


def test_what_was_not_measured_has_no_verdict(inputs_of: Any) -> None:
    assert titles(inputs_of(evaluations=(), summary=None, metrics=())) == []
    assert sentence(inputs_of(evaluations=(), summary=None)) == "0 steps of training; **nothing is evaluated yet**."
