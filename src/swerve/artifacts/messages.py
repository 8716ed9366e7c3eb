"""Messages after a prompt (`Response.turns`): which of them the model wrote, and what it wrote in them.

A message is `{role, content}`, with `reasoning_content`, `tool_calls` (`{id, name, arguments}`), `refusal`,
`tool_call_id` and `name` where there are some, and `given: true` where it has the model's role and came from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swerve.artifacts.files import parse_json

Message = Mapping[str, Any]
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Where a message, a part of one or a record has what the model thought before it answered."""
_OF_THOUGHTS = frozenset(("thinking", "reasoning", "reasoning_text", "summary_text", "thought"))
"""Types of parts whose text is one."""
_FILTERED = frozenset(("content_filter", "content_filtered", "safety", "prohibited_content", "blocklist", "recitation"))
_CALLED = frozenset(("tool_calls", "tool_use", "function_call"))


def read_message(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a message as OpenAI, Anthropic, Inspect, verifiers or a server writes it, and what of it is not kept.

    Args:
        given: `{role, content, ...}`, whose content is a text, null, or a list of texts and parts.

    Returns:
        The message, and the types of parts that are neither text, thought, refusal nor call, such as images.

    Raises:
        ValueError: a call is not one.

    >>> read_message({"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "image"}]})
    ({'role': 'user', 'content': '2'}, ['image'])
    """
    # What stands beside the content, then the parts of the content.
    calls = [*_listed(given.get("tool_calls")), *_listed(given.get("function_call"))]
    refusals = [given["refusal"]] if isinstance(given.get("refusal"), str) else []
    thoughts = [given[name] for name in THOUGHTS if isinstance(given.get(name), str)]
    texts, results, others = list[str](), list[Message](), list[str]()
    for part in _listed(given.get("content")):
        own = part if isinstance(part, dict) else {"text": part}
        kind, text = own.get("type"), own.get("text")
        thought = next((own[name] for name in THOUGHTS if own.get(name)), None)
        if isinstance(text, str):
            (thoughts if kind in _OF_THOUGHTS or own.get("thought") is True else texts).append(text)
        elif isinstance(own.get("refusal"), str):
            refusals.append(own["refusal"])
        elif kind == "tool_use":
            calls.append({"id": own.get("id"), "name": own.get("name"), "arguments": own.get("input")})
        elif kind == "tool_result":
            results.append(own)
            texts.append(read_message({"role": "tool", "content": own.get("content")})[0]["content"])
        elif isinstance(thought, str) and not own.get("redacted"):
            thoughts.append(thought)
        else:
            others.append(str(kind))
    # All but the first two only where there is something.
    text = ("\n\n" if results else "").join(texts)
    first = results[0] if results else {}
    message = {
        "role": "tool" if results else given["role"],
        "content": text,
        "tool_calls": list(map(_tool_call, calls)),
        "tool_call_id": given.get("tool_call_id") or first.get("tool_use_id"),
        "name": given.get("name") or given.get("function"),
        "reasoning_content": apart_from("\n\n".join(filter(None, dict.fromkeys(thoughts))), text),
        "refusal": "\n\n".join(dict.fromkeys(refusals)),
    }
    return {name: value for name, value in message.items() if value or name in ("role", "content")}, others


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _tool_call(value: Any) -> dict[str, Any]:
    """Return a call, perhaps JSON in a text, as `{id, name, arguments}`, whose arguments are JSON text.

    >>> _tool_call({"id": "1", "function": "add", "arguments": {"a": 2}})
    {'id': '1', 'name': 'add', 'arguments': '{"a": 2}'}
    """
    call = parse_json(value) if isinstance(value, str) else value
    if not isinstance(call, dict):
        raise ValueError(f"a call of a tool is an object with a name and arguments, not {str(value)[:40]!r}")
    function = call.get("function")
    inner = {**call, **function} if isinstance(function, dict) else {"name": function, **call}
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call.get("id"), "name": inner.get("name"), "arguments": text}


def apart_from(thought: str, text: str) -> str:
    """Return a thought that is not in the text beside it; empty where the text has it within marks.

    >>> apart_from("2 + 2", "It is 4."), apart_from("2 + 2", "<think>2 + 2</think>It is 4.")
    ('2 + 2', '')
    """
    marked = rf"[>\]▷]\s*{re.escape(thought.strip())}\s*(?:</|\[/|◁/|<\|)"
    return "" if thought and re.search(marked, text) else thought


def is_written(message: Message) -> bool:
    """Whether the model wrote a message."""
    return message["role"] == "assistant" and not message.get("given")


def written_text(messages: Sequence[Message]) -> str:
    """Return all that the model wrote in messages, thoughts and calls within marks, an empty line between two messages.

    >>> written_text([{"role": "assistant", "content": "It is 4.", "reasoning_content": "2 + 2"}])
    '<think>2 + 2</think>It is 4.'
    """
    return "\n\n".join(filter(None, map(_written, filter(is_written, messages))))


def _written(message: Message) -> str:
    thought, calls = message.get("reasoning_content"), message.get("tool_calls", ())
    said = [message["content"], message.get("refusal", "")]
    said += [f"<tool_call>{call['name']} {call['arguments']}</tool_call>" for call in calls]
    after = "\n".join(filter(None, said))
    return f"<think>{thought}{'</think>' if after else ''}{after}" if thought else after


def is_thought_and_text(messages: Sequence[Message]) -> bool:
    """Whether messages are one that the model wrote, of a thought and a text and nothing else."""
    known = {"role", "content", "reasoning_content"}
    return len(messages) == 1 and is_written(messages[0]) and messages[0].keys() <= known


def no_answer(messages: Sequence[Message], finish_reason: str | None) -> str | None:
    """Return why a response ends without an answer, in words; None: it may have one.

    >>> no_answer([], "content_filter"), no_answer([], "stop")
    ('cut by a filter', None)
    """
    last = messages[-1] if messages else {}
    reason = (finish_reason or "").lower()
    if last.get("refusal") or reason == "refusal":
        return "refused"
    if reason in _FILTERED:
        return "cut by a filter"
    return "ended in a call of a tool" if last.get("tool_calls") or reason in _CALLED else None


def message_notes(told: Iterable[tuple[Sequence[Message], str | None]]) -> list[str]:
    """Return what a reader should know of responses, each its messages and finish reason: calls, and no answer.

    >>> message_notes([([], "content_filter"), ([], "stop")])
    ['1 of 2 responses hold no answer: 1 cut by a filter']
    """
    num = num_calls = 0
    endings = Counter[str]()
    for messages, finish_reason in told:
        num += 1
        num_calls += any("tool_calls" in message for message in messages)
        endings.update(filter(None, [no_answer(messages, finish_reason)]))
    notes = []
    if num_calls:
        notes.append(f"{num_calls} of {num} responses call tools: a call counts as written, what it returned does not")
    if endings:
        reasons = ", ".join(f"{count} {reason}" for reason, count in endings.most_common())
        notes.append(f"{endings.total()} of {num} responses hold no answer: {reasons}")
    return notes
