from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from swerve.config import DataTask, DeepScalerTask, Gsm8kTask, MathTask, TableTask


def test_one_spec_or_several() -> None:
    assert DataTask.model_validate({"train": "a.jsonl"}).train == ("a.jsonl",)
    assert DataTask.model_validate({"train": ["a.jsonl", "b.jsonl"]}).train == ("a.jsonl", "b.jsonl")


@pytest.mark.parametrize("task", [DataTask, Gsm8kTask, MathTask, DeepScalerTask, TableTask])
def test_there_is_a_training_source(task: type[DataTask]) -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        task.model_validate({"train": []})


@pytest.mark.parametrize(
    ("prompt", "extraction", "missing"),
    [
        ("think_answer", ["boxed"], "answer_tag"),
        ("hash", ["boxed", "phrase"], "hash"),
        ("boxed", ["last_number"], "boxed"),
        ("step_by_step", ["hash"], "boxed"),
    ],
)
def test_the_form_that_a_prompt_asks_for_must_be_read(prompt: str, extraction: list[str], missing: str) -> None:
    values: dict[str, Any] = {"prompt": {"format": prompt}, "grading": {"extraction": extraction}}
    with pytest.raises(ValidationError, match=f"does not read; add {missing} to it"):
        MathTask.model_validate(values)
    MathTask.model_validate({**values, "grading": {"extraction": [*extraction, missing]}})
    MathTask.model_validate({**values, "prompt": {"format": prompt, "template": "{question}"}})


@pytest.mark.parametrize("level", [0, 6])
def test_levels(level: int) -> None:
    with pytest.raises(ValidationError, match="levels"):
        MathTask.model_validate({"levels": [level]})


def test_fields_of_a_table() -> None:
    with pytest.raises(
        ValidationError, match="'qestion' is not a field of a problem .id, question, answer.* did you mean 'question'"
    ):
        TableTask.model_validate({"train": "a.jsonl", "fields": {"qestion": "q"}})


@pytest.mark.parametrize(
    "values", [{"grader": "python"}, {"reward_file": "r.py"}, {"grader": "math", "reward_file": "r.py"}]
)
def test_the_python_grader_and_its_file_go_together(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="grader 'python' and a reward_file go together"):
        TableTask.model_validate({"train": "a.jsonl", **values})


def test_a_reward_file_is_found_from_anywhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = TableTask(train=(".",), grader="python", reward_file="own/reward.py")
    assert task.reward_file == str(tmp_path / "own" / "reward.py")
    assert TableTask.model_validate(task.model_dump()) == task
    monkeypatch.setenv("HOME", "/home/me")
    assert TableTask(train=(".",), grader="python", reward_file="~/r.py").reward_file == "/home/me/r.py"
