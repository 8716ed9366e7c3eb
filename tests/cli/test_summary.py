from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.run import RunDirectory
from swerve.cli.summary import demo_text, evaluation_text, findings_text, over_seeds, probe_text


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
    evaluation("rl-80", 0.9975, 0.98602, 0.99956, greedy={"trace_right": estimate(0.985, 0.967, 0.993)}),
]
PROBE: dict[str, Any] = {
    "confidence": 0.95,
    "divergence": "js",
    "spike_method": "zscore",
    "reference": "dpo-8",
    "final": "rl-80",
    "num_problems": 400,
    "num_reference_wrong": 215,
    "num_reference_wrong_final_right": 208,
    "num_rollouts": 200,
    "reliable": True,
    "notes": ["[/bold]\x1b[2J\nSecond"],
}


@pytest.fixture(scope="module")
def evaluated(filled: Any) -> Callable[[Sequence[dict[str, Any]]], list[Evaluation]]:
    return lambda entries: [Evaluation.model_validate(filled(Evaluation, entry)) for entry in entries]


@pytest.fixture
def run(evaluated: Any, filled: Any, tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={"seed": 3})
    for entry in evaluated(EVALUATIONS):
        entry.write(run.path / "eval" / f"{entry.file_name}.json")
    ProbeSummary.model_validate(filled(ProbeSummary, PROBE)).write(run.probe_path / "summary.json")
    return run


def test_headlines_are_the_first_screen_of_the_report(run: RunDirectory) -> None:
    lines = demo_text(run, Path("report.html"), seconds=95.2).splitlines()
    assert lines[0] == "One training run, seed 3; what holds over several: swerve demo --seeds 5"
    assert lines[1] == (
        "Not determined whether it is better: 46% right before, 99.8% after, greedily. Of 400 held-out problems, "
        "because the two were not compared problem by problem."
    )
    assert lines[-1] == "Report, after 1 min 35 s: report.html"
    changed = demo_text(run, Path("report.html"), seconds=95.2, changes=["task=addition", "seed=3"])
    assert "swerve demo task=addition --seeds 5\n" in changed


def test_headlines_over_seeds_say_who_says_them(filled: Any, tmp_path: Path) -> None:
    # The second run has another verdict about the token at the spike, and no other number.
    runs = {}
    for seed, (success, low) in enumerate([(0.9, 0.8), (0.5, -0.1)]):
        runs[seed] = RunDirectory(tmp_path / str(seed))
        runs[seed].create(config_yaml="", provenance={"seed": seed})
        swap = {
            "selection": "spike",
            "num_rollouts": 9,
            "num_different": 9,
            "effect": estimate(success, low, 1.0),
            "alternative_effect": estimate(0.0, -0.1, 0.1),
            "reference": {"success": 0.0},
            "checkpoint": {"success": success},
            "alternative": {"success": 0.0},
            "different_tokens": {"checkpoint_minus_alternative": None},
        }
        causal = {"num_continuations": 16, "selections": [swap], "policies": []}
        summary = ProbeSummary.model_validate(filled(ProbeSummary, {**PROBE, "causal": causal}))
        summary.write(runs[seed].probe_path / "summary.json")
    rows = {row["HEADLINE"]: row for row in over_seeds(runs)}
    changes = rows["rl-80's token at the spike changes success; another is not shown to"]
    assert [changes[key] for key in ("SEED 0", "SEED 1", "OVER SEEDS (95%)")] == ["yes", "", "1 of 2"]
    assert rows["rl-80's token at the spike is not shown to change success"]["SEED 1"] == "yes"
    # Means over runs have intervals over runs, within their bounds; of equal values there is none.
    numbers = rows["  right after that of rl-80"]
    assert [numbers[key] for key in ("SEED 0", "SEED 1")] == ["90.0%", "50.0%"]
    assert numbers["OVER SEEDS (95%)"] == "70% (0 to 100)"
    assert rows["  right after a token of neither model"]["OVER SEEDS (95%)"] == "0.0%"
    assert over_seeds({}) == []


def test_findings_are_those_of_the_report_and_cannot_break_lines(run: RunDirectory) -> None:
    text = findings_text(run)
    assert text.startswith("Outcome\n  On 400 held-out problems, greedy accuracy was 46.2% (41.4 to 51.2) at dpo-8")
    assert "Selection\n  Of the 215 problems that dpo-8 gets wrong, rl-80 gets 208 right" in text
    assert text.endswith("Note: [/bold]\ufffd[2J Second")


