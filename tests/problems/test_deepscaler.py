from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.problems.deepscaler import DeepScaler, DeepScalerTask, answer_of_asked_part
from tests.cases import each

FAMILY = DeepScaler(DeepScalerTask())


def read(**values: Any) -> Any:
    return FAMILY.problem(FileRecord("f.jsonl, line 7", {"problem": "How many?", **values}))


@each(
    ("given", "answer", "alternatives"),
    [
        (142.0, "142", ()),
        (-4.0, "-4", ()),
        (0.0, "0", ()),
        (0.5, "0.5", ()),
        ("025", "25", ()),
        ("000", "0", ()),
        ("100", "100", ()),
        ("15000", "15000", ()),
        ("0.05", "0.05", ()),
        (["9.6\n"], "9.6", ()),
        (["4.4e7\n", "4.4 \\times 10^7"], "4.4e7", ("4.4 \\times 10^7",)),
        (["7.5 \\times 10^7", "7.5\\times 10^7\n"], "7.5 \\times 10^7", ()),
        (["$-2,0,2$"], "-2,0,2", ()),
        (["$69$,$84$"], "69,84", ()),
        (["$221,$8$"], "221,8", ()),
        (r"\$18.90", r"\$18.90", ()),
    ],
)
def test_gold_answers(given: object, answer: str, alternatives: tuple[str, ...]) -> None:
    problem = read(answer=given)
    assert (problem.answer, problem.alternatives) == (answer, alternatives)
    renamed = read(final_answer=given)
    assert (renamed.answer, renamed.alternatives) == (answer, alternatives)


@pytest.mark.parametrize("given", [None, "", [], ["\n"], "$"])
def test_rows_without_a_gold_answer(given: object) -> None:
    assert read(answer=given) is None


@each(
    ("values", "kind"),
    [
        ({"year": 2024, "aime_number": 1, "problem_number": 3}, "AIME 2024"),
        ({"aime_number": 1}, "AIME"),
        ({"url": "https://example.org/index.php/2024_AIME_II_Problems/Problem_4"}, "AIME 2024"),
        ({"url": "https://example.org/index.php/2022_AMC_12A_Problems/Problem_1"}, "AMC"),
        ({"unique_id": "test/algebra/1.json"}, "MATH"),
        ({"type": "Algebra", "difficulty": 2.0}, "MATH"),
        ({"type": "Introduction to Astronomy", "idx": 9}, "Minerva"),
        ({"is_multiple_answer": False, "answer_type": "Numerical"}, "OlympiadBench"),
        ({}, "contest"),
    ],
)
def test_the_fields_tell_the_set(values: dict[str, Any], kind: str) -> None:
    assert read(answer="1", **values).kind == kind


def test_the_scale_of_difficulty_is_the_sources() -> None:
    assert read(answer="1", difficulty=26.5625).difficulty == 26.5625
    assert read(answer="1", difficulty=0.0).difficulty == 0.0
    assert read(answer="1", difficulty=0.0, type="Algebra").difficulty is None
    assert read(answer="1").difficulty is None


def test_an_absolute_error_becomes_a_tolerance_of_the_problem() -> None:
    row: dict[str, Any] = {"is_multiple_answer": False, "answer": ["4.2"], "unit": "%", "error": "1e-1"}
    problem = read(**row)
    assert problem.grading == {"rel_tolerance": 0.023809523810}
    assert Fraction(problem.grading["rel_tolerance"]) * Fraction("4.2") >= Fraction("0.1")
    assert problem.metadata == {"is_multiple_answer": False, "unit": "%", "error": "1e-1"}
    assert read(**{**row, "answer": ["$x$"]}).grading == {}
    assert read(**{**row, "error": None}).grading == {}
    with pytest.raises(ArtifactError, match="'error' is -0.1, a difference, which cannot be negative"):
        read(**{**row, "error": "-0.1"})


def test_context_and_solutions() -> None:
    problem = read(answer=["1"], context="A die is rolled.", solution=["First way.", "Second way."])
    assert problem.question == "A die is rolled.\n\nHow many?"
    assert problem.solution == "First way."


def test_a_problem_keeps_its_tolerance_beside_the_tasks_policies(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"problem": "a", "answer": ["2"], "error": "0.5"}))
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": "b", "answer": ["2"]}))
    folder = (str(tmp_path),)
    task = DeepScalerTask.model_validate(
        {"train": folder, "heldout": folder, "grading": {"percent": "strict", "rel_tolerance": 0.01}}
    )
    (problem,) = DeepScaler(task).problems("train", seed=0)
    assert problem.grading == {"percent": "strict", "rel_tolerance": 0.25}
    assert problem.messages[0][1] == "a Let's think step by step and output the final answer within \\boxed{}."


