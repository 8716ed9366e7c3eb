from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts import streams
from swerve.artifacts.parts import Parts
from swerve.eval import grading
from swerve.statistics import accuracy_interval
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]


def read_rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


FRACTIONS = [
    {"id": "a", "gold": "\\frac{14}{3}", "response": "so \\boxed{\\frac{14}{3}}.", "score": True, "note": "kept"},
    {"id": "b", "gold": "\\frac{14}{3}", "response": "so \\boxed{\\frac{14}{5}}.", "score": True},
    {"id": "c", "gold": "3", "response": "I do not know", "score": False},
    {"id": "d", "gold": "0.5", "answer": "1/2", "score": False},
    {"id": "e", "gold": "7", "response": "\\boxed{7}", "score": None},
]


def test_verdicts_go_to_stdout_with_the_records_own_fields(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", FRACTIONS)
    status, out, err = swerve("grade", "--task", "math", str(file))
    assert status == 0
    rows = read_rows(out)
    assert [(row["value"], row["status"]) for row in rows] == [
        (1.0, "graded"),
        (0.0, "graded"),
        (None, "unparsed"),
        (1.0, "graded"),
        (1.0, "graded"),
    ]
    assert rows[0]["extracted"] == "\\frac{14}{3}"
    assert rows[0]["note"] == "kept"
    assert "5 records, 3 right" in err


@pytest.mark.parametrize("table", [False, True])
def test_ids_without_a_text_are_refused(swerve: Swerve, tmp_path: Path, table: bool) -> None:
    path = tmp_path / "run_rollouts_000000.jsonl"
    row = {"step": 1, "prompt_tokens": [1, 2], "response_tokens": [3], "reward": 1.0, "ground_truth": "42"}
    path.write_text(json.dumps(row) + "\n")
    if table:
        out = path.with_suffix(".parquet")
        assert swerve("data", "import", str(path), "--out", str(out))[0] == 0
        path = out
    status, _, err = swerve("grade", str(path), "--task", "math")
    assert status != 0
    assert "has token ids and no text; swerve data import --tokenizer MODEL" in err


def test_the_interval_is_over_problems(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"id": name, "gold": "7", "response": f"\\boxed{{{7 if name < 'c' else 8}}}"} for name in "aabbccdd"]
    status, out, err = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "rows.jsonl", rows)), "--json")
    assert status == 0, err
    right = accuracy_interval([[True] * 2] * 2 + [[False] * 2] * 2)
    assert json.loads(out)["right"] == pytest.approx({"mean": 0.5, "low": right.low, "high": right.high})


def test_audit_counts_both_ways_and_lists_every_disagreement(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", FRACTIONS)
    status, out, _ = swerve(
        "grade",
        "--task",
        "math",
        str(file),
        "--audit",
        "score",
        "--out",
        "v.jsonl",
        "--json",
    )
    assert status == 0
    (audit,) = json.loads(out)["audits"]
    counts = {name: audit[name] for name in ("both_right", "only_recorded_right", "only_graded_right", "both_wrong")}
    assert counts == {"both_right": 1, "only_recorded_right": 1, "only_graded_right": 1, "both_wrong": 1}
    assert audit["num_without_record"] == 1
    assert audit["agreement"]["mean"] == 0.5
    assert [(row["id"], row["recorded"], row["value"]) for row in audit["disagreements"]] == [
        ("b", True, 0.0),
        ("d", False, 1.0),
    ]
    assert [row["gold"] for row in audit["disagreements"]] == ["\\frac{14}{3}", "0.5"]
    assert len(read_rows((tmp_path / "v.jsonl").read_text())) == 5


def test_audit_in_words(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", FRACTIONS)
    _, out, _ = swerve("grade", "--task", "math", str(file), "--audit", "score", "--out", "v.jsonl")
    assert "recorded right 2, graded right 2: both 1, only recorded 1, only graded 1, neither 1" in out
    assert '  b: recorded True, graded 0; gold "\\\\frac{14}{3}", read "\\\\frac{14}{5}"' in out
    assert "1 records have no verdict in it" in out


def test_numbers_other_than_verdicts_are_compared_with_the_value(swerve: Swerve, tmp_path: Path) -> None:
    rows = [
        {"gold": "Ann is a knight.", "response": "x", "total": -3.0},
        {"gold": "Ann is a knight.", "response": "<think>t</think> <answer>Ann is a knight</answer>", "total": 3.0},
        {"gold": "Ann is a knight.", "response": "<think>t</think> <answer>Ann is a knight</answer>", "total": -0.5},
    ]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    _, out, _ = swerve("grade", "--task", "k_and_k", "scale=parts", str(file), "--audit", "total", "--json")
    (audit,) = json.loads(out)["audits"]
    assert audit["compared"] == "values"
    assert (audit["num_same"], audit["num_compared"]) == (2, 3)
    assert [(row["recorded"], row["value"]) for row in audit["disagreements"]] == [(-0.5, 3.0)]


def test_fields_of_the_verdicts_names_are_kept_under_another(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "2", "answer": "2", "value": 9, "status": "old"}])
    _, out, _ = swerve("grade", "--task", "exact", str(file))
    (row,) = read_rows(out)
    assert (row["value"], row["status"]) == (1.0, "graded")
    assert (row["recorded_value"], row["recorded_status"]) == (9, "old")


