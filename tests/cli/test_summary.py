from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.run import RunDirectory
from swerve.cli import summary as cli


def estimate(mean: float, low: float, high: float) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high}


def evaluation(checkpoint: str, mean: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    stage = checkpoint.split("-")[0]
    step = int(checkpoint.split("-")[1])
    greedy = {"num_problems": 400, "accuracy": estimate(mean, low, high), "trace_right": None}
    given = {"greedy": greedy, "sampled": {"mean_reward": None}}
    for half, keys in given.items():
        keys |= more.get(half, {})
    return {"checkpoint": checkpoint, "stage": stage, "step": step, **given}


EVALUATIONS = [
    evaluation("sft-500", 0.47, 0.421, 0.519),
    evaluation("dpo-8", 0.4625, 0.414, 0.5116, sampled={"mean_reward": estimate(0.45, 0.43, 0.47)}),
    evaluation("rl-5", 0.5, 0.45, 0.55),
    evaluation("rl-80", 0.9925, 0.978, 0.997, greedy={"trace_right": estimate(0.985, 0.967, 0.993)}),
]


def claim(figure: str, of: str, part: str, **nulls: tuple[float, float, float]) -> dict[str, Any]:
    entries = [
        {"null": name, "value": value, "difference": estimate((low + high) / 2, low, high)}
        for name, (value, low, high) in nulls.items()
    ]
    return {"figure": figure, "of": of, "part": part, "estimate": estimate(0.805, 0.744, 0.854), "nulls": entries}


CHANCE, ENTROPY, NOISE = (0.026, 0.7, 0.8), (0.9, -0.2, 0.0), (0.0, 0.7, 0.9)
PROBE: dict[str, Any] = {
    "confidence": 0.95,
    "noise_models": {"target": 0.008, "scales": [17.0, 19.4, 18.0], "means": [0.008, 0.0081, 0.0079]},
    "claims": [
        claim("top", "first_wrong", "", chance=CHANCE, entropy=ENTROPY, noise=NOISE),
        claim("auc", "wrong", "", chance=(0.5, 0.2, 0.4)),
        claim("share", "third", "mid", chance=CHANCE, entropy=ENTROPY, noise=NOISE),
        claim("share", "category", "number", chance=CHANCE, noise=NOISE),
    ],
    "divergence": "js",
    "spike_method": "zscore",
    "reference": "dpo-8",
    "final": "rl-80",
    "num_problems": 400,
    "num_reference_wrong": 215,
    "num_reference_wrong_final_right": 208,
    "num_rollouts": 200,
    "reliable": True,
    "notes": [],
    "spikes": [
        {"checkpoint": "rl-5", "divergence": "js", "num_rollouts": 200},
        {
            "checkpoint": "rl-80",
            "divergence": "kl_forward",
            "num_rollouts": 200,
            "top_on_wrong": {"mean": 0.9, "low": 0.85, "high": 0.934},
            "top_on_first_wrong": {"mean": 0.805, "low": 0.744, "high": 0.854},
            "chance_wrong": 0.03,
            "chance_first_wrong": 0.0263,
        },
        {
            "checkpoint": "rl-80",
            "divergence": "js",
            "num_rollouts": 200,
            "top_on_wrong": None,
            "top_on_first_wrong": None,
            "chance_wrong": None,
            "chance_first_wrong": None,
        },
    ],
    "causal": {
        "num_rollouts": 100,
        "num_continuations": 16,
        "selections": [
            {
                "selection": "spike",
                "reference": {"success": 0.021},
                "checkpoint": {"success": 0.655},
                "effect": {"mean": 0.634, "low": 0.57, "high": 0.69},
            },
            {
                "selection": "random",
                "reference": {"success": 0.2},
                "checkpoint": {"success": 0.194},
                "effect": {"mean": -0.006, "low": -0.02, "high": 0.008},
            },
        ],
    },
}


@pytest.fixture(scope="module")
def evaluated(filled: Any) -> Callable[[Sequence[dict[str, Any]]], list[Evaluation]]:
    return lambda entries: [Evaluation.model_validate(filled(Evaluation, one)) for one in entries]


@pytest.fixture(scope="module")
def probed(filled: Any) -> Callable[[dict[str, Any]], ProbeSummary]:
    return lambda entries: ProbeSummary.model_validate(filled(ProbeSummary, entries))


@pytest.fixture(scope="module")
def evaluation_lines(evaluated: Any) -> Callable[..., list[str]]:
    return lambda entries, **options: cli.evaluation_lines(evaluated(entries), **options)


@pytest.fixture(scope="module")
def probe_lines(probed: Any) -> Callable[[dict[str, Any]], list[str]]:
    return lambda entries: cli.probe_lines(probed(entries))


def test_summary_of_a_whole_chain(evaluated: Any, probed: Any) -> None:
    probe = probed(PROBE)
    text = cli.run_summary(evaluated(EVALUATIONS), probe, seconds=95.2, report=Path("runs/demo/report/index.html"))
    assert text == (
        "Held-out problems: 400, answered greedily (intervals in brackets).\n"
        "  sft-500: accuracy 47.0% [42.1, 51.9]\n"
        "  dpo-8: accuracy 46.2% [41.4, 51.2], mean reward of samples 45.0% [43.0, 47.0]\n"
        "  rl-80: accuracy 99.2% [97.8, 99.7], trace fully right 98.5% [96.7, 99.3]\n"
        "Of 400 problems dpo-8 gets 215 wrong; rl-80 gets 208 of those right (how many dpo-8 itself would "
        "on another try cannot be known from one completion each).\n"
        "Divergence: not measured.\n"
        "Where JS falls in 200 rollouts, beside chance, the entropy of dpo-8 and 3 noise models (17 to 19 times the "
        "norm of what training changed)\n"
        "  Top spike on the first wrong token: 80.5% [74.4, 85.4] (chance 2.6%, entropy 90.0%, noise 0.0%): more than "
        "chance and matched noise, not distinguishable from the reference's entropy\n"
        "  AUC of wrong tokens: 0.805 [0.744, 0.854] (chance 0.500): more than chance\n"
        "  Divergence on category number: 80.5% [74.4, 85.4] (chance 2.6%, noise 0.0%): more than chance and matched "
        "noise\n"
        "Causal test, 100 rollouts x 16 continuations by dpo-8: token of rl-80 against another at the highest spike "
        "not measured; against the rollout's own\n"
        "  at the highest spike: success 2.1% -> 65.5%, +63.4 points [+57.0, +69.0]\n"
        "  at random positions: success 20.0% -> 19.4%, -0.6 points [-2.0, +0.8]\n"
        "Note: of 15 different intervals at 95% about 1 may miss by chance; with planted truths 2.5 to 4.0% did, here "
        "0 to 1.\n"
        "Wall time: 1 min 35 s.\n"
        "Report: runs/demo/report/index.html\n"
    )


def test_all_problems_that_turned_right_are_called_all(probe_lines: Any) -> None:
    turned = {**PROBE, "num_reference_wrong_final_right": 215}
    assert probe_lines(turned)[0] == (
        "Of 400 problems dpo-8 gets 215 wrong; rl-80 gets all 215 of those right (how many dpo-8 itself would on "
        "another try cannot be known from one completion each)."
    )
    by_itself = {**turned, "turned_by_itself": estimate(20.5, 14.0, 27.25)}
    for selection, how in (("greedy", "single samples"), ("split", "another draw of its samples")):
        line = probe_lines({**by_itself, "selection": selection})[0]
        assert line.endswith(f"215 of those right (by {how} dpo-8 itself would turn 20.5 (14.0 to 27.2)).")


def test_what_was_not_measured_is_said(probe_lines: Any) -> None:
    assert cli.run_summary([], None, seconds=None, report=None) == (
        "Held-out accuracy: not measured.\nProbe: not measured.\nWall time: not measured.\nReport: not written\n"
    )
    empty = {
        **PROBE,
        "num_reference_wrong": None,
        "spikes": [],
        "claims": [],
        "causal": None,
        "reliable": False,
        "notes": ["few"],
    }
    assert probe_lines(empty) == [
        "Problems that dpo-8 gets wrong and rl-80 gets right: not measured.",
        "Divergence: not measured.",
        "Where the divergence falls: not measured.",
        "Causal test: not measured.",
        "Note: few",
    ]
    assert probe_lines({**empty, "notes": []})[-1] == "Note: too few rollouts for these metrics to be relied upon."


def test_data_cannot_break_the_lines(probe_lines: Any) -> None:
    hostile = {**PROBE, "notes": ["[/bold]\x1b[2J\nSecond"], "spikes": [], "causal": None}
    assert probe_lines(hostile)[-2] == "Note: [/bold]\ufffd[2J Second"


def test_every_checkpoint_or_the_last_of_each_stage(evaluation_lines: Any) -> None:
    assert [line.split(":")[0] for line in evaluation_lines(EVALUATIONS)[1:]] == [
        "  sft-500",
        "  dpo-8",
        "  rl-5",
        "  rl-80",
    ]
    assert len(evaluation_lines(EVALUATIONS, last_of_stage=True)) == 4


def test_summaries_are_read_from_the_run(evaluated: Any, probed: Any, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    assert read_evaluations(run) == ()
    assert read_summary(run) is None
    evaluations, probe = tuple(evaluated(EVALUATIONS)), probed(PROBE)
    for one in evaluations:
        one.write(run.path / "eval" / f"{one.file_name}.json")
    probe.write(run.probe_path / "summary.json")
    assert read_evaluations(run) == tuple(sorted(evaluations, key=lambda one: one.step))
    assert read_summary(run) == probe


def test_everything_a_probe_can_find(probe_lines: Any) -> None:
    share = {"mean": 0.5, "low": 0.4, "high": 0.6}
    probe = {
        **PROBE,
        "baseline": "sft-500",
        "divergence": "js",
        "spike_method": "zscore",
        "mcnemar": {"difference": estimate(0.548, 0.496, 0.594), "p_value": 2.4e-66},
        "divergences": [{"checkpoint": "rl-80", "reference": "dpo-8", "js": estimate(0.008, 0.0, 1.0)}],
        "pairs": [
            {"checkpoint": "rl-80", "reference": "rl-5", "js": estimate(0.3, 0.0, 1.0)},
            {"checkpoint": "dpo-8", "reference": "sft-500", "js": estimate(1.1e-5, 0.0, 1.0)},
        ],
        "stages": [{"checkpoint": "early", "reference": "dpo-8", "js": estimate(0.002, 0.0, 1.0)}],
        "noise_floor": {"js": {"mean": 2e-17, "max": 1e-16}},
        "recovery": {"spikes": [{"divergence": "js", "method": "zscore", "precision": share, "recall": share}]},
        "null": {"false_discoveries": {"js": {"zscore": {"per_1000_tokens": estimate(23.14, 0.0, 1.0)}}}},
        "pivots": {"gap": 0.2, "num_pivots": 9, "num_rollouts": 20, "num_confirmed": 8, "on_spike": {"share": share}},
        "cross_sampling": {
            "num_problems": 40,
            "directions": [
                {
                    "direction": "reference_into_checkpoint",
                    "base": estimate(0.9, 0.0, 1.0),
                    "other": estimate(0.51, 0.0, 1.0),
                    "selectors": [
                        {"selector": "js", "points": [{"budget": 0.02, "accuracy": estimate(0.49, 0.0, 1.0)}]},
                        {"selector": "random", "points": [{"budget": 0.02, "accuracy": estimate(0.89, 0.0, 1.0)}]},
                    ],
                }
            ],
        },
    }
    lines = probe_lines(probe)
    assert lines[0].endswith(" Accuracy over all: +54.8 points [+49.6, +59.4], McNemar p < 0.001.")
    assert lines[1] == (
        "JS divergence, nats per token, 200 rollouts: rl-80 against dpo-8 mean 0.008 [0, 1]; dpo-8 against sft-500 "
        "mean 1.1e-05 [0, 1]; noise 2e-17."
    )
    assert lines[2] == "By stage, from dpo-8: early mean 0.002 [0, 1] nats."
    assert (
        "Spikes by zscore: on wrong tokens: precision 50.0% [40.0, 60.0], recall 50.0% [40.0, 60.0]; "
        "23 [0, 1] per 1,000 tokens of the model against itself."
    ) in lines
    assert lines[-3:-1] == [
        "Pivotal tokens: 9 in 20 rollouts, 8 with a jump of 20.0% or more confirmed by fresh continuations; on spikes "
        "50.0% [40.0, 60.0].",
        "Cross-sampling, dpo-8 into rl-80, 40 problems: accuracy 90.0% [0.0, 100.0] -> 51.0% [0.0, 100.0] with all "
        "tokens; with 2.0% of them, chosen by js 49.0% [0.0, 100.0], random 89.0% [0.0, 100.0].",
    ]
    counts = {"num_positions": 20, "num_different": 16}
    matched = {"selection": "matched", **counts, "effect": share, "alternative_effect": estimate(-0.09, -0.1, 0.0)}
    random = {"selection": "random", "num_positions": 20, "effect": None}
    spike = {"selection": "spike", "different_tokens": {"checkpoint_minus_alternative": estimate(0.31, 0.22, 0.4)}}
    found = probe_lines({**PROBE, "causal": {**PROBE["causal"], "selections": [spike, matched, random]}})
    assert found[-5].endswith(
        "token of rl-80 against another at the highest spike +31.0 points [+22.0, +40.0]; against the rollout's own"
    )
    assert found[-3:-1] == [
        "  at matched positions: success not measured -> not measured, +50.0 points [+40.0, +60.0] (the same token at "
        "4 of 20); control token (neither model's choice): -9.0 points [-10.0, +0.0]",
        "  at random positions: success not measured -> not measured, not measured (the same token at 20 of 20)",
    ]


def test_responses_from_elsewhere(probe_lines: Any) -> None:
    imported = {
        **PROBE,
        "responses": {"path": "responses.jsonl", "num_responses": 339},
        "population": "imported_wrong",
        "num_rollouts": 120,
    }
    assert probe_lines(imported)[0] == "339 responses of responses.jsonl; the metrics are about the 120 wrong ones."


def test_a_probe_without_known_wrong_steps_says_so_once(probe_lines: Any) -> None:
    entry = {"checkpoint": "rl-80", "divergence": "js", "num_rollouts": 0}
    lines = probe_lines({**PROBE, "spikes": [entry, {**entry, "divergence": "kl_forward"}]})
    (line,) = [line for line in lines if "spikes fall" in line]
    assert line == "Where the spikes fall: not measured, as no step is known to be wrong."
    assert not any("highest spike between" in line for line in lines)


def sampled(checkpoint: str, ks: tuple[int, ...]) -> dict[str, Any]:
    curve = [{"k": k, "pass_at_k": estimate(0.5 + 0.05 * k, 0.4, 0.8)} for k in ks]
    return evaluation(checkpoint, 0.5, 0.4, 0.6, sampled={"curve": curve})


def test_many_samples_have_a_line_and_few_do_not(evaluation_lines: Any) -> None:
    entries = [sampled("sft-9", (1, 2, 4)), sampled("rl-5", (1, 2, 4)), sampled("rl-80", (1, 2, 4))]
    assert evaluation_lines(entries, last_of_stage=True)[-1] == (
        "One of 4 samples is right (pass@4): sft-9 70.0% [40.0, 80.0], rl-80 70.0% [40.0, 80.0]."
    )
    assert len(evaluation_lines([sampled("rl-80", (1, 2))])) == 2


def test_failures_have_a_line_where_there_are_many_or_the_grader_gave_up(evaluation_lines: Any) -> None:
    statuses = {"graded": 990, "unparsed": 9, "timeout": 0, "error": 0}
    few = evaluation("rl-80", 0.5, 0.4, 0.6, sampled={"statuses": {**statuses, "graded": 991}, "num_unanswered": 9})
    assert len(evaluation_lines([few])) == 2
    # Paid for their format.
    some = evaluation("rl-5", 0.5, 0.4, 0.6, sampled={"statuses": {"graded": 100}, "num_unanswered": 2})
    gave_up = evaluation("rl-80", 0.5, 0.4, 0.6, sampled={"statuses": {**statuses, "error": 1}, "num_unanswered": 9})
    assert evaluation_lines([EVALUATIONS[0], some, gave_up])[-1] == (
        "Completions without an answer or a verdict, which count as wrong: rl-5 2 without an answer, of 100; "
        "rl-80 9 without an answer, 1 on which the grader failed, of 1000."
    )


def test_rewards_on_another_scale_are_no_percentages(evaluation_lines: Any) -> None:
    one = evaluation("rl-80", 0.5, 0.4, 0.6, sampled={"mean_reward": estimate(-1.0, -1.75, -0.25)})
    assert evaluation_lines([one])[1].endswith("mean reward of samples -1 [-1.75, -0.25]")


def test_the_end_of_an_interval_is_100_only_where_it_is_that(evaluation_lines):
    lines = evaluation_lines([evaluation("rl-80", 0.9975, 0.98602, 0.99956)])
    assert lines[1] == "  rl-80: accuracy 99.8% [98.6, 99.96]"