MINERVA = {"type": "Dynamics", "idx": 134, "solution": r"So $\zeta = \boxed{0.05}$."}
PARTS = r"Part 0: What is $\omega$? Solution: $\omega = \boxed{100}$. Part 1: What is $\zeta$?"


def test_the_answer_of_an_earlier_part_is_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"problem": "a", "answer": "1"}))
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": PARTS, "answer": ["100\n", "100."], **MINERVA}))
    family = DeepScaler(DeepScalerTask(train=(str(tmp_path),), heldout=(str(tmp_path),)))
    (problem,) = family.problems("heldout", seed=0)
    assert (problem.answer, problem.alternatives) == ("0.05", ())
    assert problem.metadata["given_answer"] == "100"
    assert family.notes() == [
        "heldout: 1 of Minerva have the answer of an earlier part of their question; "
        f"their gold is the solution's ({problem.id})"
    ]


def test_the_answer_of_another_question_is_left_alone() -> None:
    assert read(answer=["2"], **MINERVA).answer == "2"  # without an earlier part: a correction of the box
    assert read(problem=PARTS, answer=["0.05"], **MINERVA).answer == "0.05"
    assert read(problem=PARTS, answer=["100"], **{**MINERVA, "solution": "no box"}).answer == "100"
    assert read(problem=PARTS, answer=["100"], solution=MINERVA["solution"]).answer == "100"  # of another set


def test_the_published_sets(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("deepscaler")
    sets = ("aime", "amc", "math", "minerva", "olympiad_bench")
    task = DeepScalerTask(train=(f"train_math@{folder}",), heldout=tuple(f"test_{name}@{folder}" for name in sets))
    family = DeepScaler(task)
    heldout, train = family.problems("heldout", seed=0), family.problems("train", seed=0)
    assert Counter(problem.kind for problem in heldout) == {
        "AIME 2024": 30,
        "AMC": 83,
        "MATH": 500,
        "Minerva": 272,
        "OlympiadBench": 675,
    }
    assert len(train) == 7474 - 4 - 1  # no answer (2 null, 2 empty), a repeated problem
    assert sum(problem.difficulty is None for problem in train) == 2
    assert [problem.grading for problem in heldout if problem.grading] == [{"rel_tolerance": 0.023809523810}]
    assert all("$" not in problem.answer.replace(r"\$", "") for problem in heldout)
    assert sum("given_answer" in problem.metadata for problem in heldout) == 33
    with_units = [problem for problem in heldout if "unit" in problem.metadata]
    assert len(with_units) == 8


def test_repeated_problems_of_the_published_sample(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("deepscaler")
    task = DeepScalerTask(train=(f"deepscaler_sample_2000@{folder}",), heldout=(f"deepscaler_sample_val100@{folder}",))
    family = DeepScaler(task)
    assert len(family.problems("heldout", seed=0)) == 100
    assert len(family.problems("train", seed=0)) == 1985 - 27
    assert [note.split(" (")[0] for note in family.notes()] == [
        "train: 15 rows left out: the same question as an earlier row",
        "train: 27 rows left out: also held out",
    ]
    excluding = task.model_copy(
        update={"where": task.where.model_copy(update={"exclude": (f"train@{folder.parent}/math",)})}
    )
    assert len(DeepScaler(excluding).problems("train", seed=0)) < 1985 - 27 - 700


TWO_PARTS = r"Part 0. Solution: \boxed{1}. Part 1?"


@pytest.mark.parametrize(
    ("given", "box"),
    [
        (r"8.7 \times 10^{8}", "8.7e8"),
        (r"3.3 \times 10^{-10}", "3.3e-10"),
        (r"\arcsin{\frac{10}{13}}", "np.arcsin(10/13)"),
        (r"\frac{x}{2} - 1", "x / 2-1"),
        (r"\left( 3, 4 \right)", "(3,4)"),
    ],
)
def test_two_ways_to_write_an_answer(given: str, box: str) -> None:
    assert answer_of_asked_part(TWO_PARTS, ["7", given], rf"\boxed{{{box}}}") is None


@pytest.mark.parametrize(
    ("given", "box"), [("1", "2"), ("-1", "1"), ("1.5", "15"), (r"2 \times 10^{8}", "2e9"), ("x", "y")]
)
def test_two_answers(given: str, box: str) -> None:
    assert answer_of_asked_part(TWO_PARTS, [given], rf"\boxed{{{box}}}") == box


def test_a_box_may_hold_python() -> None:
    assert answer_of_asked_part(TWO_PARTS, ["1"], r"\boxed{np.arcsin(10/13)}") == r"\arcsin(10/13)"
