from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts import streams
from swerve.artifacts.files import sha256_file
from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import read_provenance
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.cli.data_export import export
from swerve.cli.data_import import import_rollouts
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.imported_responses import read_responses
from swerve.models.tiny import build_word_tokenizer
from swerve.version import __version__
from tests.json_lines import write_json_lines

ROWS = [
    {"input": "1 + 1 =", "output": " 2", "gts": "2", "score": 1.0, "step": 4},
    {"input": "1 + 1 =", "output": " 1", "gts": "2", "score": 0.0, "step": 4},
    {"input": "1 + 2 =", "output": "", "gts": "3", "score": 0.0, "step": 4},
]

Swerve = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_json_lines(tmp_path / "4.jsonl", ROWS)


def run(file: Path, out: Path, **changes: Any) -> None:
    options: dict[str, Any] = {
        "problems": None,
        "dialect": "auto",
        "fields": (),
        "tokenizer": None,
        "task": None,
    }
    as_json = changes.pop("as_json", False)
    result = import_rollouts(file, out=out, **{**options, **changes})
    print(json.dumps(result.value) if as_json else result.text)


def test_a_table_with_where_it_comes_from(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(dump, tmp_path / "out.parquet", task="math")
    assert capsys.readouterr().out.splitlines() == [
        "3 responses to 2 problems, read as verl",
        "recorded: 0 right, 0 wrong, 3 unknown; 3 with a reward",
        "empty: 1",
        "steps: 4 3",
        "note: verl writes prompts without special tokens, so they are not exactly what the model was given",
        f"table: {tmp_path / 'out.parquet'}",
    ]
    rows = read_table(tmp_path / "out.parquet", RESPONSES_SCHEMA).to_pylist()
    assert [(row["text"], row["gold"], row["reward"], row["step"], row["sample"]) for row in rows] == [
        (" 2", "2", 1.0, 4, 0),
        (" 1", "2", 0.0, 4, 1),
        ("", "3", 0.0, 4, 0),
    ]
    assert {row["family"] for row in rows} == {"math"}
    assert rows[1]["place"] == f"{dump}, line 2"
    assert {row["completion_ids"] for row in rows} == {None}
    assert read_provenance(tmp_path / "out.parquet") == {
        "source": {"name": "4.jsonl", "sha256": sha256_file(dump)},
        "problems": None,
        "format": "verl",
        "fields": {},
        "task": "math",
        "swerve_version": __version__,
    }
    first = (tmp_path / "out.parquet").read_bytes()
    run(dump, tmp_path / "out.parquet", task="math")
    assert (tmp_path / "out.parquet").read_bytes() == first


def test_tokenised_once(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = build_word_tokenizer(["1", "2", "+", "="])
    tokenizer.save_pretrained(tmp_path / "model")
    run(dump, tmp_path / "out.parquet", tokenizer=str(tmp_path / "model"), as_json=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary["boundaries"] == {"joint": 2}
    assert (summary["num_empty"], summary["steps"], summary["prompts_without_special_tokens"]) == (1, {"4": 3}, True)
    assert summary["provenance"]["tokenizer"]["name"] == "model"
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    words = [tokenizer.decode(row["completion_ids"]) if row["completion_ids"] else None for row in rows]
    assert words == ["2", "1", None]
    assert tokenizer.decode(rows[0]["prompt_ids"], skip_special_tokens=True) == "1 + 1 ="
    assert [(row["token_starts"], row["token_ends"], row["boundary"]) for row in rows] == [
        ([0], [2], "joint"),
        ([0], [2], "joint"),
        (None, None, None),
    ]


def test_answers_of_a_batch_are_joined_to_the_requests_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, requests = tmp_path / "batch_output.jsonl", tmp_path / "batch_input.jsonl"
    choice = {"index": 0, "message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}
    body = {"model": "m", "choices": [choice]}
    answers.write_text(json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None}))
    with pytest.raises(ArtifactError, match="no prompt for 1 of 1 responses"):
        run(answers, tmp_path / "out.parquet")
    messages = [{"role": "user", "content": "1 + 1?"}]
    requests.write_text(json.dumps({"custom_id": "a", "method": "POST", "body": {"messages": messages}}))
    run(answers, tmp_path / "out.parquet")
    assert "joined to batch_input.jsonl: 1 by id" in capsys.readouterr().out
    (response,) = read_responses(tmp_path / "out.parquet")
    assert response.problem.messages == (("user", "1 + 1?"),)


def test_joined_to_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    responses, problems = tmp_path / "rlvr_step_100_responses.json", tmp_path / "p.jsonl"
    cut = {"response": "half", "correct": False, "ground_truth": "\\frac{1"}
    other = {"response": "7", "correct": True, "ground_truth": "7", "problem": "3 + 5?"}
    responses.write_text(json.dumps({"a": cut, "b": other}))
    known = [
        {"id": "a", "question": "1/2?", "answer": "\\frac{1}{2}", "family": "math"},
        {"id": "b", "question": "3 + 5?", "answer": "8", "family": "math"},
    ]
    write_json_lines(problems, known)
    run(responses, tmp_path / "out.parquet")  # its verdicts are known
    assert "without a prompt, which --problems FILE adds: 1" in capsys.readouterr().out
    run(responses, tmp_path / "out.parquet", problems=problems, task="gsm8k")
    assert capsys.readouterr().out.splitlines()[1:5] == [
        "recorded: 1 right, 1 wrong, 0 unknown; 0 with a reward",
        "joined to p.jsonl: 2 by id, 0 by their question; gold answers replaced: 1",
        "gold answers that were cut off and not used: 1",
        "labels: rlvr_step_100 2",
    ]
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["question"], row["gold"], row["family"]) for row in rows] == [
        ("1/2?", "\\frac{1}{2}", "math"),
        ("3 + 5?", "8", "math"),
    ]
    assert json.loads(rows[1]["extra"]) == {"ground_truth": "7"}


