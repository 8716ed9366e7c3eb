"""Conversations of other programs: one record of a message with its tokens, from which the fields of a response come.

A reader of a layout makes a `Turn` of each message (`read_turn`) and yields `conversation_fields` of them; the layout's
table of names has `CONVERSATION`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.typed_fields import Names, shown

CONVERSATION: Names = {
    name: (name,)
    for name in (
        *("messages", "response", "turns", "prompt_ids", "completion_ids", "sampled", "logprobs", "parts"),
        *("id", "problem", "gold", "correct", "reward", "extracted", "sample", "step", "label", "finish_reason"),
    )
}
"""Names under which a reader of conversations yields what is read."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Where a message, or a part of it, has what the model thought before it answered."""
_LOST_IN_PROMPTS = {"tool_calls": "tool calls in prompts", "reasoning_content": "reasoning in prompts"}
"""What the messages of a prompt, which are role and text, cannot keep -> what it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message of a conversation and what is known of its tokens."""

    message: Mapping[str, Any]
    """`{role, content}`, content a text, and what else `Response.turns` has of a message."""
    sampled: bool
    """Whether the model wrote it."""
    token_ids: Sequence[int] = ()
    """Ids that it adds to the conversation, the template's before it included; empty: not known."""
    mask: Sequence[bool] = ()
    """Of each id, whether the model sampled it; empty: all or none, as `sampled` says."""
    logprobs: Sequence[float | None] = ()
    """Of each id, nats, None where it was not sampled; empty: not known."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Parts of its content that are not text, such as images, by their type."""


def read_turn(value: Any, place: str, *, sampled: bool | None = None, **tokens: Any) -> Turn:
    """Return a message as OpenAI, Inspect, verifiers or TRL write it.

    Args:
        value: `{role, content, ...}` or `[role, text]`; the content is a text, null, or a list of parts.
        place: where it is, for messages.
        sampled: whether the model wrote it; None: if its role is `assistant`.
        tokens: what is known of its tokens, fields of `Turn`.

    Raises:
        ArtifactError: it is not a message.

    >>> read_turn({"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "image"}]}, "line 1").dropped
    Counter({'image': 1})
    """
    given = dict(zip(("role", "content"), value, strict=False)) if isinstance(value, list) else value
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ArtifactError(f"{place} must be a list of messages {{role, content}}, got {shown(value)}")
    # The content: texts, thoughts and parts of other types, which cannot be kept.
    content = given.get("content")
    texts: list[str] = []
    thoughts = [thought for name in _THOUGHTS if isinstance(thought := given.get(name), str) and thought][:1]
    dropped: Counter[str] = Counter()
    for part in content if isinstance(content, list) else [content]:
        inner = part if isinstance(part, dict) else {"text": part}
        thought = next((inner[name] for name in _THOUGHTS if isinstance(inner.get(name), str)), None)
        text = inner.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif thought is not None:
            thoughts.append(thought)
        elif part is not None:
            dropped[str(inner.get("type", "unknown"))] += 1
    # What a message of `Response.turns` may have beside it.
    calls = given.get("tool_calls")
    tool = given.get("name") or (given.get("function") if given["role"] == "tool" else None)
    more = {
        "tool_calls": [_tool_call(call, place) for call in calls] if isinstance(calls, list) else None,
        "tool_call_id": given.get("tool_call_id"),
        "name": tool,
        "reasoning_content": "\n\n".join(thoughts),
    }
    message = {"role": given["role"], "content": "".join(texts), **{name: said for name, said in more.items() if said}}
    is_sampled = given["role"] == "assistant" if sampled is None else sampled
    return Turn(message=message, sampled=is_sampled, dropped=dropped, **tokens)


def text_turn(text: str) -> Turn:
    """Return a text that the model wrote as a turn."""
    return Turn(message={"role": "assistant", "content": text}, sampled=True)


def read_turns(value: Any, place: str) -> list[Turn]:
    """Return a list of messages as turns; see `read_turn`."""
    if not isinstance(value, list) or not value:
        raise ArtifactError(f"{place} must be a list of messages {{role, content}}, got {shown(value)}")
    return [read_turn(message, place) for message in value]


def _tool_call(value: Any, place: str) -> dict[str, Any]:
    """Return a call as `{id, name, arguments}`, whose arguments are JSON text.

    >>> _tool_call({"id": "1", "function": {"name": "add", "arguments": "{}"}}, "line 1")
    {'id': '1', 'name': 'add', 'arguments': '{}'}
    """
    call = value
    if isinstance(value, str):  # JSON within JSON
        try:
            call = json.loads(value)
        except (ValueError, RecursionError):
            call = None
    if not isinstance(call, dict):
        raise ArtifactError(f"{place}: a tool call must be an object, got {shown(value)}")
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else inner.get("name")
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call.get("id"), "name": name, "arguments": text}


def conversation_fields(turns: Sequence[Turn], place: str) -> dict[str, Any]:
    """Return what is read of a conversation under the names of `CONVERSATION`, and what stays beside it.

    The prompt is all before the first message that the model wrote, the response all from there to its last one.

    Raises:
        NoResponseError: the model wrote none.
    """
    written = [number for number, turn in enumerate(turns) if turn.sampled]
    if not written:
        raise NoResponseError(f"{place} has no message that the model wrote")
    prompt, later = turns[: written[0]], turns[written[-1] + 1 :]
    answer = turns[written[0] : written[-1] + 1]
    texts = [turn.message["content"] for turn in answer if turn.sampled]
    is_one_text = len(answer) == 1 and answer[0].message.keys() == {"role", "content"}
    # What the table has no room for is counted.
    dropped = Counter(what for turn in prompt for name, what in _LOST_IN_PROMPTS.items() if name in turn.message)
    for turn in turns:
        dropped.update(turn.dropped)
    return {
        "messages": [[turn.message["role"], turn.message["content"]] for turn in prompt] or None,
        "response": "\n\n".join(filter(None, texts)),
        "turns": None if is_one_text else [turn.message for turn in answer],
        "later_messages": [[turn.message["role"], turn.message["content"]] for turn in later] or None,
        "dropped": dict(dropped) or None,
        **_token_fields(prompt, answer),
    }


def _token_fields(prompt: Sequence[Turn], answer: Sequence[Turn]) -> dict[str, Any]:
    """Return the ids of prompt and response with their mask and log-probabilities; nothing where they lack some."""
    if not all(turn.token_ids for turn in answer if turn.sampled):
        return dict.fromkeys(("prompt_ids", "completion_ids", "sampled", "logprobs"))
    before = [token for turn in prompt for token in turn.token_ids]
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float | None] = []
    for turn in answer:
        ids += turn.token_ids
        mask += turn.mask or [turn.sampled] * len(turn.token_ids)
        logprobs += turn.logprobs or [None] * len(turn.token_ids)
    # The template's tokens before the model's first belong to the prompt; those after its last are cut.
    start, end = mask.index(True), len(mask) - mask[::-1].index(True)
    is_known = any(logprob is not None for logprob in logprobs)
    return {
        "prompt_ids": before + ids[:start],
        "completion_ids": ids[start:end],
        "sampled": None if all(mask[start:end]) else mask[start:end],
        "logprobs": logprobs[start:end] if is_known else None,
    }
