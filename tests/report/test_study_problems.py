"""What the row of a seed opens: the problems of runs that were trained and evaluated, and what was written to them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.excerpts import AskedProblem
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import Study
from swerve.config.recipe import ReportConfig
from swerve.report.evidence import Evidence
from swerve.report.page import render
from swerve.report.study import study_page, write_study_page
from swerve.report.study_problems import held_problems, runs_inside
from swerve.study.compare import compare_runs
from swerve.study.measure import measure_run
from swerve.study.study_file import StudyFile
from tests.report.opened_page import opened_data


@pytest.fixture(scope="module")
def folder(small_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study of two variants with one seed; both runs are the same."""
    folder = tmp_path_factory.mktemp("study")
    for name in ("none", "more"):
        shutil.copytree(small_run.path / "eval", folder / name / "eval")
        for file in ("run.json", "config.yaml", "metrics.jsonl"):
            shutil.copy(small_run.path / file, folder / name / file)
    return folder


@pytest.fixture(scope="module")
def study(small_run: RunDirectory, folder: Path) -> Study:
    runs = [measure_run(small_run.path, variant=name, seed=0, shown_path=name) for name in ("none", "more")]
    variants: dict[str, Any] = {"none": {}, "more": {"stages.rl.steps": 8}}
    file = StudyFile.model_construct(name="two", recipe="r", variants=variants, seeds=(0,), confidence=0.95)
    return compare_runs(file, runs)


def test_a_seed_opens_its_problems_and_a_problem_what_was_written(study: Study, folder: Path) -> None:
    page = study_page(study, options=ReportConfig(), folder=folder)
    for measure in ("accuracy", "sampled_accuracy"):
        table = page.held[f"{measure} 0"]
        assert isinstance(table, Evidence)
        # The means of a seed's problems are what its row has.
        for run in study.runs:
            right = [float(value or 0.0) for value in table.columns[run.variant]]
            assert sum(right) / len(right) == pytest.approx(run.values[measure])
        asked = page.held[f"{measure} 0 {table.columns['problem'][0]}"]
        assert isinstance(asked, AskedProblem)
        assert {each.model for each in asked.answers} == {"none", "more"}
    evidence = getattr(page.sentence, "evidence", None)
    assert evidence is not None
    assert [f"{evidence.opens}{seed}" in page.held for seed in evidence.columns["seed"]] == [True]
    assert page.lead.endswith("a seed opens its problems, and a problem what the runs wrote.")
    held = opened_data(render(page))["held"]
    assert held["accuracy 0"]["names"] == ["problem", "none", "more"]


def test_an_evaluation_that_the_study_did_not_count_is_left_out(study: Study, folder: Path) -> None:
    first, second = study.runs
    changed = second.model_copy(update={"values": {**second.values, "accuracy": second.values["accuracy"] / 2 + 0.1}})
    runs = {run.path: folder / run.path for run in study.runs}
    held = held_problems(study.model_copy(update={"runs": (first, changed)}), runs)
    table = held["accuracy 0"]
    assert isinstance(table, Evidence)
    assert [*table.columns] == ["problem", "none"]
    assert [*held["sampled_accuracy 0"].columns] == ["problem", "none", "more"]  # type: ignore[union-attr]
    assert held_problems(study, {}) == {}


def test_a_record_that_was_sent_names_no_folder_outside_of_it(study: Study, folder: Path, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    outside = [run.model_copy(update={"path": f"../../{folder.name}/{run.path}"}) for run in study.runs]
    shutil.copytree(folder, tmp_path / folder.name)
    record = study.model_copy(update={"runs": tuple(outside)})
    assert runs_inside(record, sent) == {}
    page = write_study_page(record, sent / "report", options=ReportConfig()).read_text(encoding="utf-8")
    assert opened_data(page)["held"] == {}
    # Where the caller names the runs, they are read wherever they are.
    runs = {run.path: folder / run.variant for run in outside}
    page = write_study_page(record, sent / "report", options=ReportConfig(), runs=runs).read_text(encoding="utf-8")
    assert "accuracy 0" in opened_data(page)["held"]
