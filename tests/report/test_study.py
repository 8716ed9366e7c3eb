"""The page and the tables of a study, from records of literal values."""

from __future__ import annotations

import html
import re

import pytest

from swerve.artifacts.study import (
    Detectable,
    Study,
    StudyCurve,
    StudyDesign,
    StudyDifference,
    StudyKind,
    StudyMean,
    StudyRun,
    StudyTrial,
    StudyVariant,
    StudyVerdict,
)
from swerve.config import ReportConfig
from swerve.estimates import Estimate
from swerve.report.study import (
    design_words,
    detectable_words,
    headline_table,
    kinds_table,
    measures_table,
    trials_table,
    write_study_page,
)


@pytest.fixture
def study() -> Study:
    difference = StudyDifference(
        measure="accuracy", variant="kl", num_seeds=3, mean=0.1, over_seeds=Estimate(mean=0.1, low=-0.02, high=0.22),
        p_seeds=0.06, p_seeds_adjusted=0.12, effect_size=1.5, num_problems=400,
        over_problems=Estimate(mean=0.1, low=0.07, high=0.13), p_problems=1e-5, p_problems_adjusted=2e-5,
    )  # fmt: skip
    curves = [
        StudyCurve(metric="accuracy", variant="kl", steps=(1, 2), mean=(0.4, 0.6), low=(0.3, 0.5), high=(0.5, 0.7)),
        StudyCurve(metric="kl", variant="kl", steps=(1,), mean=(0.4,), low=(0.3,), high=(0.5,)),
    ]
    return Study(
        swerve_version="0", name="a <study>", recipe="r", baseline="none", seeds=(0, 1, 2), confidence=0.95,
        variants=(
            StudyVariant(name="none", changes={}, num_runs=3, num_collapsed=0, first_collapse=None),
            StudyVariant(name="kl", changes={"a.b": None}, num_runs=2, num_collapsed=1, first_collapse=7),
        ),
        runs=(
            StudyRun(variant="none", seed=0, path="runs/none/seed-0", state="trained", checkpoint="rl-4",
                     values={"accuracy": 0.5}),
            StudyRun(variant="kl", seed=2, path="runs/kl/seed-2", state="failed", reason="no <room>"),
        ),
        means=(
            StudyMean(measure="accuracy", variant="none", num_seeds=3, mean=0.5,
                      over_seeds=Estimate(mean=0.5, low=0.4, high=0.6)),
            StudyMean(measure="accuracy", variant="kl", num_seeds=3, mean=0.6, over_seeds=None),
            StudyMean(measure="length", variant="kl", num_seeds=1, mean=57.25, over_seeds=None),
        ),
        differences=(difference,),
        kinds=(
            StudyKind(kind="easy", variant="start", num_seeds=1, mean=0.25, over_seeds=None),
            StudyKind(kind="easy", variant="kl", num_seeds=2, mean=0.5,
                      over_seeds=Estimate(mean=0.5, low=0.4, high=0.6)),
            StudyKind(kind="hard", variant="kl", num_seeds=1, mean=0.125, over_seeds=None),
        ),
        curves=tuple(curves),
        detectable=(
            Detectable(measure="accuracy", unit="seeds", num=3, sd=0.03, is_assumed=True, difference=0.098),
            Detectable(measure="accuracy", unit="problems", num=1, sd=0.4, is_assumed=False, difference=None),
        ),
    )  # fmt: skip


def test_tables_say_what_the_record_says(study):
    assert [[cell.replace("\N{MINUS SIGN}", "-") for cell in row] for row in headline_table(study)] == [
        ["Variant", "Runs", "Greedy accuracy", "Over seeds", "p, Holm", "d", "Over problems", "p, Holm ", "Collapsed"],
        ["none", "3", "50.0% (40.0 to 60.0)", "", "", "", "", "", "0"],
        ["kl", "2", "60.0%", "+10.0 (-2.0 to +22.0)", "0.12", "1.50", "+10.0 (+7.0 to +13.0)", "<0.001", "1"],
    ]
    assert measures_table(study) == [
        ["Variant", "Greedy accuracy", "Completion length"],
        ["none", "50.0% (40.0 to 60.0)", ""],
        ["kl", "60.0%", "57.2"],
    ]
    assert kinds_table(study) == [
        ["Variant", "easy", "hard"],
        ["start", "25.0%", "not measured"],
        ["kl", "50.0% (40.0 to 60.0)", "12.5%"],
    ]


