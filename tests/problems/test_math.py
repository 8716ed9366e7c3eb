from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swerve.errors import ArtifactError, ConfigError
from swerve.formats.records import FileRecord
from swerve.grading.policies import MathGrading
from swerve.problems.data_specs import read_source
from swerve.problems.math import Math, MathTask, last_boxed
from tests.cases import each
from tests.json_lines import write_json_lines

FAMILY = Math(MathTask())
ROW = {"problem": "What is half of 9?", "solution": r"Half of 9 is $\boxed{\frac{9}{2}}$.", "level": "Level 3"}


def read(**changes: Any) -> Any:
    return FAMILY.problem(FileRecord("f.jsonl, line 7", {**ROW, **changes}))


@each(
    ("text", "held"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\left\{ x \,|\, x > 0 \right\}}", r"\left\{ x \,|\, x > 0 \right\}"),
        (r"\boxed{\left\{ x \right.} }", r"\left\{ x \right."),
        (r"\boxed{a}{b}", "a"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"$\boxed 2$.", "2"),
        (r"\boxed{ \frac{1}{2} }", r"\frac{1}{2}"),
        (r"\boxed{1} and \boxed{never closed", "1"),
        (r"\boxed{1} and \boxed{}", ""),
        (r"\boxedtext{1}", ""),
        ("no box", ""),
    ],
)
def test_the_last_box(text: str, held: str) -> None:
    assert last_boxed(text) == held


def test_hub_layout() -> None:
    problem = read(type="Counting & Probability")
    assert problem.answer == r"\frac{9}{2}"
    assert (problem.kind, problem.difficulty) == ("level 3", 3.0)
    assert problem.metadata == {"subject": "Counting & Probability"}
    assert problem.id.startswith("math-")


def test_layout_with_an_answer_and_a_unique_id() -> None:
    problem = read(answer=" 4.5 ", level=2, subject="Algebra", unique_id="test/algebra/1.json")
    assert (problem.id, problem.answer, problem.kind) == ("test/algebra/1.json", "4.5", "level 2")
    assert problem.metadata == {"subject": "Algebra", "unique_id": "test/algebra/1.json"}


def test_an_empty_box_is_no_gold_answer() -> None:
    assert read(solution=r"\boxed{}") is None
    assert read(solution=r"\boxed{}", answer="") is None
    assert read(solution=None) is None


@pytest.mark.parametrize("level", [3, 3.0, "3", "Level 3"])
def test_ways_to_write_a_level(level: object) -> None:
    assert read(level=level).kind == "level 3"


@pytest.mark.parametrize("level", ["Level ?", None])
def test_a_problem_without_a_level(level: object) -> None:
    problem = read(level=level)
    assert (problem.kind, problem.difficulty) == ("no level", None)


@pytest.mark.parametrize("level", [0, 6, "hard", 2.5, True, [3]])
def test_an_unknown_level_is_refused(level: object) -> None:
    with pytest.raises(ArtifactError, match="f.jsonl, line 7: the level is .*; expected 1 to 5"):
        read(level=level)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    rows = [
        {"problem": f"{level} {subject} {number}", "answer": "1", "level": level, "subject": subject}
        for level in (1, 2, None)
        for subject in ("Number Theory", "Counting & Probability")
        for number in range(2)
    ]
    write_json_lines(tmp_path / "train.jsonl", rows)
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": "x", "answer": "1", "level": 1, "subject": "Geometry"}))
    return str(tmp_path)


def test_levels_and_subjects(folder: str) -> None:
    family = Math(MathTask(train=(folder,), heldout=(folder,), levels=(1, 2), subjects=("counting_and_probability",)))
    found = family.problems("train", seed=0)
    assert Counter(problem.kind for problem in found) == {"level 1": 2, "level 2": 2}
    assert {problem.metadata["subject"] for problem in found} == {"Counting & Probability"}
    assert family.notes() == [
        "train: 4 left out by levels",
        "train: 4 left out by subjects",
        "heldout: 1 left out by subjects",
    ]


def test_a_misspelt_subject(folder: str) -> None:
    family = Math(MathTask(train=(folder,), heldout=(folder,), subjects=("Number Teory",)))
    with pytest.raises(ConfigError, match="'Number Teory', which no problem is of; .*did you mean 'number theory'"):
        family.problems("train", seed=0)


def test_policies_that_differ_from_the_defaults_go_with_the_problem(folder: str) -> None:
    grading = MathGrading(extraction=("boxed", "last_number"), rel_tolerance=0.01)
    (problem,) = Math(MathTask(train=(folder,), heldout=(folder,), grading=grading)).problems("heldout", seed=0)
    assert problem.grading == {"extraction": ["boxed", "last_number"], "rel_tolerance": 0.01}
    (problem,) = Math(MathTask(train=(folder,), heldout=(folder,))).problems("heldout", seed=0)
    assert problem.grading == {}


def test_the_published_files(shared_data: Callable[[str], Path]) -> None:
    folder = str(shared_data("math"))
    family = Math(MathTask(train=(folder,), heldout=(folder,)))
    train, heldout = family.problems("train", seed=0), family.problems("heldout", seed=0)
    assert len(heldout) == 5000
    assert len(train) == 7500 - 2 - 1 - 2  # empty boxes, a repeated problem, problems of both splits
    notes = " ".join(family.notes())
    assert "2 rows left out: no gold answer" in notes
    assert "2 rows left out: also held out" in notes  # of one the test split has the beginning
    ids = {problem.id for problem in train}
    assert not ids & {"train/number_theory/7115.json", "train/number_theory/7117.json", "train/geometry/6032.json"}
    by_id = {problem.id: problem for problem in train}
    assert [by_id[f"train/algebra/{number}.json"].answer for number in (24014, 25040)] == ["2", "9"]
    assert sum(problem.difficulty is None for problem in train) == 2
    math500 = Math(MathTask(train=(folder,), heldout=(f"math500@{folder}",)))
    assert len(math500.problems("heldout", seed=0)) == 500


def test_golds_of_the_published_files_are_their_last_boxes(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("math")
    for split in ("train", "test", "math500"):
        for record in read_source(f"{split}@{folder}"):
            assert last_boxed(record.values["solution"]) == record.values["answer"].strip(), record.place