def test_verdicts_graded_again_lose_no_earlier_ones(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "2", "answer": "2", "value": 9, "recorded_value": 8}])
    _, out, _ = swerve("grade", "--task", "exact", str(file))
    (row,) = read_rows(out)
    assert (row["value"], row["recorded_recorded_value"], row["recorded_value"]) == (1.0, 9, 8)


def test_an_audit_of_what_is_no_verdict_is_refused_before_grading(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [*FRACTIONS, {"gold": "2", "answer": "2", "score": "yes"}])
    status, _, err = swerve("grade", "--task", "math", file.name, "--audit", "score", "--out", "v.jsonl")
    assert status == 1
    assert "rows.jsonl, line 6: the field 'score' of --audit must be a truth value or a number, got 'yes'" in err
    assert "grade:" not in err
    assert not (tmp_path / "v.jsonl").exists()


def test_control_characters_of_a_file_do_not_reach_the_terminal(swerve: Swerve, tmp_path: Path) -> None:
    row = {"id": "a\x1b[31m", "gold": "2", "response": "\\boxed{3}", "score": True}
    file = write_json_lines(tmp_path / "rows.jsonl", [row])
    _, out, _ = swerve("grade", "--task", "math", file.name, "--audit", "score", "--out", "v.jsonl")
    assert "recorded True, graded 0" in out
    assert "\x1b" not in out


def test_a_device_is_not_replaced(swerve: Swerve, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    file = write_json_lines(tmp_path / "rows.jsonl", FRACTIONS)
    status, _, err = swerve("grade", "--task", "math", file.name, "--out", "pipe.jsonl")
    assert (status, (tmp_path / "pipe.jsonl").is_fifo()) == (2, True)
    assert "--out pipe.jsonl is not an ordinary file" in err


def test_fields_by_other_names_in_a_compressed_csv(swerve: Swerve, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'target,model_output\n5,"\\boxed{5}"\n5,"\\boxed{6}"\n'))
    _, out, _ = swerve(
        "grade", "--task", "math", str(path), "--field", "gold=target", "--field", "response=model_output"
    )
    assert [row["value"] for row in read_rows(out)] == [1.0, 0.0]


def test_gold_may_be_one_of_several(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(
        tmp_path / "rows.jsonl", [{"gold": ["3", "4"], "answer": "4"}, {"gold": 142.0, "answer": "142"}]
    )
    _, out, _ = swerve("grade", "--task", "math", str(file))
    assert [row["value"] for row in read_rows(out)] == [1.0, 1.0]


def test_policies_change_the_verdict(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "18", "response": "so 9 + 9 = 18\n#### 18"}])
    _, strict, _ = swerve("grade", "--task", "math", "extraction=boxed", str(file))
    _, hashed, _ = swerve("grade", "--task", "math", "extraction=hash", str(file))
    _, default, _ = swerve("grade", "--task", "math", str(file))
    assert read_rows(strict)[0]["status"] == "unparsed"
    assert [read_rows(out)[0]["value"] for out in (hashed, default)] == [1.0, 1.0]


def test_where_many_are_unparsed_the_extraction_that_reads_them_is_named(swerve: Swerve, tmp_path: Path) -> None:
    texts = [*["so 9 + 9 = 18\n#### 18"] * 5, r"\boxed{18}", "The answer is $18$.", "I give up, sorry."]
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "18", "response": text} for text in texts])
    _, _, err = swerve("grade", "--task", "math", "extraction=boxed", str(file))
    assert r"7 of 8 answers have no \boxed{}; extraction=auto reads 7" in err
    assert "end with their gold answer" not in err
    _, _, err = swerve("grade", "--task", "math", str(file))
    assert "extraction=" not in err


def test_where_another_grader_may_be_meant_it_is_said(swerve: Swerve, tmp_path: Path) -> None:
    rows = [
        {"question": "7 x 8 =", "answer": "0 5 6", "response": f"8 x 7 = 56 ; answer {text}"}
        for text in ("0 5 6", "0 5 4")
    ]
    file = write_json_lines(tmp_path / "rows.jsonl", rows * 2)
    _, _, err = swerve("grade", "--task", "math", str(file))
    said = "2 of the 4 answers judged wrong end with their gold answer, word for word: if math is not the grader that"
    assert said in err
    assert "word for word" not in swerve("grade", "--task", "multiplication", str(file))[2]


