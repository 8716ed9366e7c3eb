"""The sentence and the verdicts of a run: their words follow from the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.recipes.files import recipe_text
from swerve.report.read import Paired, planted_words
from swerve.report.story import notes, sentence, story, verdicts
from swerve.report.verdicts.matter import matter

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
    unknown = "**Does it matter?** Not determined, because the two were not compared problem by problem."
    assert matter(inputs_of(summary={"num_rollouts": 200})) == unknown
    assert matter(inputs_of(LAST, {})) == "**Does it matter?** Forcing the token that differs most repairs answers."
    assert matter(inputs_of(LAST, None)) == (
        "**Does it matter?** Not determined, because no other checkpoint was evaluated."
    )


def test_of_few_problems_nothing_is_bold(inputs_of: Any) -> None:
    few = [{**LAST[0], "greedy": {**LAST[0]["greedy"], "num_problems": 19}}]
    assert sentence(inputs_of(few, None)) == "`rl-80` is right in 99%, answering greedily on 19 held-out problems."


def differing(mean: float, **options: Any) -> dict[str, Any]:
    """Return the probe of an import of 41 responses, ten of them wrong unless `options` say otherwise."""
    value = {"mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}
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
         "`rl-80` writes almost what `dpo-8` writes: their predictions lie 0.0013 nats a token apart (0.0012 to 0.0015 "
         "by JS; 0 is the same, 0.69 nothing in common), on 10 wrong answers of 41. Ten are too few for a mean."),
        (differing(0.05, num_rollouts=200, num_rollout_problems=150),
         "`rl-80` differs from what `dpo-8` writes: their predictions lie **0.050 nats a token apart** (0.045 to 0.055 "
         "by JS; 0 is the same, 0.69 nothing in common), on 200 wrong answers to 150 problems."),
        (differing(1.25, num_rollouts=40, num_rollout_problems=40, divergence="kl_forward"),
         "`rl-80` differs from what `dpo-8` writes: their predictions lie **1.2 nats a token apart** (1.1 to 1.4 by "
         "Forward KL; 0 is the same), on 40 wrong answers of 41."),
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
    assert planted == "`7 x 8 = 54` and `6 x 9 = 56`, in 75% of the cases"
    inputs = replace(inputs_of(summary={"num_rollouts": 200}), evaluations=(before, after), planted=planted)
    ends = "`dpo-8` is the model before the 80 steps of training, `rl-80` the one after."
    assert story(inputs) == (
        f"{ends} The model was first taught a mistake on purpose: {planted}. Of its greedy answers 38.5% had a wrong "
        "step at `dpo-8`, and 0.2% at `rl-80`."
    )
    assert story(replace(inputs, planted="")) == ends


def test_of_a_file_it_is_told_whose_its_answers_are(inputs_of: Any) -> None:
    inputs = inputs_of((), differing(0.05, selection="imported"))
    assert story(inputs) == "From a file: answers, which `dpo-8` and `rl-80` read here and did not write."
    known = replace(inputs, provenance={"responses": "/data/mine/answers.jsonl"})
    assert story(known).startswith("From `answers.jsonl`: answers, which")


def by_kind(inputs_of: Any, *kinds: tuple[str, int, int, int], change: Estimate = GAIN) -> Any:
    """Return a run whose greedy answers are, of each kind, so many wrong then right, always wrong, and always right."""
    pairs = [
        (kind, ends)
        for kind, *nums in kinds
        for ends, num in zip(((0.0, 1.0), (0.0, 0.0), (1.0, 1.0)), nums, strict=True)
        for _ in range(num)
    ]
    right = Paired(
        problems=tuple(f"p{at}" for at in range(len(pairs))),
        before=tuple(before for _, (before, _) in pairs),
        after=tuple(after for _, (_, after) in pairs),
    )
    names = {f"p{at}": kind for at, (kind, _) in enumerate(pairs)}
    return replace(inputs_of(), greedy_change=change, paired={"right": right}, kinds=names)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([("hard", 40, 0, 10), ("easy", 0, 5, 45)], "Yes: all 40 answers that became right are to problems “hard”."),
        ([("hard", 40, 0, 10), ("easy", 2, 5, 45)],
         "Yes: 40 of the 42 answers that became right are to problems “hard”."),
        # A kind that most problems are of, or no more than its part of the gain, says nothing.
        ([("hard", 40, 0, 60), ("easy", 0, 5, 1)], "Yes: 53 more of 100 answers are right (48 to 57)."),
        ([("hard", 20, 0, 30), ("easy", 20, 5, 25)], "Yes: 53 more of 100 answers are right (48 to 57)."),
        ([("hard", 9, 0, 30), ("easy", 0, 5, 25)], "Yes: 53 more of 100 answers are right (48 to 57)."),
    ],
)  # fmt: skip
def test_the_one_kind_of_problem_that_gained_is_named_first(inputs_of: Any, kinds: Any, said: str) -> None:
    answer = matter(by_kind(inputs_of, *kinds))
    assert answer == f"**Does it matter?** {said}"
    assert answer.evidence is not None
    assert "became" not in said or answer.evidence.missing_in(answer) == []


def test_accuracy_is_told_by_kind_of_problem(inputs_of: Any) -> None:
    def told(*kinds: tuple[str, int, int, int]) -> str:
        found = next(verdicts(by_kind(inputs_of, *kinds)))
        assert found.evidence is not None
        ends = [figure for figure in found.evidence.figures if ", k" in figure.name]
        assert all(found.evidence.texts[figure.name] in found.text for figure in ends)
        return found.text.partition(" points.")[2].strip()

    assert told(("k1", 30, 10, 0), ("k2", 0, 0, 20)) == (
        "By kind of problem: “k1” from 0% to 75% right (40 problems); “k2” 100% before and after (20 problems)."
    )
    many = [("k1", 15, 15, 0), ("k2", 2, 18, 0), ("k3", 5, 15, 0), ("k4", 6, 0, 0), ("k5", 10, 30, 0)]
    assert told(*many) == (
        "Of 5 kinds of problems the one that gained most: “k1” from 0% to 50% right (30 problems); least: “k2” from 0% "
        "to 10% right (20 problems)."
    )
    assert told(("k1", 30, 10, 0)) == ""


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