def test_what_a_study_can_find_says_what_it_rests_on(study):
    assert detectable_words(study.detectable) == (
        "Detectable difference in greedy accuracy (80% power, 5% two-sided, one comparison): 9.8 points over 3 seeds "
        "(pairs vary by 3.0 points, assumed), none over 1 problem."
    )


def test_the_page_has_findings_collapses_failures_curves_and_figures(study, tmp_path):
    page = write_study_page(study, tmp_path, options=ReportConfig()).read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\N{MINUS SIGN}", "-")
    assert (
        "Greedy accuracy of kl less that of the baseline: over seeds +10.0 points (-2.0 to +22.0), p = 0.12: no "
        "difference is shown; over problems +10.0 points (+7.0 to +13.0), p < 0.001."
    ) in text
    assert "1 of 2 runs of kl collapsed, the first at step 7." in text
    assert "kl, seed 2: no <room>." in text
    assert "<study>" not in page
    assert "a.b=null" in text
    assert 'id="chart-study-accuracy"' in page
    assert 'id="chart-study-kl"' not in page  # one step is no curve
    assert "Holm" in text
    assert "Benjamini" not in text
    assert {path.name for path in (tmp_path / "figures").glob("*.png")} == {
        "study-accuracy.png",
        "study_comparison.png",
    }


@pytest.fixture
def judged(study) -> Study:
    """The study with a design, settings that were tried and a verdict."""
    design = StudyDesign(
        measure="accuracy",
        margin=0.05,
        min_gain=0.15,
        ceiling=0.97,
        tuning_seeds=(100, 101),
        num_by_seed=(2, 1),
        num_problems=200,
        widening=1.75,
    )
    trials = (
        StudyTrial(
            variant="none",
            number=2,
            changes={"lr": 1e-4},
            seeds=(100, 101),
            values={"accuracy": 0.5, "entropy": 0.25},
            is_chosen=True,
        ),
        StudyTrial(variant="none", number=3, changes={"lr": 1e-3}, seeds=(100,), values={}, is_chosen=False),
    )
    verdict = StudyVerdict(
        variant="kl",
        verdict="not shown",
        words="not shown to differ",
        p=0.3,
        over_seeds=Estimate(mean=0.1, low=-0.11, high=0.31),
    )
    return study.model_copy(update={"design": design, "trials": trials, "verdicts": (verdict,),
                                    "gain": Estimate(mean=0.3, low=0.2, high=0.4)})  # fmt: skip


def test_a_study_that_judges_says_by_which_rule_and_what_was_tried(judged, tmp_path):
    rule, tuning, detectable = design_words(judged)
    assert rule == (
        "Judged by greedy accuracy over seeds 0, 1, 2; the smallest difference that matters is 5 points. Nothing is "
        "said where none does not gain 15 points and more over seeds, or where it or the variant is above 97.0%."
    )
    assert tuning.startswith(
        "Settings of each variant are chosen before, on 200 other held-out problems: 2 with seed 100, then 1 with seed "
    )
    assert detectable.startswith("Detectable difference in greedy accuracy")
    assert trials_table(judged) == [
        ["Variant", "Setting", "Seeds", "Greedy accuracy", "Token entropy", "Choice"],
        ["none", "lr=0.0001", "100, 101", "50.0%", "0.250", "chosen"],
        ["none", "lr=0.001", "100", "", "", ""],
    ]
    assert [row[-1].replace("\N{MINUS SIGN}", "-") for row in headline_table(judged)] == [
        "Verdict", "", "not shown to differ: +10.0 (-11.0 to +31.0) points, p = 0.30",
    ]  # fmt: skip
    page = write_study_page(judged, tmp_path, options=ReportConfig()).read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\N{MINUS SIGN}", "-")
    assert "kl is not shown to differ: +10.0 (-11.0 to +31.0) points, p = 0.30." in text
    assert "none itself gains +30.0 (+20.0 to +40.0) points over seeds." in text
    assert rule in text
    assert text.index(rule) < text.index("kl is not shown to differ")
    assert "they flatter them" in text
    rows = (tmp_path / "figures" / "study_settings.csv").read_text().splitlines()
    assert rows == ["variant,setting,seeds,entropy,accuracy,chosen", "none,lr=0.0001,2,0.25,0.5,True"]


def test_a_study_without_any_evaluation_has_a_page(study, tmp_path):
    empty = study.model_copy(
        update={"means": (), "differences": (), "curves": (), "runs": study.runs[1:], "detectable": ()}
    )
    page = write_study_page(empty, tmp_path, options=ReportConfig()).read_text(encoding="utf-8")
    assert "no &lt;room&gt;" in page
    assert [row[0] for row in headline_table(empty)] == ["Variant", "none", "kl"]
