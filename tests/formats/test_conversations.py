"""Conversations of other programs in small records: branches, tokens, tool calls, what cannot be kept, what failed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError
from swerve.formats.imported_responses import LeftOut, responses_of
from swerve.formats.problem_joins import check_prompts
from swerve.formats.records import iter_records
from tests.json_lines import write_json_lines

USER = {"role": "user", "content": "6 * 7?"}


def read(path: Path, *rows: dict[str, Any]) -> tuple[list[Response], LeftOut]:
    write_json_lines(path, rows)
    left_out = LeftOut()
    responses = list(responses_of(path, iter_records(path), left_out=left_out))
    check_prompts(path, responses)
    return responses, left_out


def node(
    role: str, content: str, parent: int | None, *, sampled: bool = False, ids: int = 0, mask: str = "", **more: Any
) -> dict[str, Any]:
    tokens = {"token_ids": list(range(ids, ids + len(mask))), "mask": [mark == "1" for mark in mask]}
    return {"message": {"role": role, "content": content}, "parent": parent, "sampled": sampled, **tokens, **more}


def test_a_trace_of_several_turns_has_its_tokens_in_order(tmp_path: Path) -> None:
    nodes = [
        node("user", "6 * 7?", None, ids=10, mask="00"),
        node("assistant", "I call.", 0, sampled=True, ids=20, mask="0110", logprobs=[-1.0, -2.0]),
        node("tool", "42", 1, ids=30, mask="0"),
        node("assistant", "It is 42.", 2, sampled=True, ids=40, mask="011", logprobs=[-3.0, -4.0]),
        node("user", "Thanks.", 3, ids=50, mask="0"),
    ]
    rewards = {"right": {"score": 1.0, "weight": 2.0}, "short": {"score": 0.5, "weight": 0.1}, "none": None}
    task = {"data": {"idx": 3, "answer": 42}}
    calls = [{"node": 3, "model": "m", "finish_reason": "length"}]
    trace = {"task": task, "nodes": nodes, "rewards": rewards, "calls": calls}
    (first,), _ = read(tmp_path / "t.jsonl", {"id": "e", "traces": [trace]})
    assert (first.prompt_ids, first.completion_ids) == ((10, 11, 20), (21, 22, 23, 30, 40, 41, 42))
    assert first.sampled == (True, True, False, False, False, True, True)
    assert first.logprobs == (-1.0, -2.0, None, None, None, -3.0, -4.0)
    assert (first.text, [turn["role"] for turn in first.turns]) == (
        "I call.\n\nIt is 42.",
        ["assistant", "tool", "assistant"],
    )
    assert (first.parts, first.reward, first.verdict) == ({"right": 1.0, "short": 0.5}, 2.05, None)
    assert (first.problem.id, first.problem.answer, first.label, first.finish_reason) == ("3", "42", "m", "length")
    assert first.extra["later_messages"] == [["user", "Thanks."]]


def test_branches_and_agents_are_responses(tmp_path: Path) -> None:
    forked = [node("user", "q", None), *(node("assistant", text, 0, sampled=True) for text in ("a", "b"))]
    compacted = [*forked[:2], node("user", "q, in short", None), node("assistant", "c", 2, sampled=True)]
    task = {"data": {"id": "p"}}
    failed = {"id": "x", "task": task, "nodes": [], "ok": False, "errors": [{"message": "no server"}]}
    again = {"id": "y", "task": task, "nodes": forked[:2], "ok": True, "errors": [{"message": "first attempt"}]}
    rows = [
        {"id": "e1", "traces": [{"id": "t1", "task": task, "nodes": forked, "rewards": {"right": 0.25}}, failed]},
        {"id": "t2", "task": task, "nodes": compacted, "rewards": {}},
        again,
    ]
    responses, left_out = read(tmp_path / "t.jsonl", *rows)
    assert [(one.problem.id, one.text, one.reward) for one in responses] == [
        ("p", "a", 0.25),
        ("p", "b", 0.25),
        ("p", "a", None),
        ("p#t2-1", "c", None),  # asked otherwise: another problem
        ("p", "a", None),
    ]
    assert [one.extra.get("trace_branch") for one in responses] == [0, 1, 0, 1, None]
    assert left_out.first == [f"{tmp_path / 't.jsonl'}, line 1: the rollout failed: no server"]


def test_what_messages_have_beside_text(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    call = {"id": "c", "function": {"name": "add", "arguments": {"a": 1}}}
    thought = {"type": "thinking", "thinking": "Hm."}
    rows = [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, image, image]}], "response": "a"},
        {
            "messages": [
                {"role": "user", "content": "r"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "user", "content": "s"},
                {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]},
            ]
        },
    ]
    (seen, thoughtful), _ = read(tmp_path / "c.jsonl", *rows)
    assert (seen.problem.messages, seen.extra) == ((("user", "q"),), {"not_kept": {"image_url": 2}})
    assert thoughtful.turns == ({"role": "assistant", "content": "b", "reasoning_content": "Hm."},)
    assert (thoughtful.text, thoughtful.extra) == ("b", {"not_kept": {"tool_calls of a prompt": 1}})


def test_bare_lists_of_messages(tmp_path: Path) -> None:
    chat = [USER, {"role": "assistant", "content": "42"}]
    for name, text in (
        ("one.json", json.dumps(chat)),
        ("one.jsonl", json.dumps(chat)),
        ("two.json", json.dumps([chat])),
    ):
        (tmp_path / name).write_text(text)
        (one,) = responses_of(tmp_path / name, iter_records(tmp_path / name))
        assert (one.text, one.problem.messages) == ("42", (("user", "6 * 7?"),))


def test_repeats_and_filters_of_a_sample(tmp_path: Path) -> None:
    asked = {"gen_args_0": {"arg_0": "q", "arg_1": {"until": []}}}
    row = {"doc_id": 0, "arguments": asked, "target": "42", "metrics": ["exact_match", "f1"]}
    first = {"filter": "strict", "filtered_resps": ["42"], "exact_match": 1.0, "f1": 0.5, "resps": [["is 42"]]}
    other = {**first, "filter": "loose", "filtered_resps": ["is"], "exact_match": 0.0}
    repeated = {"filter": "none", "filtered_resps": ["b"], "exact_match": 0.0, "f1": 0.0, "resps": [["a", "b"]]}
    chat = {"gen_args_0": {"arg_0": ['[{"role": "user", "content": "r"}]'], "arg_1": {}}}
    rolling = {"gen_args_0": {"arg_0": "a text"}}
    rows = [
        {**row, **first},
        {**row, **repeated, "doc_id": 1},
        {**row, **other},
        {**row, **first, "doc_id": 2, "arguments": chat},
        {**row, **first, "doc_id": 3, "arguments": rolling, "resps": [["-17.5"]]},
    ]
    responses, left_out = read(tmp_path / "s.jsonl", *rows)
    assert [(one.problem.id, one.sample, one.text, one.extracted, one.correct) for one in responses] == [
        ("0", 0, "is 42", "42", True),
        ("2", 0, "is 42", "42", True),
        ("1", 0, "a", None, None),  # the filter took the other one
        ("1", 1, "b", "b", False),
    ]
    assert (responses[0].parts, responses[0].reward) == ({"exact_match": 1.0, "f1": 0.5}, 1.0)
    assert (responses[1].prompt, responses[1].problem.messages) == (None, (("user", "r"),))
    assert responses[2].extra["sample_metrics"] == {"exact_match": 0.0, "f1": 0.0}
    assert (left_out.kind, left_out.num_repeated, left_out.num_failed) == ("strict", 1, 1)
    # In any order of the lines one filter is read of all samples.
    shuffled, left_out = read(tmp_path / "t.jsonl", rows[3], rows[2], rows[1], rows[0])
    assert {(one.problem.id, one.extracted) for one in shuffled} == {("0", "42"), ("1", None), ("1", "b"), ("2", "42")}
    assert left_out.num_repeated == 1


def sample(**more: Any) -> dict[str, Any]:
    messages = [
        {**USER, "source": "input"},
        {"role": "assistant", "content": "As before?", "source": "input"},
        USER,
        {"role": "assistant", "content": "42", "source": "generate"},
    ]
    return {"id": 1, "epoch": 2, "input": "6 * 7?", "target": ["42", "forty-two"], "messages": messages, **more}


def test_samples_of_a_log(tmp_path: Path) -> None:
    scores = {"tone": {"value": {"calm": 0.5}}, "match": {"value": "P", "answer": "42"}, "judge": {"value": True}}
    output = {"choices": [{"message": {"role": "assistant", "content": "43"}, "stop_reason": "model_length"}]}
    unsaid = sample(id=2, target="", messages=[USER], output=output, scores=None)
    failed = sample(id=3, error={"message": "no server"})
    log = {"eval": {"model": "m"}, "status": "success", "samples": [sample(scores=scores), unsaid, failed]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps({"eval": log["eval"]}))
        for number, one in enumerate(log["samples"]):
            archive.writestr(f"samples/{number}.json", json.dumps(one))
    for path in (tmp_path / "log.json", tmp_path / "log.eval"):
        left_out = LeftOut()
        first, second = responses_of(path, iter_records(path), left_out=left_out)
        assert (first.problem.answer, first.problem.alternatives) == ("42", ("forty-two",))
        assert (first.text, first.sample, first.label) == ("42", 1, "m")
        assert first.problem.messages == (("user", "6 * 7?"), ("assistant", "As before?"), ("user", "6 * 7?"))
        assert (first.parts, first.reward) == ({"tone.calm": 0.5, "match": 0.5, "judge": 1.0}, 0.5)
        assert (first.correct, first.extracted) == (None, "42")
        assert (second.text, second.finish_reason, second.problem.answer, second.reward) == ("43", "length", "", None)
        assert left_out.first == [f"{path}, sample 3: sample 3, epoch 2 failed: no server"]


def test_rollouts_of_verifiers_v0(tmp_path: Path) -> None:
    call = json.dumps({"id": "c", "name": "add", "arguments": "{}"})
    completion = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "2"}]
    metrics = {"correct": 0.5, "num_turns": 1.0}
    row = {"example_id": 7, "prompt": [USER], "completion": completion, "answer": "42", "reward": 0.5, **metrics}
    rows = [
        {**row, "metrics": metrics, "is_truncated": True},
        {**row, "prompt": "6 * 7 =", "completion": "42", "example_id": 8},
        {**row, "error": {"error": "ModelError", "error_chain_str": "ModelError -> 503"}},
    ]
    (first, second), left_out = read(tmp_path / "r.jsonl", *rows)
    assert first.turns[0]["tool_calls"] == [{"id": "c", "name": "add", "arguments": "{}"}]
    assert (first.parts, first.correct, first.finish_reason) == (metrics, None, "length")
    assert first.extra["later_messages"] == [["tool", "2"]]
    assert (second.prompt, second.text, second.problem.messages) == ("6 * 7 =", "42", ())
    assert left_out.first[0].endswith("line 3: the rollout failed: ModelError -> 503")


def test_sessions_of_verl(tmp_path: Path) -> None:
    row = {"input": "q", "output": "a", "score": 1.0, "gts": "42"}
    rows = [{**row, "uid": "a_b_0_0"}, {**row, "uid": "a_b_1_0"}, {**row, "input": "q, in short", "uid": "a_b_1_1"}]
    responses, _ = read(tmp_path / "3.jsonl", *rows)
    assert [(one.problem.id, one.sample) for one in responses] == [("a_b", 0), ("a_b", 1), ("a_b_1_1", None)]


def test_what_is_no_record_of_its_layout_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"line 1 is not what verifiers writes: ValueError node 0 has the parent 5"):
        read(tmp_path / "t.jsonl", {"task": {}, "nodes": [node("user", "q", 5, sampled=True)]})
    (tmp_path / "log.eval").write_bytes(b"PK")
    with pytest.raises(ArtifactError, match=r"log.eval is damaged, or no log of Inspect: File is not a zip file"):
        list(iter_records(tmp_path / "log.eval"))


@pytest.mark.parametrize(
    ("row", "text", "reason"),
    [
        ({"response": None, "reasoning": "2 +", "finish_reason": "length"}, "<think>2 +", None),
        ({"response": None, "finish_reason": "content_filter"}, "", "cut by a filter"),
        ({"response": None, "finish_reason": "refusal"}, "", "refused"),
    ],
)
def test_what_ended_without_a_text_is_a_response_without_an_answer(
    tmp_path: Path, row: dict[str, Any], text: str, reason: str | None
) -> None:
    asked = {"question": "2 + 2?", "gold": "4", "correct": False}
    (one, other), left_out = read(tmp_path / "r.jsonl", {**asked, **row}, {**asked, "response": "4"})
    assert (one.text, one.written, one.no_answer, one.correct) == ("", text, reason, False)
    assert (other.text, left_out.num_failed) == ("4", 0)
    # Without either nobody knows of a response.
    (kept,), left_out = read(tmp_path / "n.jsonl", {**asked, "response": None}, {**asked, "response": "4"})
    assert (kept.text, left_out.num_failed) == ("4", 1)


def test_calls_of_sharegpt_are_the_models(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "6 * 7?"},
        {"from": "function_call", "value": json.dumps({"name": "times", "arguments": {"a": 6}})},
        {"from": "observation", "value": "42"},
        {"from": "gpt", "value": "It is 42."},
    ]
    (one,), _ = read(tmp_path / "s.jsonl", {"conversations": turns})
    assert one.written == '<tool_call>times {"a": 6}</tool_call>\n\nIt is 42.'
    assert [turn["role"] for turn in one.turns] == ["assistant", "tool", "assistant"]


def test_a_list_of_responses_with_a_null_keeps_the_others(tmp_path: Path) -> None:
    rows = [{"question": "q", "responses": ["a", None, "b"]}, {"question": "r", "responses": []}]
    responses, left_out = read(tmp_path / "l.jsonl", *rows)
    assert [(one.text, one.sample) for one in responses] == [("a", 0), ("b", 2)]
    assert left_out.num_failed == 2