def test_a_text_that_is_still_thinking_gives_no_answer(swerve: Swerve, tmp_path: Path) -> None:
    texts = ["<think> so\n#### 72", "<think> so 71 </think>\n#### 72", "so 71 </think>\n#### 72"]
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "72", "response": text} for text in texts])
    for policies in ([], ["extraction=hash"]):
        _, out, _ = swerve("grade", "--task", "gsm8k", *policies, str(file))
        assert [row["value"] for row in read_rows(out)] == [None, 1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "maths"], "--task 'maths' has no grader; did you mean 'math'? ("),
        ([], "--task is missing: which grader?"),
        (
            ["--task", "math", "extractoin=hash"],
            "the grader math has no policy 'extractoin'; did you mean 'extraction'?",
        ),
        (["--task", "python"], "--task python takes file=PATH"),
        (["--task", "python", "file=none.py"], "none.py"),
        (["--task", "math", "other.jsonl"], "swerve grade takes one FILE, got rows.jsonl, other.jsonl"),
        (["--task", "math", "extraction=last"], "policy 'extraction.0' of the grader math: Input should be 'boxed'"),
        (["--task", "exact", "order=any"], "--task exact has no policies, got order"),
        (["--task", "math", "--audit", "scor"], "has no such field; did you mean 'score'?; it has"),
        (["--task", "math", "--field", "golds=x"], "did you mean 'gold'?"),
        (["--task", "math", "--workers", "0"], "--workers: 'grader_workers' must be greater than 0, got 0"),
        (["--task", "math", "--out", "rows.jsonl"], "--out rows.jsonl is a file that is read"),
        (["--task", "math", "--out", "v.csv"], "--out v.csv must end in .jsonl or .parquet"),
        (["--task", "math", "--out", "."], "--out . is a directory"),
        (["--task", "math", "--cpu-seconds", "nan"], "--cpu-seconds: 'grader_cpu_seconds' must be a number, got 'nan'"),
    ],
)
def test_usage_errors_are_one_line(swerve: Swerve, tmp_path: Path, arguments: list[str], message: str) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", FRACTIONS)
    status, out, err = swerve("grade", str(file.name), *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"response": "\\boxed{1}"}, "rows.jsonl, line 2 has no gold answer (it has response); name its field"),
        ({"gold": "1", "resp": "x"}, "rows.jsonl, line 2 has no response and no answer (it has gold, resp)"),
        (
            {"gold": {"value": "1"}, "response": "1"},
            """line 2: the field 'gold answer' is {"value": "1"}; expected a""",
        ),
        ({"gold": [{"value": "1"}], "response": "1"}, "expected a text, a number or a list of them"),
        ({"gold": "1", "response": ["x"]}, "rows.jsonl, line 2: the text to grade must be text, got list"),
    ],
)
def test_records_that_cannot_be_graded_are_named(swerve: Swerve, tmp_path: Path, row: Any, message: str) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [FRACTIONS[0], row])
    status, _, err = swerve("grade", "--task", "math", file.name)
    assert status == 1
    assert message in err


def test_golds_that_no_answer_can_meet_are_counted(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": gold, "response": "A"} for gold in ("A", "2", "proof")])
    counted = "of 3 have a gold answer that no answer can meet"
    for task, note in (("choice", f"2 {counted} ({file}, line 2: '2')"), ("math", f"1 {counted} ({file}, line 3: ")):
        status, out, err = swerve("grade", "--task", task, str(file))
        assert (status, [row["value"] for row in read_rows(out)]) == (0, [1.0, 0.0, 0.0])
        assert note in err


def test_rows_with_a_null_gold_are_left_out_and_counted(swerve: Swerve, tmp_path: Path) -> None:
    null = {"gold": None, "response": "2"}
    empty = write_json_lines(tmp_path / "empty.jsonl", [{"gold": "1", "response": "1"}, {**null, "gold": []}])
    assert f"1 of 2 left out: no gold answer ({empty}, line 2)" in swerve("grade", "--task", "math", str(empty))[2]
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "1", "response": "\\boxed{1}"}, null])
    status, out, err = swerve("grade", "--task", "math", str(file))
    assert (status, [row["value"] for row in read_rows(out)]) == (0, [1.0])
    assert f"1 of 2 left out: no gold answer ({file}, line 2)" in err
    status, _, err = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "nulls.jsonl", [null])))
    assert (status, "the gold answer of all 1 records is null" in err) == (1, True)


