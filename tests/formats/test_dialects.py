from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import write_responses
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.dialects import LAYOUTS, detect
from swerve.formats.imported_problems import has_made_id, read_problems
from swerve.formats.imported_responses import LeftOut, read_responses, responses_of
from swerve.formats.records import iter_records
from swerve.formats.typed_fields import RESPONSE_NAMES
from tests.json_lines import write_json_lines


def write(path: Path, rows: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        write_json_lines(path, rows)
    return path


def only(path: Path, **options: Any) -> Any:
    (record,) = read_responses(path, **options)
    return record


def test_rl_probe_responses_by_problem(tmp_path: Path) -> None:
    rows = {
        "t/1.json": {"response": "so \\boxed{3}", "correct": True, "ground_truth": "3"},
        "t/2.json": {"response": "half", "correct": False, "ground_truth": "\\frac{1", "problem": "1/2?"},
        "t/3.json": {"response": "set", "correct": False, "ground_truth": "\\left\\{1"},
    }
    found = read_responses(write(tmp_path / "rlvr_step_300_responses.json", rows))
    assert {one.dialect for one in found} == {"rl_probe"}
    assert [(one.problem.id, one.text, one.correct) for one in found] == [
        ("t/1.json", "so \\boxed{3}", True),
        ("t/2.json", "half", False),
        ("t/3.json", "set", False),
    ]
    assert [(one.label, one.step) for one in found] == [("rlvr_step_300", 300)] * 3
    assert [(one.problem.answer, "gold_is_damaged" in one.extra) for one in found] == [
        ("3", False),
        ("", True),
        ("\\left\\{1", False),
    ]
    assert [one.problem.question for one in found] == ["", "1/2?", ""]
    assert found[1].extra == {"ground_truth": "\\frac{1", "gold_is_damaged": True}
    assert only(write(tmp_path / "dpo_responses.json", {"t": rows["t/1.json"]})).label == "dpo"


def test_rl_probe_rollouts(tmp_path: Path) -> None:
    one = {
        "rollout": "It is \\boxed{7}.",
        "temperature": 0.3,
        "sample_idx": 4,
        "problem_id": "t/1.json",
        "problem_text": "3 + 4?",
        "ground_truth": "We add: \\boxed{1} no, \\boxed{\\frac{14}{2}}.",
        "checkpoint": "rlvr_step_500",
    }
    cut = {**one, "sample_idx": 5, "ground_truth": "Then $\\boxed{\\frac{14"}
    first, second = read_responses(write(tmp_path / "all_rollouts.json", {"t/1.json": [one, cut]}))
    assert (first.dialect, first.problem.id, first.problem.question) == ("rl_probe", "t/1.json", "3 + 4?")
    assert (first.text, first.correct, first.label, first.step) == ("It is \\boxed{7}.", None, "rlvr_step_500", 500)
    assert [(x.sample, x.problem.answer, "gold_is_damaged" in x.extra) for x in (first, second)] == [
        (4, "\\frac{14}{2}", False),
        (5, "", True),
    ]
    assert first.extra == {"temperature": 0.3, "ground_truth": one["ground_truth"]}
    numbered = only(write(tmp_path / "numbered.json", {"t": [{**one, "checkpoint": 500}]}))
    assert (numbered.label, numbered.step) == ("500", None)
    with pytest.raises(ArtifactError, match="is neither a list of records nor an object"):
        read_responses(write(tmp_path / "rlvr_results.json", {"t/1.json": True}))


def test_more_fields_than_rl_probe_has_are_plain(tmp_path: Path) -> None:
    row = {"id": "p", "response": "y", "correct": True, "ground_truth": "3", "prompt": "x", "level": 4}
    found = only(write(tmp_path / "r.jsonl", [row]))
    assert (found.dialect, found.prompt, found.problem.kind, found.problem.answer) == ("plain", "x", "4", "3")


def test_verl_dumps(tmp_path: Path) -> None:
    rows = [
        {
            "input": "user\n1+1?\nassistant\n",
            "output": "2",
            "gts": "2",
            "score": 1.0,
            "step": 7,
            "acc": True,
            "pred": "2",
        },
        {"input": "user\n1+1?\nassistant\n", "output": "", "gts": ["2"], "score": "-0.5", "step": "7", "acc": "False"},
        {"input": "q", "output": "x", "gts": {"a": "knight"}, "score": None, "step": 7, "request_id": "r1", "uid": "u"},
    ]
    first, second, third = read_responses(write(tmp_path / "7.jsonl", rows))
    assert (first.dialect, first.prompt, first.text, first.problem.answer) == (
        "verl",
        "user\n1+1?\nassistant\n",
        "2",
        "2",
    )
    assert (first.reward, first.step, first.correct, first.extracted) == (1.0, 7, True, "2")
    assert (second.text, second.reward, second.step, second.correct, second.problem.answer) == (
        "",
        -0.5,
        7,
        False,
        "2",
    )
    assert first.problem.id == second.problem.id
    assert has_made_id(first.problem)
    assert (third.problem.id, third.reward, third.problem.answer) == ("u", None, "")
    assert third.extra == {"gts": {"a": "knight"}, "request_id": "r1"}


VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "1+1? Think."}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "test", "index": 5, "question": "1+1?"},
}


