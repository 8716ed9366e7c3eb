"""Rows of a comparison from files: how responses meet their problems, what is left out, and published accuracies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.comparison import PublishedRow
from swerve.errors import ArtifactError
from swerve.eval.comparison import compare
from swerve.eval.foreign_rows import SHIPPED, ForeignRows, read_rows
from swerve.problems.knights.k_and_k import KAndK, KAndKTask
from swerve.progress import SilentProgress
from swerve.types import Problem
from tests.builders import Notes
from tests.json_lines import write_json_lines

PROBLEMS = [
    Problem(
        id=f"p{number}",
        family="table",
        question=f"How many legs have {number} cats together?",
        answer=str(4 * number),
        kind=f"{number} cats",
        grader="math",
        messages=(("user", f"How many legs have {number} cats together? Answer in a box."),),
        prefix="<think>",
        begun="",
    )
    for number in (2, 3, 10)
]


def _read(path: Path, **options: Any) -> tuple[ForeignRows, list[str]]:
    progress = Notes()
    return read_rows("gpt", path, PROBLEMS, progress, **options), progress.notes


def _boxed(number: int) -> str:
    return f"That is \\boxed{{{number}}}."


def test_a_response_is_joined_by_question_by_prompt_or_by_id(tmp_path: Path) -> None:
    rows = [
        {"id": "p10", "question": "How many  legs have 2 cats together?", "response": _boxed(8)},  # its own numbers
        {"id": "a", "prompt": "Think first. How many legs have 3 cats together? Be brief.", "response": _boxed(12)},
        {"id": "p10", "response": _boxed(41)},
    ]
    found, notes = _read(write_json_lines(tmp_path / "a.jsonl", rows))
    assert [response.problem.id for response in found.responses] == ["p2", "p3", "p10"]
    assert (notes, found.labels) == ([], ["gpt"])
    (graded,) = found.graded(SilentProgress())
    assert [response.correct for response in graded] == [True, True, False]
    # What the models' own prompt gave of the answer was not given to these.
    assert {(response.problem.prefix, response.problem.begun) for response in graded} == {("", None)}
    (row,) = compare([graded]).rows
    assert (row.accuracy.mean, row.decoding) == (2 / 3, "from a file")


def test_what_a_file_lacks_or_has_beside_the_problems_is_said(tmp_path: Path) -> None:
    rows = [
        {"id": "p2", "response": ""},
        {"id": "p2", "response": _boxed(8)},
        {"id": "p3", "response": _boxed(12)},
        {"id": "p3", "response": None},
        {"id": "other", "response": _boxed(1)},
    ]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    found, notes = _read(path)
    assert notes == [
        f"{path}: 'gpt' has responses to 2 of the 3 problems, 1 to 2 each, and is compared over these",
        f"{path}: responses to other problems, left out: 1 (the first: {path}, line 5)",
        f"{path}: records without a response, left out: 1; {path}, line 4 has no response (nor completion_ids); if its "
        "field has another name say --field response=FIELD",
    ]
    (graded,) = found.graded(SilentProgress())
    assert [(response.correct, response.answered) for response in graded] == [
        (False, False),
        (True, True),
        (True, True),
    ]
    assert [response.sample for response in graded] == [0, 1, 0]


def test_failed_requests_of_a_batch_are_left_out(tmp_path: Path) -> None:
    def answered(name: str, content: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": content}
        choices = [{"index": 0, "message": message, "finish_reason": "length"}]
        return {"custom_id": name, "response": {"body": {"model": "m", "choices": choices}}, "error": None}

    expired = {"custom_id": "p10", "response": None, "error": {"code": "batch_expired"}}
    path = write_json_lines(tmp_path / "batch.jsonl", [expired, answered("p2", _boxed(8)), answered("p3", None)])
    found, notes = _read(path)
    assert [(response.problem.id, response.finish_reason) for response in found.responses] == [("p2", "length")]
    first = f"{path}, line 1: the request 'p10' has no choices (batch_expired)"
    assert notes[-1] == f"{path}: records without a response, left out: 2; {first}"
    with pytest.raises(ArtifactError, match="none of its 1 records has a response; .*line 1"):
        _read(write_json_lines(tmp_path / "none.jsonl", [expired]))


def test_several_labels_are_several_rows(tmp_path: Path) -> None:
    rows = [{"id": "p2", "response": _boxed(8), "checkpoint": name} for name in ("step 1", "step 2")]
    found, _ = _read(write_json_lines(tmp_path / "a.jsonl", rows))
    assert found.labels == ["gpt step 1", "gpt step 2"]
    assert [len(row) for row in found.graded(SilentProgress())] == [1, 1]


def test_a_file_about_other_problems_is_refused(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", [{"id": "p2", "question": "Who are you?", "response": "me"}])
    with pytest.raises(ArtifactError, match=r"none of its 1 responses is to one of the 3 problems, by question or id"):
        _read(path)


def test_the_shipped_table_of_knights_and_knaves_has_the_averages_of_its_columns() -> None:
    task = KAndKTask(people=(2, 3, 4, 5, 6, 7, 8), num_heldout=7)
    problems = KAndK(task).problems("heldout", seed=0)
    found = read_rows("k_and_k", SHIPPED / "k_and_k.csv", problems, SilentProgress())
    averages = {
        row.name: (row.accuracy, row.average([f"{num} people" for num in range(2, 9)])) for row in found.published
    }
    assert len(averages) == 11
    assert averages["7B GRPO 420"] == (0.92, pytest.approx(0.92, abs=0.005))
    for stated, computed in averages.values():
        assert computed == pytest.approx(stated, abs=0.0051)


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_published_accuracies_are_read_by_kind(ending: str, tmp_path: Path) -> None:
    rows = [("o1", 2, 0.83), ("o1", "10 cats", 0.2), ("o1", "all", 0.5), ("r1", 3, 1), ("r1", 8, 0.1)]
    path = tmp_path / f"published.{ending}"
    named = [dict(zip(("name", "kind", "accuracy"), row, strict=True)) for row in rows]
    lines = ["name,kind,accuracy", *(",".join(map(str, row)) for row in rows)]
    path.write_text(json.dumps(named) if ending == "json" else "\n".join(lines), encoding="utf-8")
    found, notes = _read(path)
    assert (found.labels, found.graded(SilentProgress())) == ([], [])
    assert found.published == [
        PublishedRow(name="o1", by_kind={"2 cats": 0.83, "10 cats": 0.2}, accuracy=0.5),
        PublishedRow(name="r1", by_kind={"3 cats": 1.0}),
    ]
    assert notes == [f"{path}: published kinds that the problems do not have: 8"]
    assert found.published[0].average(["2 cats", "10 cats"]) == pytest.approx(0.515)
    assert found.published[0].average(["2 cats", "3 cats"]) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("o1,2,83", r"a fraction from 0 to 1, got 'o1', '2', '83'"),
        ("o1,2,high", r"a fraction from 0 to 1, got 'o1', '2', 'high'"),
        ("o1,2,.8\no1,2 cats,.9", "line 3: 'o1' has two accuracies on '2 cats'"),
        ("o1,7,.8", r"no published kind is one of the problems' \(2 cats, 3 cats, 10 cats\)"),
    ],
)
def test_published_accuracies_that_cannot_be_are_refused(lines: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"name,kind,accuracy\n{lines}\n", encoding="utf-8")
    with pytest.raises(ArtifactError, match=said):
        _read(path)