def test_a_null_response_is_left_out_and_an_empty_one_is_unparsed(swerve: Swerve, tmp_path: Path) -> None:
    null, empty = {"gold": "1", "response": None}, {"gold": "1", "response": ""}
    file = write_json_lines(tmp_path / "rows.jsonl", [null, empty, {"gold": "1", "response": "\\boxed{1}"}])
    status, out, err = swerve("grade", "--task", "math", str(file))
    assert (status, [row["status"] for row in read_rows(out)]) == (0, ["unparsed", "graded"])
    assert f"1 left out: no response ({file}, line 1 has null as its response)" in err
    status, _, err = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "nulls.jsonl", [null, null])))
    assert (status, "none of its 2 records has a response" in err) == (1, True)


ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1), "prediction": str(n + 1 + n % 2)} for n in range(4)]
"""Half of which are right; the text to judge has a name that nobody knows."""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "name its field with --field gold=FIELD (if 'answer' is the gold one, name the text to judge: --fi"),
        ({"gold": "answer"}, "no response and no answer (it has question, answer, prediction); name its field with"),
        ({"response": "nosuch", "gold": "answer"}, "has no field 'nosuch' (--field response=nosuch); it has answer,"),
        ({"response": "prediction", "gold": "nosuch"}, "has no field 'nosuch' (--field gold=nosuch)"),
        ({"response": "prediction", "id": "nosuch"}, "has no field 'nosuch' (--field id=nosuch)"),
    ],
)  # fmt: skip
def test_no_answer_is_judged_against_itself(swerve: Swerve, tmp_path: Path, fields: dict[str, str], said: str) -> None:
    file = str(write_json_lines(tmp_path / "rows.jsonl", ROWS))
    named = [word for name, field in fields.items() for word in ("--field", f"{name}={field}")]
    status, out, err = swerve("grade", file, "--task", "math", *named)
    assert (status, out, said in err) == (1, "", True), err
    right = ["--field", "response=prediction"]
    for more in ([], ["--field", "gold=answer"]):
        assert [row["value"] for row in read_rows(swerve("grade", file, "--task", "math", *right, *more)[1])] == [
            1.0, 0.0, 1.0, 0.0,
        ]  # fmt: skip


def test_a_field_that_only_some_records_have_is_there(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "prediction": "2"}, {"question": "1 + 2?", "prediction": "3", "key": "3"}]
    file = str(write_json_lines(tmp_path / "rows.jsonl", rows))
    asked = ["--field", "response=prediction", "--field", "gold=key", "--task", "math"]
    assert "line 1 has no gold answer" in swerve("grade", file, *asked)[2]
    asked += ["--problems", str(write_json_lines(tmp_path / "p.jsonl", [{"id": 1, "question": "1 + 1?", "gold": "2"}]))]
    assert [row["value"] for row in read_rows(swerve("grade", file, *asked)[1])] == [1.0, 1.0]


def test_lists_of_responses_beside_an_answer_are_all_judged(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "answer": "2", "responses": ["2", "3"]}, {"question": "2?", "answer": "2",
            "responses": ["2", "2"]}]  # fmt: skip
    file = str(write_json_lines(tmp_path / "rows.jsonl", rows))
    for more in ([], ["--field", "gold=answer"]):
        _, out, _ = swerve("grade", file, "--task", "math", *more)
        assert [row["value"] for row in read_rows(out)] == [1.0, 0.0, 1.0, 1.0]


def test_truth_values_are_written_in_either_way(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"gold": gold, "response": text} for gold in (True, False) for text in ("True", "true", "False", "TRUE")]
    _, out, _ = swerve("grade", str(write_json_lines(tmp_path / "rows.jsonl", rows)), "--task", "exact")
    assert [row["value"] for row in read_rows(out)] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_answers_without_an_id_belong_to_the_problem_of_their_question(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"question": "3 + 4?", "gold": "7", "response": "\\boxed{7}"} for _ in range(3)]
    rows += [{"question": "1 + 1?", "gold": "2", "response": "\\boxed{3}"} for _ in range(9)]
    rows[0]["id"] = rows[3]["id"] = None
    rows[1]["id"], rows[4]["id"] = "a", "b"
    status, out, err = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "rows.jsonl", rows)), "--json")
    assert (status, json.loads(out)["right"]["mean"], json.loads(out)["left_out"]) == (0, 0.5, None), err
    rows[5]["question"] = None
    status, out, err = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "rows.jsonl", rows)), "--json")
    assert json.loads(out)["right"]["mean"] == pytest.approx(1 / 3)
    assert "1 of 12 have neither id nor question and are problems of their own" in json.loads(out)["left_out"]


def test_problems_give_gold_and_policies(swerve: Swerve, tmp_path: Path) -> None:
    from swerve.artifacts.problem_records import problem_record
    from swerve.types import Problem

    problem = Problem(id="p1", family="gsm8k", question="?", answer="18", grading={"extraction": ["hash"]})
    problems = write_json_lines(tmp_path / "problems.jsonl", [problem_record(problem)])
    file = write_json_lines(tmp_path / "rows.jsonl", [{"id": "p1", "response": "#### 18"}])
    _, out, _ = swerve("grade", "--task", "gsm8k", str(file), "--problems", str(problems))
    assert read_rows(out)[0]["value"] == 1.0