def test_verl_data_with_responses(tmp_path: Path) -> None:
    path = write(tmp_path / "g.parquet", [{**VERL, "responses": ["2", "3"], "scores": [1.0, 0.0]}])
    found = read_responses(path)
    assert [(one.text, one.sample, one.reward) for one in found] == [("2", 0, 1.0), ("3", 1, 0.0)]
    problem = found[0].problem
    assert (problem.id, problem.answer, problem.question) == ("openai/gsm8k/test/5", "2", "1+1?")
    assert problem.messages == (("user", "1+1? Think."),)
    assert found[0].extra["ability"] == "math"
    with pytest.raises(ArtifactError, match="row 1 has no responses: it is a data set of problems"):
        read_responses(write(tmp_path / "p.parquet", [VERL]))
    (known,) = read_problems(tmp_path / "p.parquet").values()
    assert (known.problem.id, known.problem.answer, known.problem.messages) == (problem.id, "2", problem.messages)
    assert known.problem.metadata["reward_model"] == VERL["reward_model"]


def test_trl_completions(tmp_path: Path) -> None:
    row = {"step": 20, "prompt": "1+1?", "completion": "2", "accuracy_reward": 1.0, "advantage": 0.5}
    one = only(write(tmp_path / "c.parquet", [row]))
    assert (one.dialect, one.prompt, one.text, one.step, one.reward) == ("trl", "1+1?", "2", 20, 1.0)
    assert (one.parts, one.extra) == ({"accuracy_reward": 1.0}, {"advantage": 0.5})
    several = only(write(tmp_path / "d.parquet", [{**row, "format_reward": 0.5, "mode": "eval"}]))
    assert (several.reward, several.population) == (1.5, "eval")  # TRL's weights are 1 unless told otherwise
    assert (several.parts, several.verdict) == ({"accuracy_reward": 1.0, "format_reward": 0.5}, None)
    named = only(tmp_path / "d.parquet", fields={"reward": "format_reward"})
    assert named.reward == 0.5


