"""Messages of every program: what was thought, said, called and refused, and which of it the model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.artifacts.messages import (
    apart_from,
    is_thought_and_text,
    message_notes,
    no_answer,
    read_message,
    written_text,
)
from tests.cases import each

USER = {"role": "user", "content": "2 + 2?"}
CALLED = {"id": "1", "name": "add", "arguments": '{"a": 2}'}
CALLS: dict[str, dict[str, Any]] = {
    "OpenAI": {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}]},
    "arguments as an object": {"tool_calls": [{"id": "1", "function": {"name": "add", "arguments": {"a": 2}}}]},
    "Inspect": {"tool_calls": [{"id": "1", "function": "add", "arguments": {"a": 2}}]},
    "verifiers": {"tool_calls": ['{"id": "1", "name": "add", "arguments": "{\\"a\\": 2}"}']},
    "one, not in a list": {"tool_calls": '{"id": "1", "name": "add", "arguments": "{\\"a\\": 2}"}'},
    "the old form": {"function_call": {"id": "1", "name": "add", "arguments": '{"a": 2}'}},
    "Anthropic": {"content": [{"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}}]},
}


@each("form", list(CALLS))
def test_a_call_is_one_in_every_programs_form(form: str) -> None:
    message, dropped = read_message({"role": "assistant", "content": None, **CALLS[form]})
    assert (message, dropped) == ({"role": "assistant", "content": "", "tool_calls": [CALLED]}, [])
    assert written_text([message]) == '<tool_call>add {"a": 2}</tool_call>'


@each("call", [3, [], "3"])
def test_what_is_no_call_is_named(call: Any) -> None:
    with pytest.raises(ValueError, match="a call of a tool is an object with a name and arguments, not"):
        read_message({"role": "assistant", "content": "", "tool_calls": [call]})


THOUGHTS: dict[str, dict[str, Any]] = {
    "beside the content": {"content": "4", "reasoning_content": "two"},
    "under two names": {"content": "4", "reasoning_content": "two", "reasoning": "two"},
    "a part": {"content": [{"type": "reasoning", "reasoning": "two"}, {"type": "text", "text": "4"}]},
    "a part with a text": {"content": [{"type": "reasoning_text", "text": "two"}, "4"]},
    "a part that is a list": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "two"}]}, {"type": "text", "text": "4"}]
    },
    "details": {"content": "4", "reasoning_details": [{"type": "reasoning.text", "text": "two"}]},
    "a part that is marked": {"content": [{"text": "two", "thought": True}, {"text": "4"}]},
}


@each("form", list(THOUGHTS))
def test_a_thought_is_apart_from_the_text(form: str) -> None:
    message, _ = read_message({"role": "assistant", **THOUGHTS[form]})
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "two"}
    assert is_thought_and_text([message])
    assert written_text([message]) == "<think>two</think>4"


def test_what_is_not_kept_is_counted_and_results_of_tools_are_theirs() -> None:
    redacted = [{"type": "redacted_thinking", "data": "x"}, {"type": "reasoning", "reasoning": "x", "redacted": True}]
    assert read_message({"role": "assistant", "content": redacted})[1] == ["redacted_thinking", "reasoning"]
    results = [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "4"}]}]
    assert read_message({"role": "user", "content": results})[0] == {
        "role": "tool",
        "content": "4",
        "tool_call_id": "1",
    }


@each(
    "text",
    ["<think>2 + 2</think>4", "<think>\n2 + 2\n</think>\n\n4", "[THINK]2 + 2[/THINK]4", "◁think▷2 + 2◁/think▷4"],
)
def test_a_thought_that_is_in_the_text_counts_once(text: str) -> None:
    assert apart_from("2 + 2", text) == ""
    assert apart_from("2 + 3", text) == "2 + 3"


@each("text", ["so 2 + 2 is 4", "2 + 2", "<b>x</b> 2 + 2 <b>y</b>? no: 2 + 2", ""])
def test_a_thought_that_the_text_only_repeats_is_kept(text: str) -> None:
    assert apart_from("2 + 2", text) == "2 + 2"


def test_only_what_the_model_wrote_is_written() -> None:
    given = {"role": "assistant", "content": "Sure:", "given": True}
    tool = {"role": "tool", "content": "4"}
    said = {"role": "assistant", "content": "It is 4.", "reasoning_content": "hm"}
    assert written_text([given, USER, said, tool, {"role": "assistant", "content": "4."}]) == (
        "<think>hm</think>It is 4.\n\n4."
    )
    assert not is_thought_and_text([given])
    assert not is_thought_and_text([said, tool, said])


def test_calls_and_endings_are_counted_and_nothing_is_said_of_others() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [CALLED]}
    said = {"role": "assistant", "content": "4"}
    refused = {"role": "assistant", "content": "", "refusal": "no"}
    ends = [
        ([call, said], "stop", "4"),
        ([call], None, ""),
        ([], "SAFETY", ""),
        ([refused], "stop", None),
        ([], None, ""),
    ]
    told = [(messages, no_answer(messages, reason, text)) for messages, reason, text in ends]
    assert message_notes(told) == [
        "2 of 5 responses call tools: a call counts as written, what it returned does not",
        "3 of 5 responses hold no answer: 1 ended in a call of a tool, 1 cut by a filter, 1 refused",
    ]
    # A text that a filter cut may have an answer, as one that ended at a limit.
    for reason in ("content_filter", "length", "stop"):
        assert no_answer([said], reason, "4") is None
    assert message_notes([([said], None), ([], None)]) == []