def test_what_was_given_of_the_answer_and_a_tables_details_are_read(swerve: Swerve, tmp_path: Path) -> None:
    row = {"question": "Who?", "gold": "Zoey is a knave"}
    text = "so </think> <answer> Zoey is a knave </answer>"
    given = [{}, {"begun": ""}, {"begun": "<think>\n"}, {"prefix": "<think>", "begun": ""}, {"begun": 3}]
    details = [{"problem_details": json.dumps(one)} for one in given]
    rows = [{**row, **one, "response": text} for one in (*given, *details)]
    _, out, _ = swerve("grade", "--task", "k_and_k", str(write_json_lines(tmp_path / "rows.jsonl", rows)))
    assert [one["value"] for one in read_rows(out)] == [1.0, 0.0, 1.0, 1.0, 1.0] * 2
    other = [{"question": "?", "gold": "1", "response": "2", "problem_details": json.dumps({"alternatives": ["2"]})}]
    _, out, _ = swerve("grade", "--task", "math", str(write_json_lines(tmp_path / "rows.jsonl", other)))
    assert read_rows(out)[0]["value"] == 1.0


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    from swerve.artifacts.problem_records import problem_record
    from swerve.types import Problem

    problem = Problem(id="p1", family="gsm8k", question="?", answer="18", grading={"extraction": ["hash"]})
    return write_json_lines(tmp_path / "problems.jsonl", [problem_record(problem)])


def test_policies_of_the_command_line_come_before_those_of_the_problems(
    swerve: Swerve, tmp_path: Path, problems: Path
) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"id": "p1", "response": "\\boxed{18}"}])
    _, own, _ = swerve("grade", "--task", "gsm8k", file.name, "--problems", problems.name)
    _, given, _ = swerve("grade", "--task", "gsm8k", "extraction=boxed", file.name, "--problems", problems.name)
    assert [read_rows(out)[0]["status"] for out in (own, given)] == ["unparsed", "graded"]


def test_problems_keep_their_grader_and_it_is_said(swerve: Swerve, tmp_path: Path, problems: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"id": "p1", "response": "#### 18.0"}])
    _, out, err = swerve("grade", "--task", "exact", file.name, "--problems", problems.name)
    assert read_rows(out)[0]["value"] == 1.0
    assert "graded by the graders of their problems: gsm8k 1" in err
    status, _, err = swerve("grade", "--task", "math", "order=same", file.name, "--problems", problems.name)
    assert status == 2
    assert "problem 'p1' of the problems' file is judged by 'gsm8k'" in err


def test_an_id_that_the_problems_lack_is_named(swerve: Swerve, tmp_path: Path, problems: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"id": "p2", "response": "#### 18"}])
    status, _, err = swerve("grade", "--task", "gsm8k", file.name, "--problems", problems.name)
    assert status == 1
    assert "no problem of the problems' file has its id 'p2'" in err


SLOW_REWARD = """
import time

def reward(problem, text):
    time.sleep(0.004)
    with open({log!r}, "a") as stream:
        stream.write(text + "\\n")
    return float(text == problem.answer)
"""


