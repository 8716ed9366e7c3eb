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
    thoughts = [said for name in (*THOUGHTS, "reasoning_details") if (said := _text_of(given.get(name)))]
    texts, results, others = list[str](), list[Message](), list[str]()
    for part in _listed(given.get("content")):
        own = part if isinstance(part, dict) else {"text": part}
        kind, text = own.get("type"), own.get("text")
        thought = next((said for name in THOUGHTS if (said := _text_of(own.get(name)))), None)
        if isinstance(text, str):
            (thoughts if kind in _OF_THOUGHTS or own.get("thought") is True else texts).append(text)
        elif isinstance(own.get("refusal"), str):
            refusals.append(own["refusal"])
        elif kind == "tool_use":
            calls.append({"id": own.get("id"), "name": own.get("name"), "arguments": own.get("input")})
        elif kind == "tool_result":
            results.append(own)
            texts.append(read_message({"role": "tool", "content": own.get("content")})[0]["content"])
        elif thought and not own.get("redacted"):
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


def _text_of(value: Any) -> str:
    """Return a text, or those of a list of parts together; empty where it is neither.

    >>> _text_of([{"type": "text", "text": "2 + "}, {"type": "text", "text": "2"}]), _text_of({"effort": "low"})
    ('2 + 2', '')
    """
    parts = [part.get("text") if isinstance(part, dict) else part for part in _listed(value)]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else ""


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


def no_answer(messages: Sequence[Message], finish_reason: str | None, text: str | None) -> str | None:
    """Return why a response ends without an answer, in words; None: it may have one, as a text that a filter cut may.

    >>> no_answer([], "content_filter", ""), no_answer([], "content_filter", "It is 4"), no_answer([], "stop", "")
    ('cut by a filter', None, None)
    """
    last = messages[-1] if messages else {}
    reason, is_empty = (finish_reason or "").lower(), not (text or "").strip()
    if is_empty and (last.get("refusal") or reason == "refusal"):
        return "refused"
    if is_empty and reason in _FILTERED:
        return "cut by a filter"
    return "ended in a call of a tool" if last.get("tool_calls") or reason in _CALLED else None


def calls_tools(messages: Sequence[Message]) -> bool:
    """Whether the model called a tool in messages."""
    return any("tool_calls" in message for message in messages)


def message_notes(told: Iterable[tuple[Sequence[Message], str | None]]) -> list[str]:
    """Return what a reader should know of responses, each its messages and `no_answer`: calls, and no answer.

    >>> message_notes([([], "cut by a filter"), ([], None)])
    ['1 of 2 responses hold no answer: 1 cut by a filter']
    """
    num = num_calls = 0
    endings = Counter[str]()
    for messages, reason in told:
        num += 1
        num_calls += calls_tools(messages)
        endings.update(filter(None, [reason]))
    notes = [calls_said(num_calls, num)] if num_calls else []
    if endings:
        reasons = ", ".join(f"{count} {reason}" for reason, count in endings.most_common())
        notes.append(f"{endings.total()} of {num} responses hold no answer: {reasons}")
    return notes


def calls_said(num_calls: int, num: int) -> str:
    """Return in words how many of so many responses call tools."""
    return f"{num_calls} of {num} responses call tools: a call counts as written, what it returned does not"
