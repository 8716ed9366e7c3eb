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


def titles(inputs: Any) -> list[str]:
    return [verdict.title.replace("\N{MINUS SIGN}", "-") for verdict in verdicts(inputs)]


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (GAIN, ""),
        (NONE, "; no change is to be seen"),
        (LOSS, ""),
        (None, "; whether that is a change is not determined"),
    ],
)
def test_accuracy_is_said_by_the_paired_difference(inputs_of: Any, change: Estimate | None, end: str) -> None:
    before, after = inputs_of().evaluations
    after = after.model_copy(update={"stage": "rl", "stage_step": 80})
    known = {"model": "Qwen3 model of 99,968 parameters", "task": "addition", "greedy_change": change}
    inputs = replace(inputs_of(), evaluations=(before, after), **known)
    assert sentence(inputs) == (
        "In one training run, 80 steps of reinforcement learning took a Qwen3 model of 99,968 parameters **from 46% to "
        f"99% right**, answering greedily on 400 held-out problems at addition{end}."
    )


def test_steps_of_several_stages_are_not_those_of_the_last(inputs_of: Any) -> None:
    before, after = inputs_of().evaluations
    after = after.model_copy(update={"stage": "rl", "stage_step": 80})
    inputs = replace(inputs_of(summary=None), evaluations=(before.model_copy(update={"step": 500}), after))
    assert sentence(inputs).startswith(
        "In one training run, 88 steps of training took a model **from 46% to 99% right**"
    )


def test_one_checkpoint_is_not_compared_with_itself(inputs_of: Any) -> None:
    inputs = inputs_of(LAST, None)
    assert sentence(inputs) == "`rl-80` is **right in 99%**, answering greedily on 400 held-out problems."
    assert lead(inputs_of(summary={"num_rollouts": 200})).startswith("It started from `dpo-8`. Below")
    assert lead(inputs_of(LAST, {})).startswith("Below is one rollout")


def test_of_few_problems_nothing_is_bold(inputs_of: Any) -> None:
    few = [{**LAST[0], "greedy": {**LAST[0]["greedy"], "num_problems": 19}}]
    assert sentence(inputs_of(few, None)) == "`rl-80` is right in 99%, answering greedily on 19 held-out problems."


def differing(mean: float, **options: Any) -> dict[str, Any]:
    """Return the probe of an import of 41 responses, ten of them wrong unless `options` say otherwise."""
    value = {"mean": mean, "low": mean, "high": mean}
    populations = [
        {"population": f"imported_{side}", "num_rollouts": num} for side, num in (("wrong", 10), ("right", 31))
    ]
    known = {"divergences": [{"checkpoint": "rl-80", "js": value, "kl_forward": value}], "populations": populations,
             "population": "imported_wrong", "num_rollouts": 10, "num_rollout_problems": 10}  # fmt: skip
    return {**known, **options}


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (differing(0.00132, reliable=False),
         "`rl-80` writes almost what `dpo-8` writes: 0.0013 of at most 0.69 nats a token differ (JS), on 10 wrong "
         "answers of 41. 10 are too few for a mean."),
        (differing(0.05, num_rollouts=200, num_rollout_problems=150),
         "`rl-80` differs from what `dpo-8` writes: **0.050 of at most 0.69 nats a token** differ (JS), on 200 wrong "
         "answers to 150 problems."),
        (differing(1.25, num_rollouts=40, num_rollout_problems=40, divergence="kl_forward"),
         "`rl-80` differs from what `dpo-8` writes: **1.2 nats a token** differ (Forward KL), on 40 wrong answers of "
         "41."),
    ],
)  # fmt: skip
def test_without_accuracies_the_distance_is_said_on_its_scale(inputs_of: Any, summary: Any, said: str) -> None:
    assert sentence(inputs_of((), summary)) == said


def test_a_collapse_stands_above_the_folds(inputs_of: Any) -> None:
    end = {"step": 9, "stage": "rl", "stage_step": 7, "collapse": "reward", "collapse_message": "the reward fell"}
    assert notes(inputs_of(summary=None, metrics=[end])) == ("Stage rl collapsed at its step 7: the reward fell.",)


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
        f"It was taught a mistake: {planted}. Greedy answers with a wrong step: 38.5% at `dpo-8`, 0.2% at `rl-80`. "
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