@pytest.mark.slow
def test_an_interrupted_command_continues_where_it_stopped(swerve: Swerve, tmp_path: Path) -> None:
    log = tmp_path / "graded.txt"
    (tmp_path / "slow.py").write_text(SLOW_REWARD.format(log=str(log)))
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": str(n), "answer": str(n)} for n in range(2400)])
    arguments = ["grade", "--task", "python", "file=slow.py", file.name, "--out", "out.jsonl", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "swerve", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    partial = tmp_path / "out.jsonl.partial"
    deadline = time.monotonic() + 60
    while not list(partial.glob("verdicts-*")):
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert not (tmp_path / "out.jsonl").exists()
    done_before = 1000 * len(list(partial.glob("verdicts-*")))
    log.unlink()
    assert swerve(*arguments)[0] == 0
    again = log.read_text().splitlines()
    assert len(again) == 2400 - done_before
    assert [row["value"] for row in read_rows((tmp_path / "out.jsonl").read_text())] == [1.0] * 2400
    assert not partial.exists()


def test_chunks_change_nothing_and_a_kill_between_them_costs_one(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": f"p{n // 4}", "gold": None if n == 17 else "3", "response": f"#### {3 + n % 2}", "was": n % 3}
        for n in range(50)
    ]
    file = write_json_lines(tmp_path / "rows.jsonl", [*rows, {"gold": "3", "response": "x" * 3000, "was": 0}])
    command = ("grade", file.name, "--task", "gsm8k", "--audit", "was", "--out", "out.jsonl", "--json")
    _, whole, _ = swerve(*command)
    content = (tmp_path / "out.jsonl").read_bytes()
    assert len(content.splitlines()) == 50

    # Chunks end at some rows or at some size; the third is not graded.
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(streams, "SIZE_AT_ONCE", 60)
    graded: list[int] = []

    def grade_two(pairs: list[Any]) -> Any:
        if len(graded) == 2:
            raise KeyboardInterrupt
        graded.append(len(pairs))
        return grade_all(pairs)

    grade_all = grading.grade_all
    monkeypatch.setattr(grading, "grade_all", grade_two)
    (tmp_path / "out.jsonl").unlink()
    assert swerve(*command)[0] == 130
    partial = tmp_path / "out.jsonl.partial"
    assert (len(list(partial.glob("verdicts-*"))), (tmp_path / "out.jsonl").exists()) == (2, False)

    # The same command grades the rest, and a chunk whose verdicts were changed.
    first, _ = sorted(partial.glob("verdicts-*"))
    first.write_bytes(first.read_bytes().replace(b"0.0", b"1.0", 1))
    again: list[int] = []
    monkeypatch.setattr(grading, "grade_all", lambda pairs: (again.append(len(pairs)), grade_all(pairs))[1])
    _, parts, _ = swerve(*command)
    assert ((tmp_path / "out.jsonl").read_bytes(), json.loads(parts)) == (content, json.loads(whole))
    assert sum(again) == 50 - graded[0]
    assert not partial.exists()


def test_rows_come_to_stdout_as_chunks_are_graded(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": str(n), "answer": str(n)} for n in range(5)])
    _, whole, _ = swerve("grade", str(file), "--task", "math")
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 2)
    grade_all, calls = grading.grade_all, iter(range(3))
    monkeypatch.setattr(grading, "grade_all", lambda pairs: grade_all(pairs) if next(calls) < 1 else 1 / 0)
    _, begun, _ = swerve("grade", str(file), "--task", "math")
    assert begun.splitlines() == whole.splitlines()[:2]


@pytest.mark.parametrize(
    ("last", "message"),
    [({"gold": "1", "resp": "x"}, "line 2002 has no response"), ({"gold": "1", "answer": "1", "was": "?"}, "'was'")],
)
def test_what_is_wrong_with_the_last_record_is_said_before_the_first_is_graded(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(grading, "grade_all", lambda pairs: 1 / 0)
    file = write_json_lines(tmp_path / "rows.jsonl", [*[{"gold": "1", "answer": "1", "was": 1}] * 2001, last])
    status, out, err = swerve("grade", file.name, "--task", "math", "--audit", "was", "--out", "out.jsonl")
    assert (status, out, message in err) == (1, "", True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []


def test_what_is_kept_of_a_summary_does_not_grow_with_the_rows(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "MOST_KEPT", 3)
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "1", "answer": "2", "was": True} for _ in range(8)])
    command = ("grade", file.name, "--task", "math", "--audit", "was")
    (audit,) = json.loads(swerve(*command, "--json")[1])["audits"]
    assert (audit["num_disagreements"], len(audit["disagreements"])) == (8, 3)
    monkeypatch.setattr("swerve.cli.grade._NUM_SHOWN", 2)
    assert "and 6 more; --json has the first 3" in swerve(*command)[2]


def test_somebody_elses_file_beside_the_output_is_left_as_it_is(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "18", "response": "#### 18"}])
    theirs = tmp_path / "out.jsonl.partial"
    theirs.write_text("half of a download\n")
    status, _, err = swerve("grade", str(file), "--task", "gsm8k", "--out", str(tmp_path / "out.jsonl"))
    assert (status, theirs.read_text()) == (2, "half of a download\n")
    assert f"{theirs} exists and is no interrupted work of swerve; move it away" in err


def test_a_partial_output_of_other_policies_is_not_used(swerve: Swerve, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", [{"gold": "18", "response": "#### 18"}])
    others = Parts(tmp_path / "out.jsonl.partial", {"policies": {}})
    others.begin()
    others.put("verdicts", 0, [{"value": 0.0, "status": "graded"}])
    command = ("grade", "--task", "math", "extraction=hash", file.name, "--out", "out.jsonl")
    status, _, err = swerve(*command)
    assert (status, "out.jsonl.partial has parts of the same command with other settings" in err) == (2, True)
    others.finish()
    assert swerve(*command)[0] == 0
    assert read_rows((tmp_path / "out.jsonl").read_text())[0]["value"] == 1.0
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_the_letters_of_a_palindrome_decide_where_there_is_no_gold(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"letters": ["a", "b", "b"], "answer": "bab"}, {"letters": "abb", "answer": "abb"}]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    _, out, _ = swerve("grade", "--task", "palindrome", str(file))
    assert [row["value"] for row in read_rows(out)] == [1.0, 0.0]
    status, _, err = swerve(
        "grade", "--task", "palindrome", str(write_json_lines(tmp_path / "x.jsonl", [{"answer": "bab"}]))
    )
    assert (status, "x.jsonl, line 1 has no gold answer" in err) == (1, True)


