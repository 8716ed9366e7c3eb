from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.problem_records import problem_record
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.records import FileRecord
from swerve.problems.prompt import PromptConfig
from swerve.problems.table import Table, TableTask
from swerve.rewards import grade
from swerve.types import Problem
from tests.json_lines import write_json_lines

SOURCE = {"train": ("unused.jsonl",)}


def read(task: dict[str, Any], **values: Any) -> Any:
    return Table(TableTask(**SOURCE, **task)).problem(FileRecord("f.jsonl, line 7", values))


def test_a_row_with_the_usual_names() -> None:
    problem = read(
        {},
        question="What is 1 + 1?",
        answer=2,
        alternatives=["two", "2"],
        solution="1 + 1 = 2",
        kind="sums",
        difficulty="1.5",
        source="me",
        id=9,
        note=None,
    )
    assert (problem.answer, problem.alternatives, problem.solution) == ("2", ("two", "2"), "1 + 1 = 2")
    assert (problem.kind, problem.difficulty, problem.grader) == ("sums", 1.5, "math")
    assert problem.metadata == {"source": "me", "id": 9}
    assert problem.id.startswith("table-")


def test_a_row_with_names_of_its_own() -> None:
    fields = {"id": "nr", "question": "prompt", "answer": "gold", "kind": "level", "alternatives": "also"}
    problem = read({"fields": fields}, nr=7, prompt="Q?", gold=["a", "b"], level=3, also="c", question="unused")
    assert (problem.id, problem.question, problem.answer) == ("7", "Q?", "a")
    assert (problem.alternatives, problem.kind) == (("b", "c"), "3")
    assert problem.metadata == {"question": "unused"}


def test_a_row_names_its_own_grader() -> None:
    row = {"question": "1 2 =", "answer": "1 3 0 0", "grader": "exact"}
    assert (read({}, **row).grader, read({}, **row).metadata) == ("exact", {})
    assert (read({"grader": "math"}, **row).grader, read({"grader": "math"}, **row).metadata["grader"]) == (
        "math",
        "exact",
    )
    assert read({}, **{**row, "grader": None}).grader == "math"
    with pytest.raises(ArtifactError, match="has the grader python: what a record names is not run"):
        read({}, **{**row, "grader": "python"})


def test_a_missing_field_is_explained() -> None:
    expected = (
        "line 7 has no field 'question'; it has qestion, answer; did you mean 'qestion'.; say task.fields.question="
    )
    with pytest.raises(ArtifactError, match=expected):
        read({}, qestion="Q?", answer="1")
    with pytest.raises(
        ArtifactError, match="has no field 'answer'; it has question, gold; say task.fields.answer=gold"
    ):
        read({}, question="Q?", gold="1")
    with pytest.raises(ArtifactError, match="no field 'lvel'; it has question, answer, level; did you mean 'level'"):
        read({"fields": {"kind": "lvel"}}, question="Q?", answer="1", level=1)


def test_both_fields_that_others_call_otherwise_are_named_at_once() -> None:
    with pytest.raises(ArtifactError, match="; say task.fields.question=prompt task.fields.answer=target$"):
        read({}, prompt="Q?", target="1")


def test_choices_that_are_not_asked_are_noted(tmp_path: Path) -> None:
    def notes(**row: Any) -> list[str]:
        path = write_json_lines(tmp_path / "rows.jsonl", [{"question": "2 + 2?", "answer": "B", **row}])
        return Table(TableTask(train=(str(path),), heldout=(str(path),))).notes()

    plain = notes()
    assert notes(question="2 + 2?\nA) 3\nB) 4", choices=["3", "4"]) == notes(choices=[]) == plain
    for row in (
        {"choices": ["3", "4"]},
        {"options": ["3", "4"]},
        {"choices": {"text": ["3", "4"], "label": ["A", "B"]}},
    ):
        (note,) = (note for note in notes(**row) if note not in plain)
        assert note.startswith(f"heldout: the field {next(iter(row))!r} is no part of what is asked (table-")


def test_an_empty_answer_is_no_gold_answer() -> None:
    assert read({}, question="Q?", answer=None) is None
    assert read({}, question="Q?", answer="") is None


