"""What a card says of a study's controls, by literal values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swerve.artifacts.study import Study, StudyDifference, StudyMean
from swerve.claim.controls import ControlsPart, controls_part, reward_verdict
from swerve.claim.work import NotMeasuredError
from swerve.estimates import Estimate

DIFFERENCES = {
    "control-random": Estimate(mean=-0.42, low=-0.51, high=-0.33),
    "control-majority": Estimate(mean=-0.05, low=-0.12, high=0.02),
    "control-same": Estimate(mean=-0.04, low=-0.06, high=-0.02),
    "control-inverted": None,
    "kl": Estimate(mean=-0.3, low=-0.4, high=-0.2),
}


def _study(**differences: Estimate | None) -> Study:
    unused: dict[str, Any] = dict.fromkeys(("p_seeds", "p_seeds_adjusted", "effect_size", "num_problems"))
    unused |= dict.fromkeys(("over_problems", "p_problems", "p_problems_adjusted"))
    means = {"real": 0.88, **{name: 0.88 + (each.mean if each else 0) for name, each in differences.items()}}
    return Study(
        swerve_version="0",
        name="mine",
        recipe="demo_addition",
        baseline="real",
        seeds=(0, 1, 2),
        confidence=0.95,
        variants=(),
        runs=(),
        means=tuple(
            StudyMean(measure=measure, variant=name, num_seeds=3, mean=mean, over_seeds=None)
            for measure in ("accuracy", "sampled_accuracy")
            for name, mean in means.items()
        ),
        differences=tuple(
            StudyDifference(
                measure="sampled_accuracy",
                variant=name,
                num_seeds=3,
                mean=each.mean if each else 0,
                over_seeds=each,
                **unused,
            )
            for name, each in differences.items()
        ),
        curves=(),
        detectable=(),
    )


def test_only_controls_over_seeds_are_judged_and_all_variants_listed():
    part = controls_part(_study(**DIFFERENCES))
    assert [(row.arm, round(row.accuracy, 2), row.difference, row.runs) for row in part.arms] == [
        ("real", 0.88, None, 3),
        *((name, pytest.approx(0.88 + (each.mean if each else 0)), each, 3) for name, each in DIFFERENCES.items()),
    ]
    assert [(verdict.of, verdict.shown, verdict.num) for verdict in part.verdicts] == [
        ("control-random", True, 3),
        ("control-majority", False, 3),
        ("control-inverted", None, None),
    ]
    assert [verdict.sentence for verdict in part.verdicts] == [
        "Over 3 seeds sampled accuracy is lower with control-random than with the real reward: 46.0% against 88.0%, "
        "\u221242.0 points (\u221251.0 to \u221233.0).",
        "Over 3 seeds sampled accuracy is not seen to be lower with control-majority than with the real reward: 83.0% "
        "against 88.0%, "
        "\u22125.0 points (\u221212.0 to +2.0).",
        "Whether sampled accuracy is lower with control-inverted than with the real reward is not determined, because "
        "all seeds differ alike.",
    ]
    assert reward_verdict("control-random", None, 1).sentence.endswith(
        "is not determined, because they have one seed in common."
    )


@pytest.mark.parametrize("differences", [{}, {"kl": DIFFERENCES["kl"]}, {"control-random": None}])
def test_a_study_without_controls_over_seeds_says_what_it_needs(differences):
    with pytest.raises(NotMeasuredError, match="study mine compares no control over seeds; it needs controls=all"):
        controls_part(_study(**differences))


def test_without_a_study_the_card_says_which_command_makes_one(tmp_path):
    def part(study: str | None) -> Any:
        work: Any = SimpleNamespace(settings=SimpleNamespace(study=study))
        return ControlsPart.measure(work)

    with pytest.raises(NotMeasuredError, match="needs a study: swerve study RECIPE controls=all, then --study DIR"):
        part(None)
    with pytest.raises(NotMeasuredError, match="run swerve study .* --gather"):
        part(str(tmp_path))
    _study(**DIFFERENCES).write(tmp_path / "study.json")
    assert part(str(tmp_path)).study == "mine"