@pytest.mark.parametrize("is_continued", [True, False])
def test_shards_in_any_order_give_the_bytes_of_one_process(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_continued: bool
) -> None:
    rows = [{"id": f"p{n // 4}", "gold": "3", "response": f"#### {3 + n % 2}", "was": n % 3} for n in range(50)]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    command = ("grade", file.name, "--task", "gsm8k", "--audit", "was")
    _, whole, _ = swerve(*command, "--out", "whole.jsonl")
    assert "--shard and --parts-from need --out FILE" in swerve(*command, "--shard", "1/3")[2]

    # Chunk k is of shard k mod n; one that is killed continues, or is finished by the whole.
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 6)
    grade_all = grading.grade_all
    graded: list[int] = []

    def counted(pairs: list[Any], most: int) -> Any:
        if len(graded) == most:
            raise KeyboardInterrupt
        graded.append(len(pairs))
        return grade_all(pairs)

    for shard, most, expected in (("3/3", 9, 0), ("1/3", 9, 0), ("2/3", 7, 130)):
        monkeypatch.setattr(grading, "grade_all", functools.partial(counted, most=most))
        assert swerve(*command, "--out", "out.jsonl", "--shard", shard)[0] == expected
    monkeypatch.setattr(grading, "grade_all", functools.partial(counted, most=9))
    if is_continued:
        assert "Shard 2/3 is done" in swerve(*command, "--out", "out.jsonl", "--shard", "2/3")[1]
    _, finished, _ = swerve(*command, "--out", "out.jsonl")
    assert finished == whole.replace("whole", "out")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert (len(graded), sum(graded)) == (9, 50)
    assert not (tmp_path / "out.jsonl.partial").exists()

    # One that is started again has nothing to do.
    status, _, err = swerve(*command, "--out", "out.jsonl", "--shard", "2/3")
    assert (status, "out.jsonl is there already: nothing to do" in err) == (0, True)
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_what_the_grader_failed_at_is_neither_right_nor_wrong(swerve: Swerve, tmp_path: Path) -> None:
    """Nor does it agree with a verdict that the file records."""
    (tmp_path / "own.py").write_text("def reward(problem, text):\n    return 1 / (text != 'bad')\n")
    rows = [{"id": text, "gold": "1", "response": text, "was": text == "good"} for text in ("good", "bad")]
    task = ("--task", "python", "file=own.py", "--audit", "was")

    def said(*given: dict[str, Any]) -> tuple[Any, list[str]]:
        file = write_json_lines(tmp_path / "rows.jsonl", list(given)).name
        return json.loads(swerve("grade", *task, file, "--json")[1]), swerve("grade", *task, file)[2].splitlines()

    summary, lines = said(*rows)
    (audit,) = summary["audits"]
    assert (summary["num_records"], summary["num_right"], summary["num_not_graded"]) == (2, 1, 1)
    assert (summary["right"]["mean"], audit["agreement"]["mean"], audit["num_compared"]) == (1.0, 1.0, 1)
    assert (audit["num_not_graded"], audit["num_without_record"], audit["both_wrong"]) == (1, 0, 0)
    assert "neither right nor wrong: 1 of 2, which could not be graded" in lines
    assert "  1 records could not be graded" in lines
    summary, lines = said(rows[1])
    assert (summary["right"], summary["num_right"], summary["audits"][0]["agreement"]) == (None, 0, None)
    assert "Not determined, because none of 1 records could be graded: how many are right" in lines
    assert "Against 'was': not determined, because no record that was graded has a verdict in it." in lines


REPEATED = [
    {"id": "a" if n < 6 else "b", "question": "1 + 1?" if n < 6 else "1 + 2?", "gold": "2" if n < 6 else "3",
     "response": f"so \\boxed{{{(2, 2, 9, 9, 9, 9, 3, 9)[n]}}}"}
    for n in range(8)
]  # fmt: skip


def without_ids(*places: int) -> list[dict[str, Any]]:
    return [{**row, "id": None} if n in places else row for n, row in enumerate(REPEATED)]


@pytest.mark.parametrize("places", [(0,), (0, 1, 6), (1, 5, 7)])
def test_a_row_without_an_id_is_of_the_problem_with_its_question(
    swerve: Swerve, tmp_path: Path, places: tuple[int, ...]
) -> None:
    summaries = []
    for rows in (REPEATED, without_ids(*places)):
        file = write_json_lines(tmp_path / "rows.jsonl", rows)
        status, out, err = swerve("grade", str(file), "--task", "math", "--out", str(tmp_path / "v.jsonl"), "--json")
        assert status == 0, err
        summaries.append(json.loads(out))
    assert summaries[0] == summaries[1]
    assert summaries[0]["right"]["mean"] == pytest.approx((2 / 6 + 1 / 2) / 2)