def test_a_folder_of_files_is_one_table(tmp_path: Path, swerve: Swerve) -> None:
    """TRL's `completions/`, a Parquet file for each step, and shards of JSON lines."""
    (tmp_path / "run" / "completions").mkdir(parents=True)
    (tmp_path / "shards").mkdir()
    for step in (1, 2, 10):
        rows = [
            {"step": step, "prompt": f"{step} + {k}?", "completion": f"{step + k}", "accuracy": 1.0, "advantage": 0.0}
            for k in range(3)
        ]
        file = tmp_path / "run" / "completions" / f"completions_{step:05}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
        write_json_lines(tmp_path / "shards" / f"part-{step}.jsonl", [{**ROWS[0], "step": step}])
    for folder, said in (
        ("run/completions", ["9 responses to 9 problems, read as trl", "steps: 1 3, 2 3, 10 3"]),
        ("shards", ["3 responses to 1 problem, read as verl", "steps: 1 1, 2 1, 10 1"]),
    ):
        status, out, err = swerve("data", "import", folder, "--out", "table.parquet")
        assert status == 0, err
        assert set(said) <= set(out.splitlines()), out
        steps = pq.read_table(tmp_path / "table.parquet")["step"].to_pylist()
        assert steps == sorted(steps)
    status, out, err = swerve("data", "import", "run", "--out", "table.parquet")
    assert (status, out) == (1, "")
    assert err.endswith(
        "run is a folder and has completions, which is no part of a table; did you mean run/completions?\n"
    )


