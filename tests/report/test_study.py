"""The page and the tables of a study, from records of literal values."""

from __future__ import annotations

from pathlib import Path

import pytest

import swerve
from swerve.artifacts.study import StudyTrend
from swerve.config.recipe import ReportConfig
from swerve.errors import ArtifactError
from swerve.estimates import Estimate
from swerve.report.rows import Rows
from swerve.report.study import study_page, write_study_figures, write_study_page
from swerve.report.study_rows import (
    curves_rows,
    difference_rows,
    kinds_rows,
    measures_rows,
    outcome_rows,
    study_tables,
    trends_rows,
    trials_rows,
)
from swerve.report.study_sentences import design_words, detectable_words


def ascii_cells(rows: list[list[str]]) -> list[list[str]]:
    return [[cell.replace("\N{MINUS SIGN}", "-") for cell in row] for row in rows]


def test_tables_say_what_the_record_says(study):
    assert ascii_cells(difference_rows(study, "accuracy").text_table) == [
        [
            "Variant",
            "Seeds",
            "Greedy accuracy",
            "Over seeds",
            "p, seeds",
            "d",
            "Over problems",
            "p, problems",
            "Collapsed",
        ],
        ["none", "3", "50% (40 to 60)", "", "", "", "", "", ""],
        ["kl", "3", "60.0%", "+10 (-2 to +22)", "0.12", "+1.50", "+10.0 (+7.0 to +13.0)", "<0.001", "1"],
    ]
    assert measures_rows(study).text_table == [
        ["Variant", "Greedy accuracy", "Completion length"],
        ["none", "50% (40 to 60)", ""],
        ["kl", "60.0%", "57.2"],
    ]
    assert kinds_rows(study).text_table == [
        ["Variant", "easy", "hard"],
        ["start", "25.0%", ""],
        ["kl", "50% (40 to 60)", "12.5%"],
    ]
    assert [len(table) for table in study_tables(study)] == [3, 2, 3, 3]


def test_the_page_says_what_was_varied_what_came_out_and_what_is_not_counted(study):
    page = study_page(study, options=ReportConfig())
    assert page.sentence == (
        "The variants differ in a b. Over 3 seeds no difference in greedy accuracy is to be seen between `kl` and "
        "`none`: 60% against 50%, +10 points (\N{MINUS SIGN}2 to +22)."
    )
    assert page.lead == (
        "Task digits, tiny model. No rule was named before these runs, so differences are described and nothing "
        "is decided."
    )
    assert page.caution == "1 of 3 runs collapsed or not counted: the table of runs says why."
    plot, kl, seeds = page.verdicts
    assert plot.rows is not None
    assert plot.rows.column("Difference") == (Estimate(mean=0.1, low=-0.02, high=0.22),)
    assert plot.text == "The line is no difference. 95% intervals."
    assert kl.title.replace("\N{MINUS SIGN}", "-") == "`kl`: +10 points (-2 to +22)"
    assert kl.text == (
        "No difference is to be seen over 3 seeds, p = 0.12. A true difference of 10 points would be shown by 80 "
        "of 100 "
        "such studies."
    )
    assert seeds.text == detectable_words(study.detectable)
    runs = next(fold for fold in page.folds if fold.id == "runs").parts[0]
    assert isinstance(runs, Rows)
    assert runs.column("State") == ("trained", "failed: no <room>", "trained")
    assert [fold.id for fold in page.folds] == ["comparison", "design", "measures", "kinds", "training", "runs"]


def test_what_could_not_be_asked_of_a_trend_is_no_no(study):
    trends = tuple(
        StudyTrend(variant="kl", measure="accuracy", expected="rises", is_shown=shown, num_runs=1, num_shown=1,
                   change=None)
        for shown in (None, False, True)
    )  # fmt: skip
    assert trends_rows(study.model_copy(update={"trends": trends})).column("Shown") == (
        "not determined: too few points or seeds",
        "no",
        "yes",
    )


def test_curves_have_a_point_for_each_step_and_the_seeds_that_are_furthest_apart(study):
    (accuracy,) = curves_rows(study)  # one step is no curve
    assert accuracy.id == "study_accuracy"
    assert accuracy.rows == (
        ("1", Estimate(mean=0.4, low=0.3, high=0.5)),
        ("2", Estimate(mean=0.6, low=0.5, high=0.7)),
    )


def test_without_several_seeds_only_the_problems_of_these_runs_are_told_of(study):
    alone = study.differences[0].model_copy(
        update={"num_seeds": 1, "over_seeds": None, "p_seeds": None, "p_seeds_adjusted": None}
    )
    rows = outcome_rows(study.model_copy(update={"differences": (alone,)}))
    over = "400 problems of these runs alone"
    assert rows.rows[0][1:] == (Estimate(mean=0.1, low=0.07, high=0.13), 2e-5, over, "higher")


