from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Swerve = Callable[..., tuple[int, str, str]]


def test_every_kind_of_task_is_listed_with_its_source(swerve: Swerve) -> None:
    _, out, _ = swerve("data", "list", "--json")
    sources = {entry["task"]: entry["source"] for entry in json.loads(out)}
    assert sources["gsm8k"] == "train@openai/gsm8k:main"
    assert sources["addition"] == "generated"
    assert sources["table"] == "task.train=FILE"
    assert sources["mixture"] == "task.parts=[...]"


def test_a_problem_is_shown_as_the_model_sees_it(swerve: Swerve) -> None:
    status, out, _ = swerve("data", "show", "addition", "digits=2", "num_train=5", "-n", "1")
    assert status == 0
    assert out.startswith("5 problems in train; the first 1:\n\naddition-")
    assert "  user: " in out
    assert "  gold: " in out


def test_own_problems_are_written_and_read_back(swerve: Swerve, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("question,answer\n1+1?,2\n2+3?,5\n")
    (tmp_path / "held.csv").write_text("question,answer\n4+4?,8\n")
    swerve("data", "write", "table", "train=mine.csv", "heldout=held.csv", "--out", "mine.jsonl")
    _, out, _ = swerve("data", "show", "table", "train=mine.jsonl", "heldout=held.csv", "--json")
    assert sorted((problem["question"], problem["answer"]) for problem in json.loads(out)) == [
        ("1+1?", "2"),
        ("2+3?", "5"),
    ]


def test_a_file_that_is_read_is_not_written(swerve: Swerve, tmp_path: Path) -> None:
    text = '{"question": "1+1?", "answer": "2"}\n'
    (tmp_path / "mine.jsonl").write_text(text)
    status, _, err = swerve("data", "write", "table", "train=mine.jsonl", "--out", "mine.jsonl")
    assert status == 2
    assert "--out mine.jsonl is a file that is read" in err
    assert (tmp_path / "mine.jsonl").read_text() == text


def test_a_mixture_is_shown(swerve: Swerve) -> None:
    parts = "parts=[{task: {kind: addition, num_train: 3}}, {task: {kind: arithmetic_sequence}}]"
    _, out, _ = swerve("data", "show", "mixture", parts, "--json", "-n", "2")
    assert [problem["family"] for problem in json.loads(out)] == ["addition", "arithmetic_sequence"]


def test_a_recipe_gives_its_task(swerve: Swerve) -> None:
    _, out, _ = swerve("data", "show", "demo_addition", "task.num_train=3", "--json", "-n", "5")
    problems = json.loads(out)
    assert [(problem["family"], problem["answer"] != "") for problem in problems] == [("addition", True)] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "matt"], "'matt' is neither a kind of task nor a recipe; did you mean 'math'?"),
        (["show", "table"], "missing required key 'task.train'"),
        (["show", "addition", "digts=2"], "unknown key 'task.digts'; did you mean 'digits'?"),
        (["show", "addition", "--split", "test"], "--split 'test' is not one of train, heldout"),
        (["show", "addition", "-n", "0"], "Invalid value for '--num' / '-n'"),
        (["write", "addition", "--out", "x.csv"], "--out x.csv must end in .jsonl or .parquet"),
    ],
)
def test_usage_errors_are_one_line(swerve: Swerve, arguments: list[str], message: str) -> None:
    status, out, err = swerve("data", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