def test_trl_conversations(tmp_path: Path) -> None:
    row = {
        "step": 1,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}],
        "completion": [{"role": "assistant", "content": "2"}],
        "reward": 0.0,
        "advantage": -1.0,
    }
    one = only(write(tmp_path / "c.jsonl", [row]))
    assert (one.problem.messages, one.text) == ((("system", "Be brief."), ("user", "1+1?")), "2")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tool = {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "2"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    agent = {**row, "completion": [calling, tool, *row["completion"]], "answer": 2}
    one = only(write(tmp_path / "c.jsonl", [agent]))
    assert (one.text, one.problem.answer) == ("2", "2")
    assert one.turns == (
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
        {"role": "assistant", "content": "2"},
    )


def test_chats(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "2+2?"}]},
        {"role": "assistant", "content": "4"},
    ]
    row = {"messages": [*messages, {"role": "user", "content": "thanks"}], "id": 7, "gold": "4", "model": "m"}
    one = only(write(tmp_path / "c.jsonl", [row]))
    assert (one.dialect, one.problem.id, one.text, one.problem.answer) == ("chat", "7", "4", "4")
    assert one.problem.messages == (("user", "1+1?"), ("assistant", "2"), ("user", "And 2+2?"))
    assert one.extra == {"model": "m", "later_messages": [["user", "thanks"]]}
    for wrong, message in (
        (messages[:1], "messages must hold a message of the assistant after what it answers"),
        (messages[1:2], "messages must hold a message of the assistant after what it answers"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages must hold a message of the assistant"),
        ([{"content": "x"}], "messages must be a list of messages"),
        ("hello", "messages must be a list of messages"),
    ):
        with pytest.raises(ArtifactError, match=message) as caught:
            read_responses(write(tmp_path / "c.jsonl", [row, {"messages": wrong}]))
        assert "c.jsonl, line 2: messages" in str(caught.value)


def test_columns_without_a_value_mark_no_layout(tmp_path: Path) -> None:
    row = {"id": "p1", "question": "1 + 1?", "response": "2", "messages": None, "conversations": None, "step": None}
    response = only(write(tmp_path / "rows.jsonl", [row | {"prompt": None}]))
    assert (response.dialect, response.text, response.problem.question) == ("plain", "2", "1 + 1?")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_rows_without_messages_are_read_beside_others(tmp_path: Path, order: tuple[int, ...]) -> None:
    messages = [{"role": "user", "content": "1 + 1?"}]
    plain = {"id": "p1", "question": "1 + 1?", "response": "2", "messages": None, "label": "rl"}
    chat = plain | {"response": None, "messages": [*messages, {"role": "assistant", "content": "3"}]}
    rows = [plain, plain | {"messages": messages, "response": "4"}, chat]
    read = read_responses(write(tmp_path / "rows.jsonl", [rows[number] for number in order]))
    assert {(one.text, one.dialect, one.label) for one in read} == {
        ("2", "plain", "rl"),
        ("4", "chat", "rl"),
        ("3", "chat", "rl"),
    }


def test_messages_beside_a_response_are_the_prompt(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "1+1?"}], "response": "2", "question": "1+1", "n": 3}
    one = only(write(tmp_path / "c.jsonl", [row]))
    assert (one.problem.messages, one.problem.question, one.text) == ((("user", "1+1?"),), "1+1", "2")
    assert one.extra == {"n": 3}