def test_the_page_links_to_no_folder_that_may_not_have_been_sent_and_hostile_names_stay_text(study, tmp_path: Path):
    for folder in (tmp_path / "runs" / "none" / "seed-0", tmp_path / "j:s"):
        (folder / "report").mkdir(parents=True)
        (folder / "report" / "index.html").write_text("")
    hostile = study.runs[1].model_copy(update={"path": "j:s"})
    study = study.model_copy(update={"runs": (study.runs[0], hostile)})
    page = write_study_page(study, tmp_path / "report", options=ReportConfig()).read_text(encoding="utf-8")
    assert "<a " not in page
    assert "runs/none/seed-0" in page
    assert "<study>" not in page
    assert "<room>" not in page
    assert "a.b=null" in page


def test_the_page_of_a_study_that_was_sent_stays_in_it(study, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    study.write(tmp_path / "sent" / "study.json")
    (tmp_path / "sent" / "report").symlink_to(elsewhere)
    with pytest.raises(ArtifactError, match=r"sent/report is a link to .*elsewhere, where the page would go"):
        swerve.report(tmp_path / "sent")
    assert not list(elsewhere.iterdir())


def test_a_study_that_judges_says_by_which_rule_and_what_was_tried(judged, tmp_path):
    rule, tuning, gain, detectable = design_words(judged)
    assert rule == (
        "Judged by greedy accuracy over seeds 0, 1, 2; the smallest difference that matters is 5 points. Nothing is "
        "said where none does not gain 15 points and more over seeds, or where it or the variant is above 97.0%."
    )
    assert tuning.startswith(
        "Settings of each variant are chosen before, on 200 other held-out problems: 2 with seed 100, then 1 with seed "
    )
    assert gain == "none itself gains +30 (+20 to +40) points over seeds."
    assert detectable == detectable_words(judged.detectable)
    assert trials_rows(judged).text_table == [
        ["Variant", "Setting", "Seeds", "Greedy accuracy", "Token entropy", "Choice"],
        ["none", "lr=0.0001", "100, 101", "50.0%", "0.250", "chosen"],
        ["none", "lr=0.001", "100", "", "", ""],
    ]
    # The verdict's interval is the one that is drawn, and it has the last word.
    rows = outcome_rows(judged)
    assert rows.rows == (("kl", Estimate(mean=0.1, low=-0.11, high=0.31), 0.3, "3 seeds", "not shown to differ"),)
    page = study_page(judged, options=ReportConfig())
    assert page.lead.endswith(rule)
    assert page.verdicts[0].text == "The line is no difference, a band what is too small to matter. 95% intervals."
    assert page.verdicts[0].rows.plots[0].margin == 0.05
    written = write_study_figures(judged, tmp_path)
    assert {path.name for path in written if path.suffix == ".csv"} == {"study_accuracy.csv", "study_comparison.csv"}
    comparison = (tmp_path / "study_comparison.csv").read_text().splitlines()
    assert comparison[:2] == [
        "variant,difference_points,difference_points_low,difference_points_high,p_holm,over,verdict",
        "kl,10.0,-11.0,31.0,0.3,3 seeds,not shown to differ",
    ]


def test_settings_that_were_tried_are_compared_at_equal_entropy(judged):
    tried = [
        trial.model_copy(update={"values": {"accuracy": accuracy, "entropy": entropy}})
        for trial, accuracy, entropy in zip(judged.trials, (0.5, 0.75), (0.25, 0.125), strict=True)
    ]
    *_, settings = curves_rows(judged.model_copy(update={"trials": tuple(tried)}))
    assert (settings.id, settings.rows) == ("study_settings", (("0.125", 0.75), ("0.25", 0.5)))


def test_a_study_without_any_evaluation_has_a_page(study):
    empty = study.model_copy(
        update={"means": (), "differences": (), "curves": (), "runs": study.runs[1:2], "detectable": ()}
    )
    page = study_page(empty, options=ReportConfig())
    assert page.sentence == "The variants differ in a b. No two of them are evaluated yet."
    assert (page.verdicts, page.folds[-1].id) == ((), "runs")
    assert next(study_tables(empty))[1:] == [["none", "0", ""], ["kl", "0", "1"]]


def test_runs_that_differ_by_seed_alone_are_told_by_their_values(study):
    alone = study.model_copy(
        update={
            "variants": study.variants[:1],
            "means": tuple(mean for mean in study.means if mean.variant == study.baseline),
            "runs": tuple(run for run in study.runs if run.variant == study.baseline),
            "curves": tuple(curve for curve in study.curves if curve.variant == study.baseline),
            "differences": (),
        }
    )
    page = study_page(alone, options=ReportConfig())
    assert page.sentence == "Over 3 seeds greedy accuracy is 50% (40 to 60)."
    assert page.lead == "Task digits, tiny model. The runs differ by seed alone."
    assert page.heading == "What the runs show"
    runs, *curves = page.verdicts
    assert runs.rows is not None
    values = [run.values["accuracy"] for run in alone.runs if "accuracy" in run.values]
    assert [value for _, value in runs.rows.rows] == values
    # The one variant is no null to itself: its curves are drawn.
    assert [one.rows.plots[0].greys for one in curves if one.rows] == [()] * len(curves)
    assert "comparison" not in [fold.id for fold in page.folds]
