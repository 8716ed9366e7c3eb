from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import read_responses
from swerve.formats.problem_joins import JoinCounts, check_prompts, join_problems
from swerve.types import Problem
from tests.json_lines import write_json_lines

PROBLEM = {
    "id": "math-1",
    "family": "math",
    "question": "What is\n 1 + 1?",
    "answer": "2",
    "alternatives": ["two"],
    "solution": "1 + 1 = 2",
    "kind": "level 1",
    "difficulty": 1.0,
    "messages": [["system", "Box it."], ["user", "What is 1 + 1?"]],
    "prefix": "<think>",
    "grader": "math",
    "grading": {"extraction": ["boxed"]},
    "metadata": {"subject": "Algebra"},
}


def test_problems_with_all_that_is_said_of_them(tmp_path: Path) -> None:
    problem = read_problems(write_json_lines(tmp_path / "p.jsonl", [PROBLEM]))["math-1"].problem
    assert (problem.family, problem.question, problem.answer, problem.alternatives) == (
        "math",
        "What is\n 1 + 1?",
        "2",
        ("two",),
    )
    assert (problem.kind, problem.difficulty, problem.prefix, problem.grader) == ("level 1", 1.0, "<think>", "math")
    assert problem.messages == (("system", "Box it."), ("user", "What is 1 + 1?"))
    assert (dict(problem.grading), dict(problem.metadata)) == ({"extraction": ["boxed"]}, {"subject": "Algebra"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alternatives": "two"}, "line 1: alternatives must be a list of texts"),
        ({"grading": [1]}, "line 1: grading must be an object with named fields"),
        ({"messages": [["user"]]}, "line 1: messages must be text or a list of messages"),
        ({"messages": {"role": "user"}}, "line 1: messages must be a list of messages"),
    ],
)
def test_wrong_problems(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_problems(write_json_lines(tmp_path / "p.jsonl", [{**PROBLEM, **change}]))


def joined(tmp_path: Path, rows: list[dict[str, Any]]) -> tuple[list[Any], JoinCounts]:
    problems = read_problems(write_json_lines(tmp_path / "p.jsonl", [PROBLEM]))
    counts = JoinCounts()
    return list(join_problems(read_responses(write_json_lines(tmp_path / "r.jsonl", rows)), problems, counts)), counts


def test_joined_by_id_and_by_question(tmp_path: Path) -> None:
    rows = [
        {"id": "math-1", "response": "a"},
        {"question": " What is 1 + 1? ", "response": "b"},
        {"prompt": [{"role": "user", "content": "What is 1 + 1?"}], "response": "c"},
        {"id": "other", "question": "What is 1 + 1?", "response": "d"},
        {"question": "What is 1 + 2?", "response": "e"},
    ]
    records, counts = joined(tmp_path, rows)
    assert counts == JoinCounts(by_id=1, by_question=3)
    assert [one.problem.id for one in records[:4]] == ["math-1", "math-1", "math-1", "other"]
    assert [one.problem.answer for one in records] == ["2", "2", "2", "2", ""]
    assert [one.problem.family for one in records] == ["math", "math", "math", "math", "imported"]
    # What the model was given is the response's own where it says it, else the problem's.
    assert records[0].problem.messages == (("system", "Box it."), ("user", "What is 1 + 1?"))
    assert records[0].problem.prefix == "<think>"
    assert (records[1].problem.question, records[1].problem.messages, records[1].problem.prefix) == (
        " What is 1 + 1? ",
        (),
        "",
    )
    assert records[2].problem.messages == (("user", "What is 1 + 1?"),)
    assert records[2].problem.question == "What is\n 1 + 1?"


def test_the_gold_of_the_problems_wins_and_differences_are_counted(tmp_path: Path) -> None:
    rows = [
        {"id": "math-1", "response": "a", "gold": "3"},
        {"id": "math-1", "response": "b", "gold": " 2 "},
        {"id": "math-1", "response": "c"},
        {"id": "x", "question": "q", "response": "d", "gold": "5"},
    ]
    records, counts = joined(tmp_path, rows)
    assert [one.problem.answer for one in records] == ["2", "2", "2", "5"]
    assert counts == JoinCounts(by_id=3, gold_replaced=1)


def test_a_recorded_gold_that_was_cut_off_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "rlvr_responses.json"
    cut = {"response": "a", "correct": False, "ground_truth": "\\frac{14"}
    path.write_text(json.dumps({"math-1": cut, "m2": {**cut, "problem": "q"}}))
    problems = read_problems(write_json_lines(tmp_path / "p.jsonl", [PROBLEM]))
    counts = JoinCounts()
    records = list(join_problems(read_responses(path), problems, counts))
    assert [one.problem.answer for one in records] == ["2", ""]
    assert counts == JoinCounts(by_id=1, gold_damaged=2)


def test_one_id_for_two_questions_is_refused(tmp_path: Path) -> None:
    rows = [{"id": "math-1", "response": "a"}, {"id": "math-1", "question": "What is 9?", "response": "b"}]
    with pytest.raises(ArtifactError, match="r.jsonl, line 2: the id 'math-1' belongs to another question"):
        joined(tmp_path, rows)


def test_names_of_fields_fall_back_on_the_known_ones(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "p.jsonl", [{"id": "a", "q": "x", "answer": "1"}])
    problems = read_problems(path, fields={"problem": "q", "id": "nowhere", "response": "output"})
    assert [(one.problem.id, one.problem.question, one.problem.answer) for one in problems.values()] == [
        ("a", "x", "1")
    ]


def test_without_a_prompt(tmp_path: Path) -> None:
    records, _ = joined(tmp_path, [{"id": "math-1", "response": "a"}, {"id": "u", "response": "b"}])
    message = r"r.jsonl: no prompt for 1 of 2 responses \(problems 'u'\); give the problems' file with --problems"
    with pytest.raises(ArtifactError, match=message):
        check_prompts(tmp_path / "r.jsonl", records)
    check_prompts(tmp_path / "r.jsonl", records[:1])


def test_ids_tell_prompts_apart_only_where_there_is_no_text() -> None:
    asked, bare = (Problem(id="p", family="imported", question=question, answer="") for question in ("q", ""))
    joint, split = (Response(problem=asked, prompt_ids=ids) for ids in ((1, 2), (3,)))
    assert joint.asked == split.asked
    assert Response(problem=bare, prompt_ids=(1,)).asked != Response(problem=bare, prompt_ids=(2,)).asked