_NAMES = sorted(
    {key for dialect in LAYOUTS for mark in dialect.marks for key in mark}
    | {key for keys in RESPONSE_NAMES.values() for key in keys}
    | {
        "responses",
        "scores",
        "extra_info",
        "gts",
        "acc",
        "body",
        "custom_id",
        "choices",
        "extra",
        "token_ends",
        "error",
    }
)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**40) | st.floats() | st.sampled_from(["", "x", "1", "[]", "{}", "{"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*_NAMES, "role", "content", "message"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(
    st.sampled_from([mark for dialect in LAYOUTS for mark in dialect.marks] + [frozenset({"response"})]),
    st.dictionaries(st.sampled_from(_NAMES), _VALUE, max_size=6),
    st.data(),
)
def test_whatever_the_fields_hold_it_is_read_or_refused_by_its_line(
    tmp_path_factory: pytest.TempPathFactory, mark: frozenset[str], others: dict[str, Any], data: st.DataObject
) -> None:
    row = {**others, **{name: data.draw(_VALUE) for name in sorted(mark)}}
    path = write(tmp_path_factory.getbasetemp() / "fuzz.jsonl", [row])
    refusal = None
    try:
        records = read_responses(path)
    except ArtifactError as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal.startswith(f"{path}, line 1")
        assert "\n" not in refusal
        return
    write_responses(path.with_suffix(".parquet"), records, RESPONSES_SCHEMA)


def test_batches_and_their_requests(tmp_path: Path) -> None:
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": "2", "refusal": None}, "finish_reason": "stop"},
        {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "length"},
    ]
    row = {
        "id": "batch_req_1",
        "custom_id": "p1",
        "response": {"status_code": 200, "body": {"model": "m", "choices": choices}},
        "error": None,
    }
    found = read_responses(write(tmp_path / "out.jsonl", [row]))
    assert [(one.problem.id, one.text, one.sample, one.finish_reason) for one in found] == [
        ("p1", "2", 0, "stop"),
        ("p1", "two", 1, "length"),
    ]
    assert (found[0].label, found[0].extra) == ("m", {"model": "m"})
    failed = {"custom_id": "p2", "response": None, "error": {"code": "batch_expired", "message": "too late"}}
    path = write(tmp_path / "out.jsonl", [failed, row])
    with pytest.raises(ArtifactError, match=r"line 1: the request 'p2' has no choices \(batch_expired\)"):
        read_responses(path)
    left_out = LeftOut()
    assert len(list(responses_of(path, iter_records(path), left_out=left_out))) == 2
    assert (left_out.num_failed, left_out.first[0].partition(", ")[2]) == (
        1,
        "line 1: the request 'p2' has no choices (batch_expired)",
    )
    request = {"custom_id": "p1", "method": "POST", "body": {"messages": [{"role": "user", "content": "1+1?"}]}}
    assert read_problems(write(tmp_path / "in.jsonl", [request]))["p1"].problem.messages == (("user", "1+1?"),)


def test_plain_lists_of_responses(tmp_path: Path) -> None:
    row = {
        "id": "p",
        "question": "q",
        "responses": ["a", "b"],
        "correct": [True, False],
        "scores": [1, 0.5],
        "n": [1, 2],
    }
    found = read_responses(write(tmp_path / "r.jsonl", [row]))
    assert [(one.text, one.sample, one.correct, one.reward) for one in found] == [
        ("a", 0, True, 1.0),
        ("b", 1, False, 0.5),
    ]
    assert found[1].extra == {"n": [1, 2]}
    named = {"id": "p", "question": "q", "generations": ["a", "b"]}
    found = read_responses(write(tmp_path / "r.jsonl", [named]), fields={"response": "generations"})
    assert [one.text for one in found] == ["a", "b"]
    for wrong, message in (
        ({**row, "scores": [1]}, "line 1: scores has 1 values for 2 responses"),
        ({**row, "responses": ["a", 3]}, "line 1: response 2 of responses is not text"),
        ({**row, "responses": []}, "line 1: responses must be a list of responses with at least one"),
    ):
        with pytest.raises(ArtifactError, match=message):
            read_responses(write(tmp_path / "r.jsonl", [wrong]))


def test_plain_csv(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        "id,question,completion,correct,score,sample_idx,checkpoint,temperature\np,1+1?,2,True,0.5,3,rl,0.7\n"
    )
    one = only(path)
    assert (one.problem.question, one.text, one.correct, one.reward) == ("1+1?", "2", True, 0.5)
    assert (one.sample, one.label, one.extra) == (3, "rl", {"temperature": "0.7"})


def test_an_empty_cell_is_an_empty_response(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("Prompt,Output,gold\n1+1?,,2\n")
    one = only(path, fields={"prompt": "Prompt", "response": "Output"})
    assert (one.prompt, one.text, one.problem.answer) == ("1+1?", "", "2")
    path.write_text("Prompt,Output,gold\n,2,2\n")
    with pytest.raises(ArtifactError, match="line 2 has neither an id nor a prompt"):
        read_responses(path, fields={"prompt": "Prompt", "response": "Output"})


def test_fields_that_hold_something_else_stay_what_they_are(tmp_path: Path) -> None:
    row = {"id": "p", "question": "q", "response": "a", "score": {"f1": 1}, "step": "last", "label": ["x"]}
    one = only(write(tmp_path / "r.jsonl", [row]))
    assert (one.reward, one.step, one.label) == (None, None, None)
    with pytest.raises(ArtifactError, match="line 1: reward must be a number, got"):
        read_responses(tmp_path / "r.jsonl", fields={"reward": "score"})


def test_naming_a_layout(tmp_path: Path) -> None:
    row = {"input": "q", "output": "a", "score": 1.0}
    assert only(write(tmp_path / "r.jsonl", [{**row, "id": "p"}]), dialect="plain").prompt is None
    with pytest.raises(ConfigError, match="--format 'verll' is not a known layout; did you mean 'verl'"):
        read_responses(tmp_path / "r.jsonl", dialect="verll")
    assert [detect({}).name, LAYOUTS[-1].name] == ["plain", "plain"]