def test_rows_without_any_id_are_of_the_problem_they_ask(swerve: Swerve, tmp_path: Path) -> None:
    shares = []
    for rows in (REPEATED, without_ids(*range(8))):
        file = write_json_lines(tmp_path / "rows.jsonl", rows)
        status, _, err = swerve("grade", str(file), "--task", "math")
        assert status == 0
        shares.append(err)
    assert shares[0] == shares[1]


def test_what_has_neither_id_nor_question_is_said(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{**row, "question": None} if n == 3 else row for n, row in enumerate(without_ids(3))]
    status, _, err = swerve("grade", str(write_json_lines(tmp_path / "rows.jsonl", rows)), "--task", "math")
    assert status == 0
    assert "1 of 8 have neither id nor question and are problems of their own" in err
    assert "rows.jsonl, line 4)" in err


def test_problems_are_found_by_their_question_where_a_record_has_no_id(swerve: Swerve, tmp_path: Path) -> None:
    known = [
        {"id": "p", "family": "math", "question": "1 + 1?", "answer": "2"},
        {"id": "q", "family": "math", "question": "1 + 2?", "answer": "3"},
    ]
    rows = [{"question": " 1 +  2?", "response": "\\boxed{3}"}, {"id": "p", "response": "\\boxed{3}"}]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    problems = write_json_lines(tmp_path / "problems.jsonl", known)
    status, out, err = swerve("grade", str(file), "--problems", str(problems))
    assert status == 0, err
    assert [row["value"] for row in read_rows(out)] == [1.0, 0.0]


def test_rows_of_countdown_are_graded_without_a_hint(swerve: Swerve, tmp_path: Path) -> None:
    rows = [
        {"target": 65, "nums": [19, 36, 55, 7], "response": "<answer>55 + 36 - 19 - 7</answer>"},
        {"target": 65, "nums": [19, 36, 55, 7], "response": "<answer>36 + 29</answer>"},
        {"target": 10, "nums": [2, 3, 4], "response": "<answer>2 * 3 + 4 = 10</answer>"},
    ]
    problems = write_json_lines(tmp_path / "problems.jsonl", [{"target": 65, "nums": [19, 36, 55, 7]}])
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    for options in ((), ("--task", "countdown"), ("--problems", str(problems))):
        status, out, err = swerve("grade", str(file), *options)
        assert status == 0, err
        assert [row["value"] for row in read_rows(out)] == [1.0, 0.0, 1.0]
        assert "3 records, 2 right (75%" in err  # one of two, and one of one


def test_lists_of_responses_are_graded_and_plain_problems_joined(swerve: Swerve, tmp_path: Path) -> None:
    problems = write_json_lines(tmp_path / "p.jsonl", [{"id": "a", "question": "1 + 1?", "answer": "2"}])
    lists = [{"id": "a", "question": "1 + 1?", "gold": "2", "responses": [r"\boxed{2}", r"\boxed{3}"]}]
    apart = [{"id": "a", "response": text} for text in lists[0]["responses"]]
    given: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
        "lists": (lists, ()),
        "problems": (apart, ("--problems", str(problems))),
    }
    for name, (rows, options) in given.items():
        file = write_json_lines(tmp_path / f"{name}.jsonl", rows)
        status, out, err = swerve("grade", str(file), "--task", "math", *options)
        assert status == 0, err
        assert [row["value"] for row in read_rows(out)] == [1.0, 0.0]


def test_responses_are_found_where_their_layout_has_them(swerve: Swerve, tmp_path: Path) -> None:
    """A program's names for prompt, response and gold answer are no hint that a user must give."""
    row = {"input_prompt": "1 + 1?", "output_response": r"It is \boxed{2}", "score": 0.5}
    golds = [{"env_extras": {"reward_spec": {"ground_truth": gold}}} for gold in ("2", "3")]
    path = write_json_lines(tmp_path / "skyrl.jsonl", [{**row, **gold} for gold in golds])
    status, out, err = swerve("grade", "--task", "math", str(path))
    assert status == 0, err
    verdicts = read_rows(out)
    assert [(each["value"], each["gold"]) for each in verdicts] == [(1.0, "2"), (0.0, "3")]
    assert [(each["prompt"], each["response"], each["reward"]) for each in verdicts] == [
        (row["input_prompt"], row["output_response"], 0.5)
    ] * 2


def test_a_response_that_was_cut_while_it_thought_is_unanswered(swerve: Swerve, tmp_path: Path) -> None:
    row = {"question": "1 + 1?", "gold": "2"}
    rows = [{**row, "response": r"\boxed{2}"}, {**row, "response": None, "reasoning": "1 +", "finish_reason": "length"}]
    status, _, err = swerve("grade", str(write_json_lines(tmp_path / "r.jsonl", rows)), "--task", "math")
    assert (status, "2 records, 1 right (50%" in err, "no answer: 1 of 2" in err) == (0, True, True), err