def test_wrong_arguments(dump: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"task": "maths"}, r"--task 'maths' is not one of addition, .*; did you mean 'math'\?"),
        ({"dialect": "verl2"}, "--format 'verl2' is not a known layout"),
        ({"fields": ("reply=output",)}, "--field 'reply=output': unknown name 'reply'"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(dump, **{"out": tmp_path / "out.parquet", **changes})
    run(dump, tmp_path / "out.parquet")
    with pytest.raises(ConfigError, match="out.parquet is a file that is read"):
        run(tmp_path / "out.parquet", tmp_path / "out.parquet")


@pytest.mark.slow
def test_real_responses(shared_data: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, problems = shared_data("rl_probe") / "responses.jsonl.gz", shared_data("math") / "test.jsonl.gz"
    tokenizer = shared_data("tiny_models") / "stories260K" / "hf"
    out = tmp_path / "out.parquet"
    run(file, out, problems=problems, tokenizer=str(tokenizer), task="math", as_json=True)
    summary = json.loads(capsys.readouterr().out)
    assert (summary["num_responses"], summary["num_problems"], summary["num_without_gold"]) == (339, 117, 0)
    assert summary["join"] == {"by_id": 339, "by_question": 0, "gold_replaced": 0, "gold_damaged": 0}
    assert summary["boundaries"] == {
        "split": 339
    }  # no space between prompt and response, which decoding may have dropped
    for row in pq.read_table(out).to_pylist():
        starts, ends, text = row["token_starts"], row["token_ends"], row["text"]
        assert "".join(text[start:end] for start, end in zip(starts, ends, strict=True)) == text


def test_what_was_written_is_said(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"gold": ["=1", "2"], "n": [1, 2]}), table)
    said = export(table, out=tmp_path / "t.csv", file_format=None, overwrite=False).text
    assert str(said).splitlines() == [
        f"2 rows of 2 columns as csv: {tmp_path / 't.csv'}",
        "cells that got an apostrophe, so that no spreadsheet runs them as formulas: 1",
    ]
    assert export(table, out=tmp_path / "set.d", file_format="hf", overwrite=False).value == {
        "out": str(tmp_path / "set.d"),
        "num_rows": 2,
        "columns": ("gold", "n"),
        "format": "hf",
        "num_defused": 0,
        "notes": {},
    }
    with pytest.raises(ConfigError, match="--format 'json' is not known; did you mean 'jsonl'"):
        export(table, out=tmp_path / "t.json", file_format="json", overwrite=False)


def test_rollouts_and_evaluations_of_a_run(small_run: RunDirectory, tmp_path: Path) -> None:
    for folder in ("rollouts", "eval"):
        out = tmp_path / f"{folder.replace('/', '-')}.jsonl"
        export(small_run.path / folder, out=out, file_format=None, overwrite=False)
        tables = sorted((small_run.path / folder).glob("step_*.parquet"))
        expected = [(path.stem, row) for path in tables for row in pq.read_table(path).to_pylist()]
        found = [json.loads(line) for line in out.read_text().splitlines()]
        assert [(row.pop("file"), row) for row in found] == expected


def test_rollouts_are_the_same_responses_after_an_export(small_run: RunDirectory, tmp_path: Path) -> None:
    table = sorted((small_run.path / "rollouts").glob("step_*.parquet"))[0]
    export(table, out=tmp_path / "r.jsonl", file_format=None, overwrite=False)
    before, after = read_responses(table), read_responses(tmp_path / "r.jsonl")
    assert len(before) == 24
    for one, other in zip(before, after, strict=True):
        for name in ("problem", "text", "completion_ids", "reward", "step", "group", "version"):
            assert getattr(one, name) == getattr(other, name)
        assert one.extra == other.extra == {}


def choose(swerve: Swerve, *sources: Path, out: Path, more: tuple[str, ...] = ()) -> tuple[int, str, str]:
    return swerve("data", "select", *map(str, sources), "--correct", "--out", str(out), *more)


def test_responses_are_selected_with_counts(swerve: Swerve, dump: Path, tmp_path: Path) -> None:
    assert choose(swerve, dump, out=tmp_path / "sft.parquet")[1].splitlines() == [
        "3 responses to 2 problems",
        "chosen from: 1 response to 1 problem",
        "kept: 1 response to 1 problem",
        f"table: {tmp_path / 'sft.parquet'}",
    ]
    (kept,) = read_responses(tmp_path / "sft.parquet")
    assert (kept.prompt, kept.text) == ("1 + 1 =", " 2")
    recorded = read_provenance(tmp_path / "sft.parquet")
    assert recorded["counts"]["num_right"] == 1
    assert recorded["selection"]["only_right"] is True
    assert recorded["sources"] == [{"name": "4.jsonl", "sha256": sha256_file(dump)}]
    status, _, err = choose(swerve, dump, out=tmp_path / "none.parquet", more=("--where", "step=5"))
    assert (status, "none of 3 responses is kept: 3 responses to 2 problems; left out by --where" in err) == (2, True)
    status, _, err = choose(swerve, dump, out=tmp_path / "none.parquet", more=("--per-problem", "0"))
    assert (status, err) == (2, "swerve: error: --per-problem: 'per_problem' must be greater than 0, got 0\n")