def test_a_reward_file_needs_no_gold_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.py").write_text("")
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "a", "tests": [1]}))
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "b"}))
    task = TableTask(train=(".",), heldout=(".",), grader="python", reward_file="reward.py", grading={"strict": True})
    (problem,) = Table(task).problems("train", seed=0)
    assert (problem.answer, problem.grader, problem.metadata) == ("", "python", {"tests": [1]})
    assert problem.grading == {"strict": True, "file": str(tmp_path / "reward.py")}


def test_a_reward_file_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"task.reward_file '.*nowhere\.py' does not exist"):
        Table(TableTask(**SOURCE, grader="python", reward_file="nowhere.py"))


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "parquet"])
def test_every_kind_of_file(ending: str, tmp_path: Path) -> None:
    rows = [{"question": f"{one} + 1?", "answer": str(one + 1)} for one in range(3)]
    path = tmp_path / f"mine.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ending == "csv":
        path.write_text("question,answer\n" + "".join(f"{row['question']},{row['answer']}\n" for row in rows))
    elif ending == "json":
        path.write_text(json.dumps(rows))
    else:
        write_json_lines(path, rows)
    (tmp_path / "held.json").write_text(json.dumps([{"question": "9 + 9?", "answer": "18"}]))
    found = Table(TableTask(train=(str(path),), heldout=(str(tmp_path / "held.json"),))).problems("train", seed=0)
    assert sorted((one.question, one.answer) for one in found) == [(row["question"], row["answer"]) for row in rows]


WRITTEN = Problem(
    id="gsm8k-1",
    family="gsm8k",
    question="Q?",
    answer="2",
    kind="2 steps",
    difficulty=2.0,
    messages=(("user", "Q? Think."),),
    prefix="<think>",
    grading={"extraction": ["hash"]},
    metadata={"subject": "x"},
)


def read_back(tmp_path: Path, problem: Problem = WRITTEN, **changes: Any) -> Problem:
    (tmp_path / "mine.jsonl").write_text(json.dumps(problem_record(problem)))
    (tmp_path / "held.jsonl").write_text(json.dumps({"question": "b", "answer": "1"}))
    task = TableTask(train=(str(tmp_path / "mine.jsonl"),), heldout=(str(tmp_path / "held.jsonl"),), **changes)
    (found,) = Table(task).problems("train", seed=0)
    return found


def test_problems_that_were_written_are_read_back_as_they_were(tmp_path: Path) -> None:
    assert read_back(tmp_path) == WRITTEN
    plain = replace(WRITTEN, messages=(), prefix="")
    assert read_back(tmp_path, plain) == plain


def test_the_task_may_change_what_was_written(tmp_path: Path) -> None:
    other = read_back(tmp_path, prompt=PromptConfig(template="Question: {question}"), grader="exact")
    assert other.messages == (("user", "Question: Q?"),)
    assert (other.prefix, other.grader) == ("", "exact")


def test_a_damaged_written_problem_is_named_by_its_place(tmp_path: Path) -> None:
    record = {**problem_record(WRITTEN), "answer": 2}
    with pytest.raises(ArtifactError, match="f.jsonl, line 7: the field 'answer' is '2'; expected a text"):
        read({}, **record)


CHAT = {
    "data_source": "openai/gsm8k",
    "prompt": [
        {"role": "system", "content": "Reason."},
        {"role": "user", "content": "What is 1 + 1? Write it after ####."},
    ],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 3, "question": "What is 1 + 1?", "answer": "1+1=<<1+1=2>>2\n#### 2"},
}
CHAT_MESSAGES = (("system", "Reason."), ("user", "What is 1 + 1? Write it after ####."))


def read_chat(task: dict[str, Any], **values: Any) -> Any:
    return Table(TableTask(**SOURCE, **task)).read(FileRecord("f.jsonl, line 7", values))


def test_a_row_of_verl() -> None:
    problem = read_chat({}, **CHAT)
    assert (problem.question, problem.answer, problem.messages) == ("What is 1 + 1?", "2", CHAT_MESSAGES)
    assert problem.solution == "1+1=<<1+1=2>>2\n#### 2"
    assert (problem.grader, problem.grading) == ("math", {})
    assert problem.metadata == {"data_source": "openai/gsm8k", "split": "train", "index": 3}