def swaps(*successes: float | None) -> dict[str, Any]:
    """Return a causal test whose arms end right so often: the rollout's own token, the checkpoint's, another."""
    own, checkpoint, alternative = ({"success": success} for success in successes)
    swap = {"selection": "spike", "num_rollouts": 9, "num_positions": 30, "num_different": 9}
    swap |= {"reference": own, "checkpoint": checkpoint, "alternative": alternative}
    swap |= {"effect": estimate(0.0, -0.1, 0.1), "alternative_effect": None, "different_tokens": {"effect": None}}
    return {"num_continuations": 16, "selections": [swap], "policies": []}


@pytest.mark.parametrize(
    ("successes", "said"),
    [
        ((0.0, 0.0, 0.0), "are wrong (0%), whichever token is put in; take problems that dpo-8 sometimes solves."),
        (
            (1.0, 1.0, None),
            "are right (100%), whichever token is put in; take problems that dpo-8 sometimes fails.",
        ),
        ((0.0, 0.1, 0.0), None),
        ((0.5, 0.5, 0.5), None),
    ],
)
def test_a_probe_is_four_lines_and_one_where_nothing_can_be_seen(
    filled: Any, run: RunDirectory, successes: tuple[float | None, ...], said: str | None
) -> None:
    summary = ProbeSummary.model_validate(filled(ProbeSummary, {**PROBE, "causal": swaps(*successes)}))
    lines = probe_text(run, summary, place="All findings: swerve report x").splitlines()
    assert lines[0] == "How far rl-80 lies from dpo-8 was not measured."
    assert len(lines) == 3 + (said is not None)  # without the line that says where
    assert [line for line in lines if line.startswith("Nothing can be seen of which tokens decide: ")] == [
        f"Nothing can be seen of which tokens decide: all continuations {said}" for _ in range(said is not None)
    ]
    assert lines[-1] == "All findings: swerve report x; 1 note: [/bold]\ufffd[2J Second"
    assert not [line for line in lines if "`" in line or "**" in line]
    assert len(probe_text(run, place="Report: x").splitlines()) <= 4


def test_accuracies_by_checkpoint(evaluated: Any) -> None:
    assert evaluation_text(()) == "Held-out accuracy: not measured."
    heading, *rows = evaluation_text(evaluated(EVALUATIONS)).splitlines()
    assert heading == "400 held-out problems, answered greedily (intervals in brackets)"
    assert [row.split("  ")[0] for row in rows] == ["CHECKPOINT", "sft-500", "dpo-8", "rl-80"]
    assert rows[2].split() == ["dpo-8", "46.2%", "(41.4", "to", "51.2)", "45.0%", "(43.0", "to", "47.0)"]
    # The end of an interval is 100 only where it is that.
    assert rows[3].split() == ["rl-80", "99.8%", "(98.6", "to", "99.96)", "98.5%", "(96.7", "to", "99.3)"]


def test_columns_are_of_what_was_measured(evaluated: Any) -> None:
    reward = evaluation("rl-9", 0.5, 0.4, 0.6, sampled={"mean_reward": estimate(-1.0, -1.75, -0.25)})
    assert evaluation_text(evaluated([reward])).splitlines()[-1].endswith("  \u22121.00 (\u22121.75 to \u22120.25)")
    curve = [{"k": k, "pass_at_k": estimate(0.5 + 0.05 * k, 0.4, 0.8)} for k in (1, 2, 4)]
    counted = {"curve": curve, "statuses": {"graded": 990, "error": 1, "timeout": 9}, "num_unanswered": 9}
    text = evaluation_text(evaluated([evaluation("rl-9", 0.5, 0.4, 0.6, sampled=counted)]))
    assert "NO ANSWER" not in text  # which is not known of the greedy ones
    both = evaluation("rl-9", 0.5, 0.4, 0.6, sampled=counted, greedy={"num_unanswered": 0})
    _, names, row = evaluation_text(evaluated([both])).splitlines()
    assert names.split("  ")[-1] == "NOT GRADED"
    assert row.endswith("70% (40 to 80)  9 of 1000  10 of 1000")
