"""Models, problems and tables in the forms that people hand over, and messages in the words of Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import swerve
from swerve.artifacts.given_rows import rows_of
from swerve.door.given import models_of, problem_rows, task_of, write_rows
from swerve.door.spoken import in_python
from swerve.errors import ConfigError
from swerve.types import Problem

ROWS = [{"question": "2 + 2?", "answer": "4"}, {"question": "3 + 4?", "answer": "7"}]


class Frame:
    """What pandas has, as far as it is looked at."""

    columns = ("question", "answer")

    def __getitem__(self, name: str) -> list[str]:
        return [row[name] for row in ROWS]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tuple(ROWS),
        [("2 + 2?", "4"), ["3 + 4?", "7"]],
        {"question": ["2 + 2?", "3 + 4?"], "answer": ["4", "7"]},
        pa.Table.from_pylist(ROWS),
        Frame(),
        np.array(ROWS),
    ],
)
def test_problems_in_every_form_are_the_same_rows(given: Any, tmp_path: Path) -> None:
    assert problem_rows(given) == ROWS
    record, settings = task_of(given, None, tmp_path)
    assert (record or {})["kind"] == "table"
    assert settings is None
    (place,) = (record or {})["train"]
    assert [json.loads(line) for line in Path(place).read_text().splitlines()] == ROWS
    assert write_rows(tmp_path, "problems", ROWS) == Path(place)  # the same rows are the same file again


def test_one_problem_and_problems_of_swerve() -> None:
    assert problem_rows(ROWS[0]) == ROWS[:1]
    known = Problem(id="p", family="math", question="2 + 2?", answer="4")
    assert problem_rows([known])[0]["id"] == "p"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["2 + 2?"], r"problem 0 is '2 \+ 2\?', of type str; give a list of mappings with question and answer"),
        ([], "there are no problems; give a list"),
        (3, "the problems are 3, of type int; give a list"),
        ({"question": ["a", "b"], "answer": ["c"]}, "columns of the problems have different lengths"),
    ],
)
def test_what_are_no_problems(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        problem_rows(given)


def test_a_task_by_name_by_its_keys_and_with_problems_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    write_rows(tmp_path, "mine", ROWS).rename(file)
    assert (task_of("addition", None, tmp_path)[0] or {})["kind"] == "addition"
    assert (task_of(None, {"kind": "addition", "digits": 2}, tmp_path)[0] or {})["digits"] == 2
    own = task_of(file, "math", tmp_path)[0] or {}
    assert (own["kind"], own["heldout"]) == ("math", [str(file)])
    named = task_of(str(file), None, tmp_path, fields={"question": "prompt"})[0] or {}
    assert named["fields"] == {"question": "prompt"}
    settings = swerve.SampleSettings(task="addition")
    assert task_of(settings, None, tmp_path) == (None, settings)
    for given, said in (
        ((None, None), "whose problems"),
        ((ROWS, "exact"), "'exact' is a grader and no task: task={'kind': 'table', 'grader': 'exact'}"),
        ((ROWS, "mixture"), "the task 'mixture' makes its own problems and grades no others; leave out problems="),
        ((ROWS, swerve.SampleSettings(task={"kind": "addition", "digits": 2}).task), "'digits' says how problems of"),
        ((ROWS, {"kind": "addition", "digits": 2}), "'digits' says how problems of 'addition' are made"),
        (("addition", "math"), "are two tasks; give one"),
        ((None, {"digits": 2}), "needs a 'kind', one of addition"),
        ((settings, "math"), "the settings have their task"),
    ):
        with pytest.raises(ConfigError, match=said):
            task_of(*given, tmp_path)


@pytest.mark.parametrize(
    "task", ["addition", "demo_addition", {"kind": "addition"}, swerve.SampleSettings(task="addition").task]
)
def test_own_problems_are_graded_as_the_task_that_is_named(task: Any, tmp_path: Path) -> None:
    record = task_of(ROWS, task, tmp_path)[0] or {}
    assert (record["kind"], record["grader"]) == ("table", "addition")
    assert swerve.SampleSettings(task=record).task.kind == "table"
    asked = task_of(ROWS, "countdown", tmp_path)[0] or {}
    assert asked["prompt"] == swerve.SampleSettings(task="countdown").task.model_dump(mode="json")["prompt"]


class Words:
    """Looks like a tokenizer."""

    def convert_ids_to_tokens(self) -> None: ...


def test_models_that_are_none(tmp_path: Path) -> None:
    for given, said in (
        ([], "no model is given"),
        (3, "^int is no model; give a folder, RUN:LABEL.* or a model of transformers in memory, alone or as"),
        ((object(), object()), "^object is no model; give a folder"),
        (("a/b", Words()), "'a/b' is a name or a folder, which has its tokenizer; give it without one"),
        ({object(): "a/b"}, "^object is no name of a model; give models by name"),
        ({"../../a": Words()}, "has no name that a file can have"),
        ({"base": [1] * 99}, "^list is no model; give a folder"),
        (["late=a/b", "late=c/d"], "two models are called 'late'"),
        ({"a b": "x/y"}, "has no name that a file can have"),
    ):
        with pytest.raises(ConfigError, match=said):
            models_of(given, tmp_path)
    assert models_of({"base": "owner/name"}, tmp_path) == {"base": "owner/name"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("give --problems FILE, or --field gold=FIELD", "give problems=FILE, or fields={'gold': 'FIELD'}"),
        ("fewer than --limit 20", "fewer than limit=20"),
        ("needs --common", "needs common="),
        ("--num-samples 0.5 is", "num_samples=0.5 is"),
        ("write it with swerve sample", "write it with swerve.sample"),
        ("name the grader with --task KIND (swerve data list)", "name the grader with task=KIND (swerve.tasks())"),
        ("/tmp/swerve-given-ab_1/problems-0f3a.jsonl, line 2 has", "problems, line 2 has"),
        (
            "; say task.fields.question=q task.fields.answer=a",
            "; say fields={'question': 'q', 'answer': 'a'}",
        ),
        ("--task 'gsm' is not one", "task='gsm' is not one"),
        ("--task is missing: Give --task math, gsm8k", "task= is missing: Give task=math, gsm8k"),
        ("Give --task math, gsm8k, k_and_k, ... (x)", "Give task='math', 'gsm8k', 'k_and_k', ... (x)"),
        ("task.train: data source 'x' is", "problems: data source 'x' is"),
        ("task.heldout: data source 'a/x.jsonl' does not exist; did", "problems='a/x.jsonl' does not exist; did"),
        (
            "(hf download --repo-type dataset x), --limit 3",
            "(hf download --repo-type dataset x), limit=3",
        ),
        ("a--b and x -- y", "a--b and x -- y"),
        (
            "grade it first: swerve grade a.jsonl --task TASK --out a-graded.jsonl",
            "grade it first: swerve.grade('a.jsonl', task=TASK, out='a-graded.jsonl')",
        ),
        (
            "x: swerve grade /tmp/swerve-given-1/answers-b-07.jsonl --out /tmp/swerve-given-1/answers-b-graded.jsonl",
            "x: swerve.grade(answers).to_pandas()",
        ),
        ("/tmp/swerve-given-1/answers-rl-2.5-07ab.jsonl: no", "answers: no"),
        ("in a terminal: swerve train runs/a --resume", "in a terminal: swerve train runs/a --resume"),
        ("continue with: swerve train runs/a --resume; or", "continue with: swerve.train('runs/a', resume=True); or"),
    ],
)
def test_messages_of_the_terminal_in_the_words_of_python(line: str, said: str) -> None:
    assert in_python(line) == said


def test_rows_of_a_record_are_no_columns() -> None:
    assert rows_of({"prompt_ids": [1, 2], "completion_ids": [3]}, what="responses", form="") == [
        {"prompt_ids": [1, 2], "completion_ids": [3]}
    ]