def test_rows_of_other_layouts_of_chats_are_read_alike() -> None:
    as_text = {key: json.dumps(CHAT[key]) for key in ("prompt", "reward_model", "extra_info")}
    assert read_chat({}, **{**CHAT, **as_text}) == read_chat({}, **CHAT)
    beside = read_chat({}, messages=CHAT["prompt"], ground_truth=["7", "7.0"], dataset="math")
    assert (beside.answer, beside.alternatives, beside.messages) == ("7", ("7.0",), CHAT_MESSAGES)
    not_chat = read_chat({}, question="Sort", prompt="[3, 1, 2]", answer="1")
    assert (not_chat.question, not_chat.messages) == ("Sort", ())


def test_a_row_with_messages_and_the_answer_beside_them() -> None:
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is 4."}]
    problem = read_chat({}, messages=messages, extra_info={"answer": 4})
    assert (problem.question, problem.answer, problem.solution) == ("2 + 2?", "4", "It is 4.")
    assert problem.messages == (("user", "2 + 2?"),)


def test_messages_are_what_the_model_reads_unless_the_task_has_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(CHAT))
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "b", "answer": "1"}))
    paths = {"train": (str(tmp_path / "train.jsonl"),), "heldout": (str(tmp_path / "test.jsonl"),)}
    (kept,) = Table(TableTask(**paths)).problems("train", seed=0)
    (changed,) = Table(TableTask(**paths, prompt=PromptConfig(format="boxed"))).problems("train", seed=0)
    assert kept.messages == CHAT_MESSAGES
    assert changed.messages[-1][1].startswith("What is 1 + 1?\n\nReason step by step")
    assert changed.grading == {}


def test_one_message_in_chat_markup_is_split_into_its_turns() -> None:
    markup = (
        "<|im_start|>system\nReason.<|im_end|>\n<|im_start|>user\n2 + 2?\n<|im_end|>\n<|im_start|>assistant\n<think>"
    )
    prompt = [{"role": "user", "content": markup}]
    problem = read_chat({}, prompt=prompt, reward_model={"ground_truth": ["4"]}, solution="<think> 4 </think>")
    assert problem.messages == (("system", "Reason."), ("user", "2 + 2?"))
    assert (problem.prefix, problem.solution) == ("<think>", " 4 </think>")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": [{"role": "system", "content": "a"}]}, "prompt must end with a message of the user"),
        ({"prompt": None}, "prompt is null; give the messages"),
        ({"prompt": [{"role": "user"}]}, "prompt must be text or a list of messages with a role and a text"),
        ({"reward_model": {"ground_truth": {"inputs": [1]}}}, "the field 'answer' is .*expected a text, a number"),
    ],
)
def test_a_wrong_row_in_the_chat_layout_is_named_by_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=f"f.jsonl, line 7.*{message}"):
        read_chat({}, **{**CHAT, **changes})


def test_the_files_of_logic_rl_are_graded_as_knights_and_knaves(shared_data: Any) -> None:
    task = TableTask(train=(str(shared_data("kk_logic_rl") / "3ppl_train.parquet"),))
    problem = Table(task).problems("train", seed=0)[0]
    assert (problem.family, problem.grader, problem.prefix) == ("k_and_k", "", "<think>")
    assert [role for role, _ in problem.messages] == ["system", "user"]
    reward = grade(problem, f" so </think> <answer> {problem.answer} </answer>")
    assert (reward.status, reward.value) == ("graded", 1.0)


def test_a_row_of_countdown_is_a_problem_of_its_task() -> None:
    problem = read({}, target=10, nums=[2, 3, 4])
    assert (problem.family, problem.answer) == ("countdown", "")
    assert problem.metadata == {"numbers": [2, 3, 4], "target": 10, "use_all": True}
    assert grade(problem, "<answer>2 * 3 + 4</answer>").value == 1.0
    with pytest.raises(ArtifactError, match="no field 'question'"):
        read({}, target=10, nums=[2])