def test_a_runs_rollouts_are_selected_with_their_problems_and_learned(
    swerve: Swerve, small_run: RunDirectory, tmp_path: Path
) -> None:
    choose(swerve, small_run.path.absolute(), out=tmp_path / "sft.parquet", more=("--per-problem", "1"))
    kept = read_responses(tmp_path / "sft.parquet")
    assert len({one.problem.id for one in kept}) == len(kept) > 5
    assert all(one.problem.question and one.completion_ids for one in kept)
    for one in kept:
        digits = [part.replace(" ", "") for part in (one.problem.question or "").removesuffix("=").split("+")]
        assert int((one.problem.answer).replace(" ", "")) == sum(map(int, digits))
        assert (one.text or "").endswith(f"answer {one.problem.answer}")


def test_ids_of_two_tokenizers_are_not_mixed(swerve: Swerve, tmp_path: Path) -> None:
    for name, words in (("a", ["1", "2", "+", "="]), ("b", ["2", "1", "+", "="])):
        folder = tmp_path / name
        build_word_tokenizer(words).save_pretrained(str(folder))
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({**ROWS[0], "output": "2"}))
        run(tmp_path / f"{name}.jsonl", tmp_path / f"{name}.parquet", tokenizer=str(folder))
    err = choose(swerve, tmp_path / "a.parquet", tmp_path / "b.parquet", out=tmp_path / "sft.parquet")[2]
    assert re.search(r"a\.parquet and .*b\.parquet hold token ids of two tokenizers", err)


@pytest.mark.parametrize("tokenizer", [False, True])
def test_responses_that_are_read_some_at_a_time_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: bool
) -> None:
    rows = [
        {"id": f"p{n % 5}", "prompt": f"1 + {n % 5} =", "response": f" {n % 3}", "step": n // 8, "label": "ab"[n % 2]}
        for n in range(23)
    ]
    rows[9]["sample"] = 7
    write_json_lines(tmp_path / "r.jsonl", rows)
    model = build_word_tokenizer([*"0123456789+="])
    model.save_pretrained(tmp_path / "model")
    options = {"tokenizer": str(tmp_path / "model") if tokenizer else None}
    run(tmp_path / "r.jsonl", tmp_path / "whole.parquet", **options)
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 4)
    run(tmp_path / "r.jsonl", tmp_path / "parts.parquet", **options)
    whole, parts = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert (whole.num_row_groups, parts.num_row_groups) == (1, 2)
    assert parts.read().equals(whole.read(), check_metadata=True)
    assert whole.read()["sample"].to_pylist()[8:12] == [0, 7, 0, 0]

    # What is wrong is found wherever the records are, and leaves nothing behind.
    for row, message in (({"id": "p0", "prompt": "1 + 9 ="}, "line 24: the id 'p0' occurs with two different prompts"),
                         ({"id": "p9"}, "no prompt for 1 of 24 responses (problems 'p9')")):  # fmt: skip
        (tmp_path / "w.jsonl").write_text(
            "".join(json.dumps({"response": " 1", **each}) + "\n" for each in [*rows, row])
        )
        with pytest.raises(ArtifactError, match=re.escape(message)):
            run(tmp_path / "w.jsonl", tmp_path / "wrong.parquet", **options)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("wrong")] == []


def test_the_summary_counts_what_was_left_out_and_what_is_beside_texts(
    tmp_path: Path, swerve: Swerve, capsys: pytest.CaptureFixture[str]
) -> None:
    image = {"type": "image", "image": "data:"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}, image]},
        {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "Two."}, {"type": "text", "text": "2"}]},
    ]
    sample = {"id": "a", "epoch": 1, "input": "1 + 1?", "target": "2", "messages": messages}
    rows = [{**sample, "error": {"message": "no server"}}, {**sample, "scores": {"match": {"value": "C"}}}]
    path, out = tmp_path / "samples.jsonl", tmp_path / "out.parquet"
    write_json_lines(path, rows)
    run(path, out)
    failed = f"{path}, line 1: sample 'a', epoch 1 failed: no server"
    assert capsys.readouterr().out.splitlines() == [
        "1 response to 1 problem, read as inspect",
        "recorded: 1 right, 0 wrong, 0 unknown; 1 with a reward",
        "with a part of the reward, match: 1",
        "with a part that was not kept, image: 1",
        "with messages after the first, tool calls or reasoning, kept in `turns`: 1",
        "with reasoning, which is not in `text`: 1",
        "records without a response, left out: 1",
        f"left out: {failed}",
        f"table: {out}",
    ]
    status, _, err = swerve("grade", str(path), "--task", "math", "--audit", "correct", "--out", "v.jsonl")
    assert status == 0, err
    verdict = json.loads((tmp_path / "v.jsonl").read_text())
    assert (verdict["response"], verdict["value"], verdict["correct"], verdict["match"]) == ("2", 1.0, True, 1.0)


@pytest.mark.parametrize("places", [(0,), (1, 2), (0, 1, 2, 3)])
def test_a_row_without_an_id_is_of_the_problem_with_its_question(
    swerve: Swerve, tmp_path: Path, places: tuple[int, ...]
) -> None:
    rows = [
        {"id": "pqpq"[n], "question": "1 + 1?" if n % 2 else " 1 + 2?", "response": str(n), "correct": True}
        for n in range(4)
    ]
    given = [{**row, "id": None} if n in places else row for n, row in enumerate(rows)]
    file = write_json_lines(tmp_path / "rows.jsonl", given)
    run(file, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    names = table["problem_id"].to_pylist()
    assert names[0] == names[2] != names[1] == names[3]
    assert len(places) == 4 or names == list("pqpq")
    assert table["sample"].to_pylist() == [0, 0, 1, 1]
    # What is selected counts the same problems.
    out = tmp_path / "selected.parquet"
    status, _, err = swerve("data", "select", str(file), "--correct", "--per-problem", "1", "--out", str(out))
    assert status == 0, err
    names = pq.read_table(out)["problem_id"].to_pylist()
    assert len(names) == len(set(names)) == 2


def test_a_question_of_two_ids_names_no_problem(tmp_path: Path) -> None:
    rows = [{"id": name, "question": "1 + 1?", "response": "2", "correct": True} for name in ("p", "q", None)]
    file = write_json_lines(tmp_path / "rows.jsonl", rows)
    run(file, tmp_path / "out.parquet")
    assert len(set(pq.read_table(tmp_path / "out.parquet")["problem_id"].to_pylist())) == 3


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("data", "select", "FILE", "--out", "o.parquet"), "records without a response, left out: 2 (FILE, line 1 "),
        (
            ("data", "behaviours", "FILE"),
            "Note: records without a response, left out: 2 (FILE, line 1 has no custom_id",
        ),
        (("data", "export", "FILE", "--format", "messages", "--out", "o.parquet"), "have no text: 2 responses"),
        (("data", "import", "FILE", "--out", "o.parquet"), "records without a response, left out: 2"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_a_failed_request_and_an_answer_without_its_request_do_not_refuse_the_file(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "It is 2."}}]}
    lines = [{"id": f"b{n}", "custom_id": f"p{n}", "response": {"body": body}} for n in range(4)]
    del lines[0]["custom_id"]
    lines[2] |= {"response": None, "error": {"code": "expired"}}
    write_json_lines(Path("x_output.jsonl"), lines)
    requests = [{"custom_id": f"p{n}", "body": {"messages": [{"role": "user", "content": "1 + 1?"}]}} for n in range(4)]
    write_json_lines(Path("x_input.jsonl"), requests)
    status, out, err = swerve(*(word.replace("FILE", "x_output.jsonl") for word in command))
    assert status == 0, err
    assert said.replace("FILE", "x_output.jsonl") in " ".join((out + err).split())


def test_golds_that_were_cut_off_are_counted_without_a_file_of_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"response": "a", "correct": False, "ground_truth": "\\frac{14", "problem": "q"}
    (tmp_path / "rlvr_responses.json").write_text(json.dumps({"p": row}))
    run(tmp_path / "rlvr_responses.json", tmp_path / "out.parquet")
    assert "gold answers that were cut off and not used: 1" in capsys.readouterr().out
